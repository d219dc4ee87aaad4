"""How much two groups of inputs depend on each other: partitions, matrices and their ranks.

Names are imported when they are first used: splitting and matricizing need neither torch nor
numba.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers, which do not run __getattr__
    from rankscope.separation.grid import grid_tensor as grid_tensor
    from rankscope.separation.matricization import matricize as matricize
    from rankscope.separation.modular import Pivots as Pivots
    from rankscope.separation.modular import pivots_modulo as pivots_modulo
    from rankscope.separation.modular import rank_modulo as rank_modulo
    from rankscope.separation.modular import solve_modulo as solve_modulo
    from rankscope.separation.numeric import NumericRank as NumericRank
    from rankscope.separation.numeric import numeric_rank as numeric_rank
    from rankscope.separation.partition import Partition as Partition
    from rankscope.separation.primes import is_prime as is_prime
    from rankscope.separation.primes import largest_prime_below as largest_prime_below

_HOMES = {
    "NumericRank": "numeric",
    "Partition": "partition",
    "Pivots": "modular",
    "grid_tensor": "grid",
    "is_prime": "primes",
    "largest_prime_below": "primes",
    "matricize": "matricization",
    "numeric_rank": "numeric",
    "pivots_modulo": "modular",
    "rank_modulo": "modular",
    "solve_modulo": "modular",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rankscope.separation' has no attribute {name!r}")
    return getattr(import_module(f"rankscope.separation.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
