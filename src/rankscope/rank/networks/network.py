"""Polynomial networks: one definition, evaluated in real numbers and modulo a prime."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import ClassVar

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rankscope.diagrams.network import Drawable
from rankscope.errors import MatrixError, PartitionError, PrimeError, SizeError, TooLargeError
from rankscope.rank.bounds.known import KnownBounds
from rankscope.rank.measured import Numbers, Residues, SplitFunction
from rankscope.rank.measurement import draw_residues
from rankscope.rank.partition import Partition
from rankscope.theorem import LowerBound, UpperBound

# --- Two arithmetics for one definition of a network: real numbers, and residues modulo a prime


_LIMB = 2**16
_EXACT = 2**53  # integers up to here are float64 numbers


class Arithmetic(ABC):
    """Contraction of two tensors, product and sum, in some kind of numbers."""

    @abstractmethod
    def contract(self, equation: str, left: Tensor, right: Tensor) -> Tensor:
        """The einsum of two tensors."""

    @abstractmethod
    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        """The product, entry by entry, broadcast."""

    @abstractmethod
    def add(self, left: Tensor, right: Tensor) -> Tensor:
        """The sum, entry by entry, broadcast."""

    @abstractmethod
    def constants(self, fractions: Sequence[Fraction], like: Tensor) -> Tensor:
        """Given fractions (count,) in these numbers, with the dtype and device of another tensor.

        Raises:
            PrimeError: if a denominator has no inverse.
        """


class Reals(Arithmetic):
    """Ordinary floating point, differentiable."""

    def contract(self, equation: str, left: Tensor, right: Tensor) -> Tensor:
        return torch.einsum(equation, left, right)

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        return left * right

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right

    def constants(self, fractions: Sequence[Fraction], like: Tensor) -> Tensor:
        return torch.tensor([float(one) for one in fractions], dtype=like.dtype, device=like.device)


class Modulo(Arithmetic):
    """Exact arithmetic modulo a prime below 2^31 on int64 tensors with entries in 0..p-1.

    Contractions run as float64 einsums: the left factor is split into limbs of 16 bits where the
    prime and the number of summands need it, so that no sum exceeds 2^53.

    Example:
        >>> numbers = Modulo(7)
        >>> numbers.contract("ij,j->i", torch.tensor([[3, 4], [5, 6]]), torch.tensor([1, 2]))
        tensor([4, 3])
    """

    def __init__(self, prime: int) -> None:
        if not 2 <= prime < 2**31:
            raise PrimeError(f"Modulo: the prime must be from 2 to 2^31 - 1, got {prime}.")
        self.prime = prime

    def contract(self, equation: str, left: Tensor, right: Tensor) -> Tensor:
        depth = _inner_size(equation, left, right)
        if depth <= _EXACT // self.prime**2:
            return self._reduced(equation, left, right)
        limit = _EXACT // (min(self.prime, _LIMB) * self.prime)
        if depth > limit:
            raise TooLargeError(
                what=f"A sum of products {equation} modulo {self.prime}",
                entries=depth,
                limit=limit,
                instead="Use a smaller prime.",
            )
        high = self._reduced(equation, left // _LIMB, right)
        low = self._reduced(equation, left % _LIMB, right)
        return (high * _LIMB + low) % self.prime

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        return left * right % self.prime

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        return (left + right) % self.prime

    def constants(self, fractions: Sequence[Fraction], like: Tensor) -> Tensor:
        residues = [fraction_modulo(one, self.prime) for one in fractions]
        return torch.tensor(residues, dtype=like.dtype, device=like.device)

    def _reduced(self, equation: str, left: Tensor, right: Tensor) -> Tensor:
        product = torch.einsum(equation, left.double(), right.double())
        return product.to(torch.int64) % self.prime


def fraction_modulo(fraction: Fraction, prime: int) -> int:
    """The residue of a fraction.

    Example:
        >>> fraction_modulo(Fraction(3, 5), 7)
        2

    Raises:
        PrimeError: if the prime divides the denominator.
    """
    if fraction.denominator % prime == 0:
        raise PrimeError(
            f"The fraction {fraction} has no residue modulo {prime}, which divides "
            f"{fraction.denominator}. Use a larger prime."
        )
    return fraction.numerator * pow(fraction.denominator, -1, prime) % prime


def _inner_size(equation: str, left: Tensor, right: Tensor) -> int:
    """How many products are summed into one entry."""
    inputs, output = equation.split("->")
    sizes: dict[str, int] = {}
    for letters, operand in zip(inputs.split(","), (left, right), strict=True):
        for letter, size in zip(letters, operand.shape, strict=True):
            sizes[letter] = max(sizes.get(letter, 1), size)
    return math.prod(size for name, size in sizes.items() if name not in output)


# --- The sizes a network is built with, checked ---------------------------------------------------


def require_sizes(who: str, *, least: int = 1, **sizes: int) -> None:
    """Refuse sizes below `least`, naming the first one.

    Raises:
        SizeError: if a size is smaller.
    """
    for name, size in sizes.items():
        if size < least:
            raise SizeError(f"{who}: {name} must be at least {least}, got {size}.")


# --- Sample points of the two sides, by number, and the interpolation that tells degrees apart ----


def drawn_points(
    seed: int, side: str, numbers: Numbers, shape: tuple[int, int], prime: int
) -> Residues:
    """The random sample points (len(numbers), *shape) of a side, `left` or `right`, by number."""
    drawn = [draw_residues(seed, f"{side}/{int(number)}", shape, prime) for number in numbers]
    return numpy.stack(drawn) if drawn else numpy.zeros((0, *shape), dtype=numpy.int64)


def unit_vector_points(numbers: Numbers, count: int, num_templates: int) -> Residues:
    """Combinations of unit vectors (len(numbers), count, num_templates), by number.

    Example:
        >>> unit_vector_points(numpy.arange(4), 2, 2).argmax(-1).tolist()
        [[0, 0], [1, 1], [0, 1], [1, 0]]
    """
    total = num_templates**count
    step = _coprime_near_golden_ratio(total)
    spread = [int(number) * step % total for number in numbers]
    digits = [[n // num_templates**place % num_templates for place in range(count)] for n in spread]
    chosen = numpy.array(digits, dtype=numpy.int64).reshape(len(numbers), count)
    return numpy.eye(num_templates, dtype=numpy.int64)[chosen]


def _coprime_near_golden_ratio(total: int) -> int:
    step = max(1, total * 6_180_339_887 // 10**10)
    while math.gcd(step, total) != 1:
        step += 1
    return step


def interpolation_modulo(
    degrees: tuple[int, ...], prime: int
) -> tuple[tuple[int, ...], NDArray[numpy.int64]]:
    """Scales t_j and a matrix that gives the parts of a sum of c_k t^degree_k from its values.

    Returns:
        The scales, and the matrix (grades, scales): part k is the sum over j of matrix[k, j]
        times the value at t_j.

    Example:
        >>> scales, matrix = interpolation_modulo((0, 2), 101)
        >>> [
        ...     [int(sum(row * numpy.array([t**d for t in scales]))) % 101 for d in (0, 2)]
        ...     for row in matrix
        ... ]
        [[1, 0], [0, 1]]

    Raises:
        PrimeError: if the prime is too small to tell the degrees apart.
    """
    # Imported here because compiling the exact kernels takes longer than most evaluations.
    from rankscope.rank.elimination import solve_modulo

    scales = tuple(range(1, len(degrees) + 1))
    powers = numpy.array([[pow(t, d, prime) for d in degrees] for t in scales], dtype=numpy.int64)
    identity = numpy.eye(len(degrees), dtype=numpy.int64)
    if degrees[-1] >= prime - 1:
        raise PrimeError(
            f"Separating degrees up to {degrees[-1]} needs a larger prime, got {prime}."
        )
    try:
        return scales, solve_modulo(powers, identity, prime)
    except MatrixError as error:
        raise PrimeError(
            f"Separating {len(degrees)} degrees needs a larger prime, got {prime}."
        ) from error


# --- Networks whose output is a polynomial: `nn.Module`s that also evaluate exactly modulo a prime


Setting = (
    int
    | bool
    | str
    | tuple[int, ...]
    | tuple[tuple[int, ...], ...]
    | tuple[tuple[tuple[int, ...], ...], ...]
    | None
)
_PAIRS_AT_ONCE = 1 << 16


class PolynomialNetwork(nn.Module, ABC):
    """A network with one scalar output, polynomial in its weights and its inputs.

    Attributes:
        family: its name on the command line and in certificates.
        num_positions: how many inputs there are to be split.
        input_size: every input is a vector of this size.
        num_templates: None if inputs are arbitrary vectors; otherwise the inputs of interest are
            the unit vectors, this many, and ranks are ranks of the grid tensor.
        default_partition: the split that theorems about this network speak of.
    """

    family: ClassVar[str]
    default_partition: ClassVar[str] = "interleaved"
    num_positions: int
    input_size: int
    num_templates: int | None = None

    @property
    @abstractmethod
    def settings(self) -> dict[str, Setting]:
        """The arguments that build this network again: plain data for certificates."""

    @property
    @abstractmethod
    def weight_degree(self) -> int:
        """A bound on the degree of the output in all the weights together."""

    @property
    @abstractmethod
    def input_degree(self) -> int:
        """A bound on the degree of the output in all the inputs together."""

    @abstractmethod
    def compute(self, numbers: Arithmetic, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """The outputs (batch,) for inputs (batch, num_positions, input_size)."""

    @abstractmethod
    def diagram(self) -> Drawable:
        """The network as a tensor diagram."""

    def upper_bound(self, partition: Partition) -> UpperBound | None:
        """The best proved bound for all weights, or None where there is no theorem."""
        del partition
        return None

    def lower_bound(self, partition: Partition) -> LowerBound | None:
        """The best bound for almost all weights, or None where there is no theorem."""
        del partition
        return None

    def known_bounds(self, partition: Partition) -> KnownBounds:
        """All that theory says without measuring; sizes are enough, so weights may be on `meta`."""
        self.require_covered(partition)
        return KnownBounds(self.lower_bound(partition), None, self.upper_bound(partition))

    def program_products(self, defined: int) -> int | None:
        """About how many products a value costs as a straight-line program; None if it is none.

        Args:
            defined: how many there are in the defining equations.
        """
        del defined
        return None

    def grade_degrees(self, partition: Partition) -> tuple[int, ...]:
        """The degrees in the inputs of the right side that occur, ascending.

        Ranks of the parts add up only if the output is homogeneous in all inputs together (a part
        of one degree on the right then has one degree on the left): x + xy has rank 1, not 2.
        Attention without positions has (0, 2, 4, …, 2C) if the output stands on the left. One
        degree means that there is nothing to separate; networks that are not homogeneous also
        give one, as `(0,)`.
        """
        del partition
        return (0,)

    def grade_upper_bounds(self, partition: Partition) -> tuple[int, ...] | None:
        """Proved upper bounds of the ranks of the graded parts, or None."""
        del partition
        return None

    def forward(self, inputs: Tensor) -> Tensor:
        """The outputs (batch,) in floating point.

        Raises:
            SizeError: if the inputs are not (batch, num_positions, input_size).
        """
        self.require_inputs(tuple(inputs.shape))
        return self.compute(Reals(), dict(self.named_parameters()), inputs)

    def draw_weights(self, seed: int, prime: int) -> dict[str, Residues]:
        """Random weights modulo a prime, the same for everyone with the same seed."""
        return {
            name: draw_residues(seed, f"weights/{name}", tuple(parameter.shape), prime)
            for name, parameter in self.named_parameters()
        }

    def evaluate_modulo(
        self, weights: Mapping[str, Residues], inputs: Residues, prime: int
    ) -> Residues:
        """The outputs (batch,) modulo a prime, by the equations of `compute`.

        Raises:
            SizeError: if the inputs are not (batch, num_positions, input_size).
        """
        self.require_inputs(inputs.shape)
        tensors = {name: torch.from_numpy(array) for name, array in weights.items()}
        outputs = self.compute(Modulo(prime), tensors, torch.from_numpy(inputs))
        return numpy.asarray(outputs.numpy())

    def split_class(self) -> Callable[..., SplitFunction]:
        """What evaluates this network on pairs of points, by the fastest exact way there is."""
        return PairwiseFunction

    def split(
        self,
        partition: Partition,
        *,
        seed: int,
        prime: int,
        weights: Mapping[str, Residues] | None = None,
    ) -> SplitFunction:
        """The output as a function of the two sides, evaluated by the network's `split_class`.

        Args:
            partition: must cover all positions.
            seed: draws the sample points, and the weights unless they are given.
            prime: below 2^31.
            weights: residues to use instead of random ones.
        """
        return self._split(self.split_class(), partition, (seed, prime), weights)

    def reference_split(
        self,
        partition: Partition,
        *,
        seed: int,
        prime: int,
        weights: Mapping[str, Residues] | None = None,
    ) -> SplitFunction:
        """The same function by the defining equations in another arithmetic, for checking."""
        from rankscope.rank.defining_equations import DefinedFunction

        return self._split(DefinedFunction, partition, (seed, prime), weights)

    def _split(
        self,
        split_class: Callable[..., SplitFunction],
        partition: Partition,
        seed_and_prime: tuple[int, int],
        weights: Mapping[str, Residues] | None,
    ) -> SplitFunction:
        self.require_covered(partition)
        seed, prime = seed_and_prime
        chosen = self.draw_weights(seed, prime) if weights is None else dict(weights)
        return split_class(self, partition, seed=seed, prime=prime, weights=chosen)

    def require_inputs(self, shape: tuple[int, ...]) -> None:
        """Refuse inputs of another shape, parts of which would be silently left out.

        Raises:
            SizeError: if they have one.
        """
        if len(shape) != 3 or shape[1:] != (self.num_positions, self.input_size):
            raise SizeError(
                f"{type(self).__name__}: inputs must have shape "
                f"(batch, {self.num_positions}, {self.input_size}), got {shape}."
            )

    def require_covered(self, partition: Partition) -> None:
        """Refuse a partition that leaves a position out or names one too many.

        Raises:
            PartitionError: if it does.
        """
        if partition.positions != tuple(range(self.num_positions)):
            raise PartitionError(
                f"{type(self).__name__} has the positions 0..{self.num_positions - 1}, the "
                f"partition covers {partition.positions}. Put every position on a side."
            )


class PairwiseFunction(SplitFunction):
    """Evaluates the network once for each pair and each grade.

    Points of a side are drawn from the seed by their number. With templates they are the
    combinations of unit vectors; number n has the digits of (n · step) modulo their count, so
    that any run of numbers is spread over all combinations.
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
        self.network = network
        self.partition = partition
        self.seed = seed
        self.prime = prime
        self.weights = dict(weights)
        self.degrees = network.grade_degrees(partition)
        self.num_grades = len(self.degrees)
        if network.num_templates is not None:
            self.num_points = (
                network.num_templates ** len(partition.left),
                network.num_templates ** len(partition.right),
            )
        if self.num_grades > 1:
            self.scales, self.interpolation = interpolation_modulo(self.degrees, prime)

    def values(self, rows: Numbers, columns: Numbers) -> Residues:
        return self._scaled_values(rows, columns, 1)

    def graded_values(self, rows: Numbers, columns: Numbers) -> Residues:
        if self.num_grades == 1:
            return self.values(rows, columns)[None]
        parts = numpy.zeros((self.num_grades, len(rows), len(columns)), dtype=numpy.int64)
        for scale, weights in zip(self.scales, self.interpolation.T, strict=True):
            values = self._scaled_values(rows, columns, scale)
            for grade, weight in enumerate(weights):
                parts[grade] = (parts[grade] + int(weight) * values) % self.prime
        return parts

    def points(self, side: str, numbers: Numbers) -> Residues:
        """The sample points (len(numbers), positions of the side, input_size)."""
        count = len(self.partition.left if side == "left" else self.partition.right)
        network = self.network
        if network.num_templates is not None:
            return unit_vector_points(numbers, count, network.num_templates)
        return drawn_points(self.seed, side, numbers, (count, network.input_size), self.prime)

    def _scaled_values(self, rows: Numbers, columns: Numbers, scale: int) -> Residues:
        left = self.points("left", rows)
        right = self.points("right", columns) * scale % self.prime
        values = numpy.empty((len(rows), len(columns)), dtype=numpy.int64)
        step = max(1, _PAIRS_AT_ONCE // max(1, len(columns)))
        for start in range(0, len(rows), step):
            part = left[start : start + step]
            values[start : start + step] = self.paired(part, right)
        return values

    def paired(self, left: Residues, right: Residues) -> Residues:
        """The matrix of outputs for points of both sides; a faster function overrides only this."""
        shape = (len(left), len(right), self.network.num_positions, self.network.input_size)
        inputs = numpy.empty(shape, dtype=numpy.int64)
        inputs[:, :, self.partition.left] = left[:, None]
        inputs[:, :, self.partition.right] = right[None, :]
        flat = inputs.reshape(-1, *shape[2:])
        outputs = self.network.evaluate_modulo(self.weights, flat, self.prime)
        return outputs.reshape(shape[:2])


# --- Networks whose layers turn all tokens into new ones ------------------------------------------


class TokenMixer(PolynomialNetwork):
    """Layers that make new tokens of all tokens; the output is a coordinate of one of them.

    Attributes:
        output_position: which token the output is read from.
    """

    output_position: int

    @abstractmethod
    def mix(self, numbers: Arithmetic, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """All tokens (batch, num_tokens, width) after all layers."""

    def compute(self, numbers: Arithmetic, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """Coordinate 0 of the token at the output position, after all layers."""
        return self.mix(numbers, weights, inputs)[:, self.output_position, 0]

    def tokens(self, inputs: Tensor) -> Tensor:
        """All tokens (batch, num_tokens, width) after all layers, in floating point.

        Raises:
            SizeError: if the inputs are not (batch, num_tokens, input_size).
        """
        self.require_inputs(tuple(inputs.shape))
        return self.mix(Reals(), dict(self.named_parameters()), inputs)


# --- Networks that read tokens one by one, on pairs of sample points ------------------------------


class TokenNetwork(PolynomialNetwork):
    """A network of linear maps and products of what it made of single tokens."""

    @abstractmethod
    def evaluate(
        self, numbers: Arithmetic, weights: Mapping[str, Tensor], tokens: Sequence[Tensor]
    ) -> Tensor:
        """The outputs (rows, columns) for tokens (rows or 1, columns or 1, size) that broadcast."""

    def compute(self, numbers: Arithmetic, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        return self.evaluate(numbers, weights, inputs[:, None].unbind(2))[:, 0]

    def split_class(self) -> Callable[..., SplitFunction]:
        """The output as a function of the two sides, what sees one side only computed once."""
        return BroadcastFunction


class BroadcastFunction(PairwiseFunction):
    """A token network on pairs of points."""

    network: TokenNetwork

    def paired(self, left: Residues, right: Residues) -> Residues:
        rows, columns = torch.from_numpy(left)[:, None], torch.from_numpy(right)[None]
        tokens = dict(zip(self.partition.left, rows.unbind(2), strict=True))
        tokens |= zip(self.partition.right, columns.unbind(2), strict=True)
        weights = {name: torch.from_numpy(array) for name, array in self.weights.items()}
        in_order = [tokens[position] for position in self.partition.positions]
        outputs = self.network.evaluate(Modulo(self.prime), weights, in_order)
        return numpy.asarray(outputs.numpy())
