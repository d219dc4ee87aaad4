"""Fisher information: squared gradients by their definition."""

import copy

import pytest
import torch
from torch import Tensor, nn

from rankscope.compression.calibration import Fisher
from rankscope.errors import CompressionError


def squares(model: nn.Module, batch: object) -> Tensor:
    assert isinstance(batch, Tensor)
    outputs: Tensor = model(batch)
    return outputs.square().mean()


def multiplier(scoring: Fisher, name: str) -> float:
    error_norm = scoring.error_norm(name)
    assert error_norm is not None
    assert error_norm.factor is None
    return error_norm.multiplier


def test_multipliers_are_mean_squared_gradients_times_squared_weights() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    batches = [torch.randn(5, 3).double() for _ in range(3)]
    scoring = Fisher(squares, batches)
    scoring.prepare(model)
    expected = []
    for weight in (model.get_parameter("0.weight"), model.get_parameter("2.weight")):
        total = torch.zeros((), dtype=torch.float64)
        for batch in batches:
            (gradient,) = torch.autograd.grad(squares(model, batch), [weight])
            total += gradient.square().mean()
        expected.append(float(total * weight.detach().square().sum()))
    found = [multiplier(scoring, name) for name in ("0", "2")]
    assert sum(found) == pytest.approx(2)  # their mean is 1
    assert found[0] / found[1] == pytest.approx(expected[0] / expected[1])


def test_parts_of_a_packed_weight_are_weighed_apart() -> None:
    torch.manual_seed(0)
    model = nn.MultiheadAttention(4, 2).double()

    def loss(module: nn.Module, batch: object) -> Tensor:
        outputs: Tensor = module(batch, batch, batch)[0]
        return outputs.square().mean()

    inputs = torch.randn(3, 2, 4).double()
    scoring = Fisher(loss, [inputs])
    scoring.prepare(model)
    (gradient,) = torch.autograd.grad(loss(model, inputs), [model.in_proj_weight])
    expected = [
        float(part.square().mean() * weight.detach().square().sum())
        for part, weight in zip(gradient.chunk(3), model.in_proj_weight.chunk(3), strict=True)
    ]
    found = [multiplier(scoring, name) for name in ("query", "key", "value")]
    assert found[0] / found[2] == pytest.approx(expected[0] / expected[2])
    assert found[1] / found[2] == pytest.approx(expected[1] / expected[2])


def test_frozen_parameters_are_weighed_and_the_model_stays_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    for parameter in model.parameters():
        parameter.requires_grad = False
    before = copy.deepcopy(model.state_dict())
    scoring = Fisher(squares, [torch.randn(5, 3)])
    scoring.prepare(model)
    assert multiplier(scoring, "0") > 0
    assert not any(part.requires_grad or part.grad is not None for part in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(part.training for part in model.modules())


def test_a_site_the_loss_does_not_depend_on_is_weighed_by_its_weight() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))

    def first_only(module: nn.Module, batch: object) -> Tensor:
        assert isinstance(module, nn.Sequential)
        outputs: Tensor = module[0](batch)
        return outputs.sum()

    scoring = Fisher(first_only, [torch.ones(1, 3)])
    scoring.prepare(model)
    assert multiplier(scoring, "0") == 1.0
    assert scoring.error_norm("1") is None


def test_a_loss_that_is_not_one_finite_number_is_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    many = Fisher(lambda module, batch: module(batch), [torch.ones(4, 3)])
    with pytest.raises(CompressionError, match=r"one finite number, got the shape \(4, 2\)"):
        many.prepare(model)
    endless = Fisher(lambda module, batch: module(batch).sum() * torch.inf, [torch.ones(4, 3)])
    with pytest.raises(CompressionError, match=r"one finite number, got -?inf"):
        endless.prepare(model)
    constant = Fisher(lambda module, batch: torch.zeros(()), [torch.ones(4, 3)])
    with pytest.raises(CompressionError, match="not depend on any of the model's 2 parameters"):
        constant.prepare(model)


def test_batches_that_do_not_fit_are_refused() -> None:
    scoring = Fisher(squares, [torch.ones(4, 5)])
    with pytest.raises(CompressionError, match=r"0 \(Linear\).* \(2, 3\), on \(\(4, 5\)\)"):
        scoring.prepare(nn.Sequential(nn.Linear(3, 2)))
