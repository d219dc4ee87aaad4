import math

import pytest
import torch

from rankscope.errors import LayerError
from rankscope.robust import HouseholderActivation, MaxMin


def test_it_starts_as_max_min() -> None:
    inputs = torch.randn(3, 6, 2, dtype=torch.float64)
    torch.testing.assert_close(HouseholderActivation(6).double()(inputs), MaxMin()(inputs))


def test_every_pair_ends_in_its_half_plane_and_stays_there() -> None:
    layer = HouseholderActivation(2).double()
    layer.angles.data.fill_(1.0)
    outputs = layer(torch.randn(100, 2, dtype=torch.float64))
    first, second = outputs.unbind(dim=1)
    assert bool((first * math.sin(0.5) - second * math.cos(0.5) >= -1e-12).all())
    torch.testing.assert_close(layer(outputs), outputs)


def test_the_line_itself_does_not_move() -> None:
    layer = HouseholderActivation(2).double()
    layer.angles.data.fill_(0.8)
    line = torch.tensor([[math.cos(0.4), math.sin(0.4)]], dtype=torch.float64)
    for nearby in (line + 1e-9, line - 1e-9, line):
        torch.testing.assert_close(layer(nearby), line)


def test_its_angles_are_trained() -> None:
    layer = HouseholderActivation(2)
    layer(torch.tensor([[-1.0, 2.0]]))[0, 0].backward()
    assert layer.angles.grad is not None
    assert layer.angles.grad.abs().sum() > 0


def test_other_channels_are_refused() -> None:
    with pytest.raises(LayerError, match="even and positive, got 3"):
        HouseholderActivation(3)
    with pytest.raises(LayerError, match=r"wanted 4 channels, got inputs of shape \(1, 2\)"):
        HouseholderActivation(4)(torch.zeros(1, 2))


def test_what_a_reader_sees() -> None:
    assert repr(HouseholderActivation(4)) == "HouseholderActivation(4)"
