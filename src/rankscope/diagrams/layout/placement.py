"""Where everything stands, as plain data: the result of placing, and the input of rendering.

Positions are in grid units (96 px), y pointing down. A placement holds no wires: those are
routed from the positions every time, so that a moved tensor takes its wires along.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.pictures.scene import Point
from rankscope.errors import LayoutError

VERSION = 1
KEYS = ("version", "nodes", "dots", "tips", "plates", "straight", "label_sides")


class Side(StrEnum):
    """Where a leg points, or on which side of its wire a label stands."""

    LEFT = "left"
    RIGHT = "right"
    UP = "up"
    DOWN = "down"

    @property
    def vector(self) -> Point:
        """Unit step in that direction."""
        return VECTORS[self]

    @property
    def is_vertical(self) -> bool:
        """Whether it points up or down."""
        return self in (Side.UP, Side.DOWN)


VECTORS: dict[Side, Point] = {
    Side.LEFT: (-1.0, 0.0),
    Side.RIGHT: (1.0, 0.0),
    Side.UP: (0.0, -1.0),
    Side.DOWN: (0.0, 1.0),
}


@dataclass(frozen=True)
class Hints:
    """Wishes that the layout must honour.

    Args:
        positions: where nodes and convolutions stand, by name; the rest is placed around them.
        legs: which way open legs point, by index name.
        label_sides: on which side of its wire an index is written.
    """

    positions: Mapping[str, Point] = field(default_factory=dict)
    legs: Mapping[str, Side] = field(default_factory=dict)
    label_sides: Mapping[str, Side] = field(default_factory=dict)

    def check(self, diagram: Diagram) -> None:
        """Refuse wishes about things that the diagram does not have.

        Raises:
            LayoutError: naming the first of them.
        """
        holders = [part.name for part in diagram.holders]
        for what, wished, known in (
            ("positions", self.positions, holders),
            ("legs", self.legs, diagram.output),
            ("label_sides", self.label_sides, tuple(diagram.index_by_name)),
        ):
            for name in wished:
                if name not in known:
                    raise LayoutError(
                        f"Hints.{what} names {name!r}, which diagram {diagram.name!r} does not "
                        f"have; choose from: {', '.join(known) or 'none'}."
                    )
        for name, point in self.positions.items():
            if not all(math.isfinite(value) for value in point):
                raise LayoutError(f"Hints.positions[{name!r}] must be finite, got {point}.")


@dataclass(frozen=True)
class View:
    """What to show of a diagram.

    Args:
        show_sizes: write sizes on the wires ("F=768").
        width_by_size: wires of larger indices are thicker, 1.2 + 0.42 log2(size) px, at most 6.
        plate: a batch index of several tensors becomes a dotted frame instead of a wire.
        cut: names of indices to mark as cut.
    """

    show_sizes: bool = False
    width_by_size: bool = False
    plate: bool = True
    cut: tuple[str, ...] = ()


NO_HINTS = Hints()
PLAIN_VIEW = View()


@dataclass(frozen=True)
class Placement:
    """Positions of nodes and convolutions, of dots by (index, region), and of the tips of legs.

    Args:
        nodes: centres by name.
        dots: centres of junctions and of the ends of summed legs; a dot that is not listed
            stands at the mean of what it joins.
        tips: outer ends of open legs, by index.
        plates: indices drawn as a frame around everything.
        straight: indices whose wires run straight instead of along rows and columns.
        label_sides: sides that were asked for.
    """

    nodes: Mapping[str, Point]
    dots: Mapping[tuple[str, str | None], Point] = field(default_factory=dict)
    tips: Mapping[str, Point] = field(default_factory=dict)
    plates: tuple[str, ...] = ()
    straight: tuple[str, ...] = ()
    label_sides: Mapping[str, Side] = field(default_factory=dict)

    def shifted(self, dx: float, dy: float) -> "Placement":
        """Everything moved."""
        return Placement(
            {name: (x + dx, y + dy) for name, (x, y) in self.nodes.items()},
            {key: (x + dx, y + dy) for key, (x, y) in self.dots.items()},
            {name: (x + dx, y + dy) for name, (x, y) in self.tips.items()},
            self.plates,
            self.straight,
            self.label_sides,
        )

    def rounded(self) -> "Placement":
        """Positions to a thousandth of a unit: a tenth of a pixel, and short in a file."""

        def short(point: Point) -> Point:
            # Adding zero turns -0.0 into 0.0.
            return (round(point[0], 3) + 0.0, round(point[1], 3) + 0.0)

        return Placement(
            {name: short(point) for name, point in self.nodes.items()},
            {key: short(point) for key, point in self.dots.items()},
            {name: short(point) for name, point in self.tips.items()},
            self.plates,
            self.straight,
            self.label_sides,
        )

    def to_dict(self) -> dict[str, Any]:
        """The placement in types that JSON knows."""
        return {
            "version": VERSION,
            "nodes": {name: list(point) for name, point in self.nodes.items()},
            "dots": [
                {"index": index, "region": region, "at": list(point)}
                for (index, region), point in self.dots.items()
            ],
            "tips": {name: list(point) for name, point in self.tips.items()},
            "plates": list(self.plates),
            "straight": list(self.straight),
            "label_sides": {name: side.value for name, side in self.label_sides.items()},
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Placement":
        """Read what `to_dict` wrote.

        Raises:
            LayoutError: if it is not that; the message says where.
        """
        if saved.get("version") != VERSION:
            raise LayoutError(
                f"A saved placement must have version {VERSION}, got {saved.get('version')!r}."
            )
        unknown = [key for key in saved if key not in KEYS]
        if unknown:
            raise LayoutError(
                f"A saved placement has the keys {', '.join(KEYS)}; got also {unknown[0]!r}."
            )
        try:
            return cls(
                {name: _point(name, point) for name, point in saved["nodes"].items()},
                {
                    (dot["index"], dot["region"]): _point(dot["index"], dot["at"])
                    for dot in saved["dots"]
                },
                {name: _point(name, point) for name, point in saved["tips"].items()},
                tuple(saved["plates"]),
                tuple(saved["straight"]),
                {name: Side(side) for name, side in saved["label_sides"].items()},
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, LayoutError):
                raise
            raise LayoutError(f"A saved placement cannot be read: {error!r}.") from error


def _point(name: str, value: Any) -> Point:
    x, y = value
    if not all(isinstance(v, int | float) and math.isfinite(v) for v in (x, y)):
        raise LayoutError(f"The saved position of {name!r} must be two numbers, got {value!r}.")
    return (float(x), float(y))
