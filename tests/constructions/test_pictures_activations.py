from pathlib import Path

from rankscope.constructions.dead_units import DeadUnits, LayerUnits
from rankscope.constructions.pictures import SECOND, STYLES, draw_activations, draw_dead_units


def test_each_activation_is_drawn_twice_and_named(tmp_path: Path) -> None:
    text = draw_activations(tmp_path / "activations.svg").read_text("utf-8")
    for colour, _ in STYLES[1:4]:
        # Value, slope and the line in the legend.
        assert text.count(f"stroke: {colour.lower()}; stroke-width: 1.5") == 3


def test_dead_units_are_marked_and_only_they(tmp_path: Path) -> None:
    found = DeadUnits((LayerUnits("first", (0.0, 0.5, 0.0)), LayerUnits("second", (1.0,))), 9)
    text = draw_dead_units(found, tmp_path / "dead.svg").read_text("utf-8")
    marks = [
        line for line in text.splitlines() if "<use" in line and f"fill: {SECOND.lower()}" in line
    ]
    assert len(marks) == 2
