"""Models of language are compressed, repaired and scored, here with random weights."""

from pathlib import Path

import numpy
import pytest
import torch
from torch import nn

from rankscope.errors import DataError
from rankscope.lab import find_experiment
from rankscope.lab.experiments import (
    LanguageEntry,
    Pronunciation,
    RunContext,
    SentenceVectors,
    language_compression,
)
from rankscope.networks import Batch, LetterToPhoneme, from_g2p_en

MINILM_COMPRESSION = find_experiment("minilm-compression")
PRONUNCIATION_COMPRESSION = find_experiment("pronunciation-compression")

WORDS = ("ab", "abba", "bad", "cab", "dab", "add", "bee", "bed", "cede", "deed", "fab", "gab")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder as the published files lie in it, with random weights and a small dictionary."""
    folder = tmp_path / "data" / "g2p_en"
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    ours = LetterToPhoneme().state_dict()
    names = ["enc_emb", "dec_emb", "fc_w", "fc_b"]
    names += [f"{a}_{b}_{c}" for a in ("enc", "dec") for b in "wb" for c in ("ih", "hh")]
    theirs = {name: next(iter(from_g2p_en({name: torch.zeros(1)}))) for name in names}
    numpy.savez(folder / "checkpoint20.npz", **{k: ours[v].numpy() for k, v in theirs.items()})
    lines = "\n".join(f"{word} {' '.join('B' for _ in word)}" for word in WORDS)
    (folder / "cmudict.dict").write_text(lines, encoding="utf-8")
    return tmp_path / "data"


@pytest.mark.slow
@pytest.mark.parametrize("on_outputs", [True, False])
def test_a_row_counts_scores_and_times_the_smaller_model(
    data: Path, tmp_path: Path, on_outputs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language_compression, "_EVERY", 2)
    entry = LanguageEntry(Pronunciation(), 0.5, on_outputs=on_outputs, is_repaired=on_outputs)
    row = entry.run(RunContext(tmp_path / "work", data, 2.0))
    assert isinstance(row["kept"], int)
    assert isinstance(row["share"], float)
    assert isinstance(row["score"], float)
    assert row["kept"] <= 0.5 * 834_890
    assert row["share"] == row["kept"] / 834_890
    assert 0 <= row["score"] <= 100
    assert ("score before" in row) == on_outputs
    assert entry.name == ("50-outputs-repaired" if on_outputs else "50-weights")


def test_the_model_itself_is_the_first_row(data: Path, tmp_path: Path) -> None:
    entry = PRONUNCIATION_COMPRESSION.entries[0]
    row = entry.run(RunContext(tmp_path / "work", data, 2.0))
    assert (entry.name, row["kept"], row["share"]) == ("dense", 834_890, 1.0)
    assert row["latency over dense"] is None


def test_without_the_data_the_message_says_how_to_get_them(tmp_path: Path) -> None:
    for experiment, file in (
        (MINILM_COMPRESSION, "minilm/model.safetensors"),
        (PRONUNCIATION_COMPRESSION, "g2p_en/checkpoint20.npz"),
    ):
        with pytest.raises(DataError, match=f"There is no {file} .* To get it, take"):
            experiment.entries[1].run(RunContext(tmp_path, tmp_path, 2.0))


def test_states_are_compared_on_tokens_only() -> None:
    table = nn.Embedding(5, 3)
    other = nn.Embedding(5, 3)
    with torch.no_grad():
        other.weight.copy_(table.weight)
        other.weight[0] += 1  # of the padding
    loss = language_compression._same_states(table)
    tokens = torch.tensor([[1, 2, 0], [3, 0, 0]])
    assert float(loss(other, Batch(tokens, None)).detach()) == 0
    with torch.no_grad():
        other.weight[3] += 1
    # One of three tokens moved by one in each entry.
    torch.testing.assert_close(loss(other, Batch(tokens, None)).detach(), torch.tensor(1 / 3))


def test_the_encoder_is_the_workload_of_the_other() -> None:
    assert SentenceVectors().network == "minilm"
