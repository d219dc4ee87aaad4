"""Labels: free ones touch nothing, those on a tensor or a tag fit inside it."""

import math
from collections.abc import Iterator

from rankscope.diagrams.pictures.checks.picture import HOSTED, SLACK, Picture, comes_near
from rankscope.diagrams.pictures.mathtext import outline
from rankscope.diagrams.pictures.polygons import box_corners, boxes_gap, flatten, gap, near_pairs
from rankscope.diagrams.pictures.scene import Label, Shape


def check_labels(picture: Picture) -> Iterator[str]:
    """What is wrong with the labels of a picture."""
    yield from _over_shapes(picture)
    yield from _over_labels(picture)
    yield from _over_lines(picture)
    for label in picture.scene.labels:
        yield from _false_box(label)
        if label.style in HOSTED:
            yield from _outside_host(label, picture.scene.shapes, "tensor")
        elif label.style == "on-tag":
            yield from _outside_host(label, picture.scene.marks, "tag")


def _free(picture: Picture) -> list[Label]:
    return [label for label in picture.scene.labels if label.style not in (*HOSTED, "on-tag")]


def _over_shapes(picture: Picture) -> Iterator[str]:
    labels = _free(picture)
    boxes = [label.box for label in labels]
    for place, other in near_pairs(boxes, [solid.box for solid in picture.solids]):
        if gap(box_corners(boxes[place]), picture.solids[other].points) < -SLACK:
            yield f"Label {labels[place].text!r} lies over {picture.solids[other]}."


def _over_labels(picture: Picture) -> Iterator[str]:
    labels = picture.scene.labels
    boxes = [label.box for label in labels]
    for first, second in near_pairs(boxes, boxes):
        if first < second and boxes_gap(boxes[first], boxes[second]) < -SLACK:
            yield f"Label {labels[first].text!r} lies over label {labels[second].text!r}."


def _over_lines(picture: Picture) -> Iterator[str]:
    labels = _free(picture)
    boxes = [label.box for label in labels]
    lines = [*picture.lines, *picture.borders]
    reaches = [wire.width / 2 for wire in picture.wires] + [1.0] * len(picture.borders)
    widest = max(reaches, default=0.0)
    for place, other in near_pairs(boxes, [line.box for line in lines], reach=widest):
        corners = box_corners(boxes[place])
        if comes_near(lines[other].points, corners, reaches[other] - SLACK):
            yield f"Label {labels[place].text!r} lies over {lines[other]}."


def _outside_host(label: Label, shapes: tuple[Shape, ...], what: str) -> Iterator[str]:
    left, top, right, bottom = label.box
    middle = ((left + right) / 2, (top + bottom) / 2)
    hosts = [shape for shape in shapes if shape.covers(middle)]
    if not hosts:
        yield f"Label {label.text!r} of style {label.style!r} sits in no {what}."
        return
    host = min(hosts, key=lambda shape: math.dist(middle, (shape.x, shape.y)))
    if all(host.covers(corner) for corner in box_corners(label.box)):
        return
    # The ink itself, not its box: the corners of the box are empty, and so are those of a circle.
    ink = flatten(outline(label.text, label.size).commands, steps=2)
    if not all(host.covers((label.x + x, label.y + y)) for x, y in ink):
        yield (
            f"Label {label.text!r}, {right - left:.0f} x {bottom - top:.0f} px, does not fit in "
            f"{what} {host.name!r}, {host.width:.0f} x {host.height:.0f} px."
        )


def _false_box(label: Label) -> Iterator[str]:
    left, top, right, bottom = outline(label.text, label.size).box
    ink = (label.x + left, label.y + top, label.x + right, label.y + bottom)
    if any(abs(said - is_at) > SLACK for said, is_at in zip(label.box, ink, strict=True)):
        said, found = (", ".join(f"{edge:.0f}" for edge in box) for box in (label.box, ink))
        yield f"Label {label.text!r} says that its ink is at ({said}), but it is at ({found})."
