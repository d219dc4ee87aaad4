"""Scores from data: what weights see on calibration batches."""

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from rankscope.compression.chain import Chain, at_some_places, find_chain
from rankscope.compression.scores import Batch, ErrorNorm, Products, Scoring, SecondMoments, run
from rankscope.compression.sites import is_transposed_linear, parts_of, read_sites
from rankscope.errors import CompressionError
from rankscope.factorize.experts import EXPERT_PARTS, is_packed_experts
from rankscope.modes import inference
from rankscope.progress import Report, ignore

# --- Runs a model on calibration data, and says where they do not fit -----------------------------


_Batch = TypeVar("_Batch")
# What modules raise on inputs that do not fit: shapes, kinds of numbers, indices out of range.
_MISFITS = (RuntimeError, ValueError, TypeError, LookupError, AssertionError, AttributeError)


def run_batches(model: nn.Module, batches: Iterable[_Batch], run: Callable[[_Batch], None]) -> None:
    """Run each batch; a batch that does not fit is refused, naming the module where it fails.

    Raises:
        CompressionError: if there is no batch, or the model cannot be run on one.
    """
    number = -1
    with _whereabouts(model) as entered:
        for number, batch in enumerate(batches):
            try:
                run(batch)
            except CompressionError:
                raise
            except _MISFITS as error:
                raise CompressionError(
                    f"Calibration: batch {number} ({shapes(batch)}) fails in {_place(entered)}: "
                    f"{' '.join(str(error).split())} Pass inputs as the model takes them."
                ) from error
            entered.clear()
    if number < 0:
        raise CompressionError(
            "Calibration: wanted at least 1 batch, got 0 (an iterator can be used only once; "
            "pass a list)."
        )


def shapes(batch: object) -> str:
    """The shapes of the tensors of a batch, in words.

    Example:
        >>> import torch
        >>> shapes((torch.zeros(2, 3), None)), shapes({"ids": torch.zeros(4)})
        ('(2, 3), NoneType', 'ids: (4,)')
    """
    if isinstance(batch, Tensor):
        return str(tuple(batch.shape))
    if isinstance(batch, Mapping):
        return ", ".join(f"{name}: {shapes(item)}" for name, item in batch.items())
    if isinstance(batch, tuple | list):
        return ", ".join(shapes(item) for item in batch)
    held = {name: item for name, item in _fields(batch).items() if isinstance(item, Tensor)}
    return shapes(held) if held else type(batch).__name__


def _fields(batch: object) -> dict[str, object]:
    return vars(batch) if hasattr(batch, "__dict__") else {}


@contextmanager
def _whereabouts(model: nn.Module) -> Iterator[list[str]]:
    """A list that says, during a forward pass, which modules have begun and not ended.

    Hooks, not the trace: a batch that does not fit has none.
    """
    entered: list[str] = []

    def watch(name: str, module: nn.Module) -> Iterator[Callable[[], None]]:
        def begin(module: nn.Module, arguments: tuple[object, ...]) -> None:
            held = next((tuple(p.shape) for p in module.parameters(recurse=False)), None)
            holding = "" if held is None else f", whose weight has the shape {held},"
            kind = type(module).__name__
            entered.append(f"{name or 'the model'} ({kind}){holding} on ({shapes(arguments)})")

        def end(module: nn.Module, arguments: object, output: object) -> None:
            entered.pop()

        yield module.register_forward_pre_hook(begin).remove
        yield module.register_forward_hook(end).remove

    removals = [remove for name, module in model.named_modules() for remove in watch(name, module)]
    try:
        yield entered
    finally:
        for remove in removals:
            remove()


def _place(entered: list[str]) -> str:
    return entered[-1] if entered else "the loss"


# --- What enters each layer and direction of a recurrent module: its inputs and its states --------


class RecurrentLayers:
    """An LSTM or a GRU as a row of modules with one layer each, which share its weights."""

    def __init__(self, module: nn.LSTM | nn.GRU) -> None:
        self._batch_first = module.batch_first
        self._directions = 2 if module.bidirectional else 1
        self._layers = [_layer(module, number) for number in range(module.num_layers)]

    def inputs(self, sequences: object, start: object) -> Iterator[tuple[str, Tensor]]:
        """Vectors (count, size) that each `weight_ih` and `weight_hh` is multiplied with.

        Args:
            sequences: what the module is called with: (steps, batch, size), or with the batch
                first, or without one, or packed.
            start: its states at the start, zeros if None; of an LSTM with the cells' beside them.
        """
        for number, layer in enumerate(self._layers):
            own_start = _of_layer(start, number, self._directions)
            outputs, _ = layer(sequences, own_start)
            entering = _as_list(sequences, batch_first=self._batch_first)
            for direction, suffix in enumerate(("", "_reverse")[: self._directions]):
                name = f"_l{number}{suffix}"
                yield f"weight_ih{name}", torch.cat(entering)
                size = layer.proj_size or layer.hidden_size
                states = [
                    sequence[:, direction * size : (direction + 1) * size]
                    for sequence in _as_list(outputs, batch_first=self._batch_first)
                ]
                yield f"weight_hh{name}", _states_before(states, own_start, direction)
            sequences = outputs


def _states_before(states: list[Tensor], start: object, direction: int) -> Tensor:
    """The state that enters each step: the start, and all but the last that leaves one."""
    first = start[0] if isinstance(start, tuple) else start
    initial = (
        first[direction].reshape(-1, states[0].shape[-1])
        if isinstance(first, Tensor)
        else states[0].new_zeros(len(states), states[0].shape[-1])
    )
    inner = [state[1:] if direction else state[:-1] for state in states]
    return torch.cat([initial, *inner])


def _layer(module: nn.LSTM | nn.GRU, number: int) -> nn.LSTM | nn.GRU:
    """A module of one layer with the weights of one layer of another."""
    suffixes = ("", "_reverse") if module.bidirectional else ("",)
    weights = {
        name.replace(f"_l{number}", "_l0"): parameter.detach()
        for name, parameter in module.named_parameters()
        if any(name.endswith(f"_l{number}{suffix}") for suffix in suffixes)
    }
    first = weights["weight_ih_l0"]
    options: dict[str, int] = {"proj_size": module.proj_size} if module.proj_size else {}
    layer = type(module)(
        first.shape[1],
        module.hidden_size,
        bias=module.bias,
        batch_first=module.batch_first,
        bidirectional=module.bidirectional,
        device="meta",
        dtype=first.dtype,
        **options,
    )
    layer.load_state_dict(weights, assign=True)
    return layer.eval()


def _of_layer(start: object, number: int, directions: int) -> object:
    if isinstance(start, tuple):
        return tuple(_of_layer(part, number, directions) for part in start)
    if isinstance(start, Tensor):
        return start[number * directions : (number + 1) * directions]
    return None


def _as_list(sequences: object, *, batch_first: bool) -> list[Tensor]:
    """Each sequence (steps, size) of a batch, without its padding."""
    if isinstance(sequences, PackedSequence):
        padded, lengths = pad_packed_sequence(sequences, batch_first=True)
        return [row[:length] for row, length in zip(padded, lengths.tolist(), strict=True)]
    assert isinstance(sequences, Tensor)
    if sequences.ndim == 2:
        return [sequences]
    return list(sequences if batch_first else sequences.movedim(1, 0))


# --- What one module's inputs looked like: an observer for each class that can be compressed ------


class Observer(ABC):
    """Sees every call of one module, and gives the error norms of its weights in the end."""

    @abstractmethod
    def see(self, arguments: Mapping[str, object], products: Products) -> None:
        """Look at the arguments of one call, by name."""

    @abstractmethod
    def error_norms(self, factors: "Factors", *, who: str) -> dict[str, ErrorNorm | None]:
        """The error norm of each part of the module; None for a part that no data reached."""


class InputObserver(Observer):
    """Keeps the second moments of the vectors that each weight of a module is multiplied with."""

    def __init__(self) -> None:
        self._moments: dict[str, SecondMoments] = {}

    @abstractmethod
    def vectors(self, arguments: Mapping[str, object]) -> Iterator[tuple[str, Tensor]]:
        """Parts of the module, and the vectors (groups, count, size) that enter them in a call."""

    def see(self, arguments: Mapping[str, object], products: Products) -> None:
        for part, vectors in self.vectors(arguments):
            groups, _, size = vectors.shape
            self._moments.setdefault(part, SecondMoments(size, groups)).add(vectors, products)

    def error_norms(self, factors: "Factors", *, who: str) -> dict[str, ErrorNorm | None]:
        several = len(self._moments) > 1
        return {
            part: factors.error_norm(moments, who=f"{who}, {part}" if several else who)
            for part, moments in self._moments.items()
        }


class VectorInputs(InputObserver):
    """The inputs of a linear map, all positions alike."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        # The `Conv1D` of transformers calls its input x.
        self._name = "x" if is_transposed_linear(module) else "input"

    def vectors(self, arguments: Mapping[str, object]) -> Iterator[tuple[str, Tensor]]:
        yield "weight", _rows(_tensor(arguments, self._name))


class ChannelInputs(InputObserver):
    """The channels of a convolution's inputs, over all positions, each group apart.

    What neighbouring positions have in common, and zeros that are padded, are not counted: the
    error is then that of outputs on independent positions.
    """

    def __init__(self, module: nn.Conv1d | nn.Conv2d) -> None:
        super().__init__()
        self._groups = module.groups
        self._channel = -1 - len(module.kernel_size)

    def vectors(self, arguments: Mapping[str, object]) -> Iterator[tuple[str, Tensor]]:
        channels = _tensor(arguments, "input").movedim(self._channel, 0)
        yield "weight", channels.reshape(self._groups, len(channels) // self._groups, -1).mT


class LookedUp(Observer):
    """Counts how often each row of an embedding is looked up.

    Every row counts once more than it was seen, so that rows the data lack are not given up.
    """

    def __init__(self, module: nn.Embedding) -> None:
        self._counts = torch.zeros(module.num_embeddings, dtype=torch.float64)

    def see(self, arguments: Mapping[str, object], products: Products) -> None:
        del products
        indices = _tensor(arguments, "input").flatten().cpu()
        self._counts += torch.bincount(indices, minlength=len(self._counts))

    def error_norms(self, factors: "Factors", *, who: str) -> dict[str, ErrorNorm | None]:
        del factors
        if not bool(self._counts.any()):
            return {"weight": None}
        frequencies = (self._counts + 1) / (self._counts + 1).sum()
        return {"weight": ErrorNorm(rows=frequencies.sqrt())}


class AttentionInputs(InputObserver):
    """The inputs of the four projections of an attention layer; keys that are masked are left out.

    The output projection's inputs are the heads' outputs, side by side: a copy of the layer whose
    output projection is the identity gives them.
    """

    def __init__(self, module: nn.MultiheadAttention) -> None:
        super().__init__()
        self._batch_first = module.batch_first
        self._heads = copy.deepcopy(module).eval()
        out = self._heads.out_proj
        out.weight.data = torch.eye(module.embed_dim).to(out.weight)
        if out.bias is not None:
            out.bias.data = torch.zeros_like(out.bias)

    def vectors(self, arguments: Mapping[str, object]) -> Iterator[tuple[str, Tensor]]:
        seen = self._seen_keys(arguments.get("key_padding_mask"))
        for name in ("query", "key", "value"):
            inputs = _tensor(arguments, name)
            yield name, _rows(inputs if seen is None or name == "query" else inputs[seen])
        heads, _ = self._heads(**arguments)
        yield "out", _rows(heads)

    def _seen_keys(self, mask: object) -> Tensor | None:
        if not isinstance(mask, Tensor):
            return None
        seen = ~mask if mask.dtype == torch.bool else ~torch.isneginf(mask)
        return seen if self._batch_first or seen.ndim == 1 else seen.mT


class ExpertInputs(InputObserver):
    """The tokens that enter experts, all experts alike, and what leaves the gates of the chosen."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._module = module

    def vectors(self, arguments: Mapping[str, object]) -> Iterator[tuple[str, Tensor]]:
        tokens, chosen = (_tensor(arguments, name) for name in ("hidden_states", "top_k_index"))
        yield EXPERT_PARTS[0], _rows(tokens)
        experts: Any = self._module
        inner = []
        for expert in range(experts.num_experts):
            given = tokens[(chosen == expert).any(dim=-1)]
            inner.append(experts._apply_gate(linear(given, experts.gate_up_proj[expert])))
        yield EXPERT_PARTS[1], _rows(torch.cat(inner))


class RecurrentInputs(InputObserver):
    """The inputs and the states that enter each layer and direction of an LSTM or a GRU."""

    def __init__(self, module: nn.LSTM | nn.GRU) -> None:
        super().__init__()
        self._layers = RecurrentLayers(module)

    def vectors(self, arguments: Mapping[str, object]) -> Iterator[tuple[str, Tensor]]:
        for name, vectors in self._layers.inputs(arguments["input"], arguments.get("hx")):
            yield name, _rows(vectors)


def observer_of(module: nn.Module) -> Observer | None:
    """The observer that fits a module's class."""
    if is_packed_experts(module):
        return ExpertInputs(module)
    observer_class = VectorInputs if is_transposed_linear(module) else _OBSERVERS.get(type(module))
    return None if observer_class is None else observer_class(module)


# Exact classes, like the planner's: a subclass may use its weights in another way.
_OBSERVERS: Mapping[type[nn.Module], Callable[..., Observer]] = {
    nn.Linear: VectorInputs,
    nn.Conv1d: ChannelInputs,
    nn.Conv2d: ChannelInputs,
    nn.Embedding: LookedUp,
    nn.MultiheadAttention: AttentionInputs,
    nn.LSTM: RecurrentInputs,
    nn.GRU: RecurrentInputs,
}


def bound_arguments(
    module: nn.Module, arguments: tuple[object, ...], named: Mapping[str, object]
) -> dict[str, object]:
    """The arguments of a call by the names that the module's `forward` gives them."""
    return inspect.signature(module.forward).bind(*arguments, **named).arguments


class Factors:
    """Triangular factors of second moments; modules that read the same input share theirs.

    Args:
        ridge: see `Activations`.
    """

    def __init__(self, ridge: float) -> None:
        self._ridge = ridge
        self._last: tuple[SecondMoments, ErrorNorm | None] | None = None

    def error_norm(self, moments: SecondMoments, *, who: str) -> ErrorNorm | None:
        """Errors of outputs on inputs with these moments."""
        if self._last is None or self._last[0] != moments:
            factor = moments.factor(self._ridge, who=who)
            norm = None
            if factor is not None:
                if factor.numel() > MAX_DOUBLE_FACTOR:
                    factor = factor.float()
                norm = ErrorNorm(factor=factor[0] if len(factor) == 1 else factor)
            self._last = moments, norm
        return self._last[1]


# Larger factors are kept in float32. The ridge keeps their condition below sqrt(size / ridge), far
# from its 2**24, and those of a language model would hold more than the model itself.
MAX_DOUBLE_FACTOR = 2**16


def _rows(vectors: Tensor) -> Tensor:
    return vectors.reshape(1, -1, vectors.shape[-1])


def _tensor(arguments: Mapping[str, object], name: str) -> Tensor:
    tensor = arguments[name]
    assert isinstance(tensor, Tensor)
    return tensor


# --- Scores from activations: errors of outputs on calibration data, not of weights ---------------


RIDGE = 1e-6


class Activations(Scoring):
    """Errors of every site's outputs on batches of real inputs.

    The batches are run once, in inference mode; of each site only the second moments of its inputs
    are kept. Sites whose class does not show its inputs (the projection of
    an LSTM's states), or that no data reach, are scored by their weights alone.

    Args:
        batches: inputs as the model takes them.
        ridge: is added to the moments, in units of their mean diagonal, so that they are
            invertible: inputs the data lack count as much smaller ones, not as none.
    """

    name: ClassVar[str] = "activations"

    def __init__(self, batches: Iterable[Batch], *, ridge: float = RIDGE) -> None:
        if not 0 < ridge < 1:
            raise CompressionError(f"Activations: ridge must lie between 0 and 1, got {ridge}.")
        self._batches = batches
        self._ridge = ridge
        self._error_norms: dict[str, ErrorNorm | None] = {}

    def prepare(
        self, model: nn.Module, *, left: Collection[str] = (), report: Report = ignore
    ) -> None:
        """Run the batches, and keep the moments of what each site sees.

        Raises:
            CompressionError: if there is no batch, one does not fit the model, or an input of a
                site is not finite.
        """
        sites = read_sites(model).sites
        observers: dict[str, Observer] = {}
        for site in sites:
            observer = observer_of(model.get_submodule(site.module_name))
            if site.module_name not in observers and observer is not None:
                observers[site.module_name] = observer
        factors = Factors(self._ridge)
        norms: dict[str, dict[str, ErrorNorm | None]] = {}
        for names in self._watch(model, observers):
            for name in names:
                # Sums are larger than factors, which several modules may share: one at a time.
                norms[name] = observers.pop(name).error_norms(factors, who=name or "the model")
        self._error_norms = {
            site.name: norms.get(site.module_name, {}).get(site.part) for site in sites
        }

    def error_norm(self, site_name: str) -> ErrorNorm | None:
        """The norm of one site's error; None if no data reached it."""
        return self._error_norms.get(site_name)

    def _watch(
        self, model: nn.Module, observers: Mapping[str, Observer]
    ) -> Iterator[Collection[str]]:
        """Run the batches; give names of modules of which all inputs have been seen.

        A row of blocks is run block by block on all batches, if the states between two blocks
        take less memory than the sums of all blocks would.
        """
        chain = self._chain(model, observers)
        # Outputs over a vocabulary are large; who reads no inputs of the head needs only some.
        after_blocks = chain is None or any(
            isinstance(observer, InputObserver) and chain.block_of(name) is None
            for name, observer in observers.items()
        )
        if chain is None:
            with _seen(model, observers):
                run_batches(model, self._batches, lambda batch: _ignore(run(model, batch)))
            yield list(observers)
            return
        states: list[Tensor] = []
        for block in range(len(chain.names)):
            is_last = block == len(chain.names) - 1
            # What stands before and after the row is run with every block: it counts once.
            of_block = {
                name: observer
                for name, observer in observers.items()
                if chain.block_of(name) == block or (is_last and chain.block_of(name) is None)
            }
            with _seen(model, of_block):
                states = self._after(chain, block, states, whole=after_blocks)
            yield list(of_block)

    def _after(
        self, chain: Chain, block: int, states: Sequence[Tensor], *, whole: bool
    ) -> list[Tensor]:
        """States of all batches after a block, from those before it; of the last block none."""
        entering = iter(states)
        after: list[Tensor] = []

        def step(batch: Batch) -> None:
            known = (block, next(entering)) if block else None
            batch = batch if whole else at_some_places(chain.model, batch)
            if block + 1 < len(chain.names):
                after.append(chain.state_before(block + 1, batch, known))
            elif known is None:
                run(chain.model, batch)
            else:
                chain.run_from(*known, batch)

        run_batches(chain.model, self._batches, step)
        return after

    def _chain(self, model: nn.Module, observers: Mapping[str, Observer]) -> Chain | None:
        """The model's blocks, if going through them one by one takes less memory."""
        if not isinstance(self._batches, Sequence) or not self._batches:
            return None
        sizes = [
            part.weight.shape[0] * part.weight.shape[2] ** 2
            for name, observer in observers.items()
            if isinstance(observer, InputObserver)
            for part in parts_of(model.get_submodule(name))
        ]
        with torch.no_grad(), inference(model):
            try:
                chain = find_chain(model, self._batches[0])
                state = None if chain is None else chain.state_before(0, self._batches[0])
            except _MISFITS:  # to be said with its place by the run itself
                return None
        if state is None or 2 * state.numel() * len(self._batches) > sum(sizes):
            return None
        return chain


@contextmanager
def _seen(model: nn.Module, observers: Mapping[str, Observer]) -> Iterator[None]:
    """Observers see the calls of their modules, in inference mode."""
    products = Products()
    # Hooks see numbers of real inputs; a trace knows only shapes.
    with torch.no_grad(), inference(model), ExitStack() as stack:
        for name, observer in observers.items():
            hook = _seeing(observer, products)
            handle = model.get_submodule(name).register_forward_hook(hook, with_kwargs=True)
            stack.callback(handle.remove)
        yield


def _seeing(
    observer: Observer, products: Products
) -> Callable[[nn.Module, tuple[object, ...], dict[str, object], object], None]:
    # After the call: inputs that do not fit are then refused by the module itself.
    def see(
        module: nn.Module, given: tuple[object, ...], named: dict[str, object], output: object
    ) -> None:
        observer.see(bound_arguments(module, given, named), products)

    return see


def _ignore(output: object) -> None:
    del output
