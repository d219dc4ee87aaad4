import pytest
import torch

from rankscope.errors import LayerError
from rankscope.robust import InputScaling


def test_each_channel_has_its_own_mean_and_deviation() -> None:
    scaling = InputScaling((1.0, 2.0), (0.5, 4.0))
    outputs = scaling(torch.full((1, 2, 1, 1), 3.0))
    assert outputs.flatten().tolist() == [4.0, 0.25]
    assert scaling.lipschitz_constant == 2.0


def test_means_alone_keep_distances_and_loaded_deviations_count() -> None:
    centred = InputScaling((0.5,))
    assert centred.lipschitz_constant == 1.0
    centred.load_state_dict(InputScaling((0.5,), (0.125,)).state_dict())
    assert centred.lipschitz_constant == 8.0


def test_deviations_that_do_not_fit_are_refused() -> None:
    with pytest.raises(LayerError, match=r"each of 2 means, got \(1.0,\)"):
        InputScaling((0.0, 0.0), (1.0,))
    with pytest.raises(LayerError, match=r"each of 1 means, got \(0.0,\)"):
        InputScaling((0.0,), (0.0,))
    with pytest.raises(LayerError, match=r"images \(batch, 2, .* got the shape \(1, 1, 4, 4\)"):
        InputScaling((0.0, 0.0))(torch.zeros(1, 1, 4, 4))
    with pytest.raises(LayerError, match=r"each of 0 means, got \(\)"):
        InputScaling(())
