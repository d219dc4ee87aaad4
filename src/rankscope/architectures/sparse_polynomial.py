"""Polynomials given by their monomials; the coefficients are the weights."""

from collections.abc import Callable, Mapping

import numpy
import torch
from torch import Tensor, nn

from rankscope.architectures.arithmetic import Arithmetic, Modulo
from rankscope.architectures.network import PairwiseFunction, PolynomialNetwork, Setting
from rankscope.bounds.sparse_polynomial import (
    Exponents,
    sparse_polynomial_lower_bound,
    sparse_polynomial_upper_bound,
)
from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Sum, Term
from rankscope.diagrams.parts import Node, Role
from rankscope.separation.measuring.split_function import Residues, SplitFunction
from rankscope.separation.partition import Partition
from rankscope.theorem import LowerBound, UpperBound


class SparsePolynomial(PolynomialNetwork):
    r"""A sum of monomials in scalar inputs, each one position.

    .. math:: y = \sum_l a_l \prod_i x_i^{\alpha^l_i}

    With d terms and all exponents positive these are the families F_d of Navon (2021).

    Args:
        terms: the exponents of each monomial, one for each input.
        generator: where the initial coefficients come from.

    Example:
        >>> polynomial = SparsePolynomial(terms=((1, 1), (2, 1)))
        >>> polynomial.upper_bound(Partition((0,), (1,))).value, polynomial.input_degree
        (1, 3)

    Raises:
        BoundError: if there are no terms, they repeat or differ in length, an exponent is
            negative, or there are fewer than two inputs.

    Reference:
        Navon (2021), Sec. 5.1.
    """

    family = "sparse-polynomial"

    def __init__(
        self, *, terms: tuple[Exponents, ...], generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        # The bound knows what a list of terms must be, and that two sides need two inputs.
        sparse_polynomial_upper_bound(terms, (0,))
        self.terms = terms
        self.num_positions = len(terms[0])
        self.input_size = 1
        self.coefficients = nn.Parameter(torch.randn(len(terms), generator=generator))

    @property
    def settings(self) -> dict[str, Setting]:
        return {"terms": self.terms}

    @property
    def weight_degree(self) -> int:
        return 1

    @property
    def input_degree(self) -> int:
        return max(map(sum, self.terms))

    def compute(self, numbers: Arithmetic, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        monomials = self.monomials(numbers, inputs, tuple(range(self.num_positions)))
        return numbers.contract("bt,t->b", monomials, weights["coefficients"])

    def monomials(self, numbers: Arithmetic, inputs: Tensor, positions: tuple[int, ...]) -> Tensor:
        """The parts (batch, terms) of the monomials in the inputs (batch, positions, 1)."""
        found = torch.ones_like(inputs[:, :1, 0])
        for place, position in enumerate(positions):
            exponents = torch.tensor([term[position] for term in self.terms])
            found = numbers.multiply(found, _powers(numbers, inputs[:, place], exponents))
        return found

    def split_class(self) -> Callable[..., SplitFunction]:
        """Monomials are products of one part from each side."""
        return MonomialFunction

    def upper_bound(self, partition: Partition) -> UpperBound:
        """The maximum matching, for all coefficients."""
        self.require_covered(partition)
        return sparse_polynomial_upper_bound(self.terms, partition.left)

    def lower_bound(self, partition: Partition) -> LowerBound:
        """The maximum matching, for almost all coefficients."""
        self.require_covered(partition)
        return sparse_polynomial_lower_bound(self.terms, partition.left)

    def diagram(self) -> Sum:
        """A sum of products of numbers; a power is as many nodes."""
        title = f"Polynomial of {len(self.terms)} terms in {self.num_positions} inputs"
        terms = tuple(Term(_product(*numbered)) for numbered in enumerate(self.terms))
        return Sum("sparse-polynomial", terms, title)


class MonomialFunction(PairwiseFunction):
    """A polynomial on pairs of points: one matrix product."""

    network: SparsePolynomial

    def paired(self, left: Residues, right: Residues) -> Residues:
        numbers, polynomial = Modulo(self.prime), self.network
        rows = polynomial.monomials(numbers, torch.from_numpy(left), self.partition.left)
        columns = polynomial.monomials(numbers, torch.from_numpy(right), self.partition.right)
        weighted = numbers.multiply(rows, torch.from_numpy(self.weights["coefficients"]))
        return numpy.asarray(numbers.contract("rt,ct->rc", weighted, columns).numpy())


def _powers(numbers: Arithmetic, base: Tensor, exponents: Tensor) -> Tensor:
    """Each entry of the base (batch, 1) to each exponent: (batch, exponents), by squaring."""
    found = torch.ones_like(base)
    for place in range(int(exponents.max()).bit_length()):
        is_set = (exponents >> place) % 2 == 1
        found = torch.where(is_set, numbers.multiply(found, base), found)
        base = numbers.multiply(base, base)
    return found.expand(-1, len(exponents))


def _product(number: int, term: Exponents) -> Diagram:
    coefficient = Node(
        "a", (), Role.PARAMETER, f"a_{{{number}}}", "coefficients", (number, number + 1)
    )
    factors = tuple(
        Node(f"x{i}_{k}", (), Role.DATA, f"x_{{{i}}}", "inputs", (i, i + 1))
        for i, exponent in enumerate(term)
        for k in range(exponent)
    )
    return Diagram(f"term{number}", (), (coefficient, *factors), ())
