"""The whitened weight stands for the outputs' errors."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.compression import ErrorNorm, Weights, relative_error, whiten
from rankscope.compression.scores import can_whiten, is_plain, take_back
from rankscope.factorize import FORMATS, WeightShape


def factor(size: int, groups: int, generator: torch.Generator) -> Tensor:
    inputs = torch.randn(groups, 3 * size, size, generator=generator, dtype=torch.float64)
    found: Tensor = torch.linalg.cholesky(inputs.mT @ inputs / (3 * size))
    return found


def test_the_error_is_that_of_outputs_on_inputs_with_these_moments(
    generator: torch.Generator,
) -> None:
    inputs = torch.randn(50, 7, generator=generator, dtype=torch.float64)
    weight, other = torch.randn(2, 5, 7, generator=generator, dtype=torch.float64)
    error_norm = ErrorNorm(factor=torch.linalg.cholesky(inputs.mT @ inputs / 50))
    measured = torch.linalg.norm(inputs @ (weight - other).mT) / torch.linalg.norm(
        inputs @ weight.mT
    )
    assert relative_error(weight[None], other[None], error_norm) == pytest.approx(float(measured))


def test_rows_weigh_the_vectors_of_an_embedding(generator: torch.Generator) -> None:
    table, other = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    counts = torch.tensor([3, 1, 1, 2])
    looked_up = torch.repeat_interleave(torch.arange(4), counts)
    measured = torch.linalg.norm((table - other)[looked_up]) / torch.linalg.norm(table[looked_up])
    error_norm = ErrorNorm(rows=counts.double().sqrt())
    assert relative_error(table[None], other[None], error_norm) == pytest.approx(float(measured))


@settings(deadline=None, max_examples=20)
@given(
    name=st.sampled_from(["svd", "tucker", "tensor-train"]),
    groups=st.integers(1, 3),
    has_rows=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_whitening_is_taken_back_exactly_at_full_ranks(
    name: str, groups: int, has_rows: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    shape = WeightShape(5, 4, (3, 2))
    weight = torch.randn(groups, *shape.sizes, generator=generator, dtype=torch.float64)
    rows = torch.rand(5, generator=generator, dtype=torch.float64) + 0.5 if has_rows else None
    error_norm = ErrorNorm(factor(4, groups, generator), rows)
    format = FORMATS[name]
    assert can_whiten(format, error_norm)
    ranks = format.full_ranks(shape)
    parts = [format.decompose(group, ranks) for group in whiten(weight, error_norm)]
    cores = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    restored = take_back(cores, format, error_norm, groups=groups)
    apart = {name: core.chunk(groups) for name, core in restored.items()}
    for group in range(groups):
        own = {name: core[group] for name, core in apart.items()}
        torch.testing.assert_close(format.to_dense(own, shape), weight[group])


def test_formats_that_cut_channels_cannot_be_whitened(generator: torch.Generator) -> None:
    error_norm = ErrorNorm(factor(8, 1, generator))
    assert not can_whiten(FORMATS["r-tensor-train"], error_norm)
    assert not can_whiten(FORMATS["r-tensor-train"], ErrorNorm(rows=torch.ones(8)))


def test_weights_alone_are_plain() -> None:
    scoring = Weights()
    assert is_plain(scoring.error_norm("anything"))
    assert is_plain(None)
    assert not can_whiten(FORMATS["svd"], ErrorNorm())


def test_a_zero_weight_has_no_error_unless_something_is_put_there() -> None:
    zero = torch.zeros(1, 3, 2)
    assert relative_error(zero, zero, None) == 0
    assert relative_error(zero, zero + 1, None) == 1
