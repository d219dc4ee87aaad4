import pytest

from rankscope.diagrams import (
    Convolution,
    Diagram,
    Function,
    Index,
    Node,
    Region,
    Role,
    from_einsum,
)
from rankscope.diagrams.families import multi_head, tucker, with_batch
from rankscope.drawing import Side, lay_out, lint
from rankscope.drawing.layout import PLAIN_VIEW, Dot, Wiring, folded_rows, place, place_rows


def convolved(num_dimensions: int) -> Diagram:
    """A convolution over any number of directions."""
    places = range(num_dimensions)
    inputs, kernels, outputs = ([f"{letter}{k}" for k in places] for letter in "hky")
    return Diagram(
        "convolved",
        tuple(Index(name) for name in ("b", "s", "t", *inputs, *kernels, *outputs)),
        (Node("X", ("b", "s", *inputs), Role.DATA), Node("K", ("t", "s", *kernels))),
        ("b", "t", *outputs),
        tuple(Convolution(f"c{k}", inputs[k], kernels[k], outputs[k]) for k in places),
    )


def test_branches_hang_below_then_above() -> None:
    placement = place(tucker(order=4))
    x, y = placement.nodes["G"]
    assert placement.nodes["U3"][0] == placement.nodes["U4"][0] == x
    assert placement.nodes["U3"][1] > y > placement.nodes["U4"][1]
    assert placement.tips["i3"][1] > placement.nodes["U3"][1]
    assert placement.tips["i4"][1] < placement.nodes["U4"][1]


def test_hyperedges_off_the_row_nest_in_lanes_of_their_own() -> None:
    diagram = with_batch(multi_head())
    wiring = Wiring(diagram)
    usual = {dot: Side.DOWN if dot.region else Side.UP for dot in wiring.dots}
    placement = place_rows(wiring, folded_rows(wiring), PLAIN_VIEW, {}, usual)
    row = placement.nodes["Xq"][1]
    narrow, wide = placement.dots[("h", "A")], placement.dots[("b", "A")]
    assert row < narrow[1] < wide[1]


def test_a_dot_goes_to_the_side_it_is_wished_to() -> None:
    wiring = Wiring(from_einsum("bij,bjk->bik"))
    for side in Side:
        placement = place_rows(wiring, folded_rows(wiring), PLAIN_VIEW, {}, {Dot("b", None): side})
        x, y = placement.dots[("b", None)]
        dx, dy = side.vector
        middle = sum(x for x, _ in placement.nodes.values()) / 2
        assert (x - middle) * dx + y * dy > 0.5


@pytest.mark.parametrize("num_dimensions", [1, 2, 3])
def test_convolutions_of_any_dimension_are_drawn_without_faults(num_dimensions: int) -> None:
    scene = lay_out(convolved(num_dimensions))
    assert lint(scene) == ()
    tips = {wire.points[-1][0] for wire in scene.wires if wire.name.startswith("y")}
    assert len(tips) == 1


def test_chained_convolutions_share_one_lane() -> None:
    diagram = Diagram(
        "chained",
        tuple(Index(name) for name in "bshktxluy"),
        (
            Node("X", ("b", "s", "h"), Role.DATA),
            Node("K", ("t", "s", "k")),
            Node("L", ("u", "t", "l")),
        ),
        ("b", "u", "y"),
        (Convolution("c", "h", "k", "x"), Convolution("d", "x", "l", "y")),
        (Region("R", ("X", "K", "c"), Function("identity")),),
    )
    placement = place(diagram)
    assert lint(lay_out(diagram)) == ()
    assert placement.nodes["c"][1] == placement.nodes["d"][1]
