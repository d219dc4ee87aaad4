"""Networks of products, and sparse polynomials."""

import itertools
import math
from collections.abc import Callable, Mapping

import numpy
import torch
from torch import Tensor, nn

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Network, Step, Sum, Term
from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.rank.bounds.counting import multiset
from rankscope.rank.bounds.polynomials import (
    Exponents,
    fully_connected_lower_bound,
    fully_connected_upper_bound,
    sparse_polynomial_lower_bound,
    sparse_polynomial_upper_bound,
)
from rankscope.rank.measured import Residues, SplitFunction
from rankscope.rank.networks.network import (
    Arithmetic,
    Modulo,
    PairwiseFunction,
    PolynomialNetwork,
    Setting,
    require_sizes,
)
from rankscope.rank.partition import Partition
from rankscope.theorem import LowerBound, UpperBound

# --- Fully connected networks whose layers are products of linear maps ----------------------------


class ProductNetwork(PolynomialNetwork):
    r"""Layers of degree δ: the entry-wise product of δ linear maps.

    .. math:: P(x) = (W_1 x) * \dots * (W_\delta x), \qquad y = (P_p \circ \dots \circ P_1)(x)_0

    Args:
        num_inputs: scalar inputs, each one position.
        degree: δ, the degree of a layer.
        depth: p, the number of layers.
        width: entries of a hidden layer; `num_inputs` if None.
        generator: where the initial weights come from.

    Example:
        >>> network = ProductNetwork(num_inputs=4, degree=3, depth=2)
        >>> network(torch.ones(5, 4, 1)).shape, network.input_degree, network.weight_degree
        (torch.Size([5]), 9, 12)

    Raises:
        SizeError: if a size is not positive, or there are fewer than two inputs.

    Reference:
        Navon (2021), Comment 3.1.
    """

    family = "polynomial"

    def __init__(
        self,
        *,
        num_inputs: int,
        degree: int,
        depth: int,
        width: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        hidden = num_inputs if width is None else width
        require_sizes("ProductNetwork", least=2, num_inputs=num_inputs)
        require_sizes("ProductNetwork", degree=degree, depth=depth, width=hidden)
        self.num_positions = num_inputs
        self.input_size = 1
        self.degree = degree
        self.depth = depth
        self.width = hidden
        # Only one entry of the last layer is the output.
        sizes = (num_inputs, *[hidden] * (depth - 1), 1)
        self.layers = nn.ParameterList(
            torch.randn(degree, output, into, generator=generator) / math.sqrt(into)
            for into, output in itertools.pairwise(sizes)
        )

    @property
    def settings(self) -> dict[str, Setting]:
        return {
            "num_inputs": self.num_positions,
            "degree": self.degree,
            "depth": self.depth,
            "width": self.width,
        }

    @property
    def weight_degree(self) -> int:
        return sum(int(self.degree**layer) for layer in range(1, self.depth + 1))

    @property
    def input_degree(self) -> int:
        return int(self.degree**self.depth)

    def compute(self, numbers: Arithmetic, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        forms = numbers.contract("bi,koi->bko", inputs[:, :, 0], weights["layers.0"])
        return self.finish(numbers, weights, forms)

    def finish(self, numbers: Arithmetic, weights: Mapping[str, Tensor], forms: Tensor) -> Tensor:
        """The outputs (batch,) from the maps of the first layer (batch, degree, width)."""
        values = _product(numbers, forms)
        for layer in range(1, self.depth):
            forms = numbers.contract("bi,koi->bko", values, weights[f"layers.{layer}"])
            values = _product(numbers, forms)
        return values[:, 0]

    def upper_bound(self, partition: Partition) -> UpperBound:
        """Bound by degree; a side counts for no more variables than the first layer reads of it."""
        left, right = self._variables(partition)
        return fully_connected_upper_bound(
            num_inputs=left + right, num_left=left, degree=self.degree, depth=self.depth
        )

    def lower_bound(self, partition: Partition) -> LowerBound | None:
        """Powers of a sum of monomials, from two layers of degree 2 on."""
        self.require_covered(partition)
        if self.depth < 2 or self.degree < 2:
            return None
        return fully_connected_lower_bound(
            num_inputs=self.num_positions,
            num_left=len(partition.left),
            degree=self.degree,
            depth=self.depth,
            width=self.width,
        )

    def grade_degrees(self, partition: Partition) -> tuple[int, ...]:
        del partition
        return tuple(range(self.input_degree + 1))

    def grade_upper_bounds(self, partition: Partition) -> tuple[int, ...]:
        """The terms of the upper bound, by their degree in the right side."""
        left, right = self._variables(partition)
        counts = [
            min(multiset(left, self.input_degree - part), multiset(right, part))
            for part in self.grade_degrees(partition)
        ]
        if self.depth > 1:
            return tuple(counts)
        return tuple(min(count, math.comb(self.degree, k)) for k, count in enumerate(counts))

    def split_class(self) -> Callable[..., SplitFunction]:
        """The first layer's maps are sums of one part from each side."""
        return AdditiveFunction

    def diagram(self) -> Network:
        """One step for each layer, since its input is read δ times."""
        steps = [
            Step(f"x{layer}", self._layer(layer), rf"\mathbf{{x}}^{{{layer}}}")
            for layer in range(1, self.depth)
        ]
        steps.append(Step("y", self._layer(self.depth), "y"))
        title = f"Product network of degree {self.degree} and depth {self.depth}"
        return Network("polynomial", tuple(steps), title)

    def _variables(self, partition: Partition) -> tuple[int, int]:
        """How many independent linear forms of each side the output can depend on."""
        self.require_covered(partition)
        forms = self.degree * (self.width if self.depth > 1 else 1)
        return min(len(partition.left), forms), min(len(partition.right), forms)

    def _layer(self, layer: int) -> Diagram:
        is_last = layer == self.depth
        size = self.num_positions if layer == 1 else self.width
        indices = [
            Index(f"i{k}", size, "N" if layer == 1 else "D", IndexKind.FEATURE)
            for k in range(self.degree)
        ]
        source = "inputs" if layer == 1 else f"x{layer - 1}"
        nodes = []
        for k, index in enumerate(indices):
            held = (index.name,) if is_last else ("o", index.name)
            label = rf"\mathbf{{W}}^{{{layer}}}_{{{k}}}"
            array = f"layers.{layer - 1}"
            nodes += [
                Node(f"W{k}", held, Role.PARAMETER, label, array, (k, k + 1)),
                Node(f"x{k}", (index.name,), Role.DATA, rf"\mathbf{{x}}^{{{layer - 1}}}", source),
            ]
        output = () if is_last else ("o",)
        indices += [Index(name, self.width, "D", IndexKind.FEATURE) for name in output]
        return Diagram(f"layer{layer}", tuple(indices), tuple(nodes), output)


class AdditiveFunction(PairwiseFunction):
    """A product network on pairs of points: the first layer's maps add up over the sides."""

    network: ProductNetwork

    def paired(self, left: Residues, right: Residues) -> Residues:
        numbers = Modulo(self.prime)
        weights = {name: torch.from_numpy(array) for name, array in self.weights.items()}
        on_left, on_right = (
            numbers.contract(
                "bi,koi->bko",
                torch.from_numpy(points)[:, :, 0],
                weights["layers.0"][:, :, list(positions)],
            )
            for points, positions in ((left, self.partition.left), (right, self.partition.right))
        )
        forms = numbers.add(on_left[:, None], on_right[None]).flatten(0, 1)
        outputs = self.network.finish(numbers, weights, forms)
        return outputs.numpy().reshape(len(left), len(right))


def _product(numbers: Arithmetic, forms: Tensor) -> Tensor:
    product = forms[:, 0]
    for factor in range(1, forms.shape[1]):
        product = numbers.multiply(product, forms[:, factor])
    return product


# --- Polynomials given by their monomials; the coefficients are the weights -----------------------


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
        monomials = torch.ones_like(inputs[:, :1, 0])
        for place, position in enumerate(positions):
            exponents = torch.tensor([term[position] for term in self.terms])
            monomials = numbers.multiply(monomials, _powers(numbers, inputs[:, place], exponents))
        return monomials

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
        terms = tuple(
            Term(_product_sparse_polynomial(*numbered)) for numbered in enumerate(self.terms)
        )
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
    powers = torch.ones_like(base)
    for place in range(int(exponents.max()).bit_length()):
        is_set = (exponents >> place) % 2 == 1
        powers = torch.where(is_set, numbers.multiply(powers, base), powers)
        base = numbers.multiply(base, base)
    return powers.expand(-1, len(exponents))


def _product_sparse_polynomial(number: int, term: Exponents) -> Diagram:
    coefficient = Node(
        "a", (), Role.PARAMETER, f"a_{{{number}}}", "coefficients", (number, number + 1)
    )
    factors = tuple(
        Node(f"x{i}_{k}", (), Role.DATA, f"x_{{{i}}}", "inputs", (i, i + 1))
        for i, exponent in enumerate(term)
        for k in range(exponent)
    )
    return Diagram(f"term{number}", (), (coefficient, *factors), ())
