"""Runs a module's `forward` on stand-ins for tensors, and reads every call it makes.

The stand-ins are the proxies of torch.fx, which know their shape: code that looks at shapes
runs as usual, code that looks at numbers cannot be read.
"""

import operator
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from rankscope.diagrams.reading.arrays import qualified
from rankscope.diagrams.reading.calls import (
    Abandoned,
    Call,
    Result,
    Unread,
    read_module,
    reader_of,
)
from rankscope.diagrams.reading.operations import OPERATIONS, is_in_place, operation_name
from rankscope.diagrams.reading.values import Value, size_of
from rankscope.errors import UnsupportedModuleError

VALUE = "rankscope_value"
PACKAGES = ("torch", "_operator")


class Stopped(Exception):
    """Reading cannot go on; the reason is noted already, or is the message."""


class StandIn(fx.Proxy):
    """A proxy that knows what can be known about its tensor without running it."""

    tracer: "ReadingTracer"

    @property
    def _value(self) -> Value:
        found = self.node.meta[VALUE]
        if not isinstance(found, Value):
            raise Stopped
        return found

    @property
    def shape(self) -> torch.Size:
        """Sizes of the axes."""
        return torch.Size(self._value.shape)

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self._value.axes)

    @property
    def device(self) -> torch.device:
        """Where fixed tensors beside it are made: where the module's parameters are."""
        return self.tracer.like.device

    @property
    def dtype(self) -> torch.dtype:
        """The precision of fixed tensors beside it: that of the module's parameters."""
        return self.tracer.like.dtype

    @property
    def is_cuda(self) -> bool:
        """Never: nothing is run."""
        return False

    @property
    def is_nested(self) -> bool:
        """Never: every axis has one size."""
        return False

    def size(self, dim: int | None = None) -> torch.Size | int:
        """Size of one axis, or of all."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """How many axes there are."""
        return self.ndim

    def numel(self) -> int:
        """How many entries there are."""
        return size_of(self._value.flat)

    @property
    def T(self) -> Any:
        """The transpose of a matrix."""
        return self.tracer.create_proxy("call_method", "t", (self,), {})

    @property
    def mT(self) -> Any:
        """The transpose of the last two axes."""
        return self.tracer.create_proxy("call_method", "mT", (self,), {})

    def __iadd__(self, other: Any) -> "StandIn":
        return self._changed(operator.iadd, other)

    def __isub__(self, other: Any) -> "StandIn":
        return self._changed(operator.isub, other)

    def __imul__(self, other: Any) -> "StandIn":
        return self._changed(operator.imul, other)

    def __itruediv__(self, other: Any) -> "StandIn":
        return self._changed(operator.itruediv, other)

    def _changed(self, function: Callable[[Any, Any], Any], other: Any) -> "StandIn":
        self.tracer.create_proxy("call_function", function, (self, other), {})
        return self

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        read = self.tracer.create_proxy
        places = range(len(self))
        return iter([read("call_function", operator.getitem, (self, n), {}) for n in places])


class ReadingTracer(fx.Tracer):
    """Reads each call as soon as it is traced, so that shapes are known to the next one."""

    def __init__(self, call: Call, inputs: Sequence[Value]) -> None:
        super().__init__()
        self._call = call
        self._inputs = inputs
        self._path = call.path
        self._is_reading = False
        self.result: Any = None
        self._made: list[weakref.ref[StandIn]] = []
        floats = (p for p in call.arrays.tensors if p.is_floating_point())
        self.like = next(floats, torch.empty(0))

    def create_args_for_root(
        self, root_fn: Callable[..., Any], *unused: Any, **ignored: Any
    ) -> tuple[Callable[..., Any], list[Any]]:
        """One stand-in for every input; other arguments keep their defaults."""
        return root_fn, [self.root, *(self._stand_in(value) for value in self._inputs)]

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Parameters become stand-ins; buffers stay tensors, so that masks can be looked at."""
        if self._is_reading or not isinstance(attr_val, nn.Parameter):
            return attr_val
        return self._stand_in(self._call.arrays.value(attr_val))

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Read a module that we know; trace one that we do not."""
        path = self.path_of_module(m)
        is_ours = reader_of(m, self._call.readers) is None and not _is_from_torch(m)
        if is_ours or isinstance(m, nn.Sequential):
            with self._inside(path):
                return forward(*args, **kwargs)
        values = [self._lowered(value) for value in args]
        options = {name: self._lowered(value) for name, value in kwargs.items()}
        with self._reading():
            found = read_module(self._call, m, path, values, options)
        if getattr(m, "inplace", False):
            self._overwrite(path, args[0], found)
        return self._raised(found)

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *unused: Any,
        **ignored: Any,
    ) -> Any:
        """Read a call of a function or a method."""
        if target is getattr:
            target, args = args[1], args[:1]
        plain = operation_name(target)
        call = replace(
            self._call,
            path=self._path,
            name=qualified(self._path, plain),
            title=plain,
            module=None,
        )
        given = tuple(self._lowered(value) for value in args)
        options = {key: self._lowered(value) for key, value in kwargs.items()}
        with self._reading():
            found = _read_operation(call, target, given, options)
        if is_in_place(target, kwargs):
            self._overwrite(call.name, args[0], found)
        return self._raised(found)

    def to_bool(self, obj: fx.Proxy) -> bool:
        """Refuse control flow that depends on numbers."""
        raise Stopped("its control flow depends on the numbers in a tensor, not only on shapes")

    def create_arg(self, a: Any) -> None:
        """Called once, with what `forward` returns."""
        self.result = self._lowered(a)

    @contextmanager
    def _inside(self, path: str) -> Iterator[None]:
        before, self._path = self._path, path
        try:
            yield
        finally:
            self._path = before

    @contextmanager
    def _reading(self) -> Iterator[None]:
        before, self._is_reading = self._is_reading, True
        try:
            yield
        finally:
            self._is_reading = before

    def _stand_in(self, value: Value | Unread) -> StandIn:
        node = self.create_node("placeholder", "value", (), {})
        node.meta[VALUE] = value
        found = StandIn(node, self)
        self._made.append(weakref.ref(found))
        return found

    def _overwrite(self, name: str, given: Any, found: Any) -> None:
        """After a change in place, every stand-in for the same tensor has the new value."""
        old = self._lowered(given)
        for reference in self._made:
            other = reference()
            value = None if other is None else other.node.meta[VALUE]
            if other is not None and value is old:
                other.node.meta[VALUE] = found
            elif isinstance(value, Value) and value.memory is getattr(old, "memory", None):
                raise Stopped(
                    f"{name} changes in place a tensor that is also seen in another shape; "
                    "use a function that returns a new one"
                )

    def _raised(self, found: Result | None) -> Any:
        """From what was read to what the code gets."""
        match found:
            case Value() | Unread():
                return self._stand_in(found)
            case tuple():
                return tuple(self._raised(part) for part in found)
            case _:
                return found

    def _lowered(self, given: Any) -> Any:
        """From what the code has to what a reader gets."""
        if isinstance(given, fx.Proxy):
            return given.node.meta[VALUE]
        if isinstance(given, tuple | list):
            # A torch.Size becomes a plain tuple.
            return (list if isinstance(given, list) else tuple)(map(self._lowered, given))
        is_number = isinstance(given, Tensor) and given.ndim == 0 and not given.requires_grad
        return given.item() if is_number else given


def _read_operation(
    call: Call, target: object, given: tuple[Any, ...], options: Mapping[str, Any]
) -> Result:
    try:
        if any(isinstance(value, Unread) for value in (*given, *options.values())):
            return Unread(call.name)
        package = "" if isinstance(target, str) else getattr(target, "__module__", None) or "torch"
        if package and package.split(".")[0] not in PACKAGES:
            raise UnsupportedModuleError("only functions of PyTorch are read")
        operation = OPERATIONS.get(call.title)
        if operation is None:
            raise UnsupportedModuleError("this function has no diagram")
        return operation.reader(replace(call, arguments=operation.bind(given, options)))
    except Abandoned:
        return Unread(call.name)
    except UnsupportedModuleError as error:
        call.complain(str(error))
        return Unread(call.name)


def _is_from_torch(module: nn.Module) -> bool:
    return type(module).__module__.split(".")[0] == "torch"
