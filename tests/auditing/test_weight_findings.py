"""Findings from spectra."""

from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing import Finding, MatrixRow, Parameters, TensorRow, weight_findings
from rankscope.auditing.findings import factored_saving

FLAT = MatrixRow(
    name="",
    shape=(40, 30),
    num_values=30,
    singular_values=(1.0,) * 30,
    largest=1.0,
    frobenius=30**0.5,
    numeric_rank=30,
    stable_rank=30.0,
    effective_rank=30.0,
    entropy=1.0,
    rank_at={"50": 15, "90": 27, "95": 29, "99": 30},
    random_edge=1.5,
    outliers=0,
    random_distance=0.5,
)
ROW = TensorRow("layer.weight", "feed_forward", (40, 30), "float32", (FLAT,))


def findings(*rows: TensorRow) -> dict[str, Finding]:
    found = weight_findings(rows, Parameters(feed_forward=1200), "my model")
    return {finding.id: finding for finding in found}


def test_a_flat_matrix_gives_nothing_to_say() -> None:
    assert findings(ROW) == {}


def test_a_low_rank_is_advice_with_the_parameters_two_factors_save() -> None:
    low = replace(FLAT, rank_at={**FLAT.rank_at, "99": 5})
    finding = findings(replace(ROW, matrices=(low,)))["low-rank"]
    assert (finding.value, finding.threshold) == (5, 30)
    assert finding.saving == round((1200 - 5 * 70) / 1200, 4)


def test_what_can_be_built_is_compressed_and_files_alone_are_shown(tmp_path: Path) -> None:
    low = replace(ROW, matrices=(replace(FLAT, rank_at={**FLAT.rank_at, "99": 5}),))

    def command(source: str) -> str:
        (finding,) = weight_findings((low,), Parameters(feed_forward=1200), source)
        return finding.command

    # Two factors hold 350 of 1200.
    assert command("") == "rankscope compress transformer --keep 0.3 --dry-run"
    assert command("my.models:build") == "rankscope compress my.models:build --keep 0.3 --dry-run"
    assert command("digits") == "rankscope compress digits --keep 0.3 --dry-run"
    assert command("model.safetensors") == "rankscope audit model.safetensors --json"
    assert command(str(tmp_path)) == f"rankscope compress {tmp_path} --keep 0.3 --dry-run"


@settings(deadline=None)
@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 50))
def test_the_saving_of_two_factors_is_what_they_lack(rows: int, columns: int, rank: int) -> None:
    matrix = replace(FLAT, shape=(rows, columns), rank_at={"99": rank})
    left, right = rows * rank, rank * columns
    assert factored_saving(matrix) == max(0, rows * columns - left - right)


def test_copies_are_counted_once_and_never_as_low_rank() -> None:
    low = replace(FLAT, rank_at={**FLAT.rank_at, "99": 5})
    copy = replace(ROW, name="head.weight", same_as="layer.weight", matrices=(low,))
    found = findings(ROW, copy)
    assert set(found) == {"copies"}
    assert found["copies"].value == 1
    assert found["copies"].saving == 0.5
    assert "'my model'" in found["copies"].command


def test_spikes_and_random_spectra_are_notes() -> None:
    spiked = replace(FLAT, largest=30.0)
    random = replace(FLAT, random_distance=0.01)
    found = findings(
        replace(ROW, matrices=(spiked,)), replace(ROW, name="other", matrices=(random,))
    )
    assert found["spikes"].value == 20.0
    assert found["near-random"].value == 1
    assert "other" in found["near-random"].title


def test_packed_parts_count_and_derived_matrices_do_not() -> None:
    low = replace(FLAT, rank_at={**FLAT.rank_at, "99": 5})
    query, product = replace(low, name="query"), replace(low, name="head 0: query-key")
    operator = replace(low, name="operator on 8 x 8")
    assert set(findings(replace(ROW, matrices=(query,)))) == {"low-rank"}
    assert findings(replace(ROW, matrices=(FLAT, product, operator))) == {}
