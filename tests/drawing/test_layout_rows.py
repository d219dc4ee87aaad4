import pytest

from rankscope.diagrams import Diagram, Function, Index, Node, Region, from_einsum
from rankscope.diagrams.families import (
    multi_head,
    multilayer_perceptron,
    single_head,
    tunable_attention,
)
from rankscope.drawing import lay_out, lint
from rankscope.drawing.layout import Dot, Wiring, folded_rows, inline_row, place, row_between_lanes
from rankscope.drawing.layout.sketch import BARRIER_GAP


def gated(*, is_twice: bool) -> Diagram:
    """Two branches that are multiplied entry by entry, one or both behind a barrier."""
    regions = (Region("S", ("X", "W"), Function("silu")), Region("T", ("Y", "V"), Function("tanh")))
    return Diagram(
        "gated",
        tuple(Index(name) for name in "nfgko"),
        (
            Node("X", ("n", "f")),
            Node("W", ("f", "k")),
            Node("Y", ("n", "g")),
            Node("V", ("g", "k")),
            Node("U", ("k", "o")),
        ),
        ("n", "o"),
        regions=regions if is_twice else regions[:1],
    )


def test_rows_are_stages_in_the_order_of_evaluation() -> None:
    rows = folded_rows(Wiring(multi_head()))
    assert [row.nodes for row in rows] == [("Xq", "WQ", "WK", "Xk"), ("WO", "WV", "Xv")]
    assert [row.columns for row in rows] == [(0, 1, 2, 3), (1, 2, 3)]
    assert [row.band for row in rows] == [0, 1]


def test_links_name_the_index_between_neighbours() -> None:
    assert folded_rows(Wiring(multi_head()))[0].links == ("f", "d", "g")


def test_regions_that_do_not_depend_on_each_other_stand_side_by_side() -> None:
    rows = folded_rows(Wiring(gated(is_twice=True)))
    assert [row.band for row in rows] == [0, 0, 1]
    assert rows[0].columns[-1] < rows[1].columns[0]


def test_a_chain_with_barriers_fits_on_one_row() -> None:
    rows = inline_row(Wiring(multilayer_perceptron(widths=(5, 4, 3, 2))))
    assert rows is not None
    assert rows[0].nodes == ("X", "W1", "W2", "W3")


def test_what_crosses_a_barrier_twice_does_not_fit_on_one_row() -> None:
    assert inline_row(Wiring(multi_head())) is None
    assert inline_row(Wiring(from_einsum("i,j->ij"))) is None


def test_a_short_chain_is_inline_and_a_long_one_folds_at_its_barrier() -> None:
    short = place(multilayer_perceptron(widths=(5, 4, 3)))
    assert len({y for _, y in short.nodes.values()}) == 1
    long = place(single_head())
    assert len({y for _, y in long.nodes.values()}) == 2


def test_only_products_of_hyperedges_stand_between_lanes() -> None:
    lanes = row_between_lanes(Wiring(from_einsum("ij,ij,ij->ij")))
    assert lanes is not None
    assert lanes[0][0].nodes == ("A", "B", "C")
    assert list(lanes[1]) == [Dot("i", None), Dot("j", None)]
    assert len(set(lanes[1].values())) == 2
    assert row_between_lanes(Wiring(from_einsum("ij,ij->ij"))) is None
    assert row_between_lanes(Wiring(from_einsum("ijk,ij,ijk->ij"))) is None


def test_a_barrier_between_neighbours_makes_room_for_its_mark() -> None:
    at = place(multilayer_perceptron(widths=(5, 4, 3))).nodes
    inside, across = at["W1"][0] - at["X"][0], at["W2"][0] - at["W1"][0]
    assert across - inside == pytest.approx(BARRIER_GAP)


def test_gated_branches_are_drawn_without_faults() -> None:
    for is_twice in (False, True):
        assert lint(lay_out(gated(is_twice=is_twice))) == ()


def test_a_row_slides_until_its_dot_is_under_what_it_is_wired_to() -> None:
    placement = place(gated(is_twice=False))
    assert placement.nodes["W"][0] == placement.dots[("k", None)][0]


def test_a_core_between_two_hyperedges_stands_between_their_dots() -> None:
    placement = place(tunable_attention())
    dots = [x for x, _ in placement.dots.values()]
    assert len(set(dots)) == 1
    assert placement.nodes["C"][0] == dots[0]
