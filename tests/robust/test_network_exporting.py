"""Networks of all parts go through PyTorch's compiler and exporter."""

import pytest
import torch
from torch import nn

from rankscope.networks import build
from rankscope.robust import (
    BetaAbs,
    ConcatenativeSkip,
    ConvexSkip,
    GroupSort,
    HouseholderActivation,
    InputScaling,
    MaxMin,
    NormalizedLinear,
    NormPreservingPool,
    OrthogonalLinear,
)


@pytest.mark.slow
@pytest.mark.usefixtures("compilable")
def test_all_parts_compile_as_one_graph() -> None:
    model = nn.Sequential(
        InputScaling((0.5,) * 4),
        ConvexSkip(nn.Sequential(MaxMin(), BetaAbs())),
        ConcatenativeSkip(GroupSort(2)),
        NormPreservingPool(2),
        nn.Flatten(),
        OrthogonalLinear(16, 8),
        HouseholderActivation(8),
        NormalizedLinear(8, 3),
    ).eval()
    images = torch.rand(2, 4, 4, 4)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(images), model(images))


@pytest.mark.slow
def test_a_network_is_exported() -> None:
    model, images = build("lipschitz-digits").eval(), torch.rand(2, 1, 8, 8)
    exported = torch.export.export(model, (images,)).module()
    torch.testing.assert_close(exported(images), model(images))
