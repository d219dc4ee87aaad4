import pytest
import torch
from torch import nn

from rankscope.errors import LayerError
from rankscope.layers.formats.catalogue import FORMATS
from rankscope.layers.linear import FactorizedLinear, check_names, dense_linear, linear_of, prepared

SVD = FORMATS["svd"]


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_of_given_tensors_holds_copies(bias: bool) -> None:
    weight = torch.randn(3, 2, dtype=torch.float64)
    layer = linear_of(weight, torch.randn(3, dtype=torch.float64) if bias else None)
    assert torch.equal(layer.weight, weight)
    assert layer.weight.data_ptr() != weight.data_ptr()
    assert (layer.bias is not None) == bias
    assert layer(torch.zeros(5, 2, dtype=torch.float64)).shape == (5, 3)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bits", [None, 8])
def test_a_prepared_layer_computes_the_same(bias: bool, bits: int | None) -> None:
    dense = nn.Linear(6, 4, bias=bias, dtype=torch.float64)
    layer = FactorizedLinear.from_dense(dense, SVD, (2,))
    if bits is not None:
        layer.quantize(bits)
    inputs = torch.randn(3, 6, dtype=torch.float64)
    torch.testing.assert_close(prepared(layer)(inputs), layer(inputs))
    torch.testing.assert_close(dense_linear(layer)(inputs), layer(inputs))
    assert prepared(dense) is dense
    assert dense_linear(dense) is dense


def test_an_unknown_name_is_refused() -> None:
    check_names("Layer", {"a": 1}, ("a", "b"))
    with pytest.raises(LayerError, match="Layer has no weight 'c'; choose among a, b"):
        check_names("Layer", {"a": 1, "c": 2}, ("a", "b"))
