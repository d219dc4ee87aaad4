"""From `package.module:factory` to what the factory makes."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path

from rankscope.errors import FactoryError, ImportPathError


def call_factory(what: str) -> object:
    """Import what stands before the colon and call what stands behind it, without arguments.

    A torch module is returned as it is.

    Raises:
        ImportPathError: if the path leads nowhere, or importing it raises.
        FactoryError: if the factory raises.
    """
    module_name, _, attribute = what.partition(":")
    # Whatever the user's code prints, standard output stays ours.
    with _current_directory_importable(), redirect_stdout(sys.stderr):
        found = _imported(what, module_name)
        for name in attribute.split("."):
            if not hasattr(found, name):
                raise ImportPathError(f"{what}: {module_name} has no attribute {attribute!r}.")
            found = getattr(found, name)
        if not callable(found) or _is_module_instance(found):
            return found
        try:
            return found()
        except Exception as error:
            raise FactoryError(
                f"{what} raised {type(error).__name__} when called without arguments: {error}"
            ) from error


def _imported(what: str, module_name: str) -> object:
    try:
        return import_module(module_name)
    except ModuleNotFoundError as error:
        raise ImportPathError(
            f"{what}: no module named {error.name!r} here or among the installed packages; "
            "write package.module:factory."
        ) from error
    except Exception as error:
        raise ImportPathError(
            f"{what}: importing {module_name!r} raised {type(error).__name__}: {error}"
        ) from error


def _is_module_instance(found: object) -> bool:
    # A torch module is callable too; asking sys.modules keeps torch unloaded until it is needed.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(found, torch.nn.Module)


@contextmanager
def _current_directory_importable() -> Iterator[None]:
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
