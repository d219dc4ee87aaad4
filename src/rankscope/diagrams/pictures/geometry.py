"""What is wrong with a picture, in words: overlaps, stray wires, ragged tips.

A layout is good when `lint` finds nothing; between two good ones, fewer `crossings` win.
"""

import math
from collections.abc import Iterator

from rankscope.diagrams.pictures.checks.labels import check_labels
from rankscope.diagrams.pictures.checks.picture import Picture
from rankscope.diagrams.pictures.checks.shapes import check_shapes, check_view
from rankscope.diagrams.pictures.checks.tips import check_tips
from rankscope.diagrams.pictures.checks.wires import check_wires, count_crossings
from rankscope.diagrams.pictures.scene import Scene


def lint(scene: Scene) -> tuple[str, ...]:
    """Everything that is wrong with a picture, one sentence each; empty when it is fine.

    A label beside a wire, on a plate or in the open may touch nothing; one on a tensor or a tag
    must fit inside it. A wire may touch only tensors and marks that its `ends` name, may not run
    along another index, and crosses a barrier at most once (all wires of an index together).
    Tensors and marks may not lie over each other, nor tensors over the border of a frame. Open
    ends that point left (right) out of one connected picture, nearer than 60 px, share one x.
    Cuts may lie over anything.

    Example:
        >>> from rankscope.diagrams.pictures.scene import Shape, ShapeKind, Wire
        >>> lint(
        ...     Scene(
        ...         "stray",
        ...         shapes=(Shape("A", ShapeKind.CIRCLE, 0.0, 0.0, 54.0, 54.0, "data"),),
        ...         wires=(Wire("i", ((-80.0, 0.0), (80.0, 0.0)), "wire-rank"),),
        ...     )
        ... )
        ("Wire 'i' runs through tensor 'A', where it does not end.",)
    """
    nowhere = tuple(_nowhere(scene))
    if nowhere:
        return nowhere
    picture = Picture(scene)
    checks = (check_labels, check_shapes, check_wires, check_tips, check_view)
    return tuple(message for check in checks for message in check(picture))


def crossings(scene: Scene) -> int:
    """How often wires cross each other in the open; ends that meet do not count.

    Example:
        >>> from rankscope.diagrams.pictures.scene import Wire
        >>> across = Wire("i", ((-9.0, 0.0), (9.0, 0.0)), "wire-rank")
        >>> down = Wire("j", ((0.0, -9.0), (0.0, 9.0)), "wire-rank")
        >>> crossings(Scene("cross", wires=(across, down)))
        1
    """
    return count_crossings(Picture(scene))


def _nowhere(scene: Scene) -> Iterator[str]:
    """Things whose place or size is not a number: nothing else can be said about them."""
    shapes = [*scene.frames, *scene.shapes, *scene.marks]
    places: list[tuple[str, tuple[float, ...]]] = []
    places += [(f"Shape {shape.name!r}", (*shape.box, shape.angle)) for shape in shapes]
    places += [
        (f"Wire {wire.name!r}", (*(value for point in wire.points for value in point), wire.width))
        for wire in scene.wires
    ]
    places += [
        (f"Label {label.text!r}", (label.x, label.y, label.size, *label.box))
        for label in scene.labels
    ]
    for what, values in places:
        if not all(map(math.isfinite, values)):
            yield f"{what} has a place or a size that is not finite: {values}."
