"""How much two groups of inputs depend on each other: partitions, matrices and their ranks.

Names are imported when they are first used: splitting and matricizing need neither torch nor
numba.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers, which do not run __getattr__
    from rankscope.separation.certificates.file import read_certificate as read_certificate
    from rankscope.separation.certificates.file import write_certificate as write_certificate
    from rankscope.separation.exact.modular import Pivots as Pivots
    from rankscope.separation.exact.modular import pivots_modulo as pivots_modulo
    from rankscope.separation.exact.modular import rank_modulo as rank_modulo
    from rankscope.separation.exact.modular import solve_modulo as solve_modulo
    from rankscope.separation.exact.primes import is_prime as is_prime
    from rankscope.separation.exact.primes import largest_prime_below as largest_prime_below
    from rankscope.separation.function_rank import FunctionRank as FunctionRank
    from rankscope.separation.function_rank import normal_inputs as normal_inputs
    from rankscope.separation.function_rank import separation_rank as separation_rank
    from rankscope.separation.grid import grid_tensor as grid_tensor
    from rankscope.separation.matricization import matricize as matricize
    from rankscope.separation.measuring.measured import MeasuredRank as MeasuredRank
    from rankscope.separation.measuring.options import MeasureOptions as MeasureOptions
    from rankscope.separation.nearby.epsilon import EpsilonRank as EpsilonRank
    from rankscope.separation.nearby.epsilon import epsilon_rank as epsilon_rank
    from rankscope.separation.nearby.measures import StandardNormal as StandardNormal
    from rankscope.separation.nearby.measures import Uniform as Uniform
    from rankscope.separation.nearby.metrics import Frobenius as Frobenius
    from rankscope.separation.nearby.metrics import MeanAbsolute as MeanAbsolute
    from rankscope.separation.nearby.metrics import MeanSquare as MeanSquare
    from rankscope.separation.nearby.metrics import Spectral as Spectral
    from rankscope.separation.nearby.metrics import Supremum as Supremum
    from rankscope.separation.nearby.polynomials import polynomial_kernel as polynomial_kernel
    from rankscope.separation.nearby.polynomials import polynomial_spectrum as polynomial_spectrum
    from rankscope.separation.nearby.quadrature import quadrature_kernel as quadrature_kernel
    from rankscope.separation.numeric import NumericRank as NumericRank
    from rankscope.separation.numeric import numeric_rank as numeric_rank
    from rankscope.separation.pairing import FunctionOptions as FunctionOptions
    from rankscope.separation.partition import Partition as Partition

_HOMES = {
    "EpsilonRank": "nearby.epsilon",
    "Frobenius": "nearby.metrics",
    "FunctionOptions": "pairing",
    "FunctionRank": "function_rank",
    "MeanAbsolute": "nearby.metrics",
    "MeanSquare": "nearby.metrics",
    "MeasureOptions": "measuring.options",
    "MeasuredRank": "measuring.measured",
    "NumericRank": "numeric",
    "Partition": "partition",
    "Pivots": "exact.modular",
    "Spectral": "nearby.metrics",
    "StandardNormal": "nearby.measures",
    "Supremum": "nearby.metrics",
    "Uniform": "nearby.measures",
    "epsilon_rank": "nearby.epsilon",
    "grid_tensor": "grid",
    "is_prime": "exact.primes",
    "largest_prime_below": "exact.primes",
    "matricize": "matricization",
    "normal_inputs": "function_rank",
    "numeric_rank": "numeric",
    "pivots_modulo": "exact.modular",
    "polynomial_kernel": "nearby.polynomials",
    "polynomial_spectrum": "nearby.polynomials",
    "quadrature_kernel": "nearby.quadrature",
    "rank_modulo": "exact.modular",
    "read_certificate": "certificates.file",
    "separation_rank": "function_rank",
    "solve_modulo": "exact.modular",
    "write_certificate": "certificates.file",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rankscope.separation' has no attribute {name!r}")
    return getattr(import_module(f"rankscope.separation.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
