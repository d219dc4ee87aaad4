"""Training through the rounding of weights."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.compression import Recipe, fit
from rankscope.errors import GeneralizationError
from rankscope.generalize import (
    Quantization,
    QuantizedCrossEntropy,
    fixed_scales,
    outputs_of,
    quantize_network,
)
from rankscope.networks import Batch, TensorData, with_cp_layers


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    plain = nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3, bias=False),
        nn.Flatten(),
        nn.Linear(24, 3, bias=False),
    )
    return with_cp_layers(plain, rank=lambda _: 2, seed=seed)


def batch(seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return Batch(torch.randn(8, 1, 6, 6, generator=generator), torch.arange(8) % 3)


@settings(deadline=None, max_examples=20)
@given(bits=st.integers(2, 6), seed=st.integers(0, 50))
def test_the_loss_is_that_of_the_network_that_is_counted(bits: int, seed: int) -> None:
    model, given_batch = network(seed), batch(seed)
    quantization = fixed_scales(model, bits=bits)
    found = QuantizedCrossEntropy(quantization)(model, given_batch)
    rounded = quantize_network(model, quantization)
    assert rounded.num_scales == 0
    assert given_batch.targets is not None
    expected = nn.functional.cross_entropy(
        outputs_of(rounded.model, given_batch.inputs), given_batch.targets
    )
    torch.testing.assert_close(found.detach(), expected)


def test_gradients_go_through_the_rounding_as_if_it_were_not_there() -> None:
    weight = torch.tensor([[0.3, -1.4, 9.0]])
    model = nn.Linear(3, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(weight)
    loss = QuantizedCrossEntropy(Quantization(2, {"weight": 1.0}))
    rounded = loss._rounded("weight", model.weight)
    assert rounded.tolist() == [[0.0, -1.0, 1.0]]
    torch.autograd.backward(rounded.sum())
    # Beyond half a step of the last code there is nothing to pull at.
    assert model.weight.grad is not None
    assert model.weight.grad.tolist() == [[1.0, 1.0, 0.0]]


def test_training_lowers_the_loss_of_the_rounded_network() -> None:
    model, given_batch = network(0), batch(0)
    quantization = fixed_scales(model, bits=3)
    loss = QuantizedCrossEntropy(quantization)
    before = float(loss(model, given_batch).detach())
    data = TensorData(given_batch.inputs, given_batch.targets)
    fit(model, loss, data, Recipe(epochs=40, batch_size=8, learning_rate=2e-2))
    assert float(loss(model, given_batch).detach()) < before / 2


def test_a_tensor_of_zeros_has_no_scale() -> None:
    model = nn.Linear(3, 2)
    nn.init.zeros_(model.bias)
    with pytest.raises(GeneralizationError, match="all 2 numbers of bias are zero"):
        fixed_scales(model, bits=4)
