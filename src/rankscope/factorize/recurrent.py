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

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Network, Step, Sum, Term
from rankscope.diagrams.parts import Function, Index, IndexKind, Node, Region, Role
from rankscope.errors import LayerError
from rankscope.factorize.formats.format import Format, Ranks
from rankscope.factorize.linear import (
    FactorizedLinear,
    LinearLayer,
    check_names,
    dense_linear,
    linear_of,
    linear_steps,
    prepared,
)
from rankscope.factorize.paths import MergedWeight, Path, wants_gradients

# --- One step of an LSTM or a GRU, as a function and as a network of diagrams, and the walk over ti


Weights = Mapping[str, LinearLayer]
State = tuple[Tensor, ...]
Apply = Callable[[Tensor], Tensor]
CellStep = Callable[[Tensor, State], State]


def lstm_step(from_input: Tensor, state: State, recurrent: Apply, project: Apply | None) -> State:
    r"""The next hidden state and cell.

    .. math:: c' = \sigma(f) \odot c + \sigma(i) \odot \tanh(g), \qquad
              h' = W_{hr} (\sigma(o) \odot \tanh(c'))

    with the gates i, f, g, o in this order, each a sum of what `from_input` holds and of what
    `recurrent` makes of h, biases included. Without `project`, there is no W_hr.
    """
    hidden, cell = state
    entered, kept, fresh, shown = (from_input + recurrent(hidden)).chunk(4, -1)
    cell = torch.sigmoid(kept) * cell + torch.sigmoid(entered) * torch.tanh(fresh)
    hidden = torch.sigmoid(shown) * torch.tanh(cell)
    return (hidden if project is None else project(hidden)), cell


def gru_step(from_input: Tensor, state: State, recurrent: Apply) -> State:
    r"""The next hidden state.

    .. math:: n = \tanh(x_n + \sigma(x_r + h_r) \odot h_n), \qquad
              h' = (1 - z) \odot n + z \odot h, \quad z = \sigma(x_z + h_z)

    with the gates r, z, n in this order, x in `from_input` and h from `recurrent`. The reset gate
    acts on what `recurrent` returns, its bias included, not on the state before it.
    """
    (hidden,) = state
    reset, update, fresh = from_input.chunk(3, -1)
    reset_again, update_again, fresh_again = recurrent(hidden).chunk(3, -1)
    fresh = torch.tanh(fresh + torch.sigmoid(reset + reset_again) * fresh_again)
    share = torch.sigmoid(update + update_again)
    return (fresh + share * (hidden - fresh),)


def scan(
    step: CellStep, inputs: Tensor, state: State, *, is_reverse: bool, lengths: Tensor | None
) -> tuple[Tensor, State]:
    """Carry a state over time; the outputs are its first part after each step.

    Args:
        step: from an input and a state to the next state.
        inputs: (time, batch, ...).
        state: before the first step.
        is_reverse: from the last input to the first.
        lengths: of each sample, on the device of the inputs; beyond it a state stays as it is.
            None if all are of full length.
    """
    outputs = []
    times = range(len(inputs))
    for time in reversed(times) if is_reverse else times:
        after = step(inputs[time], state)
        if lengths is not None:
            goes_on = (time < lengths)[:, None]
            pairs = zip(after, state, strict=True)
            after = tuple(torch.where(goes_on, new, old) for new, old in pairs)
        state = after
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if is_reverse else outputs), state


_UNIT = "u"  # the index of a cell's units, on everything that is multiplied entry by entry


def lstm_network(weights: Weights, suffix: str, hidden_size: int) -> Network:
    """See `lstm_step`; `weights` holds those of the layer and direction that `suffix` names."""
    draw = _Drawer(hidden_size)
    steps = _both(weights, suffix)
    gates = Index(_UNIT, 4 * hidden_size, "4H", IndexKind.FEATURE)
    read = [Node("X", (_UNIT,), Role.DATA, array=name) for name in ("xs", "hs")]
    terms = tuple(Term(Diagram(node.source, (gates,), (node,), (_UNIT,))) for node in read)
    steps.append(Step("gates", Sum("gates", terms)))
    kept = draw.product(draw.gate("gates", 1, "sigmoid"), draw.whole("c"))
    fresh = draw.product(draw.gate("gates", 0, "sigmoid"), draw.gate("gates", 2, "tanh"))
    steps.append(Step("cell", Sum("cell", (Term(kept), Term(fresh))), r"\mathbf{c}'"))
    shown = draw.product(draw.gate("gates", 3, "sigmoid"), draw.whole("cell", "tanh"))
    steps.append(Step("hidden", shown, r"\mathbf{h}'"))
    name = f"weight_hr_{suffix}"
    if name in weights:
        steps += linear_steps("projected", weights[name], "hidden", prefix=f"weights.{name}.")
    return Network("lstm", tuple(steps), "One step of an LSTM")


def gru_network(weights: Weights, suffix: str, hidden_size: int) -> Network:
    """See `gru_step`; `weights` holds those of the layer and direction that `suffix` names."""
    draw = _Drawer(hidden_size)
    steps = _both(weights, suffix)
    for place, name in enumerate(("reset", "update")):
        terms = tuple(Term(draw.product(draw.gate(array, place))) for array in ("xs", "hs"))
        steps.append(Step(name, Sum(name, terms)))
    again = draw.product(draw.whole("reset", "sigmoid"), draw.gate("hs", 2))
    terms = (Term(draw.product(draw.gate("xs", 2))), Term(again))
    steps.append(Step("fresh", Sum("fresh", terms)))
    share, new = draw.whole("update", "sigmoid"), draw.whole("fresh", "tanh")
    terms = (
        Term(draw.product(new)),
        Term(draw.product(share, draw.whole("h"))),
        Term(draw.product(share, new), -1.0),
    )
    steps.append(Step("hidden", Sum("hidden", terms), r"\mathbf{h}'"))
    return Network("gru", tuple(steps), "One step of a GRU")


def _both(weights: Weights, suffix: str) -> list[Step]:
    """What the inputs give to all gates (`xs`), and what the state does (`hs`)."""
    steps: list[Step] = []
    for name, kind, source in (("xs", "ih", "x"), ("hs", "hh", "h")):
        weight = f"weight_{kind}_{suffix}"
        steps += linear_steps(name, weights[weight], source, prefix=f"weights.{weight}.")
    return steps


class _Drawer:
    """Products entry by entry of arrays, or of parts of them, each through a function."""

    def __init__(self, hidden_size: int) -> None:
        self.size = hidden_size

    def gate(self, array: str, place: int, function: str = "identity") -> tuple[Node, str]:
        """One gate of an array that holds several."""
        rows = (place * self.size, (place + 1) * self.size)
        node = Node(f"{array}{place}", (_UNIT,), Role.DATA, array=array, rows=rows)
        return node, function

    def whole(self, array: str, function: str = "identity") -> tuple[Node, str]:
        """A whole array."""
        return Node(array, (_UNIT,), Role.DATA, array=array), function

    def product(self, *factors: tuple[Node, str]) -> Diagram:
        """Factors times each other, entry by entry."""
        regions = tuple(
            Region(f"{function} {node.name}", (node.name,), Function(function))
            for node, function in factors
            if function != "identity"
        )
        unit = Index(_UNIT, self.size, "H", IndexKind.FEATURE)
        nodes = tuple(node for node, _ in factors)
        return Diagram("product", (unit,), nodes, (_UNIT,), regions=regions)


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
