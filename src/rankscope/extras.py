"""Packages that come with an extra: imported when they are first used, or refused with its name.

transformers is loaded here and nowhere else: it loads torchvision if that is installed, and a
torchvision that was built for another torch raises, because its operators are not there. They are
then declared, without any code behind them: who calls one gets torch's own error.
"""

import importlib
import importlib.util
import sys
import warnings
from types import ModuleType
from typing import Any

from rankscope.errors import MissingExtraError

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
