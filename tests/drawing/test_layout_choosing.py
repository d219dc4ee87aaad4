import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams import Diagram, Function, Index, Node, Region, from_einsum
from rankscope.diagrams.families import build_family
from rankscope.drawing import crossings, lay_out
from rankscope.drawing.layout import Wiring, is_crowded, place


def test_a_network_that_fits_a_row_stays_on_it() -> None:
    assert place(from_einsum("ij,jk,kl->il")).straight == ()


def test_a_network_that_would_need_detours_is_drawn_straight() -> None:
    equation = "abc,cde,bfg,gdh,eij,hik,fkl->ajl"
    assert set(place(from_einsum(equation)).straight) == set("abcdefghijkl")


def test_the_complete_network_of_four_is_drawn_without_crossings() -> None:
    assert crossings(lay_out(from_einsum("abc,ade,bdf,cef->"))) == 0


def test_nothing_to_draw_is_an_empty_picture() -> None:
    nothing = Diagram("nothing", (), (), ())
    scene = lay_out(nothing)
    assert (scene.shapes, scene.wires, scene.labels) == ((), (), ())
    assert (scene.name, scene.title, scene.description) == ("nothing", "nothing", "")


AXES = st.lists(st.sampled_from("abcde"), max_size=3).map("".join)


@settings(deadline=None, max_examples=15)
@given(
    st.lists(AXES, min_size=1, max_size=5),
    st.sets(st.sampled_from("abcde")),
    st.integers(0, 3),
)
def test_any_network_gets_a_picture_with_all_its_parts(
    held: list[str], open_indices: set[str], num_inside: int
) -> None:
    used = sorted(set("".join(held)))
    nodes = tuple(Node(f"T{place}", tuple(axes)) for place, axes in enumerate(held))
    inside = tuple(node.name for node in nodes[:num_inside])
    diagram = Diagram(
        "any",
        tuple(Index(name) for name in used),
        nodes,
        tuple(name for name in used if name in open_indices),
        regions=(Region("R", inside, Function("relu")),) if inside else (),
    )
    scene = lay_out(diagram)
    assert [shape.name for shape in scene.shapes] == [node.name for node in nodes]
    assert len(scene.wires) == len(Wiring(diagram).segments)
    assert len(scene.frames) == len(diagram.regions)
    labels = [label.owner for label in scene.labels]
    assert sorted(labels) == sorted([*used, *(n.name for n in nodes), *(["R"] if inside else [])])


def test_a_diagram_with_very_many_wires_gets_a_plain_layout() -> None:
    diagram = build_family("cp", {"order": 200})
    assert isinstance(diagram, Diagram)
    assert is_crowded(Wiring(diagram))
    scene = lay_out(diagram)
    assert {shape.name for shape in scene.shapes} >= {node.name for node in diagram.nodes}


@pytest.mark.parametrize("num_common", [0, 50])
def test_a_tensor_with_very_many_legs_gets_a_plain_layout(num_common: int) -> None:
    names = tuple(f"i{number}" for number in range(100))
    nodes = (Node("A", names), Node("B", names[:num_common])) if num_common else (Node("A", names),)
    diagram = Diagram("legs", tuple(map(Index, names)), nodes, names[:num_common])
    assert is_crowded(Wiring(diagram))
    assert len(lay_out(diagram).wires) == len(Wiring(diagram).segments)


def test_open_legs_and_ordinary_diagrams_are_not_crowded() -> None:
    names = tuple(f"i{number}" for number in range(100))
    open_legs = Diagram("open", tuple(map(Index, names)), (Node("A", names),), names)
    multi_head = build_family("multi-head", {})
    assert isinstance(multi_head, Diagram)
    assert not is_crowded(Wiring(open_legs))
    assert not is_crowded(Wiring(multi_head))
