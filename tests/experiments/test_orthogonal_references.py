"""The reference layers are what their names say: orthogonal, or only never stretching."""

import math

import pytest
import torch
from torch import Tensor

from rankscope.experiments.orthogonality import (
    REFERENCES,
    BlockConvolutions,
    ConvolutionExponential,
    ReferenceConvolution,
    bjorck,
    orthogonalized,
)

CHANNELS, SIZE = 3, 6


def build(name: str, *, seed: int = 0) -> ReferenceConvolution:
    torch.manual_seed(seed)
    return REFERENCES[name](CHANNELS, SIZE).double().eval().requires_grad_(requires_grad=False)


def matrix_of(layer: ReferenceConvolution) -> Tensor:
    count = CHANNELS * SIZE * SIZE
    basis = torch.eye(count, dtype=torch.float64).reshape(count, CHANNELS, SIZE, SIZE)
    with torch.no_grad():
        outputs: Tensor = layer(basis).flatten(1)
    return outputs.T


@pytest.mark.parametrize(("name", "tolerance"), [("Cayley", 1e-12), ("SOC", 1e-8)])
def test_orthogonal_references_have_singular_values_one(name: str, tolerance: float) -> None:
    values = torch.linalg.svdvals(matrix_of(build(name)))
    torch.testing.assert_close(values, torch.ones_like(values), rtol=0, atol=tolerance)


def test_block_convolutions_are_orthogonal_if_the_iteration_converges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BlockConvolutions, "STEPS", 200)
    values = torch.linalg.svdvals(matrix_of(build("BCOP")))
    torch.testing.assert_close(values, torch.ones_like(values), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["RKO", "OSSN"])
def test_normalized_references_never_stretch_but_shrink(name: str) -> None:
    values = torch.linalg.svdvals(matrix_of(build(name)))
    assert float(values.max()) <= 1 + 1e-12
    assert float(values.min()) < 0.5


def test_spectral_normalization_leaves_short_kernels_alone() -> None:
    layer = build("OSSN")
    layer.free.mul_(0.1)
    inputs = torch.randn(1, CHANNELS, SIZE, SIZE, dtype=torch.float64)
    torch.testing.assert_close(layer(inputs), layer.convolve(inputs, layer.free))
    layer.free.mul_(100)
    torch.testing.assert_close(
        torch.linalg.svdvals(matrix_of(layer)).max(), torch.tensor(1.0, dtype=torch.float64)
    )


def test_clipping_is_exact_where_the_kernel_is_as_large_as_the_image() -> None:
    layer = REFERENCES["SVCM"](2, 3, 3).double().requires_grad_(requires_grad=False)
    layer.free.mul_(5)
    basis = torch.eye(18, dtype=torch.float64).reshape(18, 2, 3, 3)
    plain = torch.linalg.svdvals(layer.convolve(basis, layer.free).flatten(1))
    clipped = torch.linalg.svdvals(layer(basis).flatten(1))
    torch.testing.assert_close(clipped, plain.clamp(max=1))


def test_the_exponential_takes_fewer_terms_in_training() -> None:
    layer = build("SOC")
    inputs = torch.randn(1, CHANNELS, SIZE, SIZE, dtype=torch.float64)
    exact = layer(inputs)
    difference = float((layer.train()(inputs) - exact).norm() / inputs.norm())
    # What is left out begins with the sixth power of a map of norm at most 1, over 6!.
    assert 0 < difference <= math.e / math.factorial(6)


def test_the_exponential_of_a_convolution_is_that_of_its_matrix() -> None:
    layer = build("SOC")
    assert isinstance(layer, ConvolutionExponential)
    skew = layer.free - layer.free.transpose(0, 1).flip((2, 3))
    norm = layer.norm_bound(skew)
    basis = torch.eye(CHANNELS * SIZE**2, dtype=torch.float64).reshape(-1, CHANNELS, SIZE, SIZE)
    matrix = layer.convolve(basis, skew).flatten(1).T
    torch.testing.assert_close(matrix, -matrix.T)
    assert float(torch.linalg.matrix_norm(matrix, 2)) <= float(norm)
    torch.testing.assert_close(matrix_of(layer), torch.matrix_exp(matrix / norm), rtol=0, atol=1e-8)


def test_matrices_are_made_orthogonal() -> None:
    wide = torch.randn(3, 7, dtype=torch.float64)
    identity = torch.eye(3, dtype=torch.float64)
    found = orthogonalized(wide)
    torch.testing.assert_close(found @ found.T, identity)
    tall = bjorck(wide.T[None], 60)[0]
    torch.testing.assert_close(tall.T @ tall, identity)
    torch.testing.assert_close(tall, found.T)
