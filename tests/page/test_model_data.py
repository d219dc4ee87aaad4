"""An audit as plain data for the page."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing import Audit, MatrixRow, TensorRow, layer_of, part_of
from rankscope.page import overview, tensor_data
from rankscope.page.model_data import in_natural_order


def row(name: str) -> TensorRow:
    return TensorRow(name, part_of(name), (4, 4), "float32", layer=layer_of(name))


@settings(deadline=None)
@given(st.integers(2, 120))
def test_blocks_stand_in_the_order_of_their_numbers(depth: int) -> None:
    names = [f"model.layers.{layer}.mlp.up_proj.weight" for layer in range(depth)]
    names += ["model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"]
    ordered = [each.name for each in in_natural_order([row(name) for name in sorted(names)])]
    assert ordered[0] == "model.embed_tokens.weight"
    assert ordered[1 : depth + 1] == names[:depth]
    assert ordered[-1] == "lm_head.weight"


def test_an_order_that_is_not_that_of_letters_is_kept() -> None:
    rows = [row(name) for name in ("b.weight", "a.weight")]
    assert in_natural_order(rows) == rows


def test_the_verdict_is_what_to_do_what_it_saves_and_the_command(transformer: Audit) -> None:
    low = replace(transformer.findings[0], id="low-rank", saving=0.25, command="rankscope compress")
    document: Any = overview(
        replace(transformer, findings=(transformer.findings[1], low)), is_complete=True
    )
    verdict = document["verdict"]
    assert verdict["headline"] == low.title
    assert verdict["saving"] == "Saves 25.0 % of all parameters."
    assert verdict["command"] == "rankscope compress"
    assert verdict["is_final"]


def test_a_model_of_full_rank_is_told_so_and_a_shape_alone_is_not(
    transformer: Audit, shape_only: Audit
) -> None:
    full: Any = overview(transformer, is_complete=True)
    assert full["verdict"]["headline"].startswith("No matrix gets smaller")
    sketch: Any = overview(shape_only, is_complete=False)
    assert sketch["verdict"]["headline"] == shape_only.findings[0].title
    assert not sketch["verdict"]["is_final"]
    nothing: Any = overview(replace(shape_only, findings=()), is_complete=True)
    assert nothing["verdict"]["headline"] == "Nothing stands out."


def test_a_matrix_is_a_row_of_numbers(matrix: MatrixRow) -> None:
    one = TensorRow("a.weight", "head", (12, 30), "float32", (matrix,))
    document: Any = tensor_data(one)
    _, rows, columns, num_values, _, _, energy, *_ = document["matrices"][0]
    assert (rows, columns, num_values) == (12, 30, 12)
    assert energy == matrix.rank_at["90"]
    assert len(document["spark"]) == 12
    assert document["spark"][0] == 0
    assert document["spark"] == sorted(document["spark"])


def test_zeros_and_what_is_no_number_have_no_small_picture(matrix: MatrixRow) -> None:
    for first in (0.0, float("nan"), float("inf")):
        broken = replace(matrix, singular_values=(first, 0.0), stable_rank=float("nan"))
        document: Any = tensor_data(TensorRow("a", "head", (2, 2), "float32", (broken,)))
        assert document["spark"] is None
        assert document["matrices"][0][5] is None


def test_a_model_of_32_blocks_has_a_first_screen_below_400_kilobytes(transformer: Audit) -> None:
    import json

    blocks = tuple(
        replace(one, name=one.name.replace("layers.0", f"layers.{layer}"), layer=layer)
        for layer in range(32)
        for one in transformer.tensors[1:5]
    )
    many = replace(transformer, tensors=(transformer.tensors[0], *blocks))
    assert len(json.dumps(overview(many, is_complete=True))) < 400_000
