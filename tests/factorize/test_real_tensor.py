import math

import numpy
import pytest
import torch

from rankscope.errors import DecompositionError
from rankscope.factorize import RealTensor, to_unit
from rankscope.factorize.truncation import to_array


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (numpy.zeros((2, 2), dtype=complex), "asker needs real numbers.* got complex128"),
        (torch.zeros(2, 2, dtype=torch.complex64), "got complex64"),
        (numpy.zeros((2, 2), dtype=bool), "got bool"),
        (torch.zeros(2, 2, dtype=torch.bfloat16), "got torch.bfloat16. Convert"),
        (numpy.zeros(5), r"order 2 or more, got order 1 \(shape \(5,\)\)"),
        (numpy.zeros((2, 0, 3)), r"with entries, got shape \(2, 0, 3\)"),
        (numpy.array([[1.0, math.nan], [math.inf, 2.0]]), "2 of 4 entries are not finite"),
    ],
)
def test_what_is_no_real_tensor_is_refused(tensor: RealTensor, message: str) -> None:
    with pytest.raises(DecompositionError, match=message):
        to_array(tensor, who="asker")


def test_both_libraries_and_integers_are_taken_as_they_are() -> None:
    for dtype in (torch.float16, torch.float32, torch.float64, torch.uint8, torch.int64):
        tensor = torch.ones(2, 3, dtype=dtype)
        assert to_array(tensor, who="asker").dtype == tensor.numpy().dtype
    with_gradient = torch.ones(2, 3, requires_grad=True)
    assert to_array(with_gradient, who="asker").shape == (2, 3)


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e300])
def test_a_tensor_is_its_norm_times_a_tensor_of_norm_1(size: float) -> None:
    unit, scale = to_unit(size * numpy.array([[3.0, 0.0], [0.0, -4.0]]))
    numpy.testing.assert_allclose(unit, [[0.6, 0.0], [0.0, -0.8]])
    assert scale == pytest.approx(5 * size)


def test_zero_has_norm_0() -> None:
    unit, scale = to_unit(numpy.zeros((2, 2)))
    assert scale == 0
    assert not unit.any()
