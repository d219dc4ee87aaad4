"""LSTM and GRU whose matrices are linear layers of their own, dense or factorized."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from rankscope.diagrams.network import Network
from rankscope.errors import LayerError
from rankscope.factorize.formats.format import Format, Ranks
from rankscope.factorize.linear import (
    FactorizedLinear,
    LinearLayer,
    check_names,
    dense_linear,
    linear_of,
    prepared,
)
from rankscope.factorize.paths import MergedWeight, Path, wants_gradients
from rankscope.factorize.recurrent_steps import (
    CellStep,
    State,
    Weights,
    gru_network,
    gru_step,
    lstm_network,
    lstm_step,
    scan,
)

Sequences = Tensor | PackedSequence


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
        """Read the settings of a dense layer."""
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
        """Size of the outputs of one direction, and of the hidden state."""
        return self.proj_size or self.hidden_size

    @property
    def weight_names(self) -> tuple[str, ...]:
        """Names of all matrices, in PyTorch's order."""
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


class FactorizedRecurrent(nn.Module, ABC):
    """A recurrent layer with each matrix dense or factorized; it is called as PyTorch's own.

    Every input-to-hidden matrix is applied to the whole sequence at once; then a loop over time
    takes one step after the other.

    Args:
        weights: linear layers by the names that PyTorch gives to the matrices (`weight_ih_l0`).
        settings: sizes, directions and layout.
        path: `Path.CHAIN` never builds a matrix. `Path.MERGED` builds all of them and calls
            PyTorch's fused layer; they are kept until a core changes, or built anew in each call
            if a core wants gradients (`Path.REBUILT` always does).
    """

    dense_class: ClassVar[type[nn.LSTM] | type[nn.GRU]]

    def __init__(
        self, weights: Weights, settings: RecurrentSettings, path: Path = Path.CHAIN
    ) -> None:
        super().__init__()
        self.settings = settings
        # What models that hold an `nn.LSTM` ask it for.
        self.input_size, self.hidden_size = settings.input_size, settings.hidden_size
        self.num_layers, self.bidirectional = settings.num_layers, settings.bidirectional
        self.batch_first = settings.batch_first
        self.path = path
        self.weights = nn.ModuleDict({name: weights[name] for name in settings.weight_names})
        self._merged = {name: MergedWeight() for name in settings.weight_names}

    @classmethod
    def of(
        cls, dense: nn.RNNBase, weights: Weights | None = None, *, path: Path = Path.CHAIN
    ) -> "FactorizedRecurrent":
        """The same layer with some matrices replaced; the others are dense copies.

        Raises:
            LayerError: if it is of another class, or a name is none of its matrices.
        """
        if not isinstance(dense, cls.dense_class):
            raise LayerError(
                f"{cls.__name__} needs an nn.{cls.dense_class.__name__}, "
                f"got {type(dense).__name__}."
            )
        settings, given = RecurrentSettings.of(dense), dict(weights or {})
        check_names(cls.__name__, given, settings.weight_names)
        own = cls({**split_weights(dense), **given}, settings, path)
        return own.train(dense.training)

    @classmethod
    def from_dense(
        cls,
        dense: nn.RNNBase,
        choices: Mapping[str, tuple[Format, Ranks]],
        *,
        path: Path = Path.CHAIN,
        seed: int = 0,
    ) -> "FactorizedRecurrent":
        """Decompose the matrices that are named; the others stay dense.

        Args:
            dense: the layer, left as it is.
            choices: format and ranks by the name of the matrix.
            path: how outputs are computed.
            seed: for formats whose decomposition starts at random.

        Raises:
            LayerError: if it is of another class, a name is none of its matrices, or a format does
                not take a matrix.
        """
        own = cls.of(dense, path=path)
        check_names(cls.__name__, choices, own.settings.weight_names)
        for name, (format, ranks) in choices.items():
            linear = dense_linear(own.weight(name))
            own.weights[name] = FactorizedLinear.from_dense(linear, format, ranks, seed=seed)
        return own.train(dense.training)

    def weights_of(self, suffix: str) -> dict[str, LinearLayer]:
        """The linear layers of one layer and direction.

        Raises:
            LayerError: if there is no such layer or direction.
        """
        known = [each for each, _ in self.settings.runs()]
        if suffix not in known:
            raise LayerError(
                f"{type(self).__name__} has no layer {suffix!r}; choose among {', '.join(known)}."
            )
        ends = f"_{suffix}"
        return {name: self.weight(name) for name in self.weights if name.endswith(ends)}

    def weight(self, name: str) -> LinearLayer:
        """The linear layer that holds a matrix, and its bias."""
        return cast(LinearLayer, self.weights[name])

    def to_dense(self) -> nn.RNNBase:
        """The dense layer that this one stands for."""
        linears = {name: dense_linear(self.weight(name)) for name in self.weights}
        own = self.settings
        names = ("num_layers", "bias", "batch_first", "dropout", "bidirectional")
        options = {name: getattr(own, name) for name in names}
        if own.proj_size:
            options["proj_size"] = own.proj_size
        dense = self.dense_class(own.input_size, own.hidden_size, **options, device="meta")
        dense.load_state_dict(dense_state(linears), assign=True)
        return dense.train(self.training)

    def quantize(self, bits: int) -> None:
        """Store the cores of every factorized matrix with 8 or 4 bits each."""
        for name in self.weights:
            module = self.weight(name)
            if isinstance(module, FactorizedLinear):
                module.quantize(bits)

    def flatten_parameters(self) -> None:
        """Nothing to do; callers of `nn.LSTM` expect it."""

    def extra_repr(self) -> str:
        return f"{self.settings}, path={self.path}"

    @abstractmethod
    def diagram(self, suffix: str = "l0") -> Network:
        """One step of one layer and direction; arrays are named as parameters are.

        Args:
            suffix: which one, as in the names of its weights ("l1_reverse").

        Raises:
            LayerError: if there is no such layer or direction.
        """

    @property
    @abstractmethod
    def _state_sizes(self) -> tuple[int, ...]:
        """Features of each part of the state; the first part is the outputs."""

    @abstractmethod
    def _step(self, suffix: str) -> CellStep:
        """The step of one layer and direction."""

    @abstractmethod
    def _kernel(self) -> Callable[..., Any]:
        """PyTorch's own kernel for all layers."""

    def _run(self, inputs: Sequences, state: State | None) -> tuple[Sequences, State]:
        """Outputs and last state, in the layout of the inputs."""
        if isinstance(inputs, PackedSequence):
            return self._run_packed(inputs, state)
        self._check(inputs)
        sequence = inputs
        if inputs.dim() == 2:
            sequence = inputs[:, None]
            state = None if state is None else tuple(part[:, None] for part in state)
        elif self.settings.batch_first:
            sequence = inputs.transpose(0, 1)
        start = self._start(state, sequence)
        if self.path is Path.CHAIN:
            outputs, last = self._layers(sequence, start, None)
        else:
            outputs, last = self._fused((sequence,), start, (False,))
        if inputs.dim() == 2:
            return outputs[:, 0], tuple(part[:, 0] for part in last)
        return outputs.transpose(0, 1) if self.settings.batch_first else outputs, last

    def _run_packed(
        self, inputs: PackedSequence, state: State | None
    ) -> tuple[PackedSequence, State]:
        """Samples of several lengths; inside, they are sorted as they were packed."""
        data, batch_sizes, order, back = inputs
        sequence, lengths = pad_packed_sequence(PackedSequence(data, batch_sizes))
        if state is not None and order is not None:
            state = tuple(part.index_select(1, order) for part in state)
        start = self._start(state, sequence)
        if self.path is Path.CHAIN:
            padded, last = self._layers(sequence, start, lengths.to(data.device))
            outputs = pack_padded_sequence(padded, lengths).data
        else:
            outputs, last = self._fused((data, batch_sizes), start, ())
        if back is not None:
            last = tuple(part.index_select(1, back) for part in last)
        return PackedSequence(outputs, batch_sizes, order, back), last

    def _layers(
        self, sequence: Tensor, state: State, lengths: Tensor | None
    ) -> tuple[Tensor, State]:
        """Layer after layer on (time, batch, features), without building a matrix."""
        last: list[State] = []
        outputs: list[Tensor] = []
        for place, (suffix, is_reverse) in enumerate(self.settings.runs()):
            if place and place % self.settings.num_directions == 0:
                joined = torch.cat(outputs, -1)
                sequence = functional.dropout(joined, self.settings.dropout, self.training)
                outputs = []
            made, final = scan(
                self._step(suffix),
                self.weights[f"weight_ih_{suffix}"](sequence),
                tuple(part[place] for part in state),
                is_reverse=is_reverse,
                lengths=lengths,
            )
            outputs.append(made)
            last.append(final)
        return torch.cat(outputs, -1), tuple(map(torch.stack, zip(*last, strict=True)))

    def _fused(
        self, inputs: tuple[Tensor, ...], state: State, layout: tuple[bool, ...]
    ) -> tuple[Tensor, State]:
        """All layers by PyTorch's kernel, from matrices that are built."""
        weights = {name: self._built(name) for name in self.weights}
        biases = {name: self.weight(name).bias for name in self.weights}
        own = self.settings
        kernel = self._kernel()
        if torch.compiler.is_dynamo_compiling():
            # As of `nn.LSTM`: compiled, the kernel could not save what its backward pass needs.
            kernel = torch.compiler.disable(kernel)  # type: ignore[no-untyped-call]
        outputs, *last = kernel(
            *inputs,
            state if len(state) > 1 else state[0],
            flat_weights(weights, biases),
            own.bias,
            own.num_layers,
            own.dropout,
            self.training,
            own.bidirectional,
            *layout,
        )
        return outputs, tuple(last)

    def _built(self, name: str) -> Tensor:
        module = self.weight(name)
        if isinstance(module, nn.Linear):
            return module.weight
        cores = module.cores.tensors()
        if self.path is Path.REBUILT or wants_gradients(cores.values()):
            return module.format.to_dense(cores, module.shape)
        stored = (*module.cores.parameters(), *module.cores.buffers())
        return self._merged[name].of(stored, lambda: module.format.to_dense(cores, module.shape))

    def _check(self, inputs: Tensor) -> None:
        layout = "batch, time" if self.settings.batch_first else "time, batch"
        wanted = f"({layout}, {self.settings.input_size}), or (time, {self.settings.input_size})"
        if inputs.dim() not in (2, 3) or inputs.shape[-1] != self.settings.input_size:
            raise LayerError(
                f"{type(self).__name__} takes inputs {wanted}, got shape {tuple(inputs.shape)}."
            )
        if inputs.shape[1 if inputs.dim() == 3 and self.settings.batch_first else 0] == 0:
            raise LayerError(
                f"{type(self).__name__} needs at least 1 step in time, got inputs {wanted} of "
                f"shape {tuple(inputs.shape)}."
            )

    def _start(self, state: State | None, sequence: Tensor) -> State:
        """The given state if it fits, or zeros."""
        runs = self.settings.num_layers * self.settings.num_directions
        wanted = [(runs, sequence.shape[1], size) for size in self._state_sizes]
        if state is None:
            return tuple(sequence.new_zeros(shape) for shape in wanted)
        given = [tuple(part.shape) for part in state]
        if given != wanted:
            raise LayerError(
                f"{type(self).__name__}: the state must have the shapes {wanted}, (layers times "
                f"directions, batch, features), got {given}."
            )
        return state


class FactorizedLSTM(FactorizedRecurrent):
    """Used like `nn.LSTM`; see `FactorizedRecurrent` and `lstm_step`.

    Example:
        >>> from rankscope.factorize.formats.catalogue import FORMATS
        >>> dense = nn.LSTM(20, 30)
        >>> small = FactorizedLSTM.from_dense(dense, {"weight_hh_l0": (FORMATS["svd"], (4,))})
        >>> outputs, (hidden, cell) = small(torch.zeros(7, 5, 20))
        >>> outputs.shape, cell.shape
        (torch.Size([7, 5, 30]), torch.Size([1, 5, 30]))
    """

    dense_class = nn.LSTM

    def forward(
        self, input: Sequences, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Sequences, tuple[Tensor, Tensor]]:
        """Outputs, and the last hidden state and cell.

        Raises:
            LayerError: if input or state do not have the right shape.
        """
        outputs, (hidden, cell) = self._run(input, hx)
        return outputs, (hidden, cell)

    def diagram(self, suffix: str = "l0") -> Network:
        """See `FactorizedRecurrent.diagram`."""
        return lstm_network(self.weights_of(suffix), suffix, self.hidden_size)

    @property
    def _state_sizes(self) -> tuple[int, ...]:
        return (self.settings.out_size, self.settings.hidden_size)

    def _step(self, suffix: str) -> CellStep:
        project = f"weight_hr_{suffix}" if self.settings.proj_size else None
        return partial(
            lstm_step,
            recurrent=prepared(self.weight(f"weight_hh_{suffix}")),
            project=None if project is None else prepared(self.weight(project)),
        )

    def _kernel(self) -> Callable[..., Any]:
        return torch.lstm


class FactorizedGRU(FactorizedRecurrent):
    """Used like `nn.GRU`; see `FactorizedRecurrent` and `gru_step`.

    Example:
        >>> from rankscope.factorize.formats.catalogue import FORMATS
        >>> dense = nn.GRU(20, 30, batch_first=True)
        >>> small = FactorizedGRU.from_dense(dense, {"weight_ih_l0": (FORMATS["svd"], (4,))})
        >>> outputs, hidden = small(torch.zeros(5, 7, 20))
        >>> outputs.shape, hidden.shape
        (torch.Size([5, 7, 30]), torch.Size([1, 5, 30]))
    """

    dense_class = nn.GRU

    def forward(self, input: Sequences, hx: Tensor | None = None) -> tuple[Sequences, Tensor]:
        """Outputs, and the last hidden state.

        Raises:
            LayerError: if input or state do not have the right shape.
        """
        outputs, (hidden,) = self._run(input, None if hx is None else (hx,))
        return outputs, hidden

    def diagram(self, suffix: str = "l0") -> Network:
        """See `FactorizedRecurrent.diagram`."""
        return gru_network(self.weights_of(suffix), suffix, self.hidden_size)

    @property
    def _state_sizes(self) -> tuple[int, ...]:
        return (self.settings.hidden_size,)

    def _step(self, suffix: str) -> CellStep:
        return partial(gru_step, recurrent=prepared(self.weight(f"weight_hh_{suffix}")))

    def _kernel(self) -> Callable[..., Any]:
        return torch.gru
