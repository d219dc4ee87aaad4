"""Values of a network by its defining equations, for checking, without the measurement's kernels.

The same lines of `compute` that define a network run here in an arithmetic of its own: residues are
balanced float64 integers, |x| <= p/2 + 1, so that sums of many products stay exact and run as
matrix products, many pairs of points at once. A third arithmetic only counts, so that the cost of
an evaluation is known before one is made.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy
import torch
from torch import Tensor

from rankscope.budget import Deadline
from rankscope.errors import CertificateError, PrimeError, TooLargeError
from rankscope.rank.measured import Residues
from rankscope.rank.networks.network import (
    Arithmetic,
    PairwiseFunction,
    PolynomialNetwork,
    fraction_modulo,
)
from rankscope.rank.partition import Partition

_EXACT = 2**52  # integers up to twice this are float64 numbers; the other half is for rounding
_LIMB = 2.0**16
# Numbers in the largest array of a batch: about what a core's cache holds.
_NUMBERS_AT_ONCE = 2**17
# Seconds of one core for a multiplication inside a contraction, and for an entry of a result;
# generous, measured by `python -m benchmarks certificates`.
_SECONDS_EACH_PRODUCT = 6e-10
_SECONDS_EACH_ENTRY = 1.2e-8


class BalancedResidues(Arithmetic):
    """Exact arithmetic modulo a prime below 2^31, on float64 tensors of balanced residues.

    For an integer |x| <= 2^52 the quotient x / p, rounded twice, is wrong by at most 1/p; so
    x - round(x / p) p, every step of which is exact, is at most p/2 + 1. Factors are cut into two
    limbs of 16 bits where the prime and the number of summands need it.

    Example:
        >>> numbers = BalancedResidues(7)
        >>> numbers.contract("ij,j->i", torch.tensor([[3.0, -3], [2, 1]]), torch.tensor([1.0, 2]))
        tensor([-3., -3.])
    """

    def __init__(self, prime: int) -> None:
        if not 2 <= prime < 2**31:
            raise PrimeError(f"BalancedResidues: wanted a prime from 2 to 2^31 - 1, got {prime}.")
        self.prime = prime
        self._largest = prime // 2 + 1
        # The largest limb of a residue: the low one, or the high one.
        self._limb = max(2**15, self._largest // 2**16 + 1)

    def contract(self, equation: str, left: Tensor, right: Tensor) -> Tensor:
        terms, largest = _inner_size(equation, left, right), self._largest
        if terms * largest**2 <= _EXACT:
            return self._reduced(torch.einsum(equation, left, right))
        if terms * largest * self._limb <= _EXACT:
            high, low = (self._product(equation, limb, right) for limb in _limbs(left))
            return self._joined(high, low)
        if terms * self._limb**2 > _EXACT:
            raise TooLargeError(
                what=f"A sum of products {equation} modulo {self.prime}",
                entries=terms,
                limit=_EXACT // self._limb**2,
                instead="Certify a smaller network.",
            )
        rows = [[self._product(equation, a, b) for b in _limbs(right)] for a in _limbs(left)]
        return self._joined(self._joined(*rows[0]), self._joined(*rows[1]))

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        if self._largest**2 <= _EXACT:
            return self._reduced(left * right)
        high, low = (self._reduced(limb * right) for limb in _limbs(left))
        return self._joined(high, low)

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        return self._reduced(left + right)

    def constants(self, fractions: Sequence[Fraction], like: Tensor) -> Tensor:
        whole = [fraction_modulo(one, self.prime) for one in fractions]
        return self.residues(numpy.array(whole, dtype=numpy.int64)).to(like)

    def residues(self, array: Residues) -> Tensor:
        """Integers as balanced residues."""
        remainders = torch.from_numpy(array % self.prime)
        return (remainders - (remainders > self.prime // 2) * self.prime).double()

    def integers(self, values: Tensor) -> Residues:
        """Balanced residues as integers in 0..p-1."""
        return numpy.asarray(values.to(torch.int64).numpy()) % self.prime

    def _product(self, equation: str, left: Tensor, right: Tensor) -> Tensor:
        return self._reduced(torch.einsum(equation, left, right))

    def _joined(self, high: Tensor, low: Tensor) -> Tensor:
        return self._reduced(high * _LIMB + low)

    def _reduced(self, values: Tensor) -> Tensor:
        """Balanced residues of integers up to 2^52, in the memory of a result that is ours."""
        quotients = (values * (1.0 / self.prime)).round_().mul_(float(self.prime))
        return values.sub_(quotients)


def _limbs(values: Tensor) -> tuple[Tensor, Tensor]:
    high = (values * (1.0 / _LIMB)).round_()
    return high, values - high * _LIMB


def _inner_size(equation: str, left: Tensor, right: Tensor) -> int:
    """How many products are summed into one entry."""
    sizes = _sizes(equation, left, right)
    output = equation.split("->")[1]
    return math.prod(size for letter, size in sizes.items() if letter not in output)


def _sizes(equation: str, left: Tensor, right: Tensor) -> dict[str, int]:
    sizes: dict[str, int] = {}
    operands = zip(equation.split("->")[0].split(","), (left, right), strict=True)
    for letters, operand in operands:
        for letter, size in zip(letters, operand.shape, strict=True):
            sizes[letter] = max(sizes.get(letter, 1), size)
    return sizes


# --- What one evaluation costs --------------------------------------------------------------------


class Counting(Arithmetic):
    """No numbers at all: shapes go through, and work is counted."""

    def __init__(self) -> None:
        self.products = 0
        self.entries = 0
        self.largest = 1

    def contract(self, equation: str, left: Tensor, right: Tensor) -> Tensor:
        sizes = _sizes(equation, left, right)
        self.products += math.prod(sizes.values())
        return self._made(tuple(sizes[letter] for letter in equation.split("->")[1]))

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        return self._made(numpy.broadcast_shapes(left.shape, right.shape))

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        return self._made(numpy.broadcast_shapes(left.shape, right.shape))

    def constants(self, fractions: Sequence[Fraction], like: Tensor) -> Tensor:
        del like
        return self._made((len(fractions),))

    def _made(self, shape: tuple[int, ...]) -> Tensor:
        count = math.prod(shape)
        self.entries += count
        self.largest = max(self.largest, count)
        return torch.zeros(()).expand(shape)  # one number in memory, whatever the shape


@dataclass(frozen=True)
class EvaluationCost:
    """What one evaluation by the defining equations takes.

    Args:
        products: multiplications inside contractions.
        entries: entries of all results.
        largest: entries of the largest one.
    """

    products: int
    entries: int
    largest: int

    @property
    def seconds(self) -> float:
        """Time on one core, estimated generously."""
        return self.products * _SECONDS_EACH_PRODUCT + self.entries * _SECONDS_EACH_ENTRY


def evaluation_cost(network: PolynomialNetwork) -> EvaluationCost:
    """Count the work of one evaluation without doing it.

    Example:
        >>> from rankscope.rank.networks.convolutional import Shallow
        >>> evaluation_cost(Shallow(order=3, size=2, channels=4)).products
        28
    """
    counting = Counting()
    nothing = torch.zeros(())
    weights = {name: nothing.expand(array.shape) for name, array in network.named_parameters()}
    inputs = nothing.expand(1, network.num_positions, network.input_size)
    network.compute(counting, weights, inputs)
    largest = max(counting.largest, network.num_positions * network.input_size)
    return EvaluationCost(counting.products, counting.entries, largest)


# --- The function of two sides, by its definition -------------------------------------------------


class DefinedFunction(PairwiseFunction):
    """Evaluates the network once for each pair and each grade, by its defining equations.

    Raises:
        CertificateError: if the matrix that tells the grades apart is not the inverse it should be.
    """

    def __init__(
        self,
        network: PolynomialNetwork,
        partition: Partition,
        *,
        seed: int,
        prime: int,
        weights: Mapping[str, Residues],
    ) -> None:
        super().__init__(network, partition, seed=seed, prime=prime, weights=weights)
        self.deadline = Deadline(None)
        self.cost = evaluation_cost(network)
        self.numbers = BalancedResidues(prime)
        self._tensors = {name: self.numbers.residues(array) for name, array in weights.items()}
        if self.num_grades > 1:
            self._require_inverse()

    def paired(self, left: Residues, right: Residues) -> Residues:
        """The matrix of outputs for points of both sides, some pairs at a time."""
        pairs = max(1, _NUMBERS_AT_ONCE // self.cost.largest)
        width = max(1, min(len(right), pairs))
        height = max(1, pairs // width)
        values = numpy.empty((len(left), len(right)), dtype=numpy.int64)
        points = self.numbers.residues(left), self.numbers.residues(right)
        for down in range(0, len(left), height):
            for across in range(0, len(right), width):
                self.deadline.require("The verification")
                part = self._outputs(
                    points[0][down : down + height], points[1][across : across + width]
                )
                values[down : down + height, across : across + width] = part
        return values

    def _outputs(self, left: Tensor, right: Tensor) -> Residues:
        network = self.network
        inputs = left.new_empty(len(left), len(right), network.num_positions, network.input_size)
        inputs[:, :, list(self.partition.left)] = left[:, None]
        inputs[:, :, list(self.partition.right)] = right[None]
        outputs = network.compute(self.numbers, self._tensors, inputs.flatten(0, 1))
        return self.numbers.integers(outputs).reshape(len(left), len(right))

    def _require_inverse(self) -> None:
        """The system was solved by the measurement's elimination: check what came of it."""
        powers = [[pow(t, degree, self.prime) for degree in self.degrees] for t in self.scales]
        matrices = (self.interpolation, numpy.array(powers, dtype=numpy.int64))
        inverse, values = (self.numbers.residues(matrix) for matrix in matrices)
        product = self.numbers.integers(self.numbers.contract("ij,jk->ik", inverse, values))
        if not numpy.array_equal(product, numpy.eye(self.num_grades, dtype=numpy.int64)):
            raise CertificateError("The parts of the function cannot be told apart for this prime.")
