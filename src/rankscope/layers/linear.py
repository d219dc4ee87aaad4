"""A linear layer whose weight is kept as small cores, and what layers made of several need."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from rankscope.diagrams.network import Network, Step
from rankscope.diagrams.parts import Index
from rankscope.errors import LayerError
from rankscope.layers.cores import CoreStore, checked_cores, random_cores
from rankscope.layers.factorized import FactorizedLayer
from rankscope.layers.formats.format import Cores, Format, Ranks, WeightShape, Window
from rankscope.layers.formats.plain import DENSE
from rankscope.layers.layer_diagram import layer_steps, row_indices

_NO_WINDOW = Window()


class FactorizedLinear(FactorizedLayer):
    """Used like `nn.Linear`; its weight is what the format makes of the cores.

    Args:
        in_features: of the inputs (..., in_features).
        out_features: of the outputs (..., out_features).
        format: how the weight is written.
        ranks: of the format.
        bias: whether there is one.
        device: of the parameters.
        dtype: of the parameters.

    Attributes:
        path: how outputs are computed; None lets the cost model choose for each batch.

    Example:
        >>> from rankscope.layers.formats.catalogue import FORMATS
        >>> FactorizedLinear.from_dense(nn.Linear(100, 50), FORMATS["svd"], (4,))
        FactorizedLinear(
          100 -> 50, bias=True, svd at ranks (4,): 600 of 5,000 weights (12.0 %)
          (cores): CoreStore(right (4, 100), left (50, 4))
        )

    Raises:
        LayerError: if the format refuses the shape, or the ranks do not fit.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        format: Format,
        ranks: Ranks,
        *,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        shape = WeightShape(out_features, in_features)
        cores = random_cores(format, shape, ranks, device=device, dtype=dtype)
        start = torch.empty(out_features, device=device, dtype=dtype) if bias else None
        if start is not None:
            nn.init.uniform_(start, -(in_features**-0.5), in_features**-0.5)
        super().__init__(format, ranks, shape, _NO_WINDOW, cores, start)

    @classmethod
    def from_dense(
        cls, linear: nn.Linear, format: Format, ranks: Ranks, *, seed: int = 0
    ) -> "FactorizedLinear":
        """Decompose the weight of a layer; its bias is copied.

        Raises:
            LayerError: if the format refuses the shape, or the ranks do not fit.
            DecompositionError: if the weight is not finite.
        """
        shape = WeightShape.of(linear.weight)
        format.check(shape, ranks)
        cores = format.decompose(linear.weight.detach(), ranks, seed=seed)
        return cls.from_cores(cores, shape, format, ranks, bias=linear.bias).train(linear.training)

    @classmethod
    def from_cores(
        cls,
        cores: Cores,
        shape: WeightShape,
        format: Format,
        ranks: Ranks,
        *,
        bias: Tensor | None = None,
    ) -> "FactorizedLinear":
        """A layer with given cores, which are copied.

        Raises:
            LayerError: if the weight is no matrix, or cores or bias do not have the right shapes.
        """
        if shape.kernel:
            raise LayerError(f"FactorizedLinear needs a matrix, got a weight {shape.sizes}.")
        if bias is not None and tuple(bias.shape) != (shape.out_size,):
            raise LayerError(
                f"FactorizedLinear: a bias for {shape.out_size} outputs is needed, "
                f"got one of shape {tuple(bias.shape)}."
            )
        checked = checked_cores(format, shape, ranks, cores)
        # On "meta" nothing is allocated or drawn at random before the parameters are replaced.
        layer = cls(shape.in_size, shape.out_size, format, ranks, bias=False, device="meta")
        layer.cores = CoreStore(checked)
        layer.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        return layer

    @property
    def in_features(self) -> int:
        """Of the inputs."""
        return self.shape.in_size

    @property
    def out_features(self) -> int:
        """Of the outputs."""
        return self.shape.out_size

    def forward(self, inputs: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        return self.outputs(inputs)

    def to_dense(self) -> nn.Linear:
        """The linear layer that it stands for, by one einsum over the cores."""
        weight = self.rebuilt().detach()
        linear = nn.Linear(
            self.in_features, self.out_features, self.bias is not None, device="meta"
        )
        linear.weight = nn.Parameter(weight)
        if self.bias is not None:
            linear.bias = nn.Parameter(self.bias.detach().clone())
        return linear.train(self.training)

    def diagram(self, *rows: int) -> Network:
        """The layer on inputs `x` (*rows, in_features); arrays are named as parameters are."""
        return Network("linear", linear_steps("y", self, "x", rows=row_indices(rows)))

    def extra_repr(self) -> str:
        """Sizes, format, ranks, and what is kept."""
        kept, whole = self.cores.num_parameters, self.shape.num_parameters
        return (
            f"{self.in_features} -> {self.out_features}, bias={self.bias is not None}, "
            f"{self.format.name} at ranks {self.ranks}: "
            f"{kept:,} of {whole:,} weights ({100 * kept / whole:.1f} %)"
        )


LinearLayer = nn.Linear | FactorizedLinear


def linear_of(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A linear layer with copies of a weight and a bias."""
    # On "meta" nothing is allocated or drawn at random before the parameters are replaced.
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    linear.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        linear.bias = nn.Parameter(bias.detach().clone())
    return linear


def dense_linear(module: LinearLayer) -> nn.Linear:
    """The dense layer that a linear layer, dense or factorized, stands for."""
    return module if isinstance(module, nn.Linear) else module.to_dense()


def check_names(who: str, given: Mapping[str, object], known: tuple[str, ...]) -> None:
    """Refuse a choice for a weight that there is not.

    Raises:
        LayerError: with the first unknown name.
    """
    for name in given:
        if name not in known:
            raise LayerError(f"{who} has no weight {name!r}; choose among {', '.join(known)}.")


def prepared(module: LinearLayer) -> Callable[[Tensor], Tensor]:
    """The layer as a function that reads its cores once for all steps, and never builds them."""
    if isinstance(module, nn.Linear):
        return module
    cores, bias = module.cores.tensors(), module.bias

    def apply(inputs: Tensor) -> Tensor:
        outputs = module.format.apply(inputs, cores, module.shape, _NO_WINDOW)
        return outputs if bias is None else outputs + bias

    return apply


def linear_steps(
    name: str, layer: LinearLayer, source: str, *, rows: tuple[Index, ...] = (), prefix: str = ""
) -> tuple[Step, ...]:
    """A linear layer, dense or factorized, as steps of a network of diagrams.

    Args:
        name: of the array that the last step makes, (*rows, out_features).
        layer: whose cores, or whose weight, are drawn.
        source: array of the inputs, (*rows, in_features).
        rows: the indices of the inputs besides their features.
        prefix: of the layer's arrays, which are named as its parameters are.
    """
    if isinstance(layer, nn.Linear):
        chain = DENSE.chain(WeightShape.of(layer.weight), (), _NO_WINDOW, ())
        cores = prefix
    else:
        chain = layer.format.chain(layer.shape, layer.ranks, _NO_WINDOW, ())
        cores = f"{prefix}cores."
    bias = None if layer.bias is None else f"{prefix}bias"
    return layer_steps(name, chain, source, rows=rows, prefix=cores, bias=bias)
