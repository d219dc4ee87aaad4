import re
from dataclasses import replace

from rankscope.auditing.auditor import Audit
from rankscope.auditing.page.charts import MOST_NUMBERED, arrange, heat_map, shares
from rankscope.auditing.tensors import MatrixRow, TensorRow


def test_shares_are_ranks_over_the_number_of_values(matrix: MatrixRow) -> None:
    found = shares(matrix)
    assert found["effective"] == matrix.effective_rank / 12
    assert found["stable"] == matrix.stable_rank / 12
    assert found["energy"] == matrix.rank_at["90"] / 12


def test_blocks_are_columns_and_kinds_are_rows_without_what_all_names_share(
    transformer: Audit,
) -> None:
    found = arrange(transformer.tensors)
    assert found.columns == ("0", "1", "2", "3", "4", "5")
    assert tuple(found.kinds) == (
        "self_attn.q_proj",
        "self_attn.q_proj: head *: query-key",
        "mlp.up_proj",
        "mlp.down_proj",
    )
    assert all(len(cells) == 6 for cells in found.kinds.values())


def test_of_several_heads_the_lowest_is_shown(transformer: Audit) -> None:
    cell = arrange(transformer.tensors).kinds["self_attn.q_proj: head *: query-key"]["2"]
    heads = transformer.tensors[cell.tensor].matrices[1:]
    assert transformer.tensors[cell.tensor].layer == 2
    assert cell.count == 4
    assert cell.shares["effective"] == min(shares(head)["effective"] for head in heads)
    shown = transformer.tensors[cell.tensor].matrices[cell.matrix]
    assert shares(shown) == cell.shares
    assert shown.name in cell.name


def test_experts_share_a_row(matrix: MatrixRow) -> None:
    rows = tuple(
        TensorRow(
            f"layers.{layer}.experts.{expert}.w1", "other", (12, 30), "f", (matrix,), layer=layer
        )
        for layer in (3, 11)
        for expert in range(4)
    )
    found = arrange(rows)
    assert found.columns == ("3", "11")
    assert [cell.count for cell in found.kinds["w1"].values()] == [4, 4]


def test_names_that_would_become_equal_stay_long(matrix: MatrixRow) -> None:
    rows = tuple(
        TensorRow(name, "other", (12, 30), "f", (matrix,), layer=0)
        for name in ("a.0.b.weight", "a.0.b")
    )
    assert tuple(arrange(rows).kinds) == ("a.b.weight", "a.b")


def test_without_blocks_tensors_are_columns_and_views_are_rows(convolutional: Audit) -> None:
    found = arrange(convolutional.tensors)
    assert found.columns == ("conv0.weight", "conv1.weight", "classifier.weight")
    assert set(found.kinds) == {"weight", "operator"}
    assert tuple(found.kinds["operator"]) == ("conv0.weight", "conv1.weight")


def test_missing_cells_are_empty_and_one_cell_can_be_tabbed_to(convolutional: Audit) -> None:
    written = heat_map(convolutional.tensors)
    assert written.count("<td></td>") == 1
    assert written.count('tabindex="0"') == 1
    assert '<abbr title="conv1.weight">2</abbr>' in written


def test_cells_have_numbers_only_where_there_is_room(matrix: MatrixRow) -> None:
    rows = tuple(
        TensorRow(f"a.{layer}.w", "other", (12, 30), "f", (matrix,), layer=layer)
        for layer in range(MOST_NUMBERED + 1)
    )
    assert "numbered" not in heat_map(rows)
    assert "numbered" in heat_map(rows[:-1])


def test_every_cell_says_which_matrix_it_opens(transformer: Audit) -> None:
    places = re.findall(r'data-tensor="(\d+)" data-matrix="(\d+)"', heat_map(transformer.tensors))
    assert len(places) == 24
    for tensor, number in places:
        assert transformer.tensors[int(tensor)].matrices[int(number)].num_values


def test_vectors_alone_have_no_heat_map(transformer: Audit) -> None:
    assert heat_map(tuple(row for row in transformer.tensors if not row.matrices)) == ""


def test_a_matrix_without_values_has_no_share_above_zero(matrix: MatrixRow) -> None:
    empty = replace(matrix, num_values=0, effective_rank=0.0, stable_rank=0.0, rank_at={})
    assert set(shares(empty).values()) == {0.0}
