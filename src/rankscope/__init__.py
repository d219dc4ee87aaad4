"""Measure, draw, audit, shrink and prove things about neural networks, by splitting them in two.

Names are imported when they are first used, so that commands that need no torch never load it.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers, which do not run __getattr__
    from rankscope.architectures.attention.self_attention import SelfAttention as SelfAttention
    from rankscope.architectures.certification import certify as certify
    from rankscope.architectures.certification import verify as verify
    from rankscope.architectures.measuring import measure_rank as measure_rank
    from rankscope.auditing.auditor import audit as audit
    from rankscope.auditing.plan import plan as plan
    from rankscope.compression.compressing import compress as compress
    from rankscope.compression.loading import load as load
    from rankscope.decompositions.interval import cp_rank as cp_rank
    from rankscope.diagrams.contraction import plan_contraction as plan_contraction
    from rankscope.diagrams.cost import Cost as Cost
    from rankscope.diagrams.cost import cost as cost
    from rankscope.diagrams.describe import describe as describe
    from rankscope.diagrams.diagram import Diagram as Diagram
    from rankscope.diagrams.drawing import draw as draw
    from rankscope.diagrams.einsum import from_einsum as from_einsum
    from rankscope.diagrams.einsum import to_einsum as to_einsum
    from rankscope.diagrams.families import family as family
    from rankscope.diagrams.functions import Function as Function
    from rankscope.diagrams.minimal_cut import minimal_cut as minimal_cut
    from rankscope.diagrams.module import to_module as to_module
    from rankscope.diagrams.network import Network as Network
    from rankscope.diagrams.network import Step as Step
    from rankscope.diagrams.network import Sum as Sum
    from rankscope.diagrams.network import Term as Term
    from rankscope.diagrams.parts import Convolution as Convolution
    from rankscope.diagrams.parts import Index as Index
    from rankscope.diagrams.parts import IndexKind as IndexKind
    from rankscope.diagrams.parts import Node as Node
    from rankscope.diagrams.parts import Region as Region
    from rankscope.diagrams.parts import Role as Role
    from rankscope.diagrams.plan import Plan as Plan
    from rankscope.diagrams.program import einsum_program as einsum_program
    from rankscope.reading import from_module as from_module
    from rankscope.reading import module_arrays as module_arrays
    from rankscope.diagrams.source import to_source as to_source
    from rankscope.errors import RankscopeError as RankscopeError
    from rankscope.separation.function_rank import separation_rank as separation_rank
    from rankscope.separation.partition import Partition as Partition

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
    "Partition": "separation.partition",
    "Plan": "diagrams.plan",
    "RankscopeError": "errors",
    "Region": "diagrams.parts",
    "Role": "diagrams.parts",
    "SelfAttention": "architectures.attention.self_attention",
    "Step": "diagrams.network",
    "Sum": "diagrams.network",
    "Term": "diagrams.network",
    "audit": "auditing.auditor",
    "certify": "architectures.certification",
    "compress": "compression.compressing",
    "cost": "diagrams.cost",
    "cp_rank": "decompositions.interval",
    "describe": "diagrams.describe",
    "draw": "diagrams.drawing",
    "einsum_program": "diagrams.program",
    "family": "diagrams.families",
    "from_einsum": "diagrams.einsum",
    "from_module": "reading",
    "load": "compression.loading",
    "measure_rank": "architectures.measuring",
    "minimal_cut": "diagrams.minimal_cut",
    "module_arrays": "reading",
    "plan": "auditing.plan",
    "plan_contraction": "diagrams.contraction",
    "separation_rank": "separation.function_rank",
    "to_einsum": "diagrams.einsum",
    "to_module": "diagrams.module",
    "to_source": "diagrams.source",
    "verify": "architectures.certification",
}

__version__ = version("rankscope")
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rankscope' has no attribute {name!r}")
    return getattr(import_module(f"rankscope.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
