import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.errors import SizeError, TooLargeError, UnsupportedModuleError
from rankscope.factorize import FORMATS, FactorizedLinear
from rankscope.robust import (
    OrthogonalConv2d,
    OrthogonalConvTranspose2d,
    operator_norm,
    operator_spectrum,
)
from rankscope.robust import operator_norms as module_under_test


def true_values(layer: nn.Module, shape: tuple[int, ...]) -> Tensor:
    """From the Jacobian at a point, by autograd."""
    point = torch.zeros(1, *shape, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(layer, point)  # type: ignore[no-untyped-call]
    assert isinstance(jacobian, Tensor)
    size = torch.Size(shape).numel()
    values: Tensor = torch.linalg.svdvals(jacobian.reshape(-1, size))
    return values


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[nn.Module, tuple[int, ...]]:
    axes = draw(st.sampled_from([1, 2]))
    is_transposed, mode = draw(
        st.sampled_from([(False, "zeros"), (False, "circular"), (True, "zeros")])
    )
    groups = draw(st.integers(1, 2))
    channels = [groups * draw(st.integers(1, 2)) for _ in range(2)]
    kernel = draw(st.tuples(*[st.integers(1, 3)] * axes))
    dilation = draw(st.tuples(*[st.integers(1, 2)] * axes))
    stride = draw(st.tuples(*[st.integers(1, 2)] * axes))
    if mode == "circular":
        # Only with the padding that takes every place once is it a convolution on a circle.
        stride = (1,) * axes
        kernel = tuple(2 * (k // 2) + 1 for k in kernel)
        padding = tuple(d * (k - 1) // 2 for d, k in zip(dilation, kernel, strict=True))
    else:
        padding = draw(st.tuples(*[st.integers(0, 2)] * axes))
    classes = {
        (1, False): nn.Conv1d,
        (2, False): nn.Conv2d,
        (1, True): nn.ConvTranspose1d,
        (2, True): nn.ConvTranspose2d,
    }
    layer = classes[axes, is_transposed](
        *channels,
        kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        padding_mode=mode,
        dtype=torch.float64,
    )
    return layer, (channels[0], *draw(st.tuples(*[st.integers(5, 6)] * axes)))


@settings(deadline=None, max_examples=80)
@given(convolutions(), st.booleans())
def test_the_true_norm_lies_between_the_bounds(
    drawn: tuple[nn.Module, tuple[int, ...]], is_written_out: bool
) -> None:
    layer, shape = drawn
    true = float(true_values(layer, shape).max())
    with pytest.MonkeyPatch.context() as patch:
        if not is_written_out:
            patch.setattr(module_under_test, "MAX_ENTRIES", 0)
        found = operator_norm(layer, shape)
    assert found.lower <= true * (1 + 1e-12)
    assert true <= found.upper * (1 + 1e-12)
    if is_written_out or layer.padding_mode == "circular":
        assert found.upper <= true * (1 + 1e-10)
    assert found.lower >= 0.8 * true
    assert "operator norm in " in str(found)


@settings(deadline=None, max_examples=30)
@given(convolutions())
def test_the_whole_spectrum_is_that_of_the_jacobian(
    drawn: tuple[nn.Module, tuple[int, ...]],
) -> None:
    layer, shape = drawn
    expected = true_values(layer, shape)
    found = operator_spectrum(layer, shape)
    torch.testing.assert_close(found[: len(expected)], expected, rtol=0, atol=1e-9)


def test_periodic_padding_that_takes_places_twice_is_no_circle() -> None:
    # Places at the edges are read twice, so that the norm is above that on the circle.
    layer = nn.Conv2d(1, 1, 3, padding=3, padding_mode="circular", dtype=torch.float64)
    true = float(true_values(layer, (1, 6, 6)).max())
    on_circle = nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular", dtype=torch.float64)
    on_circle.load_state_dict(layer.state_dict())
    assert true > 1.1 * operator_norm(on_circle, (1, 6, 6)).upper
    assert operator_norm(layer, (1, 6, 6)).upper == pytest.approx(true)
    torch.testing.assert_close(operator_spectrum(layer, (1, 6, 6)).max().item(), true)
    with pytest.raises(UnsupportedModuleError, match=r"\(1, 68, 68\) for \(1, 64, 64\) at stride"):
        operator_norm(layer, (1, 64, 64))


def test_orthogonal_layers_have_norm_one_and_a_scaled_export_does_not() -> None:
    layer = OrthogonalConv2d(8, 8, 3)
    assert abs(operator_norm(layer, (8, 64, 64)).upper - 1) < 1e-5
    back = OrthogonalConvTranspose2d(8, 2, 2, 2)
    assert abs(operator_norm(back, (8, 40, 40)).upper - 1) < 1e-5
    plain = layer.to_conv2d()
    assert isinstance(plain, nn.Conv2d)
    with torch.no_grad():
        plain.weight *= 3
    assert abs(operator_norm(plain, (8, 64, 64)).lower - 3) < 1e-4


@pytest.mark.slow
def test_orthogonal_as_torch_parametrizes_it_is_not_orthogonal() -> None:
    torch.manual_seed(0)
    layer = torch.nn.utils.parametrizations.orthogonal(nn.Conv2d(8, 8, 3, padding=1))
    assert operator_norm(layer, (8, 16, 16)).lower > 1.5


def test_matrices_and_factorized_layers_are_measured_as_they_are() -> None:
    dense = nn.Linear(12, 9)
    small = FactorizedLinear.from_dense(dense, FORMATS["svd"], (3,))
    expected = torch.linalg.svdvals(dense.weight.detach().double())
    torch.testing.assert_close(operator_spectrum(dense, (12,)), expected)
    # Cutting the smaller singular values off does not change the largest one.
    assert operator_norm(small, (12,)).upper == pytest.approx(float(expected[0]), rel=1e-5)


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(UnsupportedModuleError, match="orthogonal forms, not ReLU"):
        operator_norm(nn.ReLU(), (3,))
    reflecting = nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect")
    with pytest.raises(UnsupportedModuleError, match="padding_mode='reflect', which repeats"):
        operator_norm(reflecting, (1, 4, 4))
    with pytest.raises(SizeError, match=r"Conv2d does not take inputs of shape \(2, 4, 4\)"):
        operator_norm(nn.Conv2d(3, 3, 3), (2, 4, 4))
    with pytest.raises(
        TooLargeError, match="needs 37,748,736 entries, over the limit of 8,388,608"
    ):
        operator_spectrum(nn.Conv2d(6, 6, 3, padding=1), (6, 32, 32))
