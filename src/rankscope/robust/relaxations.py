r"""What is known of smooth operations on a box: their range, and how far they are from a tangent.

Curves, products of two values, softmax and normalizations are all of one form here: between two
bounds they stay in a range, and around the middle m of the box they differ from
:math:`f(m) + f'(m) (x - m)` by at most a remainder, which comes from their second derivatives.
Intervals take the range; linear bounds take, entry by entry, whichever of both is tighter. Ranges
are computed in float64, and who uses them moves them outwards by `Smooth.reach` and the rounding.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rankscope.robust.graph import Node
from rankscope.robust.rounding import FLOAT64, LIBRARY, Arithmetic, Rounding

Ends = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Smooth:
    """An operation that is near its tangent.

    Args:
        box: bounds on the inputs to bounds on the output.
        reach: bounds on the inputs to a bound on what one entry of the output takes from them at
            the middle: the absolute values of its derivatives times those of the inputs, added up.
        remainder: bounds on the inputs to a bound on the distance from the tangent in the middle;
            None if there is none.
    """

    box: Callable[[Sequence[Ends]], Ends]
    reach: Callable[[Sequence[Ends]], Tensor]
    remainder: Callable[[Sequence[Ends]], Tensor] | None


def middle(ends: Ends) -> Tensor:
    """The middle of two bounds; infinite ones give no middle, and nothing is proved there."""
    return (ends[0] + ends[1]) / 2


def half_width(ends: Ends) -> Tensor:
    """How far a value can be from the middle, rounding included."""
    at = middle(ends)
    widest = torch.maximum(ends[1] - at, at - ends[0])
    return widest * (1 + 2 * FLOAT64.unit) + FLOAT64.smallest


def largest_size(ends: Ends) -> Tensor:
    """The largest absolute value between two bounds."""
    return torch.maximum(ends[0].abs(), ends[1].abs())


# --- Functions of each entry alone ------------------------------------------------------------


@dataclass(frozen=True)
class Bend:
    """A function of each entry alone with a second derivative.

    Args:
        steepest: bound on its slope.
        curvature: bound on its second derivative.
        lowest: where it turns from falling to rising; -inf if it never falls.
        is_wave: whether it turns more often; then it is within -1 and 1.
    """

    steepest: float
    curvature: float
    lowest: float = -math.inf
    is_wave: bool = False


def bend(node: Node, known: Bend, *, jump: float = 0.0) -> Smooth:
    """A curve by its constants.

    Args:
        node: the operation.
        known: its constants.
        jump: by how much torch's function leaves the smooth one.
    """

    def box(inputs: Sequence[Ends]) -> Ends:
        ((lower, upper),) = inputs
        first, last = node.run(lower), node.run(upper)
        if known.is_wave:
            at, radius = node.run(middle(inputs[0])), known.steepest * half_width(inputs[0])
            return (at - radius).clamp(min=-1.0), (at + radius).clamp(max=1.0)
        if known.lowest == -math.inf:
            return first - jump, last + jump
        nearest = torch.full_like(lower, known.lowest).clamp(lower, upper)
        return node.run(nearest) - jump, torch.maximum(first, last) + jump

    return Smooth(
        box,
        lambda inputs: known.steepest * largest_size(inputs[0]),
        lambda inputs: known.curvature / 2 * half_width(inputs[0]) ** 2 + 2 * jump,
    )


def positive_curve(
    node: Node, slope: Callable[[Tensor], Tensor], curvature: Callable[[Tensor], Tensor]
) -> Smooth:
    """A monotone function of positive numbers whose derivatives are largest at the smaller end.

    Where a bound is not positive, nothing is known.
    """

    def box(inputs: Sequence[Ends]) -> Ends:
        ((lower, upper),) = inputs
        first, last = node.run(lower), node.run(upper)
        is_known = lower > 0
        return (
            torch.where(is_known, torch.minimum(first, last), -math.inf),
            torch.where(is_known, torch.maximum(first, last), math.inf),
        )

    def at_the_smaller_end(derivative: Callable[[Tensor], Tensor], ends: Ends) -> Tensor:
        return torch.where(ends[0] > 0, derivative(ends[0]), math.inf)

    return Smooth(
        box,
        lambda inputs: at_the_smaller_end(slope, inputs[0]) * largest_size(inputs[0]),
        lambda inputs: at_the_smaller_end(curvature, inputs[0]) / 2 * half_width(inputs[0]) ** 2,
    )


def exponential(node: Node) -> Smooth:
    """The exponential: all its derivatives are itself."""

    def remainder(inputs: Sequence[Ends]) -> Tensor:
        return inputs[0][1].exp() / 2 * half_width(inputs[0]) ** 2

    return Smooth(
        lambda inputs: (node.run(inputs[0][0]).clamp(min=0.0), node.run(inputs[0][1])),
        lambda inputs: inputs[0][1].exp() * largest_size(inputs[0]),
        remainder,
    )


def power(node: Node, exponent: int) -> Smooth:
    """A power with a whole exponent of at least 1."""

    def box(inputs: Sequence[Ends]) -> Ends:
        ((lower, upper),) = inputs
        first, last = node.run(lower), node.run(upper)
        if exponent % 2:
            return first, last
        lowest = torch.where((lower <= 0) & (upper >= 0), 0.0, torch.minimum(first, last))
        return lowest, torch.maximum(first, last)

    def remainder(inputs: Sequence[Ends]) -> Tensor:
        size = largest_size(inputs[0])
        bound = exponent * (exponent - 1) * size ** max(exponent - 2, 0)
        return bound / 2 * half_width(inputs[0]) ** 2

    return Smooth(box, lambda inputs: exponent * largest_size(inputs[0]) ** exponent, remainder)


# --- Products and quotients of two values -----------------------------------------------------


def product(absolute: Callable[..., Tensor], exact: Callable[..., Tensor]) -> Smooth:
    r"""A product of two values, entry by entry or of matrices.

    With middles a, b and half widths r, s it is :math:`a y + x b - a b \pm r s`: the planes of
    McCormick (1976) on both sides, in their middle.

    Args:
        absolute: the same product with the absolute values of its own factors.
        exact: the product.
    """

    def sizes(inputs: Sequence[Ends]) -> tuple[list[Tensor], list[Tensor]]:
        return [middle(ends).abs() for ends in inputs], [half_width(ends) for ends in inputs]

    def box(inputs: Sequence[Ends]) -> Ends:
        at = exact(*map(middle, inputs))
        inner, radii = sizes(inputs)
        outer = [size + radius for size, radius in zip(inner, radii, strict=True)]
        radius = (absolute(*outer) - absolute(*inner)).clamp(min=0.0)
        return at - radius, at + radius

    def remainder(inputs: Sequence[Ends]) -> Tensor:
        return absolute(*sizes(inputs)[1])

    return Smooth(box, lambda inputs: 2 * absolute(*map(largest_size, inputs)), remainder)


def quotient(inputs: Sequence[Ends]) -> Ends:
    """Bounds on the quotient of two values; none where the second one may be zero."""
    (low, high), (lower, upper) = inputs
    corners = torch.stack([low / lower, low / upper, high / lower, high / upper])
    is_known = (lower > 0) | (upper < 0)
    return (
        torch.where(is_known, corners.amin(dim=0), -math.inf),
        torch.where(is_known, corners.amax(dim=0), math.inf),
    )


# --- Softmax ----------------------------------------------------------------------------------


def softmax(axis: int, mask: Tensor | None) -> Smooth:
    r"""Shares that add up to 1, :math:`p_i = e^{s_i} / \sum_j e^{s_j}`.

    Along a direction d, :math:`p_i'' = p_i ((d_i - \bar d)^2 - \mathrm{Var}(d))`, and both squares
    are at most :math:`(2 r)^2` for half widths of at most r.

    Args:
        axis: from the end.
        mask: what is added to scores, or where they count; None for nothing.
    """

    def box(inputs: Sequence[Ends]) -> Ends:
        lower, upper = (_shifted(scores, mask) for scores in inputs[0])
        return _smallest_shares(lower, upper, axis), _largest_shares(lower, upper, axis)

    def radius(inputs: Sequence[Ends]) -> Tensor:
        return half_width(inputs[0]).amax(dim=axis, keepdim=True)

    return Smooth(
        box,
        lambda inputs: 2 * box(inputs)[1] * largest_size(inputs[0]).amax(dim=axis, keepdim=True),
        lambda inputs: 2 * box(inputs)[1] * (1 + 2**-30) * radius(inputs) ** 2,
    )


def _shifted(scores: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return scores
    if mask.dtype is torch.bool:
        return torch.where(mask, scores, -math.inf)
    return scores + mask.to(scores)


_LARGEST_EXPONENT = 700.0  # of e in float64


def _others(scores: Tensor, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    """The largest score, and for every entry the sum of the other exponentials over its own."""
    largest = scores.amax(dim=axis, keepdim=True)
    shares = (scores - largest).exp()
    total = shares.sum(dim=axis, keepdim=True)
    slack = 4 * FLOAT64.gamma(scores.shape[axis] + LIBRARY) * total
    return largest, total - shares, slack


def _largest_shares(lower: Tensor, upper: Tensor, axis: int) -> Tensor:
    """An entry at its upper bound among others at their lower ones."""
    largest, others, slack = _others(lower, axis)
    factor = (largest - upper).clamp(max=_LARGEST_EXPONENT).exp()
    shares = 1 / (1 + (others - slack).clamp(min=0.0) * factor)
    return torch.where(upper == -math.inf, 0.0, shares)


def _smallest_shares(lower: Tensor, upper: Tensor, axis: int) -> Tensor:
    """An entry at its lower bound among others at their upper ones."""
    largest, others, slack = _others(upper, axis)
    factor = (largest - lower).exp()
    shares = 1 / (1 + (others + slack) * factor)
    return torch.where(lower == -math.inf, 0.0, shares)


def softmax_rounding(axis: int, length: int, mask: Tensor | None, own: Arithmetic) -> Rounding:
    """Errors of a softmax: those of exponents count by their size, the others by one each.

    The exponentials may be rescaled once for every entry, as fused kernels do.

    Args:
        axis: from the end.
        length: how many entries there are along it.
        mask: as in `softmax`.
        own: the arithmetic of the network; where exponents are so large that it does not know
            them to a quarter, the error is as large as a share can be.
    """
    count = length * (LIBRARY + 2) + 4 * LIBRARY
    gamma = own.gamma(count)

    def size(ends: Sequence[Ends], results: Tensor) -> Tensor:
        lower, upper = (_finite(scores, mask) for scores in ends[0])
        exponents = 2 + 8 * largest_size((lower, upper)).amax(dim=axis, keepdim=True)
        return torch.where(gamma * exponents < 0.25, results * exponents, 1 / gamma)

    def spread(scores: Tensor) -> Tensor:
        return (8 * scores.sum(dim=axis, keepdim=True)).expand_as(scores)

    return Rounding(count, spread, 2.0, of_box=size)


def _finite(scores: Tensor, mask: Tensor | None) -> Tensor:
    shifted = _shifted(scores, mask)
    return torch.where(shifted == -math.inf, 0.0, shifted)


# --- Normalizations ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Standardization:
    r"""Layer and root-mean-square normalization.

    .. math:: w z / \sqrt{\overline{z^2} + \epsilon} + b

    z is the input, less its mean in the first kind.

    Args:
        axes: how many of the last axes are normalized together.
        is_centred: whether the mean is taken away.
        epsilon: ε.
        weight: w, or None.
        bias: b, or None.
    """

    axes: int
    is_centred: bool
    epsilon: float
    weight: Tensor | None
    bias: Tensor | None

    def form(self) -> Smooth:
        """Its range and remainder."""
        return Smooth(self._box, self._reach, self._remainder)

    def rounding(self, length: int, own: Arithmetic) -> Rounding:
        """Of means, squares, root and quotient, by any of the usual formulas."""
        count = 2 * length + 16
        gamma = own.gamma(count)

        def size(ends: Sequence[Ends], results: Tensor) -> Tensor:
            del results
            sizes = self._flat(largest_size(ends[0]))
            smallest, outputs = self._deviation(ends[0]), self._largest_outputs(ends[0])
            squares = (sizes**2).mean(dim=-1, keepdim=True) / smallest**2
            means = sizes.mean(dim=-1, keepdim=True)
            plain = (4 * means + 2 * sizes) / smallest + outputs * (4 * squares + 4)
            plain = torch.where(gamma * 4 * squares < 0.25, plain, math.inf)
            return self._scaled(plain.reshape(ends[0][0].shape), absolute=True)

        return Rounding(count, _unknown, 0.0, of_box=size)

    def steepest(self) -> float:
        """A bound on its slope: that where all numbers are nearly equal."""
        largest = 1.0 if self.weight is None else float(self.weight.abs().max())
        return largest / math.sqrt(self.epsilon) if self.epsilon > 0 else math.inf

    def _flat(self, values: Tensor) -> Tensor:
        return values.flatten(-self.axes)

    def _scaled(self, values: Tensor, *, absolute: bool = False) -> Tensor:
        weight, bias = self.weight, self.bias
        if weight is not None:
            values = values * (weight.abs() if absolute else weight).to(values)
        if bias is not None:
            values = values + (bias.abs() if absolute else bias).to(values)
        return values

    def _centres(self, ends: Ends) -> tuple[Tensor, Tensor]:
        """Middles and half widths of z, the normalized axes as one."""
        at, radius = self._flat(middle(ends)), self._flat(half_width(ends))
        if not self.is_centred:
            return at, radius
        length = at.shape[-1]
        mean, spread = (part.mean(dim=-1, keepdim=True) for part in (at, radius))
        share = max(1 - 2 / length, 0.0)
        rounded = 4 * FLOAT64.gamma(length + 4)
        slack = rounded * (at.abs() + at.abs().mean(dim=-1, keepdim=True))
        return at - mean, (radius * share + spread) * (1 + rounded) + slack

    def _squares(self, ends: Ends) -> Ends:
        at, radius = self._centres(ends)
        return (at.abs() - radius).clamp(min=0.0) ** 2, (at.abs() + radius) ** 2

    def _deviation(self, ends: Ends) -> Tensor:
        """The smallest that the root can be."""
        smallest = self._squares(ends)[0].mean(dim=-1, keepdim=True)
        return ((smallest + self.epsilon) * (1 - 2**-30)).sqrt()

    def _largest_outputs(self, ends: Ends) -> Tensor:
        lower, upper = self._quotients(ends)
        return torch.maximum(lower.abs(), upper.abs())

    def _quotients(self, ends: Ends) -> Ends:
        """Z over the root rises with z, and is near zero where other squares are large."""
        at, radius = self._centres(ends)
        squares = self._squares(ends)
        length = at.shape[-1]
        slack = 4 * FLOAT64.gamma(length + 4)
        few, many = (
            (square.sum(dim=-1, keepdim=True) - square).clamp(min=0.0) for square in squares
        )
        few = (few - slack * squares[0].sum(dim=-1, keepdim=True)).clamp(min=0.0)
        many = many + slack * squares[1].sum(dim=-1, keepdim=True)

        def ratio(value: Tensor, others: Tensor) -> Tensor:
            return value / ((value**2 + others) / length + self.epsilon).sqrt()

        low, high = at - radius, at + radius
        return (
            ratio(low, torch.where(low > 0, many, few)),
            ratio(high, torch.where(high > 0, few, many)),
        )

    def _box(self, inputs: Sequence[Ends]) -> Ends:
        shape = inputs[0][0].shape
        first, last = (self._scaled(part.reshape(shape)) for part in self._quotients(inputs[0]))
        return torch.minimum(first, last), torch.maximum(first, last)

    def _reach(self, inputs: Sequence[Ends]) -> Tensor:
        ends = inputs[0]
        sizes = self._flat(largest_size(ends)).amax(dim=-1, keepdim=True)
        plain = (2 + self._largest_outputs(ends)) * sizes / self._deviation(ends)
        return self._scaled(plain.reshape(ends[0].shape), absolute=True)

    def _remainder(self, inputs: Sequence[Ends]) -> Tensor:
        r"""Half of :math:`(2 |d_i| D + 3 |y_i| D^2) / \sigma^2`, D the root mean square of d."""
        ends = inputs[0]
        radius = self._centres(ends)[1]
        mean = (radius**2).mean(dim=-1, keepdim=True).sqrt()
        outputs, smallest = self._largest_outputs(ends), self._deviation(ends)
        plain = (2 * radius * mean + 3 * outputs * mean**2) / (2 * smallest**2) * (1 + 2**-30)
        weight = 1.0 if self.weight is None else self.weight.abs().to(plain)
        return plain.reshape(ends[0].shape) * weight


def _unknown(sizes: Tensor) -> Tensor:
    return torch.full_like(sizes, math.inf)
