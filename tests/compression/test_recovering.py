"""Repair within a time: the compressed model comes nearer, quantized ones are refused."""

import copy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from rankscope.compression import Divergence, Recipe, TokenModel, Unit, compress, repair_model
from rankscope.errors import CompressionError
from rankscope.factorize import FORMATS
from rankscope.networks import TensorData

SVD = [FORMATS["svd"]]


def trained() -> tuple[nn.Module, TensorData]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 24), nn.Linear(24, 5)).eval()
    inputs = torch.randn(256, 12)
    return model, TensorData(inputs, model(inputs).argmax(1))


def distance(reference: nn.Module, model: nn.Module, inputs: Tensor) -> float:
    with torch.no_grad():
        kept = Divergence().reference(reference(inputs))
        return Divergence().distance(model(inputs), kept)


def loss(model: nn.Module, data: TensorData) -> float:
    assert data.targets is not None
    with torch.no_grad():
        return float(nn.functional.cross_entropy(model(data.inputs), data.targets))


@pytest.mark.slow
@pytest.mark.parametrize("with_labels", [True, False])
def test_a_repaired_model_is_nearer_to_the_original(with_labels: bool, tmp_path: Path) -> None:
    model, data = trained()
    data = data if with_labels else TensorData(data.inputs)
    small = compress(model, 0.4, formats=SVD).model
    before, unrepaired = distance(model, small, data.inputs), copy.deepcopy(small)
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    run = repair_model(model, small, data, minutes=0.01, batch_size=64, folder=tmp_path / "repair")
    if data.targets is None:
        assert distance(model, small, data.inputs) < before
    else:  # the labels are wanted too
        assert loss(small, data) < loss(unrepaired, data)
    assert run.history.samples > 0
    assert all(torch.equal(kept[name], value) for name, value in model.state_dict().items())
    # The same call again has nothing left to do.
    again = compress(model, 0.4, formats=SVD).model
    repair_model(model, again, data, minutes=0.01, batch_size=64, folder=tmp_path / "repair")
    assert distance(model, again, data.inputs) == distance(model, small, data.inputs)


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 5)
        self.head = nn.Linear(5, 7)

    def forward(self, input_ids: Tensor, *, use_cache: bool) -> SimpleNamespace:
        assert not use_cache
        return SimpleNamespace(logits=self.head(self.table(input_ids)))


@pytest.mark.parametrize(("minutes", "wanted"), [(3.0, 60.0), (30.0, 600.0), (90.0, 600.0)])
def test_blocks_get_a_third_of_the_time_and_at_most_ten_minutes(
    minutes: float, wanted: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    def fit_stages(*_: object, stages: tuple[str, ...], recipe: Recipe, **__: object) -> None:
        assert recipe.max_seconds is not None
        given.append(len(stages) * recipe.max_seconds)

    def fine_tune(
        model: object, objective: object, data: object, recipe: Recipe, **_: object
    ) -> None:
        assert recipe.max_seconds is not None
        given.append(recipe.max_seconds)

    monkeypatch.setattr("rankscope.compression.recovering.fit_stages", fit_stages)
    monkeypatch.setattr("rankscope.compression.recovering.fine_tune", fine_tune)
    model, data = trained()
    repair_model(model, copy.deepcopy(model), data, minutes=minutes)
    assert given == pytest.approx([wanted, 60 * minutes - wanted])


def test_a_language_model_gives_its_classes_second() -> None:
    model, tokens = Language(), torch.tensor([[1, 2, 3], [4, 5, 6]])
    logits = TokenModel(model)(tokens)
    assert logits.shape == (2, 7, 3)
    wanted = model(tokens, use_cache=False).logits
    assert all(torch.equal(logits[n, :, t], wanted[n, t]) for n in range(2) for t in range(3))


def test_what_cannot_be_repaired_is_refused() -> None:
    model, data = trained()
    with pytest.raises(CompressionError, match="wanted minutes above 0, got 0"):
        repair_model(model, model, data, minutes=0.0)
    quantized = compress(nn.Linear(64, 64, bias=False), 0.3, by=Unit.BYTES, bits=[8, 4]).model
    with pytest.raises(CompressionError, match="no parameter that can be trained"):
        repair_model(model, quantized, data, minutes=1.0)
    with pytest.raises(CompressionError, match="gives a tuple without logits"):
        TokenModel(_Bare())(torch.zeros(1, 2, dtype=torch.long))


class _Bare(nn.Module):
    def forward(self, input_ids: Tensor, *, use_cache: bool) -> tuple[Tensor, bool]:
        return input_ids, use_cache
