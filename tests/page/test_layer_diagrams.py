from dataclasses import replace

import pytest

from rankscope.auditing import Audit, MatrixRow, TensorRow
from rankscope.diagrams import Diagram
from rankscope.errors import MissingExtraError
from rankscope.page import single_file as module
from rankscope.page.single_file import layer_diagram, layer_diagrams


def sizes(diagram: Diagram | None) -> dict[str, int | None]:
    assert diagram is not None
    return {index.name: index.size for index in diagram.indices}


def test_each_kind_and_size_is_drawn_once(transformer: Audit) -> None:
    found = layer_diagrams(transformer)
    # Embedding, attention, up, down, and the head, which is a linear map.
    assert len(found.pictures) == 5
    assert len(found.keys) == len(transformer.tensors)
    assert found.keys[1] == found.keys[5]
    assert found.keys[4] is None
    assert found.problem is None
    for key, picture in found.pictures:
        assert f'id="{key}-title"' in picture


def test_linear_maps_have_outputs_first(transformer: Audit) -> None:
    assert sizes(layer_diagram(transformer.tensors[2], None)) == {"n": None, "i": 48, "o": 192}


def test_gpt2_stores_inputs_first(transformer: Audit) -> None:
    assert transformer.configuration is not None
    row = replace(transformer.tensors[2], name="h.0.mlp.c_fc.weight")
    shape = replace(transformer.configuration, family="gpt2")
    assert sizes(layer_diagram(row, shape)) == {"n": None, "i": 192, "o": 48}


def test_attention_is_drawn_whole_where_its_heads_are_known(transformer: Audit) -> None:
    query, shape = transformer.tensors[1], transformer.configuration
    assert shape is not None
    whole = layer_diagram(query, shape)
    assert whole is not None
    assert whole.name == "multi-head"
    assert sizes(whole)["h"] == 4
    grouped = layer_diagram(query, replace(shape, key_value_heads=2))
    assert grouped is not None
    assert grouped.name == "grouped-query"
    alone = layer_diagram(query, None)
    assert alone is not None
    assert alone.name == "linear"


def test_embeddings_look_up_a_row(transformer: Audit) -> None:
    assert sizes(layer_diagram(transformer.tensors[0], None)) == {"n": None, "v": 160, "f": 48}


def test_positions_in_a_batch_of_one_are_an_embedding(matrix: MatrixRow) -> None:
    row = TensorRow("position", "embedding", (1, 12, 30), "float32", (matrix,))
    assert sizes(layer_diagram(row, None)) == {"n": None, "v": 12, "f": 30}


@pytest.mark.parametrize("kernel", [(5,), (3, 3), (3, 5), (2, 3, 4)])
def test_kernels_of_one_to_three_directions_are_convolutions(
    kernel: tuple[int, ...], matrix: MatrixRow
) -> None:
    row = TensorRow("conv.weight", "other", (8, 4, *kernel), "float32", (matrix,))
    diagram = layer_diagram(row, None)
    assert diagram is not None
    found = sizes(diagram)
    assert (found["t"], found["s"]) == (8, 4)
    assert tuple(found[name.kernel] for name in diagram.convolutions) == kernel


def test_more_directions_than_have_names_have_no_diagram(matrix: MatrixRow) -> None:
    row = TensorRow("conv.weight", "other", (8, 4, 3, 3, 3, 3), "float32", (matrix,))
    assert layer_diagram(row, None) is None


def test_experts_are_linear_maps(matrix: MatrixRow) -> None:
    expert = replace(matrix, name="expert 0")
    row = TensorRow("experts", "feed_forward", (8, 12, 30), "float32", (expert,))
    assert sizes(layer_diagram(row, None)) == {"n": None, "i": 30, "o": 12}


def test_without_matplotlib_the_reason_is_kept(
    transformer: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(diagram: Diagram, key: str) -> str:
        raise MissingExtraError(what=f"Drawing {key}", package="matplotlib", extra="draw")

    monkeypatch.setattr(module, "_picture", refuse)
    found = layer_diagrams(transformer)
    assert set(found.keys) == {None}
    assert found.problem is not None
    assert "pip install 'rankscope[draw]'" in found.problem
