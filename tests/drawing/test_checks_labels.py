from dataclasses import replace

from rankscope.drawing import (
    Label,
    Picture,
    Scene,
    Shape,
    ShapeKind,
    Wire,
    check_labels,
    place_label,
)


def free(text: str, x: float, y: float) -> Label:
    return place_label(text, (x, y), size=20.0, style="wire-rank")


def circle(name: str, x: float, y: float) -> Shape:
    return Shape(name, ShapeKind.CIRCLE, x, y, 54.0, 54.0, "parameter")


def found(**layers: object) -> list[str]:
    return list(check_labels(Picture(replace(Scene("s"), **layers))))  # type: ignore[arg-type]


def test_a_label_over_a_tensor_is_reported() -> None:
    label = free("$R$", 20.0, 0.0)
    assert found(shapes=(circle("A", 0.0, 0.0),), labels=(label,)) == [
        "Label '$R$' lies over tensor 'A'."
    ]


def test_a_label_in_the_empty_corner_beside_a_circle_is_fine() -> None:
    """Its box meets the box of the circle, but not the circle."""
    label = free("$R$", 27.0, 27.0)
    assert found(shapes=(circle("A", 0.0, 0.0),), labels=(label,)) == []


def test_a_label_over_a_mark_is_reported_but_not_over_a_cut() -> None:
    mark = Shape("dot", ShapeKind.DOT, 0.0, 0.0, 11.0, 11.0, "junction-rank")
    label = free("$R$", 2.0, 0.0)
    assert found(marks=(mark,), labels=(label,)) == ["Label '$R$' lies over mark 'dot'."]
    assert found(marks=(replace(mark, style="cut"),), labels=(label,)) == []


def test_a_label_over_a_label_is_reported_once() -> None:
    labels = (free("$R$", 0.0, 0.0), free("$S$", 5.0, 5.0), free("$T$", 300.0, 0.0))
    assert found(labels=labels) == ["Label '$R$' lies over label '$S$'."]


def test_a_label_over_a_wire_is_reported() -> None:
    label = free("$R$", 50.0, 0.0)
    wire = Wire("i", ((0.0, 4.0), (100.0, 4.0)), "wire-rank")
    assert found(wires=(wire,), labels=(label,)) == ["Label '$R$' lies over wire 'i'."]


def test_a_wire_is_as_wide_as_it_is_drawn() -> None:
    label = free("$R$", 50.0, 0.0)
    wire = Wire("i", ((0.0, label.box[3] + 2.0), (100.0, label.box[3] + 2.0)), "wire-rank")
    assert found(wires=(replace(wire, width=2.4),), labels=(label,)) == []
    assert len(found(wires=(replace(wire, width=6.0),), labels=(label,))) == 1
    # A wide wire elsewhere does not make this one wider.
    wide = Wire("j", ((0.0, 500.0), (100.0, 500.0)), "wire-rank", width=12.0)
    assert found(wires=(wire, wide), labels=(label,)) == []


def test_the_rounded_corner_of_a_wire_is_where_it_is_drawn() -> None:
    """The label covers the corner point, which the rounding cuts off."""
    wire = Wire("i", ((-90.0, 0.0), (0.0, 0.0), (0.0, 90.0)), "wire-rank", corner_radius=60.0)
    label = free("$R$", 0.0, 0.0)
    assert found(wires=(wire,), labels=(label,)) == []
    assert len(found(wires=(replace(wire, corner_radius=0.0),), labels=(label,))) == 1


def test_a_label_over_the_border_of_a_frame_is_reported() -> None:
    frame = Shape("A", ShapeKind.FRAME, 0.0, 0.0, 200.0, 100.0, "barrier")
    on_border, inside = free("$R$", 100.0, 0.0), free("$R$", 50.0, 0.0)
    assert found(frames=(frame,), labels=(on_border,)) == [
        "Label '$R$' lies over the border of barrier 'A'."
    ]
    assert found(frames=(frame,), labels=(inside,)) == []


def test_a_label_on_a_plate_may_not_lie_on_its_border() -> None:
    frame = Shape("B", ShapeKind.FRAME, 0.0, 0.0, 200.0, 100.0, "plate")
    label = place_label(r"$\times B$", (90.0, 45.0), size=17.0, style="on-plate")
    assert found(frames=(frame,), labels=(label,)) == [
        r"Label '$\\times B$' lies over the border of plate 'B'."
    ]


def test_a_label_must_fit_in_its_tensor() -> None:
    tensor = circle("A", 0.0, 0.0)
    short = place_label(r"$\mathcal{W}^{Q}$", (0.0, 0.0), size=25.0, style="on-parameter")
    long = place_label(r"$\mathrm{weight}$", (0.0, 0.0), size=25.0, style="on-parameter")
    assert found(shapes=(tensor,), labels=(short,)) == []
    width, height = long.box[2] - long.box[0], long.box[3] - long.box[1]
    size = f"{width:.0f} x {height:.0f} px"
    assert found(shapes=(tensor,), labels=(long,)) == [
        rf"Label '$\\mathrm{{weight}}$', {size}, does not fit in tensor 'A', 54 x 54 px."
    ]


def test_ink_counts_and_not_the_empty_corners_of_its_box() -> None:
    """A slash fills only two corners of its box; turned the other way, it still fits."""
    tensor = Shape("A", ShapeKind.DIAMOND, 0.0, 0.0, 60.0, 60.0, "parameter")
    label = place_label("$+$", (0.0, 0.0), size=60.0, style="on-parameter")
    corner = (label.box[0], label.box[1])
    assert not tensor.covers(corner)
    assert found(shapes=(tensor,), labels=(label,)) == []


def test_a_label_without_a_tensor_around_it_is_reported() -> None:
    label = place_label("$X$", (0.0, 0.0), size=25.0, style="on-data")
    assert found(labels=(label,)) == ["Label '$X$' of style 'on-data' sits in no tensor."]


def test_a_label_on_a_tag_must_fit_in_it() -> None:
    label = place_label("$\\mathrm{softmax}$", (0.0, 0.0), size=17.0, style="on-tag")
    tag = Shape("tag", ShapeKind.PILL, 0.0, 0.0, 40.0, 30.0, "tag")
    width, height = label.box[2] - label.box[0], label.box[3] - label.box[1]
    size = f"{width:.0f} x {height:.0f} px"
    assert found(marks=(tag,), labels=(label,)) == [
        rf"Label '$\\mathrm{{softmax}}$', {size}, does not fit in tag 'tag', 40 x 30 px."
    ]
    assert found(marks=(replace(tag, width=90.0),), labels=(label,)) == []
    assert found(labels=(label,)) == [
        r"Label '$\\mathrm{softmax}$' of style 'on-tag' sits in no tag."
    ]


def test_a_box_that_is_not_where_the_ink_is_is_reported() -> None:
    label = free("$R$", 0.0, 0.0)
    left, top, right, bottom = label.box
    moved = replace(label, box=(left + 40, top, right + 40, bottom))
    said = ", ".join(f"{edge:.0f}" for edge in moved.box)
    is_at = ", ".join(f"{edge:.0f}" for edge in label.box)
    assert found(labels=(moved,)) == [
        f"Label '$R$' says that its ink is at ({said}), but it is at ({is_at})."
    ]
