"""Product layers: their formula in both arithmetics, and real degrees as averages."""

import math

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import SizeError
from rankscope.rank import Modulo, ProductLayer, product_of_forms, split_degree


@settings(deadline=None, max_examples=40)
@given(degree=st.integers(1, 4), raised=st.integers(0, 2), seed=st.integers(0, 99))
def test_a_layer_is_its_formula_in_both_arithmetics(degree: int, raised: int, seed: int) -> None:
    layer = ProductLayer(2, 3, degree=degree, raised=raised).double()
    generator = numpy.random.default_rng(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.from_numpy(generator.integers(0, 4, tuple(parameter.shape))))
    inputs = torch.from_numpy(generator.integers(0, 4, (5, 2)))
    wanted = torch.ones(5, 3, dtype=torch.float64)
    for coordinate in range(3):
        for place in range(degree + (coordinate < raised)):
            weight, bias = layer.weights[place], layer.biases[place]
            wanted[:, coordinate] *= inputs.double() @ weight[:, coordinate] + bias[coordinate]
    torch.testing.assert_close(layer(inputs.double()), wanted)
    residues = product_of_forms(
        Modulo(7),
        inputs % 7,
        [weight.detach().long() % 7 for weight in layer.weights],
        [bias.detach().long() % 7 for bias in layer.biases],
    )
    assert residues.tolist() == (wanted.long() % 7).tolist()


@given(degree=st.floats(1, 9), width=st.integers(1, 200))
def test_a_real_degree_is_an_average_over_the_coordinates(degree: float, width: int) -> None:
    low, raised = split_degree(degree, width)
    assert 0 <= raised < width
    # Rounding to a multiple of 1 / width.
    assert abs(low + raised / width - degree) <= 0.5 / width + 1e-9
    layer = ProductLayer(2, width, degree=low, raised=raised)
    assert sum(weight.numel() for weight in layer.weights) == 2 * (low * width + raised)


def test_a_layer_starts_nearly_linear() -> None:
    """Every form but the first starts at 1, whatever the degree, so that nothing explodes."""
    layer = ProductLayer(50, 200, degree=4, generator=torch.Generator().manual_seed(0))
    inputs = torch.randn(100, 50, generator=torch.Generator().manual_seed(1))
    linear = inputs @ layer.weights[0]
    values = layer(inputs)
    assert torch.corrcoef(torch.stack([linear.flatten(), values.flatten()]))[0, 1] > 0.8


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SizeError, match=r"raised must lie in 0\.\.4, got 5; for all 5"):
        ProductLayer(2, 5, degree=2, raised=5)
    with pytest.raises(SizeError, match="degree must be at least 1, got 0"):
        ProductLayer(2, 5, degree=0)
    for degree in (0.5, math.inf, math.nan):
        with pytest.raises(SizeError, match=rf"finite and at least 1, got {degree}"):
            split_degree(degree, 3)
    with pytest.raises(SizeError, match="width must be at least 1, got 0"):
        split_degree(2.0, 0)
