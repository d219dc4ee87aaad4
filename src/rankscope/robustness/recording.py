"""Tensors that write down what is done to them.

A subclass of Tensor, so that annotated code takes it, with numbers, so that code that looks at
shapes runs; code that looks at the numbers is refused.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.errors import UnsupportedModuleError

# What one may ask about a tensor without looking at its numbers.
_QUESTIONS = frozenset(
    (
        *("size", "dim", "ndimension", "numel", "nelement", "stride", "len", "element_size"),
        *("is_contiguous", "is_floating_point", "is_complex", "get_device", "storage_offset"),
    )
)
# With a fixed tensor first, they only look at the precision of the other.
_TAKE_AFTER = ("to", "type_as")
_SPELLINGS = {
    **dict.fromkeys(("iadd", "radd"), "add"),
    **dict.fromkeys(("isub", "subtract"), "sub"),
    **dict.fromkeys(("imul", "rmul", "multiply"), "mul"),
    **dict.fromkeys(("itruediv", "truediv", "true_divide", "divide"), "div"),
    **dict.fromkeys(("concat", "concatenate"), "cat"),
    "absolute": "abs",
    "negative": "neg",
    "rectify": "relu",
}
_IN_PLACE = frozenset(("__iadd__", "__isub__", "__imul__", "__itruediv__"))


@dataclass(frozen=True)
class Value:
    """Something computed in a forward pass; `shape` is that of one sample."""

    number: int
    shape: tuple[int, ...]


# The fields of an operation, see graph.Operation.
Note = tuple[
    str,
    str,
    nn.Module | None,
    tuple[Any, ...],
    Mapping[str, Any],
    Value,
    Callable[..., Any],
]


class Watched(Tensor):
    """A tensor that knows which value it is."""

    plain: Tensor
    value: Value
    recorder: "Recorder"

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Sequence[type],
        arguments: tuple[Any, ...] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Called by PyTorch instead of every function that is given such a tensor."""
        given = dict(options or {})
        recorder = next(_watched_in((arguments, given))).recorder
        return recorder.call_function(function, arguments, given)


class Recorder:
    """Keeps the notes of one run."""

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self._path = ""
        self._count = 0
        self._batch_size = 0

    def start(self, inputs: Tensor) -> Watched:
        """The input of the run."""
        self._batch_size = len(inputs)
        return self._watched(inputs)

    def call_inside(self, path: str, forward: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """A module that is looked into."""
        with self._at(path):
            return forward(*given, **named)

    def call_whole(self, path: str, module: nn.Module, *given: Any, **named: Any) -> Any:
        """A module that is one operation."""
        with self._at(path):
            return self._note(type(module).__name__, module, module, given, named)

    def call_function(
        self, function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        """A function or method, or something asked about a tensor."""
        spelled = str(getattr(function, "__name__", function))
        if spelled == "__get__":
            spelled = str(getattr(function, "__self__").__name__)  # noqa: B009 - not in its type
        call = function
        if spelled in _IN_PLACE or spelled.endswith("_") != spelled.startswith("__"):
            call = _not_in_place(function)
        elif named.get("inplace"):
            named = {**named, "inplace": False}
        kind = _SPELLINGS.get(spelled.strip("_"), spelled.strip("_"))
        return self._note(kind, None, call, given, named)

    def _note(
        self,
        kind: str,
        module: nn.Module | None,
        call: Callable[..., Any],
        given: tuple[Any, ...],
        named: Mapping[str, Any],
    ) -> Any:
        plain = _lowered((given, dict(named)), lambda watched: watched.plain)
        result = call(*plain[0], **plain[1])
        if kind in _TAKE_AFTER and not isinstance(given[0], Watched):
            return result
        name = self._path if module is not None else f"{self._path}.{kind}".lstrip(".")
        known = _lowered((given, dict(named)), lambda watched: watched.value)
        if isinstance(result, Tensor):
            return self._output((name, kind, module, *known), call, result)
        if isinstance(result, tuple | list) and all(isinstance(part, Tensor) for part in result):
            return tuple(
                self._output((name, kind, module, *known), _part(call, at), part)
                for at, part in enumerate(result)
            )
        if kind in _QUESTIONS or getattr(call, "__name__", "") == "__get__":
            return result
        raise UnsupportedModuleError(
            f"{name or 'The model'} ({kind}): what it does depends on the numbers in a tensor, not "
            "only on shapes, and cannot be read."
        )

    def _output(self, head: tuple[Any, ...], call: Callable[..., Any], result: Tensor) -> Watched:
        name, kind, module, given, named = head
        if result.ndim == 0 or len(result) != self._batch_size:
            raise UnsupportedModuleError(
                f"{name} ({kind}): makes a tensor of shape {tuple(result.shape)} out of a batch of "
                f"{self._batch_size}; wanted the samples along the first axis everywhere."
            )
        watched = self._watched(result)
        self.notes.append((name, kind, module, given, named, watched.value, call))
        return watched

    def _watched(self, plain: Tensor) -> Watched:
        # Of memory of its own: reading `plain` again must not come back here.
        found = plain.detach().clone().as_subclass(Watched)
        found.plain, found.recorder = plain, self
        found.value = Value(self._count, tuple(plain.shape[1:]))
        self._count += 1
        return found

    @contextmanager
    def _at(self, path: str) -> Iterator[None]:
        before, self._path = self._path, path
        try:
            yield
        finally:
            self._path = before


def values_in(given: Any) -> Iterator[Value]:
    """Every value in nested arguments, in order."""
    return (found for found in _leaves(given) if isinstance(found, Value))


def replaced(given: Any, change: Callable[[Value], Any]) -> Any:
    """Nested arguments with every value changed, in order."""
    return _mapped(given, lambda leaf: change(leaf) if isinstance(leaf, Value) else leaf)


def _lowered(given: Any, change: Callable[[Watched], Any]) -> Any:
    return _mapped(given, lambda leaf: change(leaf) if isinstance(leaf, Watched) else leaf)


def _watched_in(given: Any) -> Iterator[Watched]:
    return (found for found in _leaves(given) if isinstance(found, Watched))


def _leaves(given: Any) -> Iterator[Any]:
    if isinstance(given, dict):
        given = tuple(given.values())
    if isinstance(given, tuple | list):
        for part in given:
            yield from _leaves(part)
    else:
        yield given


def _mapped(given: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(given, dict):
        return {name: _mapped(part, change) for name, part in given.items()}
    if isinstance(given, torch.Size):
        return given
    if isinstance(given, tuple | list):
        return type(given)([_mapped(part, change) for part in given])
    return change(given)


def _part(call: Callable[..., Any], at: int) -> Callable[..., Any]:
    return lambda *given, **named: call(*given, **named)[at]


def _not_in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda first, *given, **named: function(first.clone(), *given, **named)
