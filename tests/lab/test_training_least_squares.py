"""Levenberg-Marquardt on small networks."""

from pathlib import Path

import numpy
import pytest
import torch
from torch import nn

from rankscope.compression import LeastSquares, fit_least_squares
from rankscope.compression.training import least_squares
from rankscope.errors import CheckpointError, TooLargeError, TrainingError
from rankscope.networks import DegreeNetwork, TensorData

PATIENT = LeastSquares(max_iterations=60, patience=60)


def samples(count: int, seed: int, outputs: int = 1) -> TensorData:
    generator = torch.Generator().manual_seed(seed)
    inputs = 2 * torch.rand(count, 3, generator=generator) - 1
    product = inputs[:, 0] * inputs[:, 1] * inputs[:, 2]
    values = torch.stack([product, inputs[:, 0] * inputs[:, 1] - inputs[:, 2]], dim=1)
    return TensorData(inputs, values[:, 0] if outputs == 1 else values)


def network(seed: int = 0, outputs: int = 1) -> DegreeNetwork:
    generator = torch.Generator().manual_seed(seed)
    return DegreeNetwork(
        num_inputs=3, width=4, degrees=(3.0,), num_outputs=outputs, generator=generator
    )


@pytest.mark.parametrize("max_dense", [1, 1000], ids=["products", "factorized"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_what_a_network_can_represent_is_found(max_dense: int, outputs: int) -> None:
    model = network(outputs=outputs)
    rule = LeastSquares(max_iterations=150, patience=150, max_dense=max_dense)
    history = fit_least_squares(model, samples(300, 0, outputs), samples(100, 1, outputs), rule)
    assert min(history.validation_errors) < 1e-3 * history.validation_errors[0]
    assert list(history.errors) == sorted(history.errors, reverse=True)
    test = samples(50, 2, outputs)
    assert test.targets is not None
    misses = model.eval()(test.inputs).detach().squeeze(1) - test.targets
    assert float(misses.square().mean().sqrt()) < 1e-2
    assert {value.dtype for value in model.parameters()} == {torch.float32}


def test_a_linear_model_is_solved_as_by_least_squares() -> None:
    model, data = nn.Linear(3, 1), samples(40, 3)
    fit_least_squares(model.double(), data, data, PATIENT)
    columns = numpy.column_stack([data.inputs.numpy(), numpy.ones(40)]).astype(float)
    assert data.targets is not None
    wanted, *_ = numpy.linalg.lstsq(columns, data.targets.double().numpy(), rcond=None)
    found = [*model.weight.detach().flatten().tolist(), float(model.bias.detach())]
    numpy.testing.assert_allclose(found, wanted, atol=1e-8)


def test_only_the_validation_samples_end_a_run_and_choose_its_weights() -> None:
    noise = TensorData(torch.randn(60, 3), torch.randn(60))
    model, before = network(), network()
    history = fit_least_squares(model, noise, samples(50, 1), LeastSquares(patience=3))
    assert len(history.errors) - 1 == history.best + 3
    if history.best == 0:
        torch.testing.assert_close(model.state_dict(), before.state_dict())


def test_a_run_goes_on_from_its_folder_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(least_squares, "_CHECKPOINT_SECONDS", 0.0)
    data, validation = samples(100, 0), samples(50, 1)
    whole = network()
    rule = LeastSquares(max_iterations=8)
    history = fit_least_squares(whole, data, validation, rule)

    class Stopped(Exception):
        pass

    def stop(progress: object) -> None:
        if getattr(progress, "done", 0) == 5:
            raise Stopped

    with pytest.raises(Stopped):
        fit_least_squares(network(), data, validation, rule, folder=tmp_path, progress=stop)
    resumed = network()
    again = fit_least_squares(resumed, data, validation, rule, folder=tmp_path)
    assert (again.errors, again.validation_errors) == (history.errors, history.validation_errors)
    assert all(map(torch.equal, resumed.parameters(), whole.parameters()))
    with pytest.raises(CheckpointError, match=r"its rule is .*max_iterations=8.* not "):
        fit_least_squares(network(), data, validation, PATIENT, folder=tmp_path)
    (tmp_path / "least_squares.safetensors").write_bytes(b"?")
    with pytest.raises(CheckpointError, match=r"least_squares\.safetensors' cannot be read"):
        fit_least_squares(network(), data, validation, rule, folder=tmp_path)


def test_what_cannot_be_done_is_refused() -> None:
    data = samples(100, 0)
    with pytest.raises(TooLargeError, match=r"of 100 values by 53 parameters needs 5,300 .* 5,000"):
        fit_least_squares(network(), data, data, LeastSquares(max_entries=5000))
    with pytest.raises(TrainingError, match="wanted targets for 2 samples"):
        fit_least_squares(network(), TensorData(torch.ones(2, 3)), data, PATIENT)
    with pytest.raises(TrainingError, match="no parameter to train"):
        fit_least_squares(nn.Identity(), data, data, PATIENT)
    with pytest.raises(TrainingError, match="patience must be at least 1, got 0"):
        LeastSquares(patience=0)
