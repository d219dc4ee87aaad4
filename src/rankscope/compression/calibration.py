"""Runs a model on calibration data, and says where they do not fit."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from torch import Tensor, nn

from rankscope.errors import CompressionError

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
