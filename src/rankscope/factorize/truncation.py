"""Truncations (by a rank or an error), and what all decompositions share."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankscope.errors import DecompositionError

# --- How much of a tensor to keep: by the sizes of bonds, by the error, or by the parameters ------


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
        return _limit_bonds((truncation.bond,) * len(limits), limits)
    if isinstance(truncation, Bonds):
        if len(truncation.sizes) != len(limits):
            raise DecompositionError(
                f"{who} needs the sizes of {len(limits)} bonds, "
                f"got {len(truncation.sizes)}: {truncation.sizes}."
            )
        return _limit_bonds(truncation.sizes, limits)
    budget = int(truncation.share * num_entries)
    least = (1,) * len(limits)
    if count(least) > budget:
        raise DecompositionError(
            f"{who}: {truncation.share} of {num_entries:,} entries are {budget:,} parameters, but "
            f"bonds of size 1 need {count(least):,}. Keep at least {count(least) / num_entries}."
        )
    return _grow_bonds(_evenly(limits, count, budget), limits, count, budget)


def _limit_bonds(sizes: tuple[int, ...], limits: Sequence[int]) -> tuple[int, ...]:
    return tuple(min(pair) for pair in zip(sizes, limits, strict=True))


def _evenly(limits: Sequence[int], count: Count, budget: int) -> tuple[int, ...]:
    """The largest limit that all bonds can share, found by halving."""
    fits, too_large = 1, max(limits) + 1
    while too_large - fits > 1:
        middle = (fits + too_large) // 2
        if count(_limit_bonds((middle,) * len(limits), limits)) <= budget:
            fits = middle
        else:
            too_large = middle
    return _limit_bonds((fits,) * len(limits), limits)


def _grow_bonds(
    sizes: tuple[int, ...], limits: Sequence[int], count: Count, budget: int
) -> tuple[int, ...]:
    """One more for each bond that has space; twice round would be one more for all of them."""
    for place, limit in enumerate(limits):
        larger = (*sizes[:place], sizes[place] + 1, *sizes[place + 1 :])
        if sizes[place] < limit and count(larger) <= budget:
            sizes = larger
    return sizes


# --- Tensors as decompositions compute with them: checked, scaled, and precise enough -------------


# Larger tensors are computed in float32, to save memory and time.
MAX_DOUBLE_ENTRIES = 2**21
# Errors that float32 cannot promise.
_LEAST_SINGLE_ERROR = 1e-4
# How many units of rounding a product of orthonormal factors may be off by.
_ROUNDINGS = 64


@dataclass(frozen=True, eq=False)
class Scaled:
    """A tensor over its largest absolute value, so that no square over- or underflows.

    Args:
        unit: float64 or float32, detached.
        scale: what it was divided by; 1 if it is 0.
    """

    unit: Tensor
    scale: float

    def relative_error(self, approximation: Tensor) -> float:
        """The Frobenius norm of what is missing over that of the tensor, entry by entry.

        Args:
            approximation: of `unit`.
        """
        whole = frobenius_norm(self.unit)
        return frobenius_norm(self.unit - approximation) / whole if whole else 0.0

    def allowed(self, error: float) -> float:
        """The squared Frobenius norm that may be left out for a relative error.

        What rounding will add is taken off.
        """
        rounding = _ROUNDINGS * torch.finfo(self.unit.dtype).eps
        return max(0.0, error**2 - rounding**2) * frobenius_norm(self.unit) ** 2


def frobenius_norm(tensor: Tensor) -> float:
    """The root of the sum of squares."""
    return float(torch.linalg.vector_norm(tensor))


def to_scaled(tensor: Tensor, truncation: Truncation, *, who: str, least_order: int = 1) -> Scaled:
    """Check a tensor and bring it into the dtype to compute in.

    That is float64; float32 above 2,097,152 entries, unless an error below 0.0001 is asked for.

    Raises:
        DecompositionError: if it is not a tensor of finite real floating-point numbers.
    """
    _require_real(tensor, who, least_order)
    precise = isinstance(truncation, RelativeError) and truncation.error < _LEAST_SINGLE_ERROR
    double = precise or tensor.numel() <= MAX_DOUBLE_ENTRIES
    whole = tensor.detach().to(torch.float64 if double else torch.float32)
    largest = float(whole.abs().max())
    if not math.isfinite(largest):
        raise DecompositionError(_where_not_finite(whole, who))
    return Scaled(whole / largest, largest) if largest else Scaled(whole, 1.0)


def _require_real(tensor: Tensor, who: str, least_order: int) -> None:
    if not tensor.dtype.is_floating_point:
        raise DecompositionError(
            f"{who} needs real floating-point numbers, got {tensor.dtype}. Convert it first."
        )
    if tensor.ndim < least_order:
        raise DecompositionError(
            f"{who} needs a tensor of order {least_order} or more, got order {tensor.ndim} "
            f"(shape {tuple(tensor.shape)})."
        )
    if tensor.numel() == 0:
        raise DecompositionError(
            f"{who} needs a tensor with entries, got shape {tuple(tensor.shape)}."
        )


def _where_not_finite(tensor: Tensor, who: str) -> str:
    bad = (~tensor.isfinite()).nonzero()
    first = tuple(bad[0].tolist())
    return (
        f"{who}: {len(bad):,} of {tensor.numel():,} entries are not finite, "
        f"the first one ({float(tensor[first])}) at {first}."
    )


# --- Sums of outer products, written as one factor matrix for each position of a tensor -----------


Reals = NDArray[numpy.float64]
Factors = tuple[Reals, ...]  # one (size, num_components) for each position

_LARGEST_SMALL_PRODUCT = 2**18  # multiply-adds, which one thread does
_BLOCK = 1024  # components added up at a time, to save memory


def outer_columns(factors: Sequence[Reals]) -> Reals:
    """The outer product of the factors' columns, one by one: (product of sizes, num_components)."""
    product = factors[0]
    for factor in factors[1:]:
        product = (product[:, None, :] * factor).reshape(-1, factor.shape[1])
    return product


def multiply(left: Reals, right: Reals) -> Reals:
    """The product of two matrices; large ones by torch.

    Its threads and those of NumPy's library wait for their next product at full speed, so that two
    sets of them, used in turn, take twice the time of one.
    """
    if left.size * right.shape[1] <= _LARGEST_SMALL_PRODUCT:
        product: Reals = left @ right
        return product
    return (torch.from_numpy(left) @ torch.from_numpy(right)).numpy()


def inner(left: Reals, right: Reals) -> float:
    """The sum of the products of all entries; by torch, for the same reason."""
    return float(torch.from_numpy(left).reshape(-1) @ torch.from_numpy(right).reshape(-1))


def compose(factors: Factors) -> Reals:
    r"""Add up the components.

    .. math:: T_{j_1 \dots j_N} = \sum_{s=1}^{R} \prod_{k=1}^{N} F^{(k)}_{j_k s}
    """
    middle = len(factors) // 2
    total = numpy.zeros(tuple(len(factor) for factor in factors))
    for start in range(0, factors[0].shape[1], _BLOCK):
        block = [factor[:, start : start + _BLOCK] for factor in factors]
        product = multiply(outer_columns(block[:middle]), outer_columns(block[middle:]).T)
        total += product.reshape(total.shape)
    return total


def project(tensor: Reals, factors: Factors) -> Factors:
    r"""Contract a tensor with the outer products of all factors but one, for each one in turn.

    .. math:: G^{(k)}_{j_k s} = \sum_{j_1 \dots \hat{j_k} \dots j_N} T_{j_1 \dots j_N}
              \prod_{l \ne k} F^{(l)}_{j_l s}

    Positions are halved again and again, and both halves share what was contracted before them.

    Reference:
        Phan, Tichavský & Cichocki (2013), arXiv:1204.1586.
    """
    middle = len(factors) // 2
    left, right = factors[:middle], factors[middle:]
    matrix = tensor.reshape(-1, len(outer_columns(right)))
    return _split(multiply(matrix, outer_columns(right)), left) + _split(
        multiply(matrix.T, outer_columns(left)), right
    )


def _split(partial: Reals, factors: Factors) -> Factors:
    """The same for a tensor that already has the component as its last position."""
    if len(factors) == 1:
        return (partial,)
    middle = len(factors) // 2
    left, right = outer_columns(factors[:middle]), outer_columns(factors[middle:])
    cube = partial.reshape(len(left), len(right), -1)
    return _split(numpy.einsum("abs,bs->as", cube, right), factors[:middle]) + _split(
        numpy.einsum("abs,as->bs", cube, left), factors[middle:]
    )


def component_norms(factors: Factors) -> Reals:
    """The Frobenius norm of each outer product."""
    norms = numpy.array([numpy.linalg.norm(factor, axis=0) for factor in factors])
    product: Reals = norms.prod(axis=0)
    return product


def balance(factors: Factors) -> Factors:
    """Give all vectors of a component the same length, which does not change the sum.

    A component with a vector 0 becomes 0 throughout.
    """
    norms = numpy.array([numpy.linalg.norm(factor, axis=0) for factor in factors])
    common = norms.prod(axis=0) ** (1 / len(factors))
    scales = numpy.divide(common, norms, out=numpy.zeros_like(norms), where=norms > 0)
    return tuple(factor * scale for factor, scale in zip(factors, scales, strict=True))


# --- Tensors of real numbers from either library, checked and scaled ------------------------------


RealTensor = NDArray[numpy.generic] | Tensor


def to_array(tensor: RealTensor, *, who: str) -> NDArray[numpy.generic]:
    """A NumPy array of finite reals or integers, of order 2 or more, in the precision it had.

    Raises:
        DecompositionError: if the tensor is anything else.
    """
    array = _from_torch(tensor, who) if isinstance(tensor, Tensor) else tensor
    if array.dtype.kind not in "fiu":
        raise DecompositionError(
            f"{who} needs real numbers, floating point or integer, got {array.dtype}."
        )
    if array.ndim < 2:
        raise DecompositionError(
            f"{who} needs a tensor of order 2 or more, got order {array.ndim} "
            f"(shape {array.shape})."
        )
    if array.size == 0:
        raise DecompositionError(f"{who} needs a tensor with entries, got shape {array.shape}.")
    num_bad = array.size - int(numpy.isfinite(array.astype(numpy.float64)).sum())
    if num_bad:
        raise DecompositionError(f"{who}: {num_bad} of {array.size} entries are not finite.")
    return array


def to_unit(array: NDArray[numpy.generic]) -> tuple[Reals, float]:
    """The array in float64 over its Frobenius norm, and that norm; zero stays as it is."""
    unit = array.astype(numpy.float64)
    largest = float(numpy.abs(unit).max())
    if largest == 0:
        return unit, 0.0
    # Dividing by the largest entry first keeps the squares from overflowing.
    unit = unit / largest
    norm = float(numpy.linalg.norm(unit))
    return unit / norm, largest * norm


def _from_torch(tensor: Tensor, who: str) -> NDArray[numpy.generic]:
    try:
        array: NDArray[numpy.generic] = tensor.detach().cpu().numpy()
    except TypeError as error:
        raise DecompositionError(
            f"{who} needs a number type that NumPy has, got {tensor.dtype}. Convert it first."
        ) from error
    return array


# --- Where descents begin: at random, or at factors found for another number of components --------


def random_start(
    shape: tuple[int, ...], num_components: int, generator: numpy.random.Generator
) -> Factors:
    """Gaussian factors of a tensor of Frobenius norm 1."""
    factors = tuple(generator.standard_normal((size, num_components)) for size in shape)
    return _scale(factors, 1 / float(numpy.linalg.norm(compose(factors))))


def resize(
    tensor: Reals, factors: Factors, num_components: int, generator: numpy.random.Generator
) -> Factors:
    """Drop the smallest components, or add random ones as large as what is still missing."""
    missing = num_components - factors[0].shape[1]
    if missing <= 0:
        kept = numpy.argsort(component_norms(factors))[-missing:]
        return tuple(factor[:, kept] for factor in factors)
    residual = float(numpy.linalg.norm(compose(factors) - tensor))
    added = _scale(random_start(tensor.shape, missing, generator), residual)
    return tuple(numpy.hstack(pair) for pair in zip(factors, added, strict=True))


def _scale(factors: Factors, scale: float) -> Factors:
    share = scale ** (1 / len(factors))
    return tuple(factor * share for factor in factors)
