"""How far a perturbation carries: true operator norms, Lipschitz bounds, certificates, attacks.

Names are imported when they are first used: torch takes its time to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers, which do not run __getattr__
    from rankscope.robustness.attacks import AutoProjectedDescent as AutoProjectedDescent
    from rankscope.robustness.attacks import ProjectedDescent as ProjectedDescent
    from rankscope.robustness.attacks import Threat as Threat
    from rankscope.robustness.attacks import attack as attack
    from rankscope.robustness.certification import Certification as Certification
    from rankscope.robustness.certification import CertifiedRadius as CertifiedRadius
    from rankscope.robustness.certification import certify as certify
    from rankscope.robustness.certification import draw_certification as draw_certification
    from rankscope.robustness.lipschitz import LipschitzBound as LipschitzBound
    from rankscope.robustness.lipschitz import certified_radii as certified_radii
    from rankscope.robustness.lipschitz import lipschitz_bound as lipschitz_bound
    from rankscope.robustness.margins import CrossEntropy as CrossEntropy
    from rankscope.robustness.margins import LogitsRatio as LogitsRatio
    from rankscope.robustness.margins import Margin as Margin
    from rankscope.robustness.methods import Intervals as Intervals
    from rankscope.robustness.methods import LinearBounds as LinearBounds
    from rankscope.robustness.methods import Lipschitz as Lipschitz
    from rankscope.robustness.norms import L2 as L2
    from rankscope.robustness.norms import Linf as Linf
    from rankscope.robustness.operator_norms import OperatorNorm as OperatorNorm
    from rankscope.robustness.operator_norms import operator_norm as operator_norm
    from rankscope.robustness.operator_norms import operator_spectrum as operator_spectrum

_HOMES = {
    "AutoProjectedDescent": "attacks",
    "Certification": "certification",
    "CertifiedRadius": "certification",
    "CrossEntropy": "margins",
    "Intervals": "methods",
    "L2": "norms",
    "LinearBounds": "methods",
    "Linf": "norms",
    "Lipschitz": "methods",
    "LipschitzBound": "lipschitz",
    "LogitsRatio": "margins",
    "Margin": "margins",
    "OperatorNorm": "operator_norms",
    "ProjectedDescent": "attacks",
    "Threat": "attacks",
    "attack": "attacks",
    "certified_radii": "lipschitz",
    "certify": "certification",
    "draw_certification": "certification",
    "lipschitz_bound": "lipschitz",
    "operator_norm": "operator_norms",
    "operator_spectrum": "operator_norms",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rankscope.robustness' has no attribute {name!r}")
    return getattr(import_module(f"rankscope.robustness.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
