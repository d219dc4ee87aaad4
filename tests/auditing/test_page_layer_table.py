import math
import re
from dataclasses import replace

from rankscope.auditing.auditor import Audit
from rankscope.auditing.page.layers import COLUMNS, layer_table, shown_matrices
from rankscope.auditing.tensors import MatrixRow, TensorRow


def rows_of(table: str) -> list[str]:
    return re.findall(r"<tr data-tensor.*?</tr>", table, re.DOTALL)


def test_every_tensor_has_a_row_with_numbers_or_with_the_reason(transformer: Audit) -> None:
    rows = rows_of(layer_table(transformer.tensors))
    assert len(rows) == len(transformer.tensors)
    for row, tensor in zip(rows, transformer.tensors, strict=True):
        assert tensor.name in row.replace("<wbr>", "")
        assert ("a vector" in row) == (not tensor.matrices)


def test_a_row_fills_all_columns(transformer: Audit) -> None:
    for row in rows_of(layer_table(transformer.tensors)):
        spanned = [int(count) for count in re.findall(r'colspan="(\d+)"', row)]
        assert row.count("<td") + sum(spanned) - len(spanned) == len(COLUMNS) + 1


def test_heads_are_counted_but_have_no_rows(transformer: Audit) -> None:
    query = transformer.tensors[1]
    assert shown_matrices(query) == (0,)
    assert "and 4 more" in rows_of(layer_table((query,)))[0]


def test_named_parts_have_rows_of_their_own(convolutional: Audit) -> None:
    rows = rows_of(layer_table(convolutional.tensors[:1]))
    assert len(rows) == 2
    assert "operator on 8 x 8" in rows[1]


def test_numbered_parts_alone_leave_the_first(matrix: MatrixRow) -> None:
    experts = tuple(replace(matrix, name=f"expert {number}") for number in range(3))
    row = TensorRow("experts", "feed_forward", (3, 12, 30), "float32", experts)
    assert shown_matrices(row) == (0,)


def test_copies_name_their_first(transformer: Audit) -> None:
    assert "same as model.embed_tokens.weight" in layer_table(transformer.tensors[-1:])
    copied = replace(transformer.tensors[4], same_as="other")
    assert "same as other; a vector" in layer_table((copied,))


def test_a_tensor_with_neither_spectrum_nor_reason_is_still_there() -> None:
    row = TensorRow("odd", "unheard of", (2, 2), "float32")
    assert "no spectrum, no reason given" in layer_table((row,))
    assert "unheard of" in layer_table((row,))


def test_numbers_that_are_not_finite_have_no_sorting_value(matrix: MatrixRow) -> None:
    odd = replace(matrix, stable_rank=math.nan, random_distance=math.inf)
    row = rows_of(layer_table((TensorRow("odd", "other", (12, 30), "f", (odd,)),)))[0]
    assert row.count("–") == 2
    assert "nan" not in row
    assert "inf" not in row


def test_no_tensors_no_table() -> None:
    assert layer_table(()) == ""


def test_names_are_escaped(matrix: MatrixRow) -> None:
    hostile = '"><script>alert(1)</script>'
    odd = replace(matrix, name=hostile)
    row = TensorRow(hostile, hostile, (12, 30), "f", (odd,), same_as=hostile)
    bare = TensorRow(hostile, hostile, (2,), "f", reason=hostile)
    assert "<script" not in layer_table((row, bare))
