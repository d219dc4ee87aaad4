from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from rankscope.architectures.sequence_models.attention_forms import CPForm, MultiHead
from rankscope.architectures.sequence_models.pixel_model import PixelInput
from rankscope.architectures.sequence_models.shape import TransformerShape
from rankscope.errors import ExperimentError
from rankscope.experiments.experiment import Row, RunContext
from rankscope.experiments.sequence_models import (
    CharacterTask,
    PixelTask,
    SequenceEntry,
    Steps,
    TranslationTask,
)
from rankscope.separation.measuring.progress import Progress
from rankscope.training import loop

SHAPE = TransformerShape(1, 8, MultiHead(2, 4), num_positions=64)
CHARACTERS = SequenceEntry("characters", CharacterTask("embedded", 16), SHAPE, Steps(4, 8))


def run(entry: SequenceEntry, folder: Path) -> Row:
    row = entry.run(RunContext(folder, None, 60.0))
    row.pop("seconds")
    return row


def test_a_row_has_sizes_score_and_memory(tmp_path: Path) -> None:
    row = run(CHARACTERS, tmp_path)
    assert row["shape"] == "1 x 8"
    assert row["in blocks"] == 12 * 8**2
    assert isinstance(row["test loss"], float)
    assert isinstance(row["kept MB"], float)
    with safe_open(tmp_path / "kept" / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"entry": repr(CHARACTERS)}
        count = sum(file.get_tensor(name).numel() for name in file.keys())  # noqa: SIM118
    assert count == row["parameters"]


def test_the_same_seed_gives_the_same_row_and_another_seed_another(tmp_path: Path) -> None:
    first, again = (run(CHARACTERS, tmp_path / name) for name in "ab")
    assert first == again
    assert run(replace(CHARACTERS, seed=1), tmp_path / "c")["test loss"] != first["test loss"]


def test_training_goes_on_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    wanted = run(CHARACTERS, tmp_path / "whole")
    task = CHARACTERS.task.load(None)

    def stop(progress: Progress) -> None:
        if progress.done == 3:
            raise KeyboardInterrupt

    context = RunContext(tmp_path / "part", None, 60.0, stop)
    with pytest.raises(KeyboardInterrupt):
        CHARACTERS.train(CHARACTERS.fresh(task), task, context)
    assert list((tmp_path / "part" / "training").iterdir())
    assert run(CHARACTERS, tmp_path / "part") == wanted


def test_steps_may_be_more_than_an_epoch() -> None:
    recipe = Steps(10, 8).recipe(32, seed=3)
    assert (recipe.epochs, recipe.max_samples, recipe.seed) == (3, 80, 3)


def test_translations_are_scored_by_loss_and_bleu(tmp_path: Path) -> None:
    task = TranslationTask("reversed", max_words=8, num_tested=5)
    row = run(SequenceEntry("pairs", task, SHAPE, Steps(2, 8)), tmp_path)
    assert isinstance(row["test loss"], float)
    assert isinstance(row["BLEU"], float)
    assert 0 <= row["BLEU"] <= 100


@pytest.mark.parametrize("pixels", PixelInput)
def test_pixels_are_scored_in_bits(pixels: PixelInput, tmp_path: Path) -> None:
    rank = 3 if pixels is PixelInput.VECTOR else None
    shape = TransformerShape(1, 8, CPForm(2), 64, rank)
    task = PixelTask("digits", pixels, num_tested=4)
    row = run(SequenceEntry("pixels", task, shape, Steps(2, 4)), tmp_path)
    assert isinstance(row["bits"], float)
    assert row["bits"] > 0


def test_images_are_averaged_over_squares() -> None:
    image = torch.arange(16.0).reshape(1, 1, 4, 4).expand(1, 3, 4, 4).byte()
    found = PixelTask(side=2)._intensities(image)
    # Means of 0 1 4 5, of 2 3 6 7 and so on, halves to the even number.
    assert found[0, :, 0].tolist() == [2, 4, 10, 12]
    with pytest.raises(ExperimentError, match="4 pixels in a row cannot be averaged to 3"):
        PixelTask(side=3)._intensities(image)
