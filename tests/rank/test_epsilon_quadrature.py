import itertools

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.errors import PartitionError, TooLargeError
from rankscope.rank import (
    FunctionOptions,
    Measure,
    Partition,
    StandardNormal,
    Uniform,
    polynomial_spectrum,
    quadrature_kernel,
)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 999))
@pytest.mark.parametrize("measure", [Uniform(), StandardNormal()], ids=lambda m: m.name)
def test_gauss_rules_and_gram_matrices_give_one_spectrum(measure: Measure, seed: int) -> None:
    """A polynomial of degree at most 2 in each of x_0, x_2 on the left and x_1 on the right."""
    left = list(itertools.product(range(3), repeat=2))
    right = [(0,), (1,), (2,)]
    coefficients = numpy.random.default_rng(seed).standard_normal((9, 3))

    def polynomial(inputs: Tensor) -> Tensor:
        powers = [torch.stack([inputs[:, i] ** k for k in range(3)], 1) for i in range(3)]
        weights = torch.from_numpy(coefficients).reshape(3, 3, 3)
        return torch.einsum("bi,bk,bj,ikj->b", *powers[::2], powers[1], weights)

    kernel = quadrature_kernel(polynomial, Partition((0, 2), (1,)), measure=measure, num_nodes=3)
    assert kernel.shape == (9, 3)
    numpy.testing.assert_allclose(
        numpy.linalg.svd(kernel, compute_uv=False),
        polynomial_spectrum(coefficients, left, right, measure=measure),
        atol=1e-10,
    )


def test_singular_values_of_other_functions_converge() -> None:
    """exp(x z) over normal inputs has no finite mean square; cos(x + z) has rank 2.

    cos x cos z - sin x sin z: the root mean squares are (1 ± e^-2) / 2 for each side's square.
    """
    kernel = quadrature_kernel(
        lambda inputs: torch.cos(inputs.sum(1)),
        Partition.left_right(2),
        measure=StandardNormal(),
        num_nodes=20,
    )
    values = numpy.linalg.svd(kernel, compute_uv=False)
    expected = [(1 + numpy.exp(-2)) / 2, (1 - numpy.exp(-2)) / 2]
    numpy.testing.assert_allclose(values[:2], expected, atol=1e-9)
    assert values[2] < 1e-9


def test_a_position_on_neither_side_is_refused() -> None:
    with pytest.raises(PartitionError, match=r"got \(0, 2\) of 0..2 on a side"):
        quadrature_kernel(
            lambda inputs: inputs.sum(1), Partition((0,), (2,)), measure=Uniform(), num_nodes=2
        )


def test_too_many_points_are_refused_before_they_are_made() -> None:
    with pytest.raises(TooLargeError, match=r"100,000,000 x 100,000,000 .* At most 100 left"):
        quadrature_kernel(
            lambda inputs: inputs.sum(1),
            Partition.left_right(8),
            measure=Uniform(),
            num_nodes=100,
            options=FunctionOptions(memory_limit=80_000),
        )
