import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams.families import cp, matrix_product, multi_head, with_batch
from rankscope.drawing import Hints, Side, View, lay_out, render
from rankscope.drawing.layout import Placement, place
from rankscope.errors import LayoutError

NUMBERS = st.floats(-1e6, 1e6)
POINTS = st.tuples(NUMBERS, NUMBERS)
NAMES = st.text(max_size=6)
# Plain data: building objects inside a strategy would let beartype use randomness there.
PLACEMENTS = st.fixed_dictionaries(
    {
        "nodes": st.dictionaries(NAMES, POINTS, max_size=4),
        "dots": st.dictionaries(st.tuples(NAMES, NAMES | st.none()), POINTS, max_size=4),
        "tips": st.dictionaries(NAMES, POINTS, max_size=4),
        "plates": st.lists(NAMES, max_size=2).map(tuple),
        "straight": st.lists(NAMES, max_size=3).map(tuple),
        "label_sides": st.dictionaries(NAMES, st.sampled_from(Side), max_size=3),
    }
)


@settings(deadline=None)
@given(PLACEMENTS)
def test_a_placement_comes_back_from_json_as_it_was(fields: dict[str, Any]) -> None:
    placement = Placement(**fields)
    saved = json.loads(json.dumps(placement.to_dict(), allow_nan=False))
    assert Placement.from_dict(saved) == placement


@pytest.mark.parametrize("view", [View(), View(plate=False), View(show_sizes=True)])
def test_a_saved_layout_renders_unchanged(view: View) -> None:
    diagram = with_batch(multi_head(num_heads=12), batch_size=8)
    placement = place(diagram, view=view)
    reloaded = Placement.from_dict(json.loads(json.dumps(placement.to_dict())))
    assert render(diagram, reloaded, view) == render(diagram, placement, view)
    assert render(diagram, placement, view) == lay_out(diagram, view=view)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "must have version 1, got 2"),
        ({"colour": "red"}, "got also 'colour'"),
        ({"nodes": {"A": [0.0]}}, "cannot be read: ValueError"),
        ({"nodes": {"A": [0.0, "far"]}}, r"of 'A' must be two numbers, got \[0.0, 'far'\]"),
        ({"nodes": {"A": [0.0, math.inf]}}, r"of 'A' must be two numbers, got \[0.0, inf\]"),
        ({"tips": None}, "cannot be read: AttributeError"),
        ({"dots": [{"index": "r"}]}, "cannot be read: KeyError"),
        ({"label_sides": {"r": "behind"}}, "'behind' is not a valid Side"),
    ],
)
def test_a_file_that_is_not_a_placement_is_refused(change: dict[str, Any], message: str) -> None:
    saved = place(matrix_product()).to_dict() | change
    with pytest.raises(LayoutError, match=message):
        Placement.from_dict(saved)


@pytest.mark.parametrize(
    ("hints", "message"),
    [
        (Hints(positions={"Z": (0.0, 0.0)}), r"Hints.positions names 'Z', .* choose from: A, B."),
        (Hints(legs={"j": Side.UP}), r"Hints.legs names 'j', .* choose from: i, k."),
        (Hints(label_sides={"z": Side.UP}), r"Hints.label_sides names 'z', .* from: i, j, k."),
        (Hints(positions={"A": (0.0, math.nan)}), r"\['A'\] must be finite, got \(0.0, nan\)"),
    ],
)
def test_hints_about_what_is_not_there_are_refused(hints: Hints, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        place(matrix_product(), hints)


def test_a_placement_without_a_tensor_or_a_tip_is_refused() -> None:
    placement = place(matrix_product())
    with pytest.raises(LayoutError, match=re.escape("no position for node 'B' of diagram")):
        render(matrix_product(), replace(placement, nodes={"A": (0.0, 0.0)}))
    with pytest.raises(LayoutError, match=r"open leg 'k' of diagram 'matrix-product'; it has: i."):
        render(matrix_product(), replace(placement, tips={"i": (0.0, 0.0)}))


def test_a_dot_without_a_position_stands_at_the_mean_of_what_it_joins() -> None:
    diagram = cp(order=3)
    placement = replace(place(diagram), dots={})
    dot = render(diagram, placement).marks[0]
    xs = [x * 96 for x, _ in placement.nodes.values()]
    assert dot.x == pytest.approx(sum(xs) / 3)


def test_moving_and_rounding_keep_everything_else() -> None:
    placement = Placement(
        {"A": (0.12345, -0.00001)},
        {("r", None): (1.0, 2.0)},
        {"i": (3.0, 4.0)},
        ("b",),
        ("r",),
        {"r": Side.UP},
    )
    moved = placement.shifted(1.0, 0.5).rounded()
    assert moved.nodes == {"A": (1.123, 0.5)}
    assert moved.dots == {("r", None): (2.0, 2.5)}
    assert moved.tips == {"i": (4.0, 4.5)}
    assert (moved.plates, moved.straight, moved.label_sides) == (("b",), ("r",), {"r": Side.UP})
    assert str(placement.rounded().nodes["A"][1]) == "0.0"
