"""Channels cut in factors: S = S₁ ⋯ Sₘ inputs and T = T₁ ⋯ Tₘ outputs of a weight.

A weight (T, S, *kernel) is the same numbers as a tensor (T₁, ..., Tₘ, S₁, ..., Sₘ, kernel), and
with S_l and T_l side by side as the *paired* tensor (S₁T₁, ..., SₘTₘ, kernel): its low-rank forms
are other sets of weights than those of the weight itself.
"""

from dataclasses import dataclass

from torch import Tensor

from rankscope.errors import LayerError
from rankscope.factorize.formats.format import WeightShape

LARGEST_PRIME = 31  # a larger prime leaves one factor far above the others, whatever is done


def largest_prime(number: int) -> int:
    """The largest prime that divides a number; 1 for 1.

    Example:
        >>> largest_prime(768), largest_prime(50257)
        (3, 1733)
    """
    largest, divisor = 1, 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            number, largest = number // divisor, divisor
        divisor += 1
    return max(largest, number)


# A plain dict: torch's compiler reads what it holds instead of following the search. (Its decorator
# for constants takes two seconds when this module is loaded.)
_KNOWN: dict[tuple[int, int], tuple[int, ...]] = {}


def balanced_factors(number: int, num_factors: int) -> tuple[int, ...]:
    """The factorization into so many integers whose sum is smallest, largest factor first.

    Example:
        >>> balanced_factors(64, 2), balanced_factors(32, 3), balanced_factors(3, 2)
        ((8, 8), (4, 4, 2), (3, 1))

    Raises:
        LayerError: if the number or how many factors is not positive.
    """
    if number < 1 or num_factors < 1:
        raise LayerError(
            f"balanced_factors: wanted a positive number in at least 1 factor, "
            f"got {number} in {num_factors}."
        )
    if (number, num_factors) not in _KNOWN:
        _KNOWN[number, num_factors] = _balanced_factors(number, num_factors)
    return _KNOWN[number, num_factors]


def _balanced_factors(number: int, num_factors: int) -> tuple[int, ...]:
    if num_factors == 1:
        return (number,)
    divisors = (divisor for divisor in range(1, number + 1) if number % divisor == 0)
    factorizations = [
        sorted((divisor, *balanced_factors(number // divisor, num_factors - 1)), reverse=True)
        for divisor in divisors
    ]
    return tuple(min(factorizations, key=lambda factors: (sum(factors), factors)))


@dataclass(frozen=True)
class ChannelFactors:
    """Factors of the inputs and of the outputs, as many of each.

    Example:
        >>> ChannelFactors.of(WeightShape(64, 32, (3, 3)), 3, reversed_outputs=True)
        ChannelFactors(in_factors=(4, 4, 2), out_factors=(4, 4, 4))
    """

    in_factors: tuple[int, ...]
    out_factors: tuple[int, ...]

    @classmethod
    def of(
        cls, shape: WeightShape, num_factors: int, *, reversed_outputs: bool
    ) -> "ChannelFactors":
        """Balanced factors; with `reversed_outputs` the products S_l T_l are balanced too."""
        out_factors = balanced_factors(shape.out_size, num_factors)
        return cls(
            balanced_factors(shape.in_size, num_factors),
            out_factors[::-1] if reversed_outputs else out_factors,
        )

    @property
    def pairs(self) -> tuple[int, ...]:
        """The products S_l T_l."""
        return tuple(s * t for s, t in zip(self.in_factors, self.out_factors, strict=True))

    def split(self, weight: Tensor) -> Tensor:
        """(T, S, *kernel) as (S₁, ..., Sₘ, T₁, ..., Tₘ, kernel)."""
        count = len(self.in_factors)
        tensor = weight.reshape(*self.out_factors, *self.in_factors, -1)
        return tensor.permute(*range(count, 2 * count), *range(count), 2 * count)

    def pair(self, weight: Tensor) -> Tensor:
        """(T, S, *kernel) as (S₁T₁, ..., SₘTₘ, kernel)."""
        count = len(self.in_factors)
        order = [position for place in range(count) for position in (place, count + place)]
        return self.split(weight).permute(*order, 2 * count).reshape(*self.pairs, -1)


def splitting_refusal(shape: WeightShape, num_factors: int) -> str | None:
    """Why channels cannot be cut in factors of about the same size; None if they can.

    Example:
        >>> splitting_refusal(WeightShape(74, 64), 2)
        'its 74 outputs do not split in 2 factors of about the same size: 37 is a prime over 31.'
    """
    for what, size in (("outputs", shape.out_size), ("inputs", shape.in_size)):
        prime = largest_prime(size)
        if prime > LARGEST_PRIME:
            return (
                f"its {size} {what} do not split in {num_factors} factors of about the same size: "
                f"{prime} is a prime over {LARGEST_PRIME}."
            )
    return None
