"""Measure, draw, audit, shrink and prove things about neural networks, by splitting them in two.

Names are imported when they are first used, so that commands that need no torch never load it.
"""

from importlib import import_module
from importlib.metadata import version

# Where each public name lives; `rankscope.x` imports its module on first use.
_HOMES = {
    "Convolution": "diagrams.parts",
    "Cost": "diagrams.cost",
    "Diagram": "diagrams.diagram",
    "Function": "diagrams.functions",
    "Index": "diagrams.parts",
    "IndexKind": "diagrams.parts",
    "Network": "diagrams.network",
    "Node": "diagrams.parts",
    "Plan": "diagrams.plan",
    "RankscopeError": "errors",
    "Region": "diagrams.parts",
    "Role": "diagrams.parts",
    "Step": "diagrams.network",
    "Sum": "diagrams.network",
    "Term": "diagrams.network",
    "cost": "diagrams.cost",
    "describe": "diagrams.describe",
    "draw": "diagrams.drawing",
    "einsum_program": "diagrams.program",
    "family": "diagrams.families",
    "from_einsum": "diagrams.einsum",
    "from_module": "diagrams.reading",
    "minimal_cut": "diagrams.minimal_cut",
    "module_arrays": "diagrams.reading",
    "plan_contraction": "diagrams.contraction",
    "to_einsum": "diagrams.einsum",
    "to_module": "diagrams.module",
    "to_source": "diagrams.source",
}

__version__ = version("rankscope")
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rankscope' has no attribute {name!r}")
    return getattr(import_module(f"rankscope.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
