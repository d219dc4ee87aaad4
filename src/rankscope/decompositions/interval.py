"""The CP rank of a tensor as an interval: what is proved, and what was found."""

from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from rankscope.decompositions.direct import direct_decompositions
from rankscope.decompositions.factors import Factors, Reals
from rankscope.decompositions.fit import (
    DEFAULT_FIT,
    CPFit,
    FitOptions,
    Report,
    fit_cp,
    measured,
)
from rankscope.decompositions.flattenings import (
    Arithmetic,
    Flattening,
    Modular,
    Numeric,
    best_matricization,
)
from rankscope.decompositions.koszul import improve_by_koszul
from rankscope.decompositions.real_tensor import RealTensor, to_array, to_unit
from rankscope.decompositions.tucker import compress
from rankscope.separation.exact.primes import require_prime

_PRIME_LIMIT = 2**24  # products of residues add up in int64


@dataclass(frozen=True)
class CPRankOptions:
    """How to look for a decomposition, and how far to go for a lower bound.

    Args:
        fit: what counts as a decomposition, and how long to look for one at each size.
        prime: below 2^24, for the exact lower bounds of integer tensors.
        max_koszul_entries: larger Koszul flattenings are not looked at.
    """

    fit: FitOptions = DEFAULT_FIT
    prime: int = 16777213
    max_koszul_entries: int = 2**18

    def __post_init__(self) -> None:
        require_prime(self.prime, below=_PRIME_LIMIT, who="CPRankOptions")


DEFAULT_OPTIONS = CPRankOptions()


@dataclass(frozen=True, eq=False)
class CPRank:
    """An interval that holds the CP rank.

    Args:
        lower_reason: the flattening behind the lower end.
        upper_fit: the decomposition behind the upper end.
        failed: numbers of components, ascending, for which no start led to a decomposition;
            this proves nothing.
    """

    lower_reason: Flattening
    upper_fit: CPFit
    failed: tuple[int, ...] = ()

    @property
    def lower(self) -> int:
        """No sum of fewer outer products is the tensor; `lower_reason` says how that is known."""
        return self.lower_reason.bound

    @property
    def upper(self) -> int:
        """A sum of so many outer products was found."""
        return self.upper_fit.num_components

    @property
    def is_exact(self) -> bool:
        """Whether both ends agree."""
        return self.lower == self.upper

    def __str__(self) -> str:
        interval = f"{self.lower}" if self.is_exact else f"{self.lower}..{self.upper}"
        return f"CP rank {interval}: {self.lower_reason}; found {self.upper_fit}"

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "lower": self.lower,
            "upper": self.upper,
            "lower_reason": str(self.lower_reason),
            "relative_error": self.upper_fit.relative_error,
            "largest_component_norm": self.upper_fit.largest_component_norm,
            "failed": list(self.failed),
        }


def cp_rank(
    tensor: RealTensor, options: CPRankOptions = DEFAULT_OPTIONS, *, report: Report | None = None
) -> CPRank:
    """Enclose the least number of outer products of real vectors that add up to a tensor.

    The lower end comes from all matricizations and from Koszul flattenings. For integer tensors
    their ranks are computed modulo a prime, which proves the bound. For floating-point tensors
    singular values prove it for every tensor within `relative_error` of the given one.

    The upper end is the size of a decomposition that was found: with a relative error of at most
    `relative_error`, and without components that cancel each other, since a tensor may be a limit
    of sums of fewer products than its rank (its border rank is smaller). It is no proof: an exact
    decomposition nearby is plausible, not certain.

    Numbers of components are tried from the lower end upwards in doubling steps; then the gap
    between the last failure and the first success is halved. Each is tried from the nearest
    factors found so far and from random starts. Sizes that are too large for the options are not
    tried; fibres and singular vectors give an upper end in any case.

    Args:
        tensor: real, floating point or integer, of order 2 or more.
        options: budgets and tolerances.
        report: called with the result of every start.

    Example:
        >>> found = cp_rank(numpy.random.default_rng(0).integers(-9, 9, (3, 3, 3)))
        >>> found.lower, found.upper  # matricizations alone would say 3
        (5, 5)

    Raises:
        DecompositionError: if the tensor is not real and finite.
        TooLargeError: if even the lower bound has more unknowns than the options allow.

    Reference:
        Kolda & Bader (2009), Tensor decompositions and applications, Sec. 3.1-3.3,
        doi:10.1137/07070111X; Landsberg & Ottaviani (2015), arXiv:1112.6007.
    """
    array = to_array(tensor, who="cp_rank")
    unit, scale = to_unit(array)
    entries, arithmetic = _arithmetic(array, unit, options)
    reason = improve_by_koszul(
        entries, best_matricization(entries, arithmetic), max_entries=options.max_koszul_entries
    )
    found = [measured(unit, scale, _fewest(unit, reason.bound, options.fit))]
    failed: dict[int, CPFit] = {}
    capacity = options.fit.max_unknowns // sum(compress(unit)[0].shape)
    while True:
        target = _next_size(reason.bound, found[-1].num_components, sorted(failed))
        if target is None or target > max(capacity, reason.bound):
            return CPRank(reason, found[-1], tuple(sorted(failed)))
        fit = fit_cp(
            array, target, options.fit, start=_nearest(found, failed, options.fit), report=report
        )
        if fit.is_decomposition(options.fit):
            found.append(fit)
        else:
            failed[target] = fit


def _arithmetic(
    array: NDArray[numpy.generic], unit: Reals, options: CPRankOptions
) -> tuple[NDArray[numpy.generic], Arithmetic]:
    """The entries to make matrices of, and how to find their ranks."""
    if array.dtype.kind == "f":
        return unit, Numeric(options.fit.relative_error)
    wide = array.astype(numpy.uint64 if array.dtype.kind == "u" else numpy.int64)
    # Without common divisors, which change no rank, the tensor cannot vanish modulo the prime.
    wide = wide // max(numpy.gcd.reduce(wide, axis=None), wide.dtype.type(1))
    residues = numpy.remainder(wide, wide.dtype.type(options.prime)).astype(numpy.int64)
    return residues, Modular(options.prime)


def _fewest(unit: Reals, lower: int, options: FitOptions) -> Factors:
    """The smallest of the decompositions that need no search.

    What an exact bound rules out is none, even if it comes as near as was asked for.
    """
    direct = direct_decompositions(unit, options.relative_error, least=lower)
    possible = (factors for factors in direct if factors[0].shape[1] >= lower)
    return min(possible, key=lambda factors: factors[0].shape[1])


def _next_size(lower: int, upper: int, failed: list[int]) -> int | None:
    """The number of components to try next, or None if the ends have met."""
    below = failed[-1] if failed else lower - 1
    if below + 1 >= upper:
        return None
    step: int = 2 ** len(failed)
    return min(below + step, (below + upper) // 2)


def _nearest(found: list[CPFit], failed: dict[int, CPFit], options: FitOptions) -> Factors | None:
    """Factors of the last success of a search, else of the largest failure that stayed bounded."""
    if len(found) > 1:
        return found[-1].factors
    bounded = [
        size
        for size, fit in failed.items()
        if fit.largest_component_norm <= options.max_component_norm
    ]
    return failed[max(bounded)].factors if bounded else None
