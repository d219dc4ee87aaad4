"""One call of a module or function, as a reader of it sees it."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from rankscope.diagrams.reading.arrays import Arrays, qualified
from rankscope.diagrams.reading.notebook import Notebook
from rankscope.diagrams.reading.problems import Problem
from rankscope.diagrams.reading.sorts import Sort
from rankscope.diagrams.reading.values import Value
from rankscope.errors import UnsupportedModuleError


@dataclass(frozen=True)
class Unread:
    """Stands for something that could not be read, or is not a tensor of the network."""

    what: str


class Abandoned(Exception):
    """Reading stops here because something before it could not be read, which is noted already."""


Result = Value | Unread | tuple["Value | Unread | None", ...]


@dataclass(frozen=True)
class Call:
    """Where a call is, what it was given, and where its steps go.

    Args:
        notebook: collects the steps.
        arrays: names of parameters and buffers.
        readers: how to read each class of module.
        path: qualified name of the module (for a function, of the module that calls it).
        name: name for its step.
        arguments: by the names of the signature.
        title: the class of the module, or the function.
        module: None for a function.
    """

    notebook: Notebook
    arrays: Arrays
    readers: "Mapping[type[nn.Module], ModuleReader]"
    path: str
    name: str
    arguments: Mapping[str, Any]
    title: str
    module: nn.Module | None = None

    def value(self, argument: str) -> Value:
        """A tensor argument.

        Raises:
            Abandoned: if it could not be read.
            UnsupportedModuleError: if it is something else.
        """
        given = self.arguments.get(argument)
        if isinstance(given, Unread):
            raise Abandoned(given.what)
        if isinstance(given, Tensor):
            return self.arrays.value(given)
        if not isinstance(given, Value):
            raise UnsupportedModuleError(
                f"its argument {argument!r} must be a tensor, got {type(given).__name__}"
            )
        return given

    def option(self, argument: str, default: Any = None) -> Any:
        """An argument that is not a tensor, or its default."""
        given = self.arguments.get(argument)
        return default if given is None else given

    def refuse(self, *arguments: str) -> None:
        """Raise if one of these arguments is given.

        Raises:
            UnsupportedModuleError: naming the argument.
        """
        for argument in arguments:
            given = self.arguments.get(argument)
            if given is not None and given is not False:
                raise UnsupportedModuleError(f"its argument {argument!r} is not supported")

    def parameter(self, tensor: Tensor, sorts: Sequence[Sort]) -> Value:
        """A parameter or buffer of the module, with the meaning of its axes."""
        return self.arrays.value(tensor, sorts)

    def inner(self, suffix: str) -> str:
        """Name for a step inside this one."""
        return qualified(self.name, suffix)

    def renamed(self, name: str) -> "Call":
        """The same call with another name for its step."""
        return replace(self, name=name)

    def complain(self, reason: str) -> None:
        """Note a problem and go on."""
        self.notebook.problems.append(Problem(self.path or "the module", self.title, reason))

    def read(self, child: str, *values: Any, **options: Any) -> Result:
        """Read a submodule, by its attribute name (dots go deeper)."""
        assert self.module is not None, "only modules have submodules"
        module = self.module.get_submodule(child)
        return read_module(self, module, qualified(self.path, child), values, options)

    def read_value(self, child: str, *values: Any, **options: Any) -> Value:
        """Read a submodule that gives one tensor, or several of which the first counts.

        Raises:
            Abandoned: if it could not be read.
        """
        found = self.read(child, *values, **options)
        first = found[0] if isinstance(found, tuple) else found
        if not isinstance(first, Value):
            raise Abandoned(child)
        return first


ModuleReader = Callable[[Call], Result]


def reader_of(
    module: nn.Module, readers: Mapping[type[nn.Module], ModuleReader]
) -> ModuleReader | None:
    """How to read a module: by its class, or a parent whose `forward` it has kept."""
    for kind in type(module).__mro__:
        if kind in readers and type(module).forward is getattr(kind, "forward", None):
            return readers[kind]
    return None


def read_module(
    call: Call, module: nn.Module, path: str, values: Sequence[Any], options: Mapping[str, Any]
) -> Result:
    """Read one module; what cannot be read becomes a problem in the notebook, and `Unread`."""
    bound = inspect.signature(module.forward).bind(*values, **options)
    name = path or type(module).__name__.lower()
    inner = replace(
        call,
        path=path,
        name=name,
        arguments=bound.arguments,
        title=type(module).__name__,
        module=module,
    )
    reader = reader_of(module, call.readers)
    try:
        if is_parametrized(module):
            raise UnsupportedModuleError(
                "its weights are computed by a parametrization; call "
                "torch.nn.utils.parametrize.remove_parametrizations first"
            )
        if reader is None:
            raise UnsupportedModuleError("this class of module is not known")
        return reader(inner)
    except Abandoned:
        return _unread(module, path)
    except UnsupportedModuleError as error:
        inner.complain(str(error))
        return _unread(module, path)


def _unread(module: nn.Module, path: str) -> Result:
    """As many results as the module gives, so that code that unpacks them goes on."""
    is_pair = isinstance(module, nn.RNNBase | nn.MultiheadAttention)
    return (Unread(path), Unread(path)) if is_pair else Unread(path)
