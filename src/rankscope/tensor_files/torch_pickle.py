"""What a pickle of `torch.save` describes, found out without running any of it.

A pickle is a program for a small stack machine, and one of its instructions calls any function of
Python. This machine has the same instructions but calls nothing: a tensor becomes a description of
where its values are, dictionaries and numbers become themselves, and what else training scripts
save and torch allows stays a word. Anything that is on neither list is refused by name.
"""

import math
import pickletools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from rankscope.errors import printable
from rankscope.tensor_files.sources import ITEM_BYTES, LARGEST, MAX_ORDER


class Refused(Exception):
    """Why a pickle is not read."""


class Readable(Protocol):
    """What `pickletools` reads from; a long read must not allocate more than there is."""

    def read(self, count: int, /) -> bytes:
        """Read at most so many bytes."""

    def readline(self) -> bytes:
        """The bytes to the end of the line."""

    def tell(self) -> int:
        """How many bytes were read."""


@dataclass(frozen=True)
class Global:
    """A name in a module of Python, which is never looked up."""

    name: str


@dataclass(frozen=True)
class Storage:
    """A run of values somewhere in the file.

    Args:
        key: its name in the file.
        dtype: torch's name; None if it holds bytes that are read as the tensor says.
        num_values: as many of that dtype.
    """

    key: str
    dtype: str | None
    num_values: int


@dataclass(frozen=True)
class StoredTensor:
    """A tensor: a view of a storage."""

    storage: Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def extent(self) -> int:
        """Values from its first to its last in the storage, both included."""
        if 0 in self.shape:
            return 0
        return 1 + sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))


@dataclass(frozen=True)
class Other:
    """Something that is no dense tensor and no plain value."""

    kind: str


_STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "UntypedStorage": None,
}
# Tensors that are not one run of values, by the function that would make them.
_OTHER_TENSORS = {
    "torch._utils._rebuild_sparse_tensor": "sparse tensor",
    "torch._utils._rebuild_sparse_csr_tensor": "sparse tensor",
    "torch._utils._rebuild_qtensor": "quantized tensor",
    "torch._utils._rebuild_nested_tensor": "nested tensor",
    "torch._utils._rebuild_meta_tensor_no_storage": "tensor on the meta device, without values",
    "torch._utils._rebuild_device_tensor_from_numpy": "tensor of another device",
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": "tensor of another device",
    "torch._utils._rebuild_wrapper_subclass": "tensor of a class of its own",
}
# What stands beside the weights in checkpoints of training; none of it is made.
_IGNORED = frozenset(
    {
        "builtins.bytearray",
        "builtins.complex",
        "builtins.frozenset",
        "builtins.set",
        "collections.Counter",
        "collections.defaultdict",
        "_codecs.encode",
        "numpy.core.multiarray.scalar",
        "numpy._core.multiarray.scalar",
        "numpy.dtype",
        "torch.device",
        "torch.serialization._get_layout",
        *(f"torch.{name}" for name in ("per_tensor_affine", "per_channel_affine")),
        *(f"torch.{name}" for name in ("qint8", "quint8", "qint32", "strided", "sparse_coo")),
        *(f"torch.{name}" for name in ("QInt8Storage", "QUInt8Storage", "QInt32Storage")),
        *(f"torch.{name}" for name in ("jagged", "preserve_format", "contiguous_format")),
    }
)
_TENSOR_CLASSES = frozenset(
    {"torch.Tensor", "torch._tensor.Tensor", "torch.nn.parameter.Parameter"}
)
_PLAIN_KEYS = (str, int, float, bytes, type(None))
# Whatever damaged instructions make of the stack, the memo and their arguments.
_DAMAGES = (ValueError, IndexError, KeyError, TypeError, AttributeError, struct.error)


@dataclass(frozen=True)
class Pickled:
    """What a pickle describes.

    Args:
        content: plain values, dictionaries, lists and tuples of these, `StoredTensor`, `Storage`,
            `Global` and `Other`.
        storages: every storage that it names, by key.
    """

    content: Any
    storages: dict[str, Storage]


def read_pickle(file: Readable) -> Pickled:
    """What the next pickle of a file describes; the file stands behind it afterwards.

    Raises:
        Refused: if the pickle is damaged, or asks for anything that no tensor needs.
    """
    machine = _Machine()
    try:
        for instruction, argument, _ in pickletools.genops(file):  # type: ignore[arg-type]
            if instruction.name == "STOP":
                return Pickled(machine.stack.pop(), machine.storages)
            machine.run(instruction.name, argument)
    except _DAMAGES as error:
        raise Refused("its pickle is damaged or holds more than tensors") from error
    raise Refused("its pickle has no end")


_MARK = object()


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.storages: dict[str, Storage] = {}
        self._memo: dict[int, Any] = {}

    def run(self, name: str, argument: Any) -> None:
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _LITERALS:
            self.stack.append(argument)
        elif name in _GETS:
            self.stack.append(self._memo[argument])
        elif name in _PUTS:
            self._memo[len(self._memo) if name == "MEMOIZE" else argument] = self.stack[-1]
        elif name in _ACTIONS:
            _ACTIONS[name](self, argument)
        elif name not in ("PROTO", "FRAME"):
            raise ValueError(f"{name} is no instruction that torch.save writes")

    def marked(self) -> list[Any]:
        """What lies above the last mark; both are taken off."""
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise IndexError("no mark")
        above = self.stack[place + 1 :]
        del self.stack[place:]
        return above

    def put(self, value: Any) -> None:
        self.stack.append(value)

    def add_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Other):
            return
        if not isinstance(target, dict) or len(items) % 2:
            raise TypeError("items of no dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Tuples inside of tuples could be so deep that hashing them ends the process.
            is_plain = isinstance(key, _PLAIN_KEYS)
            target[key if is_plain else Other(type(key).__name__)] = value

    def add_values(self, values: list[Any]) -> None:
        if not isinstance(self.stack[-1], Other):
            self.stack[-1].extend(values)

    def put_global(self, name: str) -> None:
        self.put(_known_global(name))

    def call(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        self.put(_call(function, arguments))

    def build(self) -> None:
        """Attributes of an object, such as the versions that a state dict carries: not needed."""
        self.stack.pop()
        if not isinstance(self.stack[-1], dict | Other | StoredTensor):
            raise TypeError("attributes of a plain value")

    def put_storage(self) -> None:
        identity = self.stack.pop()
        word, kind, key, _, num_values, *view = identity
        if any(view):
            raise Refused("a storage is a view of another one, as before torch 0.4")
        if word != "storage" or not isinstance(key, str) or not isinstance(num_values, int):
            raise ValueError("no storage")
        if isinstance(kind, Other):
            self.put(kind)
            return
        if not 0 <= num_values <= LARGEST:
            raise ValueError("no count")
        storage = Storage(key, _storage_dtype(kind.name), num_values)
        if self.storages.setdefault(key, storage) != storage:
            raise ValueError("one storage of two kinds")
        self.put(storage)


_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_LITERALS = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
        *("STRING", "SHORT_BINSTRING", "BINSTRING"),
        *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8"),
    }
)
_GETS = frozenset({"GET", "BINGET", "LONG_BINGET"})
_PUTS = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"})
_ACTIONS: dict[str, Callable[[_Machine, Any], object]] = {
    "MARK": lambda m, _: m.put(_MARK),
    "POP": lambda m, _: m.stack.pop(),
    "POP_MARK": lambda m, _: m.marked(),
    "EMPTY_LIST": lambda m, _: m.put([]),
    "EMPTY_DICT": lambda m, _: m.put({}),
    "EMPTY_SET": lambda m, _: m.put(Other("set")),
    "LIST": lambda m, _: m.put(m.marked()),
    "TUPLE": lambda m, _: m.put(tuple(m.marked())),
    "TUPLE1": lambda m, _: m.put((m.stack.pop(),)),
    "TUPLE2": lambda m, _: m.put(_popped(m, 2)),
    "TUPLE3": lambda m, _: m.put(_popped(m, 3)),
    "APPEND": lambda m, _: m.add_values([m.stack.pop()]),
    "APPENDS": lambda m, _: m.add_values(m.marked()),
    "ADDITEMS": lambda m, _: m.add_values(m.marked()),
    "SETITEM": lambda m, _: m.add_items(list(_popped(m, 2))),
    "SETITEMS": lambda m, _: m.add_items(m.marked()),
    "GLOBAL": lambda m, argument: m.put_global(argument.replace(" ", ".", 1)),
    "STACK_GLOBAL": lambda m, _: m.put_global(".".join(_popped(m, 2))),
    "REDUCE": lambda m, _: m.call(),
    "NEWOBJ": lambda m, _: m.call(),
    "BUILD": lambda m, _: m.build(),
    "BINPERSID": lambda m, _: m.put_storage(),
}


def _popped(machine: _Machine, count: int) -> tuple[Any, ...]:
    if len(machine.stack) < count:
        raise IndexError("too few values")
    values = tuple(machine.stack[-count:])
    del machine.stack[-count:]
    return values


def _known_global(name: str) -> "Global | Other":
    # Protocol 2 writes the names of Python 2.
    plain = name.replace("__builtin__.", "builtins.", 1).replace("torch.cuda.", "torch.", 1)
    if plain in _IGNORED:
        return Other(plain)
    if plain in _OTHER_TENSORS or plain in _MADE or plain in _TENSOR_CLASSES:
        return Global(plain)
    if _is_storage(plain) or plain.removeprefix("torch.") in ITEM_BYTES:
        return Global(plain)
    raise Refused(f"it asks for '{printable(name)}', which could run any code")


def _is_storage(name: str) -> bool:
    start, _, last = name.rpartition(".")
    return start in ("torch", "torch.storage") and last in _STORAGES


def _storage_dtype(name: str) -> str | None:
    if not _is_storage(name):
        raise ValueError("no storage")
    return _STORAGES[name.rpartition(".")[2]]


def _call(function: Any, arguments: Any) -> Any:
    """What a call would give; only those of the table below are understood."""
    if isinstance(function, Other):
        return function
    if not isinstance(function, Global) or not isinstance(arguments, tuple):
        raise TypeError("no function")
    if function.name in _OTHER_TENSORS:
        return Other(_OTHER_TENSORS[function.name])
    if function.name not in _MADE:
        raise TypeError("no function")
    return _MADE[function.name](*arguments)


def _dictionary(pairs: Any = (), *rest: Any) -> dict[Any, Any]:
    if rest or not isinstance(pairs, list | tuple):
        raise TypeError("no pairs")
    machine = _Machine()
    machine.put({})
    machine.add_items([part for pair in pairs for part in _pair(pair)])
    made: dict[Any, Any] = machine.stack[-1]
    return made


def _pair(pair: Any) -> tuple[Any, Any]:
    key, value = pair
    return key, value


def _size(values: Any) -> tuple[Any, ...]:
    if not isinstance(values, list | tuple):
        raise TypeError("no sizes")
    return tuple(values)


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Any:
    if isinstance(storage, Other):
        return storage
    if not isinstance(storage, Storage) or storage.dtype is None:
        raise TypeError("no storage")
    return _checked(StoredTensor(storage, storage.dtype, offset, shape, strides))


def _typed_tensor(
    storage: Any, offset: Any, shape: Any, strides: Any, _: Any, __: Any, dtype: Any, *___: Any
) -> Any:
    name = dtype.name.removeprefix("torch.")
    if not isinstance(storage, Storage) or name not in ITEM_BYTES:
        raise TypeError("no storage")
    return _checked(StoredTensor(storage, name, offset, shape, strides))


def _checked(tensor: StoredTensor) -> StoredTensor:
    """Refuse a tensor that does not lie in its storage, or is larger than it."""
    counts = (tensor.shape, tensor.strides)
    for numbers in (*counts, (tensor.offset,)):
        if not isinstance(numbers, tuple) or not all(_is_count(number) for number in numbers):
            raise TypeError("no sizes")
    if len(tensor.shape) != len(tensor.strides) or len(tensor.shape) > MAX_ORDER:
        raise TypeError("no sizes")
    storage = tensor.storage
    item = ITEM_BYTES[tensor.dtype]
    held = storage.num_values // (item if storage.dtype is None else 1)
    wanted = math.prod(tensor.shape)
    if wanted and max(tensor.offset + tensor.extent, wanted) > held:
        raise Refused(
            f"a tensor of shape {printable(str(tensor.shape))} and strides "
            f"{printable(str(tensor.strides))} claims {wanted * item:,} bytes, from value "
            f"{tensor.offset:,} on, of a storage of {held * item:,}; save it as "
            "tensor.contiguous()"
        )
    return tensor


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= LARGEST


def _parameter(tensor: Any, *_: Any) -> Any:
    if not isinstance(tensor, StoredTensor | Other):
        raise TypeError("no tensor")
    return tensor


def _of_type(function: Any, kind: Any, arguments: Any, *_: Any) -> Any:
    if not isinstance(kind, Global) or kind.name not in _TENSOR_CLASSES:
        raise TypeError("no class of tensors")
    return _call(function, arguments)


_MADE: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _dictionary,
    "torch.Size": _size,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _typed_tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._tensor._rebuild_from_type_v2": _of_type,
}
