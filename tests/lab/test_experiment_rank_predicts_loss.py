from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rankscope.errors import ExperimentError
from rankscope.lab.experiments import (
    CharacterTask,
    PretrainedEntry,
    RankEntry,
    Row,
    RunContext,
    SequenceEntry,
    SpectrumSettings,
    Steps,
    Verdict,
)
from rankscope.lab.experiments.rank_predicts_loss import (
    both_splits,
    correlation_rows,
    predicted,
)
from rankscope.lab.experiments.sequence_models import spectrum_row
from rankscope.networks import MultiHead, TransformerShape

SMALL = SpectrumSettings(num_inputs=6, num_outputs=1)
MODEL = SequenceEntry(
    "small",
    CharacterTask("embedded", 16),
    TransformerShape(1, 8, MultiHead(2, 4), num_positions=16),
    Steps(3, 8),
)
ENTRY = RankEntry("other", MODEL, SMALL, seed=1)


def place(run: Path, name: str) -> RunContext:
    return RunContext(run / "work" / name, None, 60.0)


def kept_model(runs: Path, entry: SequenceEntry) -> Path:
    """The weights of an entry as its own experiment keeps them."""
    own = place(runs / "other", "x")
    entry.run(own)
    target = runs / "other" / "kept" / f"small-seed{entry.seed}"
    target.parent.mkdir(parents=True)
    return (own.folder / "kept").rename(target)


def test_a_model_is_trained_here_or_read_from_its_own_run_to_the_same_row(tmp_path: Path) -> None:
    alone = ENTRY.run(place(tmp_path / "a" / "ranks", ENTRY.name))
    kept_model(tmp_path / "b", replace(MODEL, seed=1))
    beside = place(tmp_path / "b" / "ranks", ENTRY.name)
    assert ENTRY.run(beside) == alone
    assert not beside.folder.exists(), "nothing was trained"
    assert isinstance(alone["entanglement entropy"], float)
    assert ENTRY.name == "other-small"


def test_weights_of_another_entry_are_not_read(tmp_path: Path) -> None:
    folder = kept_model(tmp_path, replace(MODEL, steps=Steps(2, 8), seed=1))
    assert (folder / "model.safetensors").is_file()
    own = place(tmp_path / "ranks", ENTRY.name)
    assert ENTRY.run(own) == ENTRY.run(place(tmp_path / "apart" / "ranks", ENTRY.name))
    assert (own.folder / "training").is_dir()


def test_the_embedded_transformer_is_measured_and_has_the_loss_it_was_published_with(
    tmp_path: Path,
) -> None:
    row = PretrainedEntry("transformer", SMALL).run(RunContext(tmp_path, None, 60.0))
    assert row["parameters"] == 123_360
    assert row["loss on its own text"] == pytest.approx(1.7633, abs=1e-4)
    assert isinstance(row["epsilon rank"], float)


def test_unknown_pretrained_models_are_refused() -> None:
    with pytest.raises(ExperimentError, match="no model 'gpt'; choose one of transformer"):
        PretrainedEntry("gpt")


def row(setting: int, seed: int, entropy: float) -> Row:
    depth = 1 + setting % 3
    size = 1000 * (1 + setting)
    return {
        "setting": f"s{setting}",
        "seed": seed,
        "depth": depth,
        "in blocks": size,
        "test loss": 5.0 - entropy,
        "entanglement entropy": entropy,
        "epsilon rank": float((setting * 7) % 5),
        "spectrum": [1.0],
    }


def test_correlations_are_over_settings_and_leave_pretrained_models_out() -> None:
    entropies = [0.3, 0.9, 0.1, 0.7, 0.5, 0.2, 0.8, 0.6]
    rows = [row(n, seed, entropy) for n, entropy in enumerate(entropies) for seed in (0, 1)]
    pretrained: Row = {"setting": "p", "seed": None, "entanglement entropy": 0.4}
    result = correlation_rows([*rows, pretrained])
    assert len(result) == 6
    assert {answer["settings"] for answer in result} == {8}
    perfect = [answer for answer in result if answer["measure"] == "entanglement entropy"]
    assert [answer["correlation with loss"] for answer in perfect] == [-1.0] * 3
    again = [{**one, "setting": "same network"} for one in rows if one["setting"] == "s0"]
    assert correlation_rows([*rows, *again]) == result


BASELINE: Row = {"setting": "baseline-3-gram", "seed": None, "test loss": 2.0}


def beside_baseline(loss: float) -> list[Row]:
    """Seven models with losses around a number, and what knows the last two characters."""
    rows = [row(n, 0, entropy) for n, entropy in enumerate([0.3, 0.9, 0.1, 0.7, 0.5, 0.2, 0.8])]
    shifts = [0.01 * float(str(one["epsilon rank"])) for one in rows]
    known = zip(rows, shifts, strict=True)
    return [BASELINE, *({**one, "test loss": loss - shift} for one, shift in known)]


def test_nothing_is_decided_before_every_model_and_the_baseline_are_there() -> None:
    rows = beside_baseline(1.9)
    everything, some = predicted(rows, planned=7), predicted(rows, planned=8)
    assert Verdict.DECIDED in {one.verdict for one in everything}
    for one in everything:
        is_spoken_of = one.verdict is Verdict.DECIDED and "depth taken out" in one.subject
        wanted = one.detail.startswith("-") if is_spoken_of else None
        assert one.is_as_claimed is wanted, one.subject
    assert {one.verdict for one in some} == {Verdict.UNFINISHED}
    assert some[0].detail.endswith("; 7 of 8 models")
    assert {one.verdict for one in predicted(rows[1:], planned=7)} == {Verdict.UNFINISHED}


def test_models_that_know_no_more_than_two_characters_decide_nothing() -> None:
    answers = predicted(beside_baseline(2.5), planned=7)
    assert {one.verdict for one in answers} == {Verdict.BELOW}
    assert answers[0].detail.endswith("; 7 of 7 models are above baseline-3-gram (2)")


def test_both_splits_are_measured_of_the_same_outputs() -> None:
    contexts = torch.randint(5, (6, 4), generator=torch.Generator().manual_seed(0))
    sharp = replace(SMALL, epsilon=1e-6)

    def even_times_odd(tokens: torch.Tensor) -> torch.Tensor:
        """A product over even and odd tokens, and none over the halves."""
        values = tokens.double() + 1.0
        even, odd = values[:, 0] + values[:, 2] ** 2, values[:, 1] * 2 + values[:, 3] ** 3
        return (even * odd)[:, None]

    found = both_splits(even_times_odd, contexts, sharp)
    # The mean is taken out of the output: a product and a constant.
    assert found["epsilon rank, interleaved"] == 2.0
    assert float(str(found["epsilon rank"])) > 2.0
    halves = spectrum_row(even_times_odd, contexts, sharp)
    assert {name: found[name] for name in halves} == halves
    assert len(found) == 2 * len(halves)


def test_few_settings_have_no_correlations() -> None:
    assert correlation_rows([row(n, 0, float(n)) for n in range(5)]) == []
