"""Sparse polynomials: ranks by matching, the families F_d, and their diagram."""

import math

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams import to_module
from rankscope.errors import BoundError, PartitionError
from rankscope.rank import Partition, Residues, SparsePolynomial, rank_modulo

PRIME = 1073741789
Terms = tuple[tuple[int, ...], ...]
Case = tuple[Terms, set[int]]


@st.composite
def cases(draw: st.DrawFn, least: int = 0) -> Case:
    """Different monomials with exponents of at least `least`, and one side of the inputs."""
    num_inputs = draw(st.integers(2, 4))
    monomial = st.tuples(*[st.integers(least, least + 2)] * num_inputs)
    terms = draw(st.lists(monomial, min_size=1, max_size=6, unique=True))
    side = draw(st.sets(st.integers(0, num_inputs - 1), min_size=1, max_size=num_inputs - 1))
    return tuple(terms), side


def built(case: Case) -> tuple[SparsePolynomial, Partition]:
    polynomial = SparsePolynomial(terms=case[0], generator=torch.Generator().manual_seed(0))
    return polynomial, Partition.of(case[1], order=polynomial.num_positions)


def measured(
    polynomial: SparsePolynomial, partition: Partition, coefficients: Residues | None = None
) -> int:
    weights = None if coefficients is None else {"coefficients": coefficients}
    numbers = numpy.arange(len(polynomial.terms) + 2)
    function = polynomial.split(partition, seed=0, prime=PRIME, weights=weights)
    return rank_modulo(function.values(numbers, numbers), PRIME)


@settings(deadline=None, max_examples=60)
@given(case=cases())
def test_the_rank_is_the_maximum_matching_for_almost_all_coefficients(case: Case) -> None:
    polynomial, partition = built(case)
    rank = measured(polynomial, partition)
    assert rank == polynomial.lower_bound(partition).value
    assert rank == polynomial.upper_bound(partition).value


@settings(deadline=None, max_examples=60)
@given(case=cases(least=1), data=st.data())
def test_members_of_the_family_with_rank_d_have_different_monomials_on_both_sides(
    case: Case, data: st.DataObject
) -> None:
    """Navon (2021), Sec. 5.1: for every choice of coefficients that are not 0, and no others."""
    polynomial, partition = built(case)
    terms = polynomial.terms
    chosen = [data.draw(st.integers(1, PRIME - 1)) for _ in terms]
    has_different_monomials = all(
        len({tuple(term[position] for position in side) for term in terms}) == len(terms)
        for side in (partition.left, partition.right)
    )
    rank = measured(polynomial, partition, numpy.array(chosen))
    assert rank <= len(terms)
    assert (rank == len(terms)) == has_different_monomials


@settings(deadline=None, max_examples=30)
@given(case=cases(), prime=st.sampled_from([101, 65521, 16777213, 2**31 - 1]))
def test_the_fast_split_is_the_definition_entry_by_entry(case: Case, prime: int) -> None:
    polynomial, partition = built(case)
    fast = polynomial.split(partition, seed=3, prime=prime)
    slow = polynomial.reference_split(partition, seed=3, prime=prime)
    rows, columns = numpy.array([0, 7, 2]), numpy.array([1, 0, 5, 4])
    assert numpy.array_equal(fast.values(rows, columns), slow.values(rows, columns))
    assert fast.values(rows[:0], columns).shape == (0, 4)


def test_special_coefficients_can_have_a_smaller_rank_than_almost_all() -> None:
    square = SparsePolynomial(terms=((1, 1), (1, 2), (2, 1), (2, 2)))
    partition = Partition((0,), (1,))
    assert measured(square, partition) == 2
    assert measured(square, partition, numpy.array([1, 1, 1, 1])) == 1


@settings(deadline=None, max_examples=30)
@given(
    exponents=st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=4, unique=True
    ),
    seed=st.integers(0, 999),
)
def test_a_polynomial_is_its_formula_in_both_arithmetics(
    exponents: list[tuple[int, int]], seed: int
) -> None:
    polynomial = SparsePolynomial(terms=tuple(exponents)).double()
    generator = numpy.random.default_rng(seed)
    coefficients = generator.integers(-5, 6, len(exponents))
    inputs = generator.integers(-2, 3, (4, 2, 1))
    expected = [
        sum(
            a * math.prod(x**e for x, e in zip(sample, term, strict=True))
            for a, term in zip(coefficients.tolist(), exponents, strict=True)
        )
        for sample in inputs[:, :, 0].tolist()
    ]
    residues = {"coefficients": coefficients % 101}
    found = polynomial.evaluate_modulo(residues, inputs % 101, 101)
    assert found.tolist() == [value % 101 for value in expected]
    polynomial.load_state_dict({"coefficients": torch.from_numpy(coefficients)})
    outputs = polynomial(torch.from_numpy(inputs).double())
    # Monomials up to 2^40 and sums up to 2^45 are exact in float64.
    assert outputs.tolist() == expected


@settings(deadline=None, max_examples=20)
@given(case=cases())
def test_the_degrees_are_one_in_the_coefficients_and_the_largest_in_the_inputs(case: Case) -> None:
    polynomial, _ = built(case)
    assert polynomial.weight_degree == 1
    inputs = numpy.full((1, polynomial.num_positions, 1), 2)
    ones = {"coefficients": numpy.ones(len(polynomial.terms), dtype=numpy.int64)}
    # At 2 everywhere a monomial of degree k is 2^k, and there are fewer than 2^3 of them.
    value = int(polynomial.evaluate_modulo(ones, inputs, PRIME)[0])
    assert 2**polynomial.input_degree <= value < 2 ** (polynomial.input_degree + 3)


def test_the_diagram_computes_the_polynomial() -> None:
    polynomial = SparsePolynomial(terms=((1, 2, 0), (0, 0, 1), (3, 1, 1), (0, 0, 0))).double()
    arrays = dict(polynomial.named_parameters())
    run = to_module(polynomial.diagram(), arrays=arrays, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(4, 3, 1, generator=generator, dtype=torch.float64)
    outputs = torch.stack([run(sample) for sample in inputs])
    torch.testing.assert_close(outputs, polynomial(inputs))


@settings(deadline=None, max_examples=10)
@given(case=cases())
def test_settings_build_the_polynomial_again(case: Case) -> None:
    polynomial, _ = built(case)
    again = SparsePolynomial(**polynomial.settings)  # type: ignore[arg-type]
    assert again.terms == polynomial.terms


def test_terms_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BoundError, match="needs at least 1 term, got 0"):
        SparsePolynomial(terms=())
    with pytest.raises(BoundError, match="2 terms hold only 1 different monomials"):
        SparsePolynomial(terms=((1, 2), (1, 2)))
    with pytest.raises(BoundError, match="got 1 of 1 on the left"):
        SparsePolynomial(terms=((1,), (2,)))
    polynomial = SparsePolynomial(terms=((1, 2, 3),))
    for refuse in (polynomial.upper_bound, polynomial.lower_bound):
        with pytest.raises(PartitionError, match=r"0\.\.2, the partition covers \(0, 1\)"):
            refuse(Partition((0,), (1,)))
    with pytest.raises(PartitionError, match=r"0\.\.2, the partition covers \(0, 1\)"):
        polynomial.split(Partition((0,), (1,)), seed=0, prime=101)
