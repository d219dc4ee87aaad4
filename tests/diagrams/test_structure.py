from hypothesis import given
from hypothesis import strategies as st

from rankscope.diagrams import Convolution, Diagram, Function, Index, Node, Region


def nested(depth: int) -> Diagram:
    """X W1 in a region, times W2 in the next region around it, and so on."""
    names = [f"i{number}" for number in range(depth + 2)]
    nodes = [Node("X", ("i0", "i1"))]
    nodes += [Node(f"W{n}", (names[n], names[n + 1])) for n in range(1, depth + 1)]
    regions = [Region("R1", ("X", "W1"), Function("relu"))]
    regions += [
        Region(f"R{n}", (f"R{n - 1}", f"W{n}"), Function("relu")) for n in range(2, depth + 1)
    ]
    return Diagram(
        "nested",
        tuple(Index(name) for name in names),
        tuple(nodes),
        output=("i0", names[-1]),
        regions=tuple(regions),
    )


@given(depth=st.integers(1, 30))
def test_inner_regions_come_before_the_ones_around_them(depth: int) -> None:
    structure = nested(depth).structure
    assert structure.evaluation_order == (*(f"R{n}" for n in range(1, depth + 1)), None)
    assert structure.parent["X"] == "R1"
    assert structure.legs[f"R{depth}"] == ("i0", f"i{depth + 1}")
    assert structure.nodes_inside[f"R{depth}"] == ("X", *(f"W{n}" for n in range(1, depth + 1)))


def test_regions_may_nest_deeper_than_python_recurses() -> None:
    assert len(nested(1100).structure.evaluation_order) == 1101


def test_regions_side_by_side_keep_their_order() -> None:
    diagram = Diagram(
        "pair",
        (Index("i"), Index("j")),
        (Node("A", ("i",)), Node("B", ("j",))),
        output=("i", "j"),
        regions=(Region("P", ("A",), Function("relu")), Region("Q", ("B",), Function("tanh"))),
    )
    assert diagram.structure.evaluation_order == ("P", "Q", None)
    assert [operand.name for operand in diagram.structure.operands[None]] == ["P", "Q"]


def test_the_output_of_a_convolution_leaves_its_region_and_its_input_does_not() -> None:
    diagram = Diagram(
        "convolution",
        (Index("h"), Index("u"), Index("y")),
        (Node("X", ("h",)), Node("K", ("u",))),
        output=("y",),
        convolutions=(Convolution("C", "h", "u", "y"),),
        regions=(Region("R", ("X", "K", "C"), Function("relu")),),
    )
    assert diagram.structure.legs["R"] == ("y",)
    assert diagram.structure.convolutions["R"] == ("C",)
    assert diagram.structure.convolutions_inside[None] == ("C",)
    assert diagram.structure.owners["h"] == ("X", "C")
