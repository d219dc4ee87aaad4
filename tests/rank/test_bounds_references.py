"""Every bound names its source, and the same one as the theorem it returns."""

import inspect
import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

from rankscope import rank
from rankscope.rank import bounds
from rankscope.theorem import Theorem

MODULES = [f"rankscope.rank.bounds.{each.name}" for each in pkgutil.iter_modules(bounds.__path__)]


def test_every_public_bound_has_a_reference() -> None:
    members = [getattr(rank, name) for name in dir(rank)]
    functions = [
        member
        for member in members
        if inspect.isfunction(member) and inspect.unwrap(member).__module__ in MODULES
    ]
    assert len(functions) > 20
    for function in functions:
        assert "Reference:" in (function.__doc__ or ""), function.__name__


@pytest.mark.parametrize("name", MODULES)
def test_the_arxiv_id_of_a_theorem_stands_in_a_docstring_of_its_module(name: str) -> None:
    module = import_module(name)
    docstrings = "".join(
        function.__doc__ or "" for _, function in inspect.getmembers(module, inspect.isfunction)
    )
    for theorem in vars(module).values():
        if isinstance(theorem, Theorem) and theorem.arxiv:
            assert f"arXiv:{theorem.arxiv}" in docstrings, theorem


def test_bounds_need_no_torch() -> None:
    code = f"import sys, {', '.join(MODULES)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
