"""Several processes train what one would have trained."""

import json
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.compression import FabricProcesses, OneProcess, Recipe, cross_entropy, fit
from rankscope.errors import MissingExtraError, TrainingError
from rankscope.networks import Batch, TensorData


class Pretended(OneProcess):
    """One of several, without the others."""

    def __init__(self, rank: int, count: int) -> None:
        self._rank, self._count = rank, count

    @property
    def count(self) -> int:
        return self._count

    @property
    def rank(self) -> int:
        return self._rank


@settings(deadline=None)
@given(num_samples=st.integers(1, 9), count=st.integers(1, 5))
def test_shares_weigh_up_to_the_mean_of_the_batch(num_samples: int, count: int) -> None:
    values = torch.arange(1.0, num_samples + 1, dtype=torch.float64)
    shares = [Pretended(rank, count).share(Batch(values, values)) for rank in range(count)]
    mean = sum(weight * float(own.inputs.mean()) for own, weight in shares) / count
    assert mean == pytest.approx(float(values.mean()), rel=1e-12)
    real: list[Tensor] = [own.inputs for own, weight in shares if weight > 0]
    assert torch.equal(torch.cat(real).sort().values, values)
    assert all(own.num_samples > 0 for own, _ in shares)


def test_batch_statistics_of_shares_are_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    data = TensorData(torch.randn(4, 2), torch.arange(4) % 2)
    with pytest.raises(TrainingError, match=r"fit: 1 \(BatchNorm1d\) would see only a share"):
        fit(model, cross_entropy, data, Recipe(), processes=Pretended(0, 2))
    fit(model, cross_entropy, data, Recipe(), processes=Pretended(0, 2), batch_norm_frozen=True)


def test_only_the_first_process_writes(tmp_path: Path) -> None:
    data = TensorData(torch.randn(4, 2), torch.arange(4) % 2)
    for rank, expected in ((1, False), (0, True)):
        folder = tmp_path / str(rank)
        fit(
            nn.Linear(2, 2),
            cross_entropy,
            data,
            Recipe(),
            folder=folder,
            processes=Pretended(rank, 2),
        )
        assert (folder / "checkpoint.safetensors").exists() == expected


def test_without_fabric_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    with pytest.raises(MissingExtraError, match=r"needs lightning-fabric.*\[distributed\]"):
        FabricProcesses.launch(devices=2)


SCRIPT = """
import json, sys
from pathlib import Path
import torch
from torch import nn
from rankscope.compression import Adam, Recipe, cross_entropy, fit
from rankscope.networks.datasets import load_data_set
from rankscope.compression.training.recipe import EarlyStop
from rankscope.compression.training.processes import FabricProcesses, OneProcess

folder, num_processes = Path(sys.argv[1]), int(sys.argv[2])
processes = OneProcess() if num_processes == 1 else FabricProcesses.launch(devices=num_processes)
assert processes.count == num_processes
torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, 10)).double()
digits = load_data_set("digits")
train = digits.train.head(303)          # the last batch has three samples: unequal shares
train = type(train)(train.inputs.double(), train.targets)
def evaluate(model):
    guesses = model(digits.test.inputs.double()).argmax(dim=1)
    return {"accuracy": float((guesses == digits.test.targets).double().mean())}
recipe = Recipe(epochs=4, batch_size=100, learning_rate=0.02, clip_norm=0.5, max_seconds=600.0,
                early_stop=EarlyStop("accuracy", 3))
history = fit(model, cross_entropy, train, recipe, folder=folder / "run", evaluate=evaluate,
              processes=processes)
weights = torch.cat([value.detach().flatten() for value in model.parameters()])
result = {"losses": [one.loss for one in history.records], "best": history.best_epoch,
          "scores": [one.metrics["accuracy"] for one in history.records],
          "weights": weights.tolist()}
(folder / f"process-{processes.rank}.json").write_text(json.dumps(result))
"""


@pytest.mark.slow
def test_two_processes_give_the_result_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightning_fabric")
    (alone,) = trained_here(tmp_path, monkeypatch)
    first, second = trained_by_two(tmp_path)
    assert first == second
    assert first["scores"] == alone["scores"]
    assert first["best"] == alone["best"]
    assert len(alone["losses"]) == 4
    for name in ("losses", "weights"):
        # Float64: the order of sums is all that differs.
        torch.testing.assert_close(
            torch.tensor(first[name]), torch.tensor(alone[name]), rtol=1e-6, atol=1e-8
        )


def trained_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, list[float]]]:
    script = written(tmp_path / "one")
    monkeypatch.setattr(sys, "argv", [str(script), str(script.parent), "1"])
    runpy.run_path(str(script))
    return results(script.parent)


def trained_by_two(tmp_path: Path) -> list[dict[str, list[float]]]:
    script = written(tmp_path / "two")
    command = [sys.executable, str(script), str(script.parent), "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    with subprocess.Popen(
        command, env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            _, errors = process.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its own session: all that it started
            raise
    assert process.returncode == 0, errors
    return results(script.parent)


def written(folder: Path) -> Path:
    folder.mkdir()
    (folder / "script.py").write_text(SCRIPT)
    return folder / "script.py"


def results(folder: Path) -> list[dict[str, list[float]]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("process-*.json"))]
