import pytest

from rankscope.diagrams import Diagram, from_einsum
from rankscope.diagrams.families import (
    ConvolutionSizes,
    cp_attention,
    hierarchical_tucker,
    multi_head,
    tensor_train_matrix,
    tucker2_convolution,
)
from rankscope.drawing import Shape, ShapeKind, lay_out
from rankscope.drawing.layout import Page, Request, Route, place_labels
from rankscope.drawing.layout.labels import spaced_points

ROUTE = Route(((0.0, 0.0), (200.0, 0.0)))


def request(**changes: object) -> Request:
    fields: dict[str, object] = {
        "index": "i",
        "text": "$I$",
        "style": "wire-generic",
        "routes": (ROUTE,),
        "num_preferred": 1,
    }
    return Request(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "diagram",
    [
        multi_head(),
        cp_attention(),
        tensor_train_matrix(order=4),
        hierarchical_tucker(order=5),
        tucker2_convolution(ConvolutionSizes()),
        from_einsum("abc,cde,bfg,gdh,eij,hik,fkl->ajl"),
        from_einsum("ii,ij,jk->k"),
    ],
)
def test_every_index_is_written_exactly_once(diagram: Diagram) -> None:
    scene = lay_out(diagram)
    owners = [label.owner for label in scene.labels if label.style.startswith("wire-")]
    assert sorted(owners) == sorted(diagram.index_by_name)
    names = [label.owner for label in scene.labels if not label.style.startswith("wire-")]
    parts = (*diagram.holders, *diagram.regions)
    assert sorted(names) == sorted(part.name for part in parts)


def test_a_split_hyperedge_is_written_on_the_wire_that_crosses_the_barrier() -> None:
    scene = lay_out(multi_head())
    crossing = next(w for w in scene.wires if w.name == "h" and w.ends[:2] == ("h@A", "h@"))
    (x, top), (_, bottom) = crossing.points
    box = next(label.box for label in scene.labels if label.owner == "h")
    assert top < box[1] < box[3] < bottom
    assert 0 < box[0] - x < 12


def test_bonds_are_written_above_the_middle_if_nothing_is_there() -> None:
    label = place_labels(Page((), (), (), (ROUTE,)), [request()])[0]
    left, _, right, bottom = label.box
    assert (left + right) / 2 == pytest.approx(100.0)
    assert bottom == pytest.approx(-7.5)


def test_a_label_moves_aside_for_a_shape() -> None:
    blocker = Shape("A", ShapeKind.SQUARE, 100.0, -20.0, 30.0, 30.0, "data")
    label = place_labels(Page((blocker,), (), (), (ROUTE,)), [request()])[0]
    left, top, right, _ = label.box
    is_beside = right < blocker.box[0] or left > blocker.box[2]
    assert is_beside or top > 0


def test_a_label_keeps_away_from_the_centre_it_is_given() -> None:
    for y in (-50.0, 50.0):
        label = place_labels(Page((), (), (), (ROUTE,)), [request(centre=(100.0, y))])[0]
        assert (label.box[1] + label.box[3]) * y < 0


def test_labels_at_tips_follow_the_direction_of_the_leg() -> None:
    for direction, side in (((1.0, 0.0), 0), ((-1.0, 0.0), 2), ((0.0, 1.0), 1), ((0.0, -1.0), 3)):
        page = Page((), (), (), (ROUTE,))
        label = place_labels(page, [request(tip=((0.0, 0.0), direction))])[0]
        assert label.box[side] == pytest.approx(8.0 * sum(direction))
    slanted = request(tip=((0.0, 0.0), (0.6, 0.8)))
    box = place_labels(Page((), (), (), (ROUTE,)), [slanted])[0].box
    assert box[2] > box[0] > -10
    assert box[1] > 0


def test_an_index_without_a_visible_wire_has_no_label() -> None:
    assert place_labels(Page((), (), (), ()), [request(routes=())]) == ()


def test_spaced_points_include_both_ends() -> None:
    assert spaced_points(((0.0, 0.0), (10.0, 0.0)), 4.0)[0] == (0.0, 0.0)
    assert spaced_points(((0.0, 0.0), (10.0, 0.0)), 4.0)[-1] == (10.0, 0.0)
    assert len(spaced_points(((0.0, 0.0), (10.0, 0.0), (10.0, 5.0)), 5.0)) == 4
