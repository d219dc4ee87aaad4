import pytest
import torch
from torch import Tensor, nn

from rankscope.robust import OrthogonalConv2d, orthogonal_start, random_rotation


def test_a_start_that_was_rounded_to_float32_is_orthogonal_in_float64_again() -> None:
    exact = random_rotation(64, torch.Generator().manual_seed(0))
    found = orthogonal_start(exact.float().double())
    deviation = (found.mT @ found - torch.eye(64, dtype=torch.float64)).abs().max()
    assert float(deviation) <= 5 * torch.finfo(torch.float64).eps


@pytest.mark.slow
def test_norms_stay_after_a_thousand_steps_of_training() -> None:
    layer = OrthogonalConv2d(4, 4, 3, bias=False)
    generator = torch.Generator().manual_seed(0)
    inputs, wanted = torch.randn(2, 2, 4, 4, 4, generator=generator).unbind()
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    before = _distance(layer, inputs, wanted)
    for _ in range(1000):
        optimizer.zero_grad()
        _distance(layer, inputs, wanted).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert float(_distance(layer, inputs, wanted).detach()) < 0.9 * float(before.detach())
    ratio = float(layer(inputs).detach().double().norm() / inputs.double().norm())
    assert abs(ratio - 1) < 1e-5


def _distance(layer: nn.Module, inputs: Tensor, wanted: Tensor) -> Tensor:
    distance: Tensor = (layer(inputs) - wanted).square().sum()
    return distance
