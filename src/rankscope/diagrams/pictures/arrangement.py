"""Whole pictures beside and below each other."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rankscope.diagrams.pictures.mathtext import place_label
from rankscope.diagrams.pictures.scene import Label, Scene, Shape, Wire

# Pixels.
SIGN_SIZE = 30.0
SIGN_GAP, LINE_GAP, COLUMN_GAP = 38.0, 46.0, 64.0
# A page is broken into columns while it is this many times taller than wide, and this high.
TALLEST_PAGE, SHORTEST_BREAK = 2.0, 1000.0
MOST_COLUMNS = 6


def axis(scene: Scene) -> float:
    """The height at which signs stand: midway between the highest and the lowest tensor."""
    heights = [shape.y for shape in scene.shapes]
    if heights:
        return (min(heights) + max(heights)) / 2
    return 0.0


def sign(text: str) -> Scene:
    """A mathematical sign (TeX without dollars), its axis at height zero."""
    label = place_label(f"${text}$", (0.0, 0.0), size=SIGN_SIZE, style="caption", anchor="mc")
    if text in ("=", "+", "-"):
        label = place_label(f"${text}$", (0.0, 0.0), size=SIGN_SIZE, style="caption")
    return Scene("sign", labels=(label,))


def beside(parts: Iterable[Scene], gap: float = SIGN_GAP) -> Scene:
    """Pictures from left to right starting at x = 0, their axes on one line at height zero."""
    placed: list[Scene] = []
    right = 0.0
    for part in parts:
        box = part.box
        placed.append(part.shifted(right - box[0], -axis(part)))
        right += box[2] - box[0] + gap
    return Scene("line").joined(placed)


def below(parts: Iterable[Scene], gap: float = LINE_GAP) -> Scene:
    """Pictures from top to bottom starting at y = 0; left and right stay where they are."""
    placed: list[Scene] = []
    bottom = 0.0
    for part in parts:
        box = part.box
        placed.append(part.shifted(0.0, bottom - box[1]))
        bottom += box[3] - box[1] + gap
    return Scene("stack").joined(placed)


def columns(
    lines: Sequence[Scene], gap: float = LINE_GAP, *, tallest: float = TALLEST_PAGE
) -> Scene:
    """Lines from top to bottom, in as many columns as make a page of good proportions."""
    for count in range(1, min(MOST_COLUMNS, len(lines)) + 1):
        page = _in_columns([below(group, gap) for group in _shared_out(lines, count, gap)])
        left, top, right, bottom = page.box
        if bottom - top <= max(SHORTEST_BREAK, tallest * (right - left)):
            break
    return page


def _shared_out(lines: Sequence[Scene], count: int, gap: float) -> list[list[Scene]]:
    """Consecutive groups of lines, each filled up to its share of the whole height."""
    heights = [line.box[3] - line.box[1] + gap for line in lines]
    share = sum(heights) / count
    groups: list[list[Scene]] = [[] for _ in range(count)]
    reached = 0.0
    for line, height in zip(lines, heights, strict=True):
        groups[min(count - 1, int((reached + height / 2) / share))].append(line)
        reached += height
    return [group for group in groups if group]


def _in_columns(stacks: list[Scene]) -> Scene:
    page, *others = stacks
    for stack in others:
        (_, top, right, bottom), left = page.box, stack.box[0]
        middle = right + COLUMN_GAP
        height = (min(top, stack.box[1]), max(bottom, stack.box[3]))
        rule = Wire("rule", ((middle, height[0]), (middle, height[1])), "rule", width=1.0)
        moved = stack.shifted(middle + COLUMN_GAP - left, 0.0)
        page = page.joined([Scene("rule", wires=(rule,)), moved])
    return page


def named(scene: Scene, prefix: str) -> Scene:
    """The same picture, with names that differ from those of other pictures on the page."""

    def shapes(layer: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return tuple(replace(shape, name=f"{prefix}:{shape.name}") for shape in layer)

    def wire(found: Wire) -> Wire:
        ends = tuple(f"{prefix}:{end}" for end in found.ends)
        return replace(found, name=f"{prefix}:{found.name}", ends=ends)

    def label(found: Label) -> Label:
        return replace(found, owner=f"{prefix}:{found.owner}") if found.owner else found

    return replace(
        scene,
        frames=shapes(scene.frames),
        wires=tuple(map(wire, scene.wires)),
        shapes=shapes(scene.shapes),
        marks=shapes(scene.marks),
        labels=tuple(map(label, scene.labels)),
    )
