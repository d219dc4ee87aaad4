"""Run the end of a model from a state that was kept, instead of the whole model again.

Most deep models are a row of blocks, each of which is given what the one before it gives. Then the
output after a change inside block n needs only the blocks from n on:

    chain = find_chain(model, batch)              # None if the model is no such row
    state = chain.state_before(n, batch)
    outputs = chain.run_from(n, state, batch)     # equal to run(model, batch), bit by bit

What stands before and after the row (embeddings, masks, the head) is run as the model itself does.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.compression.scores import Batch, run
from rankscope.compression.stages import stages_of
from rankscope.errors import CompressionError

# Of each sequence, and of a batch, at which a language model's outputs are compared.
NUM_PLACES, PLACES_IN_ALL = 64, 256


class _Reached(Exception):
    """No error, only a way out of a forward pass."""

    def __init__(self, state: Tensor) -> None:
        super().__init__()
        self.state = state


@dataclass(frozen=True, eq=False)
class Chain:
    """A model as a row of blocks; see `find_chain`.

    Args:
        model: whose blocks they are.
        names: of the blocks, in the order in which they run.
        gives_tuple: for each block, whether it gives a tuple with the state first.
    """

    model: nn.Module
    names: tuple[str, ...]
    gives_tuple: tuple[bool, ...]

    def block_of(self, module_name: str) -> int | None:
        """The number of the block that a module lies in; None if it lies in none."""
        for number, name in enumerate(self.names):
            if module_name == name or module_name.startswith(f"{name}."):
                return number
        return None

    def state_before(
        self, number: int, batch: Batch, known: tuple[int, Tensor] | None = None
    ) -> Tensor:
        """The state that enters a block; from a `known` one of an earlier block, if given."""

        def leave(
            module: nn.Module, arguments: tuple[object, ...], named: Mapping[str, object]
        ) -> None:
            del module
            raise _Reached(_first_tensor((*arguments, *named.values())))

        module = self.model.get_submodule(self.names[number])
        handle = module.register_forward_pre_hook(leave, with_kwargs=True)
        try:
            with self._starting_at(known):
                run(self.model, batch)
        except _Reached as reached:
            return reached.state
        finally:
            handle.remove()
        raise AssertionError("every block of a chain is reached")

    def run_from(self, number: int, state: Tensor, batch: Batch) -> object:
        """What the model gives for a batch, if this state enters the block."""
        with self._starting_at((number, state)):
            return run(self.model, batch)

    @contextmanager
    def _starting_at(self, known: tuple[int, Tensor] | None) -> Iterator[None]:
        """Blocks before the known state do nothing, and the last of them gives it."""
        number, state = known or (0, torch.empty(0))
        with ExitStack() as stack:
            for place in range(number):
                given = state if place == number - 1 else None
                stack.enter_context(self._skipped(place, given))
            yield

    @contextmanager
    def _skipped(self, place: int, state: Tensor | None) -> Iterator[None]:
        module = self.model.get_submodule(self.names[place])

        def skip(*arguments: object, **named: object) -> object:
            passed = _first_tensor((*arguments, *named.values())) if state is None else state
            return (passed,) if self.gives_tuple[place] else passed

        module.forward = skip
        try:
            yield
        finally:
            del module.forward


def find_chain(model: nn.Module, batch: Batch) -> Chain | None:
    """The blocks of a model as a chain; None if it is none, tried on a batch.

    It is one if every block is run once, is given the very tensor that the block before it gave,
    and the model gives the same outputs, bit by bit, when it is run from the last block alone.
    """
    names = _numbered_blocks(model)
    batch = at_some_places(model, batch)
    calls: list[_Call] = []
    with ExitStack() as stack:
        for name in names:
            hook = _recorder(name, calls)
            handle = model.get_submodule(name).register_forward_hook(hook, with_kwargs=True)
            stack.callback(handle.remove)
        wanted = run(model, batch)
    if not names or [call.name for call in calls] != list(names) or not _is_row(calls):
        return None
    chain = Chain(model, names, tuple(isinstance(call.output, tuple) for call in calls))
    state = calls[-1].given
    assert state is not None, "the blocks of a row are given tensors"
    got = chain.run_from(len(names) - 1, state, batch)
    return chain if torch.equal(output_tensor(got), output_tensor(wanted)) else None


def at_some_places(model: nn.Module, batch: Batch) -> Batch:
    """The batch, with outputs at some places only, if the model can be asked for those.

    What follows the blocks of a small language model, the head over its vocabulary, costs as much
    as many of them; neighbouring places say nearly the same about a weight.
    """
    tokens = batch.get("input_ids") if isinstance(batch, Mapping) else None
    takes = inspect.signature(model.forward).parameters
    if not isinstance(tokens, Tensor) or "logits_to_keep" not in takes:
        return batch
    assert isinstance(batch, Mapping)
    length = tokens.shape[-1]
    most = max(1, min(length, NUM_PLACES, PLACES_IN_ALL * length // max(1, tokens.numel())))
    places = torch.linspace(0, length - 1, most).round().long()
    return {**batch, "logits_to_keep": places}


def _numbered_blocks(model: nn.Module) -> tuple[str, ...]:
    """Blocks that may be a row; none if there are none, or their forward was replaced."""
    try:
        names = stages_of(model)
    except CompressionError:
        return ()
    replaced = any("forward" in vars(model.get_submodule(name)) for name in names)
    return () if replaced else names


@dataclass(frozen=True, eq=False)
class _Call:
    name: str
    given: Tensor | None
    output: object


def _is_row(calls: list[_Call]) -> bool:
    """Whether each block is given the very tensor that the one before it gave."""
    given = [call.given for call in calls]
    states = [
        next((item for item in _as_tuple(call.output) if isinstance(item, Tensor)), None)
        for call in calls
    ]
    return None not in given and all(
        entering is leaving for entering, leaving in zip(given[1:], states, strict=False)
    )


def output_tensor(output: object) -> Tensor:
    """What a model's output is compared by: its logits, or else its first tensor.

    Raises:
        CompressionError: if there is no tensor in it.
    """
    logits = getattr(output, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    if isinstance(output, Mapping):
        return output_tensor(tuple(output.values()))
    tensor = next((item for item in _as_tuple(output) if isinstance(item, Tensor)), None)
    if tensor is None:
        raise CompressionError(
            f"The model gives a {type(output).__name__} without a tensor; wrap it in a module that "
            "gives one."
        )
    return tensor


def _recorder(
    name: str, calls: list[_Call]
) -> Callable[[nn.Module, tuple[object, ...], dict[str, object], object], None]:
    def record(
        module: nn.Module, arguments: tuple[object, ...], named: dict[str, object], output: object
    ) -> None:
        del module
        given = (*arguments, *named.values())
        first = next((item for item in given if isinstance(item, Tensor)), None)
        calls.append(_Call(name, first, output))

    return record


def _as_tuple(output: object) -> tuple[object, ...]:
    return tuple(output) if isinstance(output, tuple | list) else (output,)


def _first_tensor(given: tuple[object, ...]) -> Tensor:
    tensor = next((item for item in given if isinstance(item, Tensor)), None)
    assert tensor is not None, "a block of a chain is given a tensor, and gives one"
    return tensor
