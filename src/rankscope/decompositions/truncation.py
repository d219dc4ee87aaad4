"""How much of a tensor to keep: by the sizes of bonds, by the error, or by the parameters.

A bond is what joins two tensors of a decomposition: singular values, the rank of a factor in
Tucker form, the components of a CP form. Sizes are limits: a bond never exceeds what the tensor's
own sizes allow, and otherwise is as large as asked for, whatever the entries are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rankscope.errors import DecompositionError

# Below, the residual of a float64 tensor is rounding.
LEAST_RELATIVE_ERROR = 1e-13


@dataclass(frozen=True)
class MaxBond:
    """One limit for the sizes of all bonds.

    Example:
        >>> MaxBond(0)
        Traceback (most recent call last):
        rankscope.errors.DecompositionError: MaxBond needs a size of at least 1, got 0.
    """

    bond: int

    def __post_init__(self) -> None:
        if self.bond < 1:
            raise DecompositionError(f"MaxBond needs a size of at least 1, got {self.bond}.")


@dataclass(frozen=True)
class Bonds:
    """The largest size of each bond, in the order that the decomposition states."""

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if min(self.sizes, default=0) < 1:
            raise DecompositionError(
                f"Bonds needs one or more sizes of at least 1, got {self.sizes}."
            )


@dataclass(frozen=True)
class RelativeError:
    """The smallest bonds whose Frobenius error is at most this share of the tensor's norm."""

    error: float

    def __post_init__(self) -> None:
        if not LEAST_RELATIVE_ERROR <= self.error < 1:
            raise DecompositionError(
                f"RelativeError must lie in {LEAST_RELATIVE_ERROR}..1, got {self.error}."
            )


@dataclass(frozen=True)
class KeepParameters:
    """The largest bonds that together need at most this share of the tensor's entries.

    All bonds get the same limit; what is then left goes to one after the other.
    """

    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share < float("inf"):
            raise DecompositionError(f"KeepParameters needs a share above 0, got {self.share}.")


Truncation = MaxBond | Bonds | RelativeError | KeepParameters
Count = Callable[[tuple[int, ...]], int]


def bond_sizes(
    truncation: MaxBond | Bonds | KeepParameters,
    limits: Sequence[int],
    count: Count,
    *,
    num_entries: int,
    who: str,
) -> tuple[int, ...]:
    """The size of each bond.

    Args:
        truncation: what was asked for; an error is not known before decomposing.
        limits: the largest size of each bond that the tensor's sizes allow.
        count: how many parameters bonds of given sizes need.
        num_entries: of the tensor, of which a share may be kept.
        who: complains.

    Example:
        >>> count = lambda bonds: bonds[0] * (30 + 20)
        >>> bond_sizes(KeepParameters(0.5), (20,), count, num_entries=600, who="me")
        (6,)

    Raises:
        DecompositionError: if not one size was given for each bond, or not even bonds of size 1
            need so few parameters.

    Reference:
        Cichocki et al. (2016), Tensor networks for dimensionality reduction, arXiv:1609.00893,
        for the sizes of each form.
    """
    if isinstance(truncation, MaxBond):
        return _limited((truncation.bond,) * len(limits), limits)
    if isinstance(truncation, Bonds):
        if len(truncation.sizes) != len(limits):
            raise DecompositionError(
                f"{who} needs the sizes of {len(limits)} bonds, "
                f"got {len(truncation.sizes)}: {truncation.sizes}."
            )
        return _limited(truncation.sizes, limits)
    budget = int(truncation.share * num_entries)
    least = (1,) * len(limits)
    if count(least) > budget:
        raise DecompositionError(
            f"{who}: {truncation.share} of {num_entries:,} entries are {budget:,} parameters, but "
            f"bonds of size 1 need {count(least):,}. Keep at least {count(least) / num_entries}."
        )
    return _grown(_evenly(limits, count, budget), limits, count, budget)


def _limited(sizes: tuple[int, ...], limits: Sequence[int]) -> tuple[int, ...]:
    return tuple(min(pair) for pair in zip(sizes, limits, strict=True))


def _evenly(limits: Sequence[int], count: Count, budget: int) -> tuple[int, ...]:
    """The largest limit that all bonds can share, found by halving."""
    fits, too_large = 1, max(limits) + 1
    while too_large - fits > 1:
        middle = (fits + too_large) // 2
        if count(_limited((middle,) * len(limits), limits)) <= budget:
            fits = middle
        else:
            too_large = middle
    return _limited((fits,) * len(limits), limits)


def _grown(
    sizes: tuple[int, ...], limits: Sequence[int], count: Count, budget: int
) -> tuple[int, ...]:
    """One more for each bond that has room; twice round would be one more for all of them."""
    for place, limit in enumerate(limits):
        larger = (*sizes[:place], sizes[place] + 1, *sizes[place + 1 :])
        if sizes[place] < limit and count(larger) <= budget:
            sizes = larger
    return sizes
