import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams import Diagram, Function, Index, Node, Region, from_einsum
from rankscope.diagrams.families import multi_head
from rankscope.drawing.layout import Dot, NodeEnd, Segment, Tip, Wiring, folded_rows


def wiring(equation: str) -> Wiring:
    return Wiring(from_einsum(equation))


def segments(equation: str) -> tuple[Segment, ...]:
    return wiring(equation).segments


def test_regions_may_nest_deeper_than_python_recurses() -> None:
    depth = sys.getrecursionlimit() + 100
    members = ["A", *(f"R{place}" for place in range(depth))]
    regions = tuple(
        Region(f"R{place}", (member,), Function("relu"))
        for place, member in enumerate(members[:-1])
    )
    diagram = Diagram("deep", (Index("i"),), (Node("A", ("i",)),), ("i",), regions=regions)
    wires = Wiring(diagram)
    assert wires.segments == (Segment("i", NodeEnd("A"), Tip("i")),)
    assert [row.nodes for row in folded_rows(wires)] == [("A",)]


AXES = st.lists(st.sampled_from("abcd"), max_size=4).map(tuple)
# Tensors, which indices are open, how many tensors are in a region, and in how many of them.
NETWORKS = st.tuples(
    st.lists(AXES, min_size=1, max_size=5),
    st.sets(st.sampled_from("abcd")),
    st.integers(1, 5),
    st.integers(0, 2),
)
Network = tuple[list[tuple[str, ...]], set[str], int, int]


def diagram_of(network: Network) -> Diagram:
    held, open_indices, num_inside, depth = network
    nodes = tuple(Node(f"T{place}", indices) for place, indices in enumerate(held))
    used = sorted({index for indices in held for index in indices})
    output = tuple(index for index in used if index in open_indices)
    inner = tuple(node.name for node in nodes[:num_inside])
    regions = (Region("R", inner, Function("relu")), Region("S", ("R",), Function("tanh")))
    return Diagram(
        "random", tuple(Index(name) for name in used), nodes, output, regions=regions[:depth]
    )


def test_two_ends_are_a_plain_wire() -> None:
    assert segments("ij,jk->ik") == (
        Segment("i", NodeEnd("A"), Tip("i")),
        Segment("j", NodeEnd("A"), NodeEnd("B")),
        Segment("k", NodeEnd("B"), Tip("k")),
    )


def test_a_leg_that_is_summed_ends_in_a_dot() -> None:
    assert segments("ij->i")[1] == Segment("j", NodeEnd("A"), Dot("j", None))
    assert wiring("ij->i").dots == {Dot("j", None): (NodeEnd("A"),)}


def test_a_trace_is_a_loop_and_a_diagonal_is_a_dot_with_two_arms_to_one_tensor() -> None:
    assert segments("ii->") == (Segment("i", NodeEnd("A"), NodeEnd("A")),)
    dot = Dot("i", None)
    assert wiring("ii->i").dots == {dot: (NodeEnd("A"), NodeEnd("A"), Tip("i"))}
    assert [segment.ordinal for segment in segments("ii->i")] == [0, 1, 0]


def test_wires_between_the_same_ends_are_told_apart_in_either_direction() -> None:
    assert [segment.ordinal for segment in segments("ijk,kij->")] == [0, 1, 2]


def test_a_hyperedge_on_both_sides_of_a_barrier_has_a_dot_on_each_and_crosses_once() -> None:
    wires = Wiring(multi_head())
    heads = [segment for segment in wires.segments if segment.index == "h"]
    assert Segment("h", Dot("h", "A"), Dot("h", None)) in heads
    assert [segment for segment in heads if wires.is_crossing(segment, "A")] == [
        Segment("h", Dot("h", "A"), Dot("h", None))
    ]


def test_the_common_region_of_a_crossing_wire_is_outside() -> None:
    wires = Wiring(multi_head())
    for segment in wires.segments:
        inside = not wires.is_crossing(segment, "A") and "A" in wires.regions_around(segment.first)
        assert wires.common_region(segment) == ("A" if inside else None)


@settings(deadline=None, max_examples=80)
@given(NETWORKS)
def test_every_axis_has_one_end_and_every_open_leg_one_tip(network: Network) -> None:
    diagram = diagram_of(network)
    wires = Wiring(diagram)
    for index in diagram.index_by_name:
        own = [segment for segment in wires.segments if segment.index == index]
        ends = [end for segment in own for end in segment.ends]
        for node in diagram.nodes:
            assert ends.count(NodeEnd(node.name)) == node.indices.count(index)
        assert ends.count(Tip(index)) == (index in diagram.output)


@settings(deadline=None, max_examples=80)
@given(NETWORKS)
def test_every_leg_crosses_each_barrier_exactly_once(network: Network) -> None:
    diagram = diagram_of(network)
    wires = Wiring(diagram)
    for region in diagram.region_by_name:
        crossed = [s.index for s in wires.segments if wires.is_crossing(s, region)]
        assert sorted(crossed) == sorted(diagram.structure.legs[region])


@settings(deadline=None, max_examples=80)
@given(NETWORKS)
def test_the_wires_of_an_index_form_a_tree_or_a_single_loop(network: Network) -> None:
    """So nothing is drawn twice: joining k things takes k - 1 wires."""
    diagram = diagram_of(network)
    wires = Wiring(diagram)
    for index in diagram.index_by_name:
        own = [segment for segment in wires.segments if segment.index == index]
        dots = {end for s in own for end in s.ends if isinstance(end, Dot)}
        num_ends = len(diagram.structure.owners[index]) + (index in diagram.output)
        assert len(own) == num_ends + len(dots) - 1
