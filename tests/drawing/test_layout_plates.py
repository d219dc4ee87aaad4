from dataclasses import replace

from rankscope.diagrams import Diagram, IndexKind, Role, from_einsum
from rankscope.diagrams.families import multi_head, multilayer_perceptron, with_batch
from rankscope.drawing import View, lay_out, render
from rankscope.drawing.layout import place, plate_indices, without_indices


def with_kind(diagram: Diagram, name: str, kind: IndexKind) -> Diagram:
    return replace(
        diagram,
        indices=tuple(replace(i, kind=kind) if i.name == name else i for i in diagram.indices),
    )


def test_an_index_on_all_data_and_the_output_is_a_plate_whatever_its_kind() -> None:
    diagram = with_batch(multi_head())
    assert plate_indices(diagram) == ("b",)
    assert plate_indices(with_kind(diagram, "b", IndexKind.GENERIC)) == ("b",)


def test_an_index_that_a_parameter_carries_too_is_no_plate() -> None:
    diagram = with_batch(multi_head())
    nodes = tuple(
        replace(node, indices=("b", *node.indices)) if node.name == "WQ" else node
        for node in diagram.nodes
    )
    assert plate_indices(replace(diagram, nodes=nodes)) == ()


def test_an_index_that_some_data_lacks_is_no_plate() -> None:
    diagram = with_batch(multi_head())
    nodes = tuple(
        replace(node, indices=node.indices[1:]) if node.name == "Xv" else node
        for node in diagram.nodes
    )
    assert plate_indices(replace(diagram, nodes=nodes)) == ()


def test_an_index_on_a_single_tensor_or_that_is_normalized_is_no_plate() -> None:
    assert plate_indices(multilayer_perceptron(widths=(3, 2))) == ()
    diagram = with_batch(multi_head())
    region = replace(diagram.regions[0], over=("m", "b"))
    assert plate_indices(replace(diagram, regions=(region,))) == ()


def test_in_a_plain_einsum_a_shared_open_index_is_a_dot_unless_it_is_a_batch() -> None:
    product = from_einsum("bij,bjk->bik")
    assert {node.role for node in product.nodes} == {Role.DATA}
    assert plate_indices(product) == ()
    assert plate_indices(with_kind(product, "b", IndexKind.BATCH)) == ("b",)


def test_the_plate_surrounds_everything_and_is_painted_first() -> None:
    scene = lay_out(with_batch(multi_head(), batch_size=32), view=View(show_sizes=True))
    plate, label = scene.frames[0], scene.labels[-1]
    assert plate.style == "plate"
    assert label.style == "on-plate"
    assert label.text == r"$\times\,B\!=\!32$"
    inner = replace(scene, frames=scene.frames[1:], labels=scene.labels[:-1])
    assert plate.box[0] < inner.box[0]
    assert plate.box[1] < inner.box[1]
    assert plate.box[2] > max(inner.box[2], label.box[2])
    assert plate.box[3] > max(inner.box[3], label.box[3])


def test_inside_the_plate_the_picture_is_the_one_without_the_index() -> None:
    diagram = with_batch(multi_head())
    assert without_indices(diagram, ("b",)).output == ("n", "o")
    assert place(diagram).nodes == place(multi_head()).nodes
    frozen = place(diagram)
    assert frozen.plates == ("b",)
    # A frozen placement keeps its plate only while the index is there.
    assert render(multi_head(), frozen) == lay_out(multi_head())
