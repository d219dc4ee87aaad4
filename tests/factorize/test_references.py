"""Every public decomposition names its source."""

import inspect
import pkgutil
from importlib import import_module

import pytest

from rankscope import factorize
from rankscope.factorize import tensorly_tensors

MODULES = [each.name for each in pkgutil.iter_modules(factorize.__path__)]
VERBS = ("decompose", "fit", "round", "search", "tucker_energy", "to_tensorly", "from_tensorly")


@pytest.mark.parametrize("name", MODULES)
def test_every_decomposition_has_a_reference(name: str) -> None:
    module = import_module(f"rankscope.factorize.{name}")
    for title, function in inspect.getmembers(module, inspect.isfunction):
        if title.startswith(VERBS):
            assert "Reference:" in (function.__doc__ or ""), title


def test_the_rule_reaches_both_ways_to_tensorly() -> None:
    names = [name for name, _ in inspect.getmembers(tensorly_tensors, inspect.isfunction)]
    assert {"to_tensorly", "from_tensorly"} <= {name for name in names if name.startswith(VERBS)}


def test_every_public_decomposition_has_a_reference() -> None:
    for name in dir(factorize):
        member = getattr(factorize, name)
        if inspect.isfunction(member) and name.startswith((*VERBS, "cp_rank")):
            assert "Reference:" in (member.__doc__ or ""), name
