import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing import LEVINE, Configuration, Parameters, plan
from rankscope.errors import PlanError


def decoder(depth: int, width: int, heads: int) -> Configuration:
    square = depth * width**2
    parameters = Parameters(embedding=50257 * width, attention=4 * square, feed_forward=8 * square)
    return Configuration(
        "gpt2", depth, width, heads, width // heads, heads, 4 * width, 50257, width, parameters
    )


@pytest.mark.parametrize(
    ("parameters", "depth", "width"),
    [
        (12 * 12 * 768**2, 23, 555),
        (12 * 24 * 1024**2, 32, 887),
        (12 * 24 * 1536**2, 37, 1237),
        (12 * 24 * 2048**2, 42, 1548),
        (12 * 32 * 2560**2, 47, 2112),
        (12 * 32 * 4096**2, 54, 3153),
        (12 * 40 * 5140**2, 60, 4197),
        (12 * 96 * 12288**2, 80, 13461),
        (10**12, 95, 29617),
    ],
)
def test_the_gpt3_family_as_in_the_specification(parameters: int, depth: int, width: int) -> None:
    found = plan(parameters, multiple_of=1)
    assert (found.depth, found.width) == (depth, width)
    usual = plan(parameters)
    assert usual.depth == depth
    assert usual.shape.heads * usual.shape.head_size == usual.width
    assert abs(usual.width - width) <= usual.shape.head_size / 2 + 1


@settings(deadline=None, max_examples=30)
@given(
    parameters=st.floats(1e6, 1e13),
    multiple_of=st.sampled_from([1, 64]),
    max_depth=st.none() | st.integers(1, 200),
)
def test_a_plan_spends_its_budget_up_to_rounding(
    parameters: float, multiple_of: int, max_depth: int | None
) -> None:
    found = plan(parameters, multiple_of=multiple_of, max_depth=max_depth)
    assert found.width % multiple_of == 0
    assert found.depth <= (max_depth or found.depth)
    rounding = 2 * multiple_of / found.width
    assert found.parameters == pytest.approx(parameters, rel=rounding)
    assert found.shape.heads * found.shape.head_size <= found.width
    (planned,) = [row.shape for row in found.alternatives if row.is_planned]
    assert planned == found.shape
    assert sorted({row.shape.depth for row in found.alternatives}) == [
        row.shape.depth for row in found.alternatives
    ]


@settings(deadline=None, max_examples=20)
@given(parameters=st.floats(1e8, 1e12), vocabulary=st.integers(10_000, 300_000))
def test_a_total_budget_pays_the_embedding_first(parameters: float, vocabulary: int) -> None:
    total = parameters + vocabulary * LEVINE.width(LEVINE.best_depth(parameters).real)
    found = plan(total_parameters=total, vocabulary=vocabulary, multiple_of=1)
    assert found.law_depth.real == pytest.approx(LEVINE.best_depth(parameters).real)
    spent = found.parameters + vocabulary * found.width
    assert spent == pytest.approx(total, rel=2 / found.width)


@pytest.mark.parametrize("multiple_of", [1, 64])
def test_below_the_embedding_rank_the_plan_deepens_instead_of_widening(multiple_of: int) -> None:
    free, bound = plan(1.3e9), plan(1.3e9, embedding_rank=1000, multiple_of=multiple_of)
    assert bound.width <= 1000 < free.width
    assert bound.depth > free.depth
    assert bound.law_depth == free.law_depth
    assert "rank 1,000 at most" in bound.notes[0]
    assert "a rule, not a theorem" in bound.notes[0]
    counts = [row.shape.count.log3 for row in bound.alternatives if row.shape.width >= 1000]
    assert counts == sorted(counts), "deepening raises the count, widening beyond the rank does not"


def test_a_small_vocabulary_is_an_embedding_rank() -> None:
    by_vocabulary, by_rank = plan(1e8, vocabulary=300), plan(1e8, embedding_rank=300)
    assert by_vocabulary.shape == by_rank.shape
    assert plan(1.3e9, vocabulary=50257).shape == plan(1.3e9).shape


def test_the_largest_depth_holds_before_the_embedding_rank() -> None:
    found = plan(1.3e9, vocabulary=256, max_depth=60)
    assert found.depth == 60
    assert found.width > 256
    assert found.shape.embedding_rank == 256


def test_an_embedding_rank_that_asks_for_too_many_blocks_is_refused() -> None:
    with pytest.raises(PlanError, match=r"rank of 10 asks for 1,083,334 blocks, more than 10,000"):
        plan(1.3e9, embedding_rank=10)


def test_heads_and_their_size_fix_the_width() -> None:
    found = plan(12 * 96 * 12288**2, heads=96, head_size=128)
    assert (found.depth, found.width) == (96, 12288)
    assert any("fix the width at 12,288" in note for note in found.notes)


@pytest.mark.parametrize(
    ("max_depth", "message"),
    [
        (50, r"width at 12,288, for which the budget affords 96.00 blocks; wanted 1 to 50"),
        (None, r"width at 4,096,000, .* affords 0.00 blocks; wanted 1 to 10,000"),
    ],
)
def test_a_fixed_width_that_does_not_fit_is_refused(max_depth: int | None, message: str) -> None:
    heads = 96 if max_depth else 32000
    with pytest.raises(PlanError, match=message):
        plan(12 * 96 * 12288**2, heads=heads, head_size=128, max_depth=max_depth)


def test_heads_round_the_width() -> None:
    found = plan(1.3e9, heads=13)
    assert found.width == found.shape.heads * found.shape.head_size
    assert any("multiples of 13" in note for note in found.notes)


def test_a_smaller_depth_than_the_law_is_said() -> None:
    assert any(
        "depth 20 is below the law's 42.2" in note for note in plan(1.3e9, max_depth=20).notes
    )


def test_extrapolation_is_said() -> None:
    assert not plan(1.3e9).is_extrapolated
    assert not any(note.startswith("Extrapolated") for note in plan(1.3e9).notes)
    assert plan(1e12).is_extrapolated
    assert any("fitted on depths 6 to 48; it gives 94.7" in note for note in plan(1e12).notes)
    assert plan(1.3e9, max_depth=5).is_extrapolated


def test_the_plan_moves_with_the_fit() -> None:
    found = plan(12 * 96 * 12288**2)
    deeper, shallower = found.shapes_within_fit
    assert (deeper.depth, shallower.depth) == (83, 78)
    assert deeper.width < found.width < shallower.width
    within = [row.shape.depth for row in found.alternatives if row.is_within_fit]
    assert within == [78, 80, 83]


@pytest.mark.parametrize(
    ("model", "verdict"),
    [
        (decoder(96, 12288, 96), "deeper than the law"),
        (decoder(24, 2048, 16), "shallower than the law"),
        (decoder(80, 13461, 3), "as the law"),
    ],
)
def test_models_are_compared_by_the_parameters_in_their_blocks(
    model: Configuration, verdict: str
) -> None:
    (found,) = plan(1e9, compare={"it": model}).compared
    assert (found.name, found.verdict, found.remark) == ("it", verdict, None)
    assert found.law_depth == LEVINE.best_depth(12 * model.depth * model.width**2)


def test_models_unlike_those_of_the_fit_are_remarked() -> None:
    from dataclasses import replace

    model = decoder(24, 1024, 16)
    unlike = {
        "two stacks": replace(model, encoder_depth=24, decoder_depth=12),
        "experts": replace(model, num_experts=8),
        "shared": replace(model, family="albert"),
        "grouped": replace(model, key_value_heads=4, num_experts=8),
    }
    remarks = [found.remark for found in plan(1e9, compare=unlike).compared]
    assert remarks == [
        "parameters of encoder (24) and decoder (12) together",
        "all 8 experts counted",
        "all blocks share their parameters, counted once",
        "all 8 experts counted; keys and values see 3.12 % of the Gram matrix",
    ]


def test_a_plan_is_plain_data() -> None:
    found = plan(total_parameters=1.3e9, vocabulary=50257, compare={"it": decoder(12, 768, 12)})
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["depth"] == found.depth
    assert document["depth_low"] < document["depth_real"] < document["depth_high"]
    assert document["law"]["a"] == 5.039
    assert document["embedding"]["parameters"] == 50257 * found.width
    assert [row["sigmas"] for row in document["within_fit"]] == [-1, 1]
    assert {"count_log3", "lower_log3", "regime", "heads"} <= set(document["alternatives"][0])
    assert document["compared"][0]["parameters"] == 12 * 12 * 768**2
    assert len(document["theorems"]) == 2


def test_planning_loads_neither_torch_nor_numba_nor_matplotlib() -> None:
    code = (
        "import sys; from rankscope.auditing.shape_plan import plan; plan(1.3e9).to_dict();"
        "print([name for name in ('torch', 'numba', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
