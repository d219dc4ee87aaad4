r"""How far a result in floating point can be from the exact one: one error model for all proofs.

Every operation of IEEE 754 gives
:math:`\mathrm{fl}(a \circ b) = (a \circ b)(1 + \delta) + \eta` with :math:`|\delta| \le u` and, if
results below the smallest normal number are flushed to zero, :math:`|\eta|` at most that number. A
sum of n products, in any order, with fused multiply-adds or not, is off by at most
:math:`\gamma_n \sum |a_i b_i|`, :math:`\gamma_n = n u / (1 - n u)` (Higham 2002, section 3.1).
Everything that is called proved here is rounded outwards by these bounds, once for the float64 in
which it is computed and once for the floats in which the network runs.

What counts as one operation: torch on a CPU sums products directly (oneDNN is asked for direct
convolutions, BLAS does not use Strassen's algorithm); only NNPACK has Winograd's and Fourier's, and
is switched off while certificates are made (`own_floats`). Exponentials and the like come from
vector libraries that promise a few units in the last place, but one of them is a polynomial with an
*absolute* error; they are charged `LIBRARY` roundings of the result and of 1.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from rankscope.errors import RobustnessError

# Roundings that a library function is charged: of its result, and of 1 where that is bounded.
LIBRARY = 16


@dataclass(frozen=True)
class Arithmetic:
    """A floating-point format, rounding to nearest.

    Args:
        name: of its dtype.
        unit: u, half of the distance from 1 to the next larger number.
        smallest: the smallest normal number; what is below may be flushed to zero.
        largest: the largest finite number.

    Example:
        >>> Arithmetic.of(torch.float32).unit == 2**-24
        True
    """

    name: str
    unit: float
    smallest: float
    largest: float

    @classmethod
    def of(cls, dtype: torch.dtype) -> "Arithmetic":
        """That of a dtype.

        Raises:
            TypeError: if it is none of floating-point numbers, from torch.
        """
        limits = torch.finfo(dtype)
        name = str(dtype).removeprefix("torch.")
        return cls(name, limits.eps / 2, limits.tiny, limits.max)

    def gamma(self, count: int) -> float:
        r"""An upper bound on :math:`\gamma_n`: what n roundings one after the other can do.

        Infinite where n u is not below 1/2: nothing is known of such sums.
        """
        product = count * self.unit
        return math.inf if product >= 0.5 else product / (1 - product) * (1 + 2**-40)

    def absolute(self, count: int) -> float:
        """What n results that are flushed to zero can lose together."""
        return 2 * (count + 1) * self.smallest


FLOAT64 = Arithmetic.of(torch.float64)


@dataclass(frozen=True, eq=False)
class ProductSquares:
    r"""The squares of all products that a layer adds up, for a bound on sums in any order.

    N terms t are added by a binary tree, and each of its partial sums is rounded once. The error of
    the sum is, to first order, at most
    :math:`u (\sqrt{(N + 3)^3/12}\,\|t\| + (N/2 + 1) |\sum t|)`: docs/proofs.md, section 36.

    Args:
        columns: for each entry of an input, at least the sum of the squares of its weights.
        offset: the sum of the squares of the constants.
    """

    columns: Tensor
    offset: float = 0.0

    @property
    def steepest(self) -> float:
        """By how much the length of the products grows with that of the input, at most."""
        return above(math.sqrt(float(self.columns.max())), 4) if self.columns.numel() else 0.0

    def length(self, inputs: Tensor) -> Tensor:
        """The length of the vector of all products, for inputs (batch, …): (batch,), from above."""
        squares = (inputs.square() * self.columns).flatten(1).sum(dim=1) + self.offset
        count = inputs[0].numel()
        return (squares + FLOAT64.absolute(count)).sqrt() * above(1.0, count + 8)

    @staticmethod
    def shares(arithmetic: Arithmetic, count: int) -> tuple[float, float]:
        """By what the length of the products, and that of the results, are multiplied."""
        gamma, up = arithmetic.gamma(count), 1 + 2**-30
        # Errors of errors, and of the products themselves, by sums of at most N absolute values.
        rest = (2 * gamma**2 + 1.01 * arithmetic.unit) * math.sqrt(count)
        first = arithmetic.unit * math.sqrt((count + 3) ** 3 / 12)
        return (first + rest) * up, arithmetic.unit * (count / 2 + 1) * up


@dataclass(frozen=True, eq=False)
class Rounding:
    r"""By how much the computed result of an operation can differ from the exact one.

    At most :math:`\gamma_n M(|x|)` for inputs x, where M adds up the absolute values of everything
    that the operation adds.

    Args:
        count: n, roundings that one term can meet.
        spread: bounds on the absolute values of the inputs to the part of M that depends on them;
            it rises with each of them, and M(a + b) is at most M(a) + M(b).
        offset: the rest of M.
        is_sum: whether it is one sum of n products. Then a partial sum is at most half of M plus
            half of the result, as terms of one sign must cancel the others, and so is its error.
        of_box: M by bounds on the inputs and a bound on the result, where that says more than
            absolute values; None for `spread` and `offset`.
        products: the squares of what is added, if it is one sum of products for every output.
        terms: one sample, (1, …), to everything that is added, (outputs, terms); None if it is not
            such a sum, or not known.
        short: `spread` of one input in float32, with weights that are not smaller, where that is
            enough and much faster; None where it is not.
    """

    count: int
    spread: Callable[..., Tensor]
    offset: Tensor | float = 0.0
    is_sum: bool = False
    of_box: Callable[[Sequence[tuple[Tensor, Tensor]], Tensor], Tensor] | None = None
    products: ProductSquares | None = None
    terms: Callable[[Tensor], Tensor] | None = None
    short: Callable[[Tensor], Tensor] | None = None

    def magnitude(self, *sizes: Tensor) -> Tensor:
        """M, for bounds on the absolute values of the inputs, rounded upwards."""
        # Sums of at most as many terms, none of them negative.
        if self.short is None:
            spread, arithmetic = self.spread(*sizes), FLOAT64
        else:
            arithmetic = _FLOAT32
            (size,) = sizes
            with torch.backends.nnpack.flags(enabled=False):
                spread = self.short(_rounded_up(size)).double()
            spread = spread + arithmetic.absolute(self.count)
        offset = self.offset
        if isinstance(offset, Tensor):
            offset = offset.to(spread)
        return (spread + offset).mul_(1 + 2 * arithmetic.gamma(self.count + 4))

    def error(self, arithmetic: Arithmetic, magnitude: Tensor, results: Tensor) -> Tensor:
        """A bound on the error, entry by entry.

        Args:
            arithmetic: in which the operation is computed.
            magnitude: M.
            results: bounds on the absolute values of the exact results.
        """
        return self.scaled_error(arithmetic, magnitude, results) + arithmetic.absolute(self.count)

    def of_products(self, arithmetic: Arithmetic) -> float:
        r"""What a sum of products owes to the products, and to errors of errors.

        A partial sum as computed is at most the exact one plus :math:`\gamma_n M`.
        """
        return arithmetic.gamma(self.count) ** 2 + 1.01 * arithmetic.unit

    def shares(self, arithmetic: Arithmetic) -> tuple[float, float]:
        """By what M and a bound on the results are multiplied in a bound on the error."""
        gamma, up = arithmetic.gamma(self.count), 1 + 2**-40
        if not self.is_sum:
            return gamma * up, 0.0
        # No result is above M: the half of both is never more than M.
        return (gamma / 2 + self.of_products(arithmetic)) * up, gamma / 2 * up

    def scaled_error(self, arithmetic: Arithmetic, magnitude: Tensor, results: Tensor) -> Tensor:
        """The same without what is lost by flushing to zero; infinite where numbers overflow."""
        of_magnitude, of_results = self.shares(arithmetic)
        error = weighted_sum(magnitude, of_magnitude, results, of_results)
        return infinite_beyond(arithmetic.largest / 4, magnitude, error)


def weighted_sum(first: Tensor, share: float, second: Tensor, other_share: float) -> Tensor:
    """A new tensor: the shares of two, the second of which may be nothing."""
    total = first * share
    return torch.add(total, second, alpha=other_share) if other_share else total


def infinite_beyond(limit: float, magnitude: Tensor, error: Tensor) -> Tensor:
    """An error, infinite where a magnitude is not below a limit: numbers overflow there."""
    if magnitude.numel() == 0 or float(magnitude.amax()) < limit:
        return error
    return torch.where(magnitude < limit, error, math.inf)


_FLOAT32 = Arithmetic.of(torch.float32)


def _rounded_up(size: Tensor) -> Tensor:
    """Float32 numbers that are not smaller, and never so small that they are flushed to zero."""
    return size.float().mul_(1 + 4 * _FLOAT32.unit).clamp_(min=_FLOAT32.smallest)


def short_weights(size: Tensor) -> Tensor:
    """The same for weights, as they are where float32 holds them.

    Example:
        >>> short_weights(torch.tensor([0.5, 0.1], dtype=torch.float64)) >= torch.tensor([0.5, 0.1])
        tensor([True, True])
    """
    short = size.float()
    infinity = torch.full_like(short, math.inf)
    short = torch.where(short.double() < size, torch.nextafter(short, infinity), short)
    return short.clamp_(min=_FLOAT32.smallest)


def above(number: float, roundings: int = 1) -> float:
    """Not below the exact number, if this one came out of so many float64 operations; not negative.

    Example:
        >>> above(1.0) > 1.0, above(0.0) > 0.0
        (True, True)
    """
    return math.nextafter(number * (1 + 2 * FLOAT64.gamma(roundings + 1)), math.inf)


def lengths_above(rows: Tensor) -> Tensor:
    """Euclidean lengths along the last axis, from above; squares neither underflow nor overflow.

    Example:
        >>> tiny = torch.tensor([3e-200, 4e-200], dtype=torch.float64)
        >>> 5e-200 <= float(lengths_above(tiny)) <= 5.001e-200
        True
    """
    if rows.shape[-1] == 0:
        return rows.new_zeros(rows.shape[:-1])
    sizes = rows.abs().amax(dim=-1, keepdim=True)
    scales = sizes.clamp(min=torch.finfo(rows.dtype).tiny)
    found = torch.linalg.vector_norm(rows / scales, dim=-1) * scales[..., 0]
    found = found.nan_to_num(nan=math.inf, posinf=math.inf) * above(1.0, rows.shape[-1] + 8)
    longer = torch.nextafter(found, torch.full_like(found, math.inf))
    return torch.where(sizes[..., 0] == 0, found, longer)


def outwards(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Two float64 bounds, each moved to the next number outwards."""
    infinity = torch.tensor(math.inf, dtype=lower.dtype)
    return torch.nextafter(lower, -infinity), torch.nextafter(upper, infinity)


@contextmanager
def own_floats() -> Iterator[None]:
    """Run models by algorithms that the error model counts.

    NNPACK, which convolves by Winograd's and Fourier's algorithms, is switched off for a while.

    Raises:
        RobustnessError: if torch is told to multiply float32 matrices in a shorter format.
    """
    precision = torch.get_float32_matmul_precision()
    if precision != "highest":
        raise RobustnessError(
            "Certificates hold for float32 products of full precision, but "
            f"torch.get_float32_matmul_precision() is {precision!r}; set it to 'highest'."
        )
    with torch.backends.nnpack.flags(enabled=False):
        yield
