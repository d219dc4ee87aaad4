import numpy as np
import pytest

from rankscope.diagrams import nodes_of, output_shape, to_einsum
from rankscope.diagrams.families import (
    matrix_product,
    outer_product,
    pure_tensor,
    sum_of_pure_tensors,
)
from rankscope.errors import FamilyError


def test_a_matrix_product_sums_the_inner_index() -> None:
    diagram = matrix_product(num_rows=2, num_inner=3, num_columns=4)
    assert to_einsum(diagram) == "ij,jk->ik"
    assert diagram.symbols == {"I": 2, "J": 3, "K": 4}


def test_an_outer_product_sums_nothing() -> None:
    diagram = outer_product(num_rows=2, num_columns=3)
    assert to_einsum(diagram) == "i,j->ij"
    assert diagram.symbols == {"I": 2, "J": 3}


def test_a_pure_tensor_is_a_product_of_entries() -> None:
    diagram = pure_tensor(sizes=(2, 3, 4, 2))
    draw = np.random.default_rng(0)
    vectors = [draw.normal(size=size) for size in (2, 3, 4, 2)]
    value = np.einsum(to_einsum(diagram), *vectors)
    for place in np.ndindex(2, 3, 4, 2):
        entry = np.prod([vector[at] for vector, at in zip(vectors, place, strict=True)])
        np.testing.assert_allclose(value[place], entry)


def test_a_sum_of_pure_tensors_has_its_own_vectors_in_every_term() -> None:
    total = sum_of_pure_tensors(num_terms=3, order=2, sizes=(4, 5))
    assert [output_shape(term.diagram) for term in total.terms] == [(4, 5)] * 3
    assert len({node.source for node in nodes_of(total)}) == 6
    assert total.title == "Sum of 3 pure tensors of order 2"


def test_a_sum_without_terms_is_refused() -> None:
    with pytest.raises(FamilyError, match="count must be a positive integer, got 0"):
        sum_of_pure_tensors(num_terms=0)


def test_a_pure_tensor_needs_one_size_per_vector() -> None:
    with pytest.raises(FamilyError, match=r"pure-tensor: size must be one integer or 3 .* got 2"):
        pure_tensor(order=3, sizes=(4, 5))
    with pytest.raises(FamilyError, match=r"sum-of-pure-tensors: size must be one .* or 3"):
        sum_of_pure_tensors(order=3, sizes=(4, 5))
