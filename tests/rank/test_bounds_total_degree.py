"""The bound by total degree, against all monomials counted one by one and against real ranks."""

import itertools

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rankscope.errors import BoundError
from rankscope.rank import fully_connected_upper_bound, rank_modulo, total_degree_upper_bound

PRIME = 1073741789
SMALL = st.integers(1, 3)


def degrees(num_inputs: int, degree: int) -> list[int]:
    """The degree of every monomial up to one."""
    powers = itertools.product(range(degree + 1), repeat=num_inputs)
    return [total for power in powers if (total := sum(power)) <= degree]


def coefficients(num_left: int, num_right: int, degree: int, seed: int) -> NDArray[numpy.int64]:
    """Random ones wherever the degrees of the row and of the column allow."""
    rows, columns = (numpy.array(degrees(count, degree)) for count in (num_left, num_right))
    drawn = numpy.random.default_rng(seed).integers(1, PRIME, (len(rows), len(columns)))
    found: NDArray[numpy.int64] = drawn * (rows[:, None] + columns <= degree)
    return found


@settings(deadline=None)
@given(left=SMALL, right=SMALL, degree=st.integers(0, 5), seed=st.integers(0, 99), data=st.data())
def test_no_polynomial_of_the_degree_exceeds_the_bound(
    left: int, right: int, degree: int, seed: int, data: st.DataObject
) -> None:
    matrix = coefficients(left, right, degree, seed)
    keep = data.draw(st.integers(0, 2**31))
    mask = numpy.random.default_rng(keep).integers(0, 2, matrix.shape)
    found = total_degree_upper_bound(num_left=left, num_right=right, degree=degree)
    assert found.holds_for(rank_modulo(matrix * mask, PRIME))


@settings(deadline=None)
@given(left=SMALL, right=SMALL, degree=st.integers(0, 5), seed=st.integers(0, 99))
def test_generic_polynomials_with_all_lower_terms_attain_it(
    left: int, right: int, degree: int, seed: int
) -> None:
    found = total_degree_upper_bound(num_left=left, num_right=right, degree=degree)
    assert rank_modulo(coefficients(left, right, degree, seed), PRIME) == found.value


@given(left=SMALL, right=SMALL, degree=st.integers(1, 4), depth=st.integers(2, 4))
def test_it_is_the_bound_of_product_layers(left: int, right: int, degree: int, depth: int) -> None:
    products = fully_connected_upper_bound(
        num_inputs=left + right, num_left=left, degree=degree, depth=depth
    )
    found = total_degree_upper_bound(num_left=left, num_right=right, degree=degree**depth)
    assert found.value == products.value


def test_sizes_without_a_theorem_are_refused() -> None:
    with pytest.raises(BoundError, match="num_right must be at least 1, got 0"):
        total_degree_upper_bound(num_left=1, num_right=0, degree=2)
    with pytest.raises(BoundError, match="degree must be at least 0, got -1"):
        total_degree_upper_bound(num_left=1, num_right=1, degree=-1)
