"""The coordinates that tokens are kept in; test_moments checks the values."""

import numpy
import pytest

from rankscope.rank import SelfAttention
from rankscope.rank.networks.moments import gram_form, gram_program

PRIME = 16777213


@pytest.mark.parametrize(("heads", "head_size", "size", "sizes"), [
    (1, 4, 4, (4, 4, 4)),  # one head keeps the coordinates
    (1, 4, 2, (2, 2, 2)),  # also those of a low-rank embedding
    (1, 1, 4, (4, 1, 1)),  # a narrow head has only as many as it is wide
    (2, 2, 4, (4, 4, 4)),  # the outputs of all heads
    (3, 1, 4, (4, 3, 3)),
    (3, 2, 2, (2, 4, 4)),  # more outputs than the width: the tokens themselves
])  # fmt: skip
def test_tokens_are_kept_in_few_coordinates(
    heads: int, head_size: int, size: int, sizes: tuple[int, ...]
) -> None:
    network = SelfAttention(depth=3, width=4, heads=heads, head_size=head_size)
    basis = numpy.eye(4, size, dtype=numpy.int64)
    form = gram_form(network.draw_weights(0, PRIME), 3, basis, PRIME)
    assert form.sizes == sizes
    assert form.is_linear


def test_a_chain_is_not_linear_in_the_gram_matrix() -> None:
    network = SelfAttention(depth=2, width=2, degree=5)
    form = gram_form(network.draw_weights(0, PRIME), 2, numpy.eye(2, dtype=numpy.int64), PRIME)
    assert not form.is_linear
    assert form.num_moments == 3 + 2


def test_the_last_gram_matrix_is_never_made() -> None:
    network = SelfAttention(depth=3, width=4)
    form = gram_form(network.draw_weights(0, PRIME), 3, numpy.eye(4, dtype=numpy.int64), PRIME)
    assert form.num_moments == 10 + 16 + 4
    # Second layer: the token, M G, half of M G M^T, and M. Output: five vectors and one number.
    assert len(gram_program(form, PRIME).instructions) == 4 + 16 + 10 + 16 + 5 * 4 + 1
