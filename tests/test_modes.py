"""Modes are put back, also after an error."""

import pytest
from torch import nn

from rankscope.modes import all_trainable, inference


def test_each_module_gets_its_own_mode_back() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Linear(1, 1)))
    model[1].eval()
    modes = [part.training for part in model.modules()]
    with inference(model):
        assert not any(part.training for part in model.modules())
    assert [part.training for part in model.modules()] == modes
    with pytest.raises(KeyError), inference(model):
        raise KeyError
    assert [part.training for part in model.modules()] == modes


def test_frozen_parameters_are_frozen_again() -> None:
    model = nn.Linear(2, 2)
    model.bias.requires_grad = False
    with all_trainable(model):
        assert model.bias.requires_grad
    with pytest.raises(KeyError), all_trainable(model):
        raise KeyError
    assert (model.weight.requires_grad, model.bias.requires_grad) == (True, False)
