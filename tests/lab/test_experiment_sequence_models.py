import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from torch import Tensor, nn

from rankscope.auditing import LEVINE
from rankscope.compression.training import loop
from rankscope.errors import ExperimentError
from rankscope.factorize import TunableAttention
from rankscope.lab import find_experiment
from rankscope.lab.experiments import (
    CharacterTask,
    ExactRankEntry,
    Experiment,
    FormEntry,
    PixelTask,
    RankEntry,
    Row,
    RunContext,
    SearchedSteps,
    SequenceEntry,
    SpectrumSettings,
    Steps,
    TranslationTask,
    crossing,
)
from rankscope.lab.experiments.bottlenecks import SIZE
from rankscope.lab.experiments.depth_width import SIZES, crossing_facts, crossing_rows
from rankscope.lab.experiments.sequence_models import evenly, kept_bytes, spectrum_row
from rankscope.networks import CPForm, MultiHead, PixelInput, TransformerShape
from rankscope.progress import Progress

ATTENTION_FORMS = find_experiment("attention-forms")
DEPTH_WIDTH = find_experiment("depth-width")
EMBEDDING_BOTTLENECK = find_experiment("embedding-bottleneck")
HEAD_BOTTLENECK = find_experiment("head-bottleneck")
RANK_PREDICTS_LOSS = find_experiment("rank-predicts-loss")

# Kept memory.


def test_a_linear_layer_keeps_its_inputs_and_not_its_weights() -> None:
    layer = nn.Linear(30, 20)
    inputs = torch.ones(7, 30).exp()
    assert kept_bytes(lambda: layer(inputs)) == 7 * 30 * 4


def test_views_share_their_memory() -> None:
    weight = torch.ones(100, requires_grad=True)

    def twice() -> torch.Tensor:
        half = weight.exp()  # kept once for exp, and twice for the product
        return half.view(10, 10) * half.view(10, 10).T

    assert kept_bytes(twice) == 400


@pytest.mark.parametrize("batch", [1, 3])
def test_a_tunable_core_keeps_no_maps(batch: int) -> None:
    """16 maps of 64 x 64 would be 16 times the inputs; blocks keep inputs and outputs only."""
    dense = nn.MultiheadAttention(16, 4, batch_first=True)
    blocks, whole = (TunableAttention.from_multihead(dense) for _ in range(2))
    whole.max_entries = 2**30
    inputs = torch.randn(batch, 64, 16)

    def kept(layer: TunableAttention) -> int:
        return kept_bytes(lambda: layer(inputs, inputs, inputs, need_weights=False)[0].sum())

    entries = inputs.numel() * 4
    assert kept(whole) > batch * 16 * 64 * 64 * 4
    assert kept(blocks) < 8 * entries


# Trained spectrum.


TOKENS = torch.randint(9, (12, 4), generator=torch.Generator().manual_seed(0))
ONE = SpectrumSettings(num_inputs=12, num_outputs=1, epsilon=0.01)


def halves(tokens: Tensor) -> tuple[Tensor, Tensor]:
    left, right = torch.split(tokens.double(), 2, dim=1)
    return left.sum(1), right.prod(1) + 1


def both(tokens: Tensor) -> Tensor:
    left, right = halves(tokens)
    return left + right


def test_a_function_of_one_half_is_a_product() -> None:
    row = spectrum_row(lambda tokens: halves(tokens)[0][:, None], TOKENS, ONE)
    assert row["entanglement entropy"] == pytest.approx(0, abs=1e-9)
    assert row["epsilon rank"] == 1


def test_a_sum_of_both_halves_has_rank_two_and_two_singular_values() -> None:
    row = spectrum_row(lambda tokens: both(tokens)[:, None], TOKENS, ONE)
    spectrum = row["spectrum"]
    assert isinstance(spectrum, list)
    assert row["epsilon rank"] == 2
    assert [value > 1e-9 for value in spectrum[:3]] == [True, True, False]
    shares = [value**2 / sum(other**2 for other in spectrum[:2]) for value in spectrum[:2]]
    wanted = -sum(share * math.log(share) for share in shares)
    assert row["entanglement entropy"] == pytest.approx(wanted)


def test_neither_a_constant_nor_the_scale_matters() -> None:
    def outputs(tokens: Tensor) -> Tensor:
        return both(tokens)[:, None].sin()

    plain = spectrum_row(outputs, TOKENS, ONE)
    moved = spectrum_row(lambda tokens: 7 * outputs(tokens) + 100, TOKENS, ONE)
    assert moved["entanglement entropy"] == pytest.approx(plain["entanglement entropy"])
    assert moved["epsilon rank"] == plain["epsilon rank"]


def test_several_outputs_are_averaged() -> None:
    row = spectrum_row(
        lambda tokens: torch.stack([halves(tokens)[0], both(tokens)], 1),
        TOKENS,
        SpectrumSettings(num_inputs=12, num_outputs=2, epsilon=0.01),
    )
    assert row["epsilon rank"] == 1.5


def test_a_constant_output_is_refused() -> None:
    with pytest.raises(ExperimentError, match="output 0 is 3 for all 12 inputs"):
        spectrum_row(lambda tokens: torch.full((len(tokens), 1), 3.0), TOKENS, ONE)


def test_windows_of_a_text_that_is_too_short_are_refused() -> None:
    with pytest.raises(ExperimentError, match="4 windows of 3 need at least 6 symbols, got 5"):
        evenly(torch.arange(5), 4, 3)


# Sequence entry.


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
    result = PixelTask(side=2)._intensities(image)
    # Means of 0 1 4 5, of 2 3 6 7 and so on, halves to the even number.
    assert result[0, :, 0].tolist() == [2, 4, 10, 12]
    with pytest.raises(ExperimentError, match="4 pixels in a row cannot be averaged to 3"):
        PixelTask(side=3)._intensities(image)


# Sequence experiments.


TRAINED = (DEPTH_WIDTH, HEAD_BOTTLENECK, EMBEDDING_BOTTLENECK, ATTENTION_FORMS)


def sequences(experiment: Experiment) -> list[SequenceEntry]:
    return [entry for entry in experiment.entries if isinstance(entry, SequenceEntry)]


@pytest.mark.parametrize("experiment", TRAINED, ids=lambda one: one.name)
def test_every_setting_is_run_with_three_seeds_or_has_none(experiment: Experiment) -> None:
    counts = [
        sum(run.entry.name == entry.name for run in experiment.runs())
        for entry in experiment.entries
    ]
    assert set(counts) <= {1, 3}
    assert counts.count(3) >= 9


@pytest.mark.parametrize("experiment", [*TRAINED, RANK_PREDICTS_LOSS], ids=lambda one: one.name)
def test_quick_settings_need_no_data(experiment: Experiment) -> None:
    for entry in experiment.quick:
        inner = entry.entry if isinstance(entry, RankEntry) else entry
        task = inner.task if isinstance(inner, SequenceEntry) else None
        match task:
            case CharacterTask():
                assert task.text == "embedded"
            case TranslationTask():
                assert task.pairs == "reversed"
            case PixelTask():
                assert task.images == "digits"


def test_depths_are_compared_at_equal_parameters() -> None:
    """Widths are whole numbers of two heads, so that sizes agree to a twentieth or so."""
    for entry in sequences(DEPTH_WIDTH):
        wanted = int(entry.name.rpartition("-")[2])
        assert entry.shape.squares == pytest.approx(wanted, rel=0.15)
        assert entry.shape.attention.num_channels == entry.shape.width


def test_heads_are_compared_at_equal_parameters_below_at_and_above_the_width() -> None:
    result = sequences(HEAD_BOTTLENECK)
    for entry in result:
        assert entry.shape.squares == pytest.approx(SIZE, rel=0.02)
    ratios = [entry.shape.attention.num_channels / entry.shape.width for entry in result]
    assert min(ratios) < 0.5 < 1 < 2 < max(ratios)
    assert 1.0 in ratios


def test_wide_and_deep_have_four_times_the_weights() -> None:
    shapes = {entry.name: entry.shape for entry in sequences(EMBEDDING_BOTTLENECK)}
    for name, shape in shapes.items():
        family, _, kind = name.rpartition("-")
        times = 1 if kind == "base" else 4
        assert shape.squares == times * shapes[f"{family}-base"].squares
        assert shape.embedding_rank == shapes[f"{family}-base"].embedding_rank


def test_a_form_of_attention_says_its_weights_and_what_the_source_says(tmp_path: Path) -> None:
    weights = {}
    for entry in ATTENTION_FORMS.quick[:4]:
        assert isinstance(entry, FormEntry)
        short = replace(entry, steps=Steps(1, 2))
        row = short.run(RunContext(tmp_path / entry.name, None, 60.0))
        weights[entry.name] = row["weights of an attention"]
        assert row["source"] == entry.published
    assert list(weights.values()) == [4 * 32**2, 5 * 32**2, 4 * 32**2, 4 * 32 * 4]


def test_models_of_the_other_experiments_are_measured() -> None:
    """Of attention-forms only those of characters."""
    wanted = {
        f"{experiment.name}-{entry.name}"
        for experiment in TRAINED
        for entry in sequences(experiment)
        if isinstance(entry.task, CharacterTask)
    }
    names = {entry.name for entry in RANK_PREDICTS_LOSS.entries if isinstance(entry, RankEntry)}
    assert names == wanted
    assert len(names) == 42


# Exact rank entry.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "rank"),
    [
        (ExactRankEntry(2, 2), 18),
        (ExactRankEntry(2, 4, embedding_rank=2), 18),
        (ExactRankEntry(2, 6, embedding_rank=2), 18),
        (ExactRankEntry(2, 4, 2, 2), 107),
        (ExactRankEntry(2, 4, 8, 1), 107),
        (ExactRankEntry(1, 4, 1, 2), 3),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_ranks_are_those_of_the_specification(
    entry: ExactRankEntry, rank: int, tmp_path: Path
) -> None:
    row = entry.run(RunContext(tmp_path, None, 60.0))
    assert row["exact rank"] == rank
    assert isinstance(row["rank at most"], int)
    assert row["rank at most"] >= rank


# Crossings.


@settings(deadline=None)
@given(at=st.floats(1.1, 8.9), slope=st.floats(0.01, 2.0))
def test_two_lines_over_the_logarithm_cross_where_they_meet(at: float, slope: float) -> None:
    sizes = [math.exp(place) for place in (1, 3, 5, 7, 9)]
    shallow = {size: 1.0 - 0.1 * math.log(size) for size in sizes}
    deep = {size: loss - slope * (math.log(size) - at) for size, loss in shallow.items()}
    result = crossing(shallow, deep)
    assert result is not None
    assert math.log(result) == pytest.approx(at)


def test_sizes_need_not_be_the_same() -> None:
    shallow = {math.e: 1.0, math.e**5: 1.0}
    deep = {math.e**2: 2.0, math.e**4: 0.0}
    result = crossing(shallow, deep)
    assert result == pytest.approx(math.e**3)


def test_without_a_change_of_places_there_is_no_crossing() -> None:
    low, high = {1.0: 0.5, 10.0: 0.4}, {1.0: 0.9, 10.0: 0.8}
    assert crossing(low, high) is None
    assert crossing(high, low) is None


def test_the_answer_says_where_each_depth_becomes_better() -> None:
    losses = {
        1: [1.0, 0.9, 0.8, 0.7],
        2: [0.9, 0.8, 0.7, 0.6],  # better everywhere
        4: [1.0, 0.9, 0.6, 0.5],  # from between the second and the third size on
        8: [1.5, 1.4, 1.3, 1.2],  # nowhere
    }
    rows: list[Row] = [
        {"depth": depth, "in blocks": size, "test loss": loss, "seed": 0}
        for depth, each in losses.items()
        for size, loss in zip(SIZES, each, strict=True)
    ]
    (fact,) = crossing_facts(rows)
    middle = float(f"{math.sqrt(SIZES[1] * SIZES[2]):.2g}")
    assert fact.detail == (
        f"2 layers against 1 at all sizes, 4 layers against 2 from {middle:,.0f} on, "
        f"8 layers against 4 not up to {SIZES[-1]:,}; the border grows with depth in 1 of 1 seeds"
    )
    assert crossing_facts(rows[:-1]) == crossing_facts([]) == []


def test_borders_that_do_not_grow_are_counted() -> None:
    losses = {
        0: {1: [1.0, 0.9, 0.8, 0.7], 2: [1.1, 0.8, 0.7, 0.6], 4: [1.2, 0.9, 0.6, 0.5]},
        1: {1: [1.0, 0.9, 0.8, 0.7], 2: [1.1, 0.95, 0.85, 0.6], 4: [1.2, 0.8, 0.7, 0.5]},
    }
    rows: list[Row] = [
        {"depth": depth, "in blocks": size, "test loss": loss, "seed": seed}
        for seed, curves in losses.items()
        for depth, each in curves.items()
        for size, loss in zip(SIZES, each, strict=True)
    ]
    (fact,) = crossing_facts(rows)
    assert fact.detail.endswith("; the border grows with depth in 1 of 2 seeds")
    assert crossing_facts(rows[:-1]) == [], "one seed misses a size"


def test_a_crossing_back_does_not_count() -> None:
    assert crossing({1.0: 1.0, 2.0: 1.0, 3.0: 1.0}, {1.0: 2.0, 2.0: 0.0, 3.0: 2.0}) is None


def test_rows_say_what_means_seeds_and_law_say() -> None:
    def row(depth: int, size: int, loss: float, seed: int) -> Row:
        return {"depth": depth, "in blocks": size, "test loss": loss, "seed": seed, "setting": "x"}

    rows = [
        *(row(1, size, 1.0, seed) for size in (10, 1000) for seed in (0, 1)),
        *(row(2, 10, 1.5, seed) for seed in (0, 1)),
        row(2, 1000, 0.5, 0),
        row(2, 1000, 1.1, 1),  # this seed has no crossing
    ]
    (result,) = crossing_rows([*rows, {"depth": 2, "setting": "exact", "seed": None}])
    assert result["depths"] == "1 and 2"
    # Means: 0.5 above at 10, 0.2 below at 1000.
    assert result["deeper is better from"] == pytest.approx(10 * 100 ** (5 / 7))
    assert result["of seeds, lowest"] == result["of seeds, highest"] == pytest.approx(100)
    assert result["seeds with a crossing"] == "1 of 2"
    assert result["deeper better at smallest size"] == "no"
    assert result["deeper better at largest size"] == "yes"
    assert result["law, border of the shallower"] == LEVINE.parameters(1)


# Search for a learning rate.


def test_a_learning_rate_is_searched_on_validation_samples_alike_for_all(
    tmp_path: Path,
) -> None:
    task = CharacterTask("embedded", 16)
    shape = TransformerShape(1, 8, MultiHead(1, 8), 16)
    steps = SearchedSteps(10, rates=(1e-9, 1e-2), share=0.5)
    searched = SequenceEntry("searched", task, shape, steps)
    row = searched.run(RunContext(tmp_path / "searched", None, 60.0))
    assert (tmp_path / "searched" / "rate-0.01").is_dir()
    # A rate of nothing learns nothing, so the other one is taken, and the trials leave no trace.
    plain = SequenceEntry("plain", task, shape, Steps(10, 32, 1e-2))
    assert row["test loss"] == plain.run(RunContext(tmp_path / "plain", None, 60.0))["test loss"]
    assert [steps.tried(rate).count for rate in steps.rates] == [5, 5]
