"""Ranks between groups of a network's inputs or weights: measure, draw, audit, compress, certify.

Names are imported when they are first used, so that commands that need no torch never load it;
`__init__.pyi` says where each of them comes from.
"""

import lazy_loader

from rankscope.errors import MovedNameError

_DIAGRAMS = (
    "Convolution Cost Function Index IndexKind Node Plan Region Role Step Sum Term describe "
    "einsum_program family from_einsum minimal_cut module_arrays plan_contraction to_einsum "
    "to_source"
)
# Names of earlier versions, and where they are now.
_MOVED = {
    **{name: f"rankscope.diagrams.{name}" for name in _DIAGRAMS.split()},
    "certify": "rankscope.certify_rank (ranks) or rankscope.certify_robustness (classifiers)",
    "cp_rank": "rankscope.factorize.cp_rank",
    "separation_rank": "rankscope.rank.separation_rank",
}

_imported, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("rankscope")
    if name in _MOVED:
        raise MovedNameError(f"rankscope.{name} is now {_MOVED[name]}.")
    return _imported(name)
