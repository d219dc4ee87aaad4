import math

import pytest
import torch
from torch import Tensor

from rankscope.errors import DecompositionError
from rankscope.factorize import MaxBond, RelativeError, Truncation, to_scaled
from rankscope.factorize import truncation as computing


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_tensors_of_every_precision_are_scaled_in_float64(dtype: torch.dtype, scale: float) -> None:
    tensor = (torch.arange(1, 7).reshape(2, 3) * scale).to(dtype).requires_grad_()
    scaled = to_scaled(tensor, MaxBond(1), who="me")
    assert scaled.unit.dtype == torch.float64
    assert not scaled.unit.requires_grad
    assert float(scaled.unit.max()) == 1.0
    torch.testing.assert_close(scaled.unit * scaled.scale, tensor.detach().double())


@pytest.mark.parametrize(
    ("truncation", "dtype"),
    [
        (MaxBond(1), torch.float32),
        (RelativeError(0.01), torch.float32),
        (RelativeError(1e-6), torch.float64),
    ],
)
def test_large_tensors_are_computed_in_float32_unless_the_error_asked_for_is_too_small(
    truncation: Truncation, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computing, "MAX_DOUBLE_ENTRIES", 5)
    assert to_scaled(torch.ones(2, 3), truncation, who="me").unit.dtype == dtype
    assert to_scaled(torch.ones(5), truncation, who="me").unit.dtype == torch.float64


def test_the_error_is_that_of_the_difference_over_the_tensor() -> None:
    scaled = to_scaled(torch.tensor([[3.0, 4.0]]), MaxBond(1), who="me")
    assert scaled.relative_error(torch.tensor([[0.0, 1.0]], dtype=torch.float64)) == 3 / 5
    assert math.isclose(scaled.allowed(0.6), 0.36 * (1 + 9 / 16), rel_tol=1e-12)


def test_zero_is_its_own_scale_and_has_no_error() -> None:
    scaled = to_scaled(torch.zeros(2, 2), MaxBond(1), who="me")
    assert scaled.scale == 1.0
    assert scaled.relative_error(torch.zeros(2, 2, dtype=torch.float64)) == 0.0


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.ones(2, 2, dtype=torch.int64), "me needs real floating-point .* got torch.int64"),
        (torch.ones(2, 2, dtype=torch.complex64), "real floating-point .* got torch.complex64"),
        (torch.ones(0, 3), r"me needs a tensor with entries, got shape \(0, 3\)"),
        (torch.ones(3), r"me needs a tensor of order 2 or more, got order 1 \(shape \(3,\)\)"),
        (
            torch.tensor([[1.0, math.inf], [math.nan, 0.0]]),
            r"me: 2 of 4 entries are not finite, the first one \(inf\) at \(0, 1\)",
        ),
    ],
)
def test_other_tensors_are_refused(tensor: Tensor, message: str) -> None:
    with pytest.raises(DecompositionError, match=message):
        to_scaled(tensor, MaxBond(1), who="me", least_order=2)
