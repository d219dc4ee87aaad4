"""The matrices of `nn.LSTM` and `nn.GRU`, as linear layers of their own."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from rankscope.layers.linear_layers import LinearLayer, linear_of

Weights = Mapping[str, LinearLayer]


@dataclass(frozen=True)
class RecurrentSettings:
    """What a recurrent layer is besides its weights; names are those of `nn.LSTM`.

    Example:
        >>> RecurrentSettings(3, 4, bidirectional=True).weight_names
        ('weight_ih_l0', 'weight_hh_l0', 'weight_ih_l0_reverse', 'weight_hh_l0_reverse')
    """

    input_size: int
    hidden_size: int
    num_layers: int = 1
    bias: bool = True
    batch_first: bool = False
    dropout: float = 0.0
    bidirectional: bool = False
    proj_size: int = 0

    @classmethod
    def of(cls, dense: nn.RNNBase) -> "RecurrentSettings":
        """Those of a dense layer."""
        return cls(
            dense.input_size,
            dense.hidden_size,
            dense.num_layers,
            dense.bias,
            dense.batch_first,
            float(dense.dropout),
            dense.bidirectional,
            dense.proj_size,
        )

    @property
    def num_directions(self) -> int:
        """One, or two if it also runs backwards."""
        return 2 if self.bidirectional else 1

    @property
    def out_size(self) -> int:
        """Of the outputs of one direction, and of the hidden state."""
        return self.proj_size or self.hidden_size

    @property
    def weight_names(self) -> tuple[str, ...]:
        """Of all matrices, in PyTorch's order."""
        kinds = ("ih", "hh", "hr") if self.proj_size else ("ih", "hh")
        return tuple(f"weight_{kind}_{suffix}" for suffix, _ in self.runs() for kind in kinds)

    def runs(self) -> Iterator[tuple[str, bool]]:
        """The end of the names of each layer and direction, and whether it runs backwards."""
        for layer in range(self.num_layers):
            yield f"l{layer}", False
            if self.bidirectional:
                yield f"l{layer}_reverse", True


def split_weights(dense: nn.RNNBase) -> dict[str, nn.Linear]:
    """The matrices of a recurrent layer as linear layers with copies of its weights and biases.

    Example:
        >>> {
        ...     name: tuple(linear.weight.shape)
        ...     for name, linear in split_weights(nn.GRU(2, 5)).items()
        ... }
        {'weight_ih_l0': (15, 2), 'weight_hh_l0': (15, 5)}
    """
    return {
        name: linear_of(getattr(dense, name), getattr(dense, _bias_name(name), None))
        for name in RecurrentSettings.of(dense).weight_names
    }


def flat_weights(
    weights: Mapping[str, Tensor], biases: Mapping[str, Tensor | None]
) -> list[Tensor]:
    """Weights and biases in the order of PyTorch's fused layers, from names of weights."""
    flat: list[Tensor] = []
    for name, weight in weights.items():
        if "_ih_" in name:
            partner = name.replace("_ih_", "_hh_")
            both = (biases[name], biases[partner])
            flat += [weight, weights[partner], *(bias for bias in both if bias is not None)]
        elif "_hr_" in name:
            flat.append(weight)
    return flat


def dense_state(linears: Mapping[str, nn.Linear]) -> dict[str, Tensor]:
    """The state of the dense layer with copies of these matrices and biases."""
    state = {name: linear.weight.detach().clone() for name, linear in linears.items()}
    for name, linear in linears.items():
        if linear.bias is not None:
            state[_bias_name(name)] = linear.bias.detach().clone()
    return state


def _bias_name(name: str) -> str:
    return name.replace("weight_", "bias_")
