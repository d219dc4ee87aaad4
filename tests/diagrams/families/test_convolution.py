from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rankscope.diagrams import Diagram
from rankscope.diagrams.families import ConvolutionSizes, tucker2_convolution
from rankscope.diagrams.families.settings import Value
from rankscope.errors import FamilyError, SizeError

Array = NDArray[np.float64]


@pytest.mark.parametrize(
    ("kernel_size", "stride", "padding"),
    [(3, 1, 0), (3, 2, 1), ((3, 2), (1, 3), (0, 2)), (1, 1, 0)],
)
def test_a_tucker2_layer_is_a_convolution_with_the_merged_kernel(
    evaluate: Callable[[Diagram, dict[str, Array]], Array],
    random_arrays: Callable[[Diagram], dict[str, Array]],
    kernel_size: Value,
    stride: Value,
    padding: Value,
) -> None:
    """Acceptance case 6, as far as the diagram goes."""
    diagram = tucker2_convolution(
        ConvolutionSizes(
            in_channels=4,
            out_channels=5,
            kernel_size=kernel_size,
            in_rank=2,
            out_rank=3,
            height=7,
            width=9,
            stride=stride,
            padding=padding,
            batch_size=2,
        )
    )
    arrays = random_arrays(diagram)
    kernel = np.einsum("sp,pquv,qt->tsuv", arrays["US"], arrays["G"], arrays["UT"])
    expected = torch.nn.functional.conv2d(
        torch.from_numpy(arrays["X"]), torch.from_numpy(kernel), stride=stride, padding=padding
    )
    np.testing.assert_allclose(evaluate(diagram, arrays), expected.numpy())


def test_parameters_are_two_matrices_and_a_core(
    count_parameters: Callable[[Diagram], int],
) -> None:
    sizes = ConvolutionSizes(
        in_channels=64, out_channels=128, kernel_size=3, in_rank=16, out_rank=32
    )
    assert count_parameters(tucker2_convolution(sizes)) == 64 * 16 + 16 * 32 * 3 * 3 + 32 * 128


def test_the_output_has_a_size_only_when_input_and_kernel_have_one() -> None:
    known = tucker2_convolution(ConvolutionSizes(kernel_size=3, height=8, stride=2, padding=1))
    assert (known.sizes["y"], known.sizes["x"]) == (4, None)
    assert tucker2_convolution(ConvolutionSizes()).sizes["y"] is None


def test_a_square_kernel_has_one_symbol_and_another_two() -> None:
    square = tucker2_convolution(ConvolutionSizes(kernel_size=3))
    assert (square.symbols["k"], "k_h" in square.symbols) == (3, False)
    other = tucker2_convolution(ConvolutionSizes(kernel_size=(3, 5)))
    assert (other.symbols["k_h"], other.symbols["k_w"]) == (3, 5)


def test_a_kernel_that_does_not_fit_is_refused() -> None:
    with pytest.raises(SizeError, match=r"kernel of 5 .* does not fit an input of 3"):
        tucker2_convolution(ConvolutionSizes(kernel_size=5, height=3))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            ConvolutionSizes(kernel_size=(3, 3, 3)),
            r"k \(kernel size\) must be one .* or 2 .* got 3",
        ),
        (ConvolutionSizes(stride=(1, 2, 3)), "stride must be one integer or 2 of them.* got 3"),
        (ConvolutionSizes(padding=(1, 2, 3)), "padding must be one integer or 2 of them.* got 3"),
    ],
)
def test_more_than_two_directions_are_refused(sizes: ConvolutionSizes, message: str) -> None:
    with pytest.raises(FamilyError, match=f"tucker2-conv: {message}"):
        tucker2_convolution(sizes)
