"""Shapes: none lies over another or on the border of a frame, and nothing is cut off."""

from collections.abc import Iterator

from rankscope.diagrams.pictures.checks.picture import SLACK, Picture, comes_near
from rankscope.diagrams.pictures.paths import view_box
from rankscope.diagrams.pictures.polygons import gap, near_pairs

# Half of the widest outline: ink reaches this far beyond the line it follows.
HALF_STROKE = 1.1


def check_shapes(picture: Picture) -> Iterator[str]:
    """What is wrong with the tensors and marks of a picture."""
    solids = picture.solids
    boxes = [solid.box for solid in solids]
    for first, second in near_pairs(boxes, boxes):
        if first < second and gap(solids[first].points, solids[second].points) < -SLACK:
            yield f"{_begin(solids[first].what)} {solids[first].name!r} lies over {solids[second]}."
    for place, other in near_pairs(
        [tensor.box for tensor in picture.tensors], [border.box for border in picture.borders]
    ):
        tensor, border = picture.tensors[place], picture.borders[other]
        if comes_near(border.points, tensor.points, -SLACK):
            yield f"Tensor {tensor.name!r} lies over {border}."


def check_view(picture: Picture) -> Iterator[str]:
    """Whatever reaches out of the view box."""
    left, top, right, bottom = view_box(picture.scene)
    pieces = [
        *((str(piece), piece.box, HALF_STROKE) for piece in (*picture.solids, *picture.borders)),
        *(
            (str(line), line.box, wire.width / 2)
            for line, wire in zip(picture.lines, picture.wires, strict=True)
        ),
        *((f"label {label.text!r}", label.box, 0.0) for label in picture.scene.labels),
    ]
    for what, box, reach in pieces:
        outside = max(left - box[0], top - box[1], box[2] - right, box[3] - bottom) + reach
        if outside > 0.01:
            yield f"{_begin(what)} reaches {outside:.1f} px out of the view box."


def _begin(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
