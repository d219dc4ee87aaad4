"""Packages by name: those of an extra, imported when they are first used, and the user's own.

transformers is loaded here and nowhere else: it loads torchvision if that is installed, and a
torchvision that was built for another torch raises, because its operators are not there. They are
then declared, without any code behind them: who calls one gets torch's own error.
"""

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeGuard

from rankscope.errors import FactoryError, ImportPathError, MissingExtraError

if TYPE_CHECKING:
    from torch import nn

_OPERATORS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_libraries: list[object] = []  # torch forgets an operator together with its library


def transformers() -> ModuleType:
    """The package `transformers`, without the code of strangers.

    Raises:
        MissingExtraError: if the extra `hf` is not installed.
    """
    if "transformers" not in sys.modules and importlib.util.find_spec("torchvision"):
        _load_torchvision()
    return package("transformers", what="Models of Hugging Face", extra="hf")


def package(name: str, *, what: str, extra: str) -> ModuleType:
    """A package by its name.

    Args:
        name: as Python imports it.
        what: the thing that needs it, as a message begins.
        extra: that brings it.

    Raises:
        MissingExtraError: if it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(what=what, package=name, extra=extra) from error


def _load_torchvision() -> None:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its compiled part, which nobody here asks for
        try:
            importlib.import_module("torchvision")
        except RuntimeError as error:
            if "torchvision::" not in str(error):
                raise
            for name, signature in _OPERATORS.items():
                library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
                library.define(name + signature)
                _libraries.append(library)
            importlib.import_module("torchvision")


# --- What stands behind `package.module:factory` --------------------------------------------------


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
        made = _import(what, module_name)
        for name in attribute.split("."):
            if not hasattr(made, name):
                raise ImportPathError(f"{what}: {module_name} has no attribute {attribute!r}.")
            made = getattr(made, name)
        if not callable(made) or is_module(made):
            return made
        try:
            return made()
        except Exception as error:
            raise FactoryError(
                f"{what} raised {type(error).__name__} when called without arguments: {error}"
            ) from error


def _import(what: str, module_name: str) -> object:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ImportPathError(
            f"{what}: no module named {error.name!r} here or among the installed packages; "
            "write package.module:factory."
        ) from error
    except Exception as error:
        raise ImportPathError(
            f"{what}: importing {module_name!r} raised {type(error).__name__}: {error}"
        ) from error


@contextmanager
def _current_directory_importable() -> Iterator[None]:
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def is_module(what: object) -> "TypeGuard[nn.Module]":
    """Whether something is a torch module, without loading torch."""
    # Who has a module has loaded torch; asking sys.modules does not load it for anyone else.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(what, torch.nn.Module)
