"""A picture that holds every style and every kind of shape, and nothing that lint objects to."""

import pytest

from rankscope.diagrams import IndexKind
from rankscope.drawing import Label, Scene, Shape, ShapeKind, Wire, place_label

ROLES = ("data", "parameter", "core", "constant", "result", "convolution")
KINDS = (ShapeKind.SQUARE, ShapeKind.CIRCLE, ShapeKind.TRIANGLE)


@pytest.fixture
def gallery() -> Scene:
    """Six tensors in a row inside a barrier, a wire of every kind down to a dot of its kind."""
    shapes: list[Shape] = []
    wires: list[Wire] = []
    marks: list[Shape] = []
    labels: list[Label] = []
    for place, role in enumerate(ROLES):
        x, name = 120.0 * place, f"T{place}"
        shapes.append(
            Shape(name, KINDS[place % 3], x, 0.0, 54.0, 54.0, role, f"tensor {name}", angle=0.0)
        )
        text = rf"$\mathbf{{T}}_{{{place}}}$"
        labels.append(place_label(text, (x, 0.0), size=20.0, style=f"on-{role}", anchor="mc"))
        if place:
            ends = (f"T{place - 1}", name)
            wires.append(Wire(f"b{place}", ((x - 120.0, 0.0), (x, 0.0)), "wire-rank", ends=ends))
            label = place_label(
                f"$R_{place}$", (x - 60.0, -8.0), size=20.0, style="wire-rank", anchor="mb"
            )
            labels.append(label)
    for place, kind in enumerate(IndexKind):
        x, name = 100.0 * place, f"dot {kind}"
        end = (x, 260.0)
        points = ((x, 140.0), (x, 200.0), (x + 40.0, 200.0), (x + 40.0, 260.0))
        is_curve = place % 2 == 1
        marks.append(
            Shape(name, ShapeKind.DOT, end[0] + 40.0, end[1], 11.0, 11.0, f"junction-{kind}")
        )
        wires.append(Wire(kind, points, f"wire-{kind}", is_curve=is_curve, ends=(name,)))
        labels.append(
            place_label(f"${kind[0]}'$", (x, 130.0), size=20.0, style=f"wire-{kind}", anchor="mb")
        )
    marks += [
        Shape(
            "m",
            ShapeKind.DIAMOND,
            660.0,
            0.0,
            17.0,
            17.0,
            "normalized",
            "softmax normalizes index m",
        ),
        Shape("n", ShapeKind.CIRCLE, -60.0, 0.0, 9.0, 9.0, "passing", "index n leaves"),
        Shape("tag", ShapeKind.PILL, 40.0, -60.0, 160.0, 30.0, "tag", "softmax"),
        Shape("mark", ShapeKind.PILL, 180.0, 0.0, 4.0, 30.0, "cut"),
    ]
    wires += [
        Wire("n", ((-110.0, 0.0), (0.0, 0.0)), "wire-sequence", ends=("n", "T0")),
        Wire("m", ((600.0, 0.0), (710.0, 0.0)), "wire-sequence", ends=("m", "T5")),
        Wire("cut", ((300.0, -15.0), (300.0, 15.0)), "cut", width=3.6),
        Wire("rule", ((-60.0, 340.0), (660.0, 340.0)), "rule", width=1.0),
    ]
    tag = r"$\mathrm{softmax}_M(\,\cdot\,/\sqrt{D}\,)$"
    labels += [
        place_label(tag, (40.0, -60.0), size=17.0, style="on-tag"),
        place_label(r"$\times B$", (690.0, 300.0), size=17.0, style="on-plate"),
        place_label("Caption <1> & 100%", (0.0, 370.0), size=17.0, style="caption", anchor="lm"),
        place_label(r"$\mathcal{G}_{17}\leq\sqrt[3]{x}$", (300.0, 370.0), size=17.0, style="muted"),
    ]
    frames = (
        Shape("A", ShapeKind.FRAME, 300.0, 0.0, 720.0, 120.0, "barrier", "softmax over m"),
        Shape("B", ShapeKind.FRAME, 310.0, 200.0, 820.0, 240.0, "plate", "repeated for every b"),
        Shape("block", ShapeKind.FRAME, 560.0, 375.0, 120.0, 40.0, "block", "repeated block"),
    )
    return Scene(
        "gallery", "Every style", "A gallery.", frames, tuple(wires), tuple(shapes), tuple(marks),
        tuple(labels),
    )  # fmt: skip
