"""Pages of several pictures: networks step by step, and calls of modules as boxes.

A leg stands for all axes of an array and says its shape. The box of an opaque operation has a
broken outline, that of a module is double.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from rankscope.diagrams.describing import describe
from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Body, Box, Call, Drawable, Network, Step, Sum, nodes_of
from rankscope.diagrams.parts import Node, Role
from rankscope.diagrams.repeats import Block, collapse
from rankscope.drawing.layout.choosing import lay_out
from rankscope.drawing.layout.placement import NO_HINTS, PLAIN_VIEW, Hints, View
from rankscope.drawing.layout.tensors import (
    DIAMETER,
    index_text,
    node_label,
    node_shape,
    node_text,
    plain_tex,
)
from rankscope.drawing.scene import Label, Scene, Shape, ShapeKind, Wire
from rankscope.drawing.typesetting import place_label, text_width
from rankscope.errors import LayoutError

# Pixels.
NAME_FONT, NOTE_FONT, SHAPE_FONT = 22.0, 14.0, 16.0
LINE, BOX_HEIGHT, BOX_PADDING, LEG_PADDING, LABEL_GAP = 70.0, 58.0, 22.0, 14.0, 7.0
EQUATION_LINE = 24.0
SHORTEST_LEG, RIM = 54.0, 4.0


def call_picture(body: Call | Box, view: View) -> Scene:
    """Lay out a call or the box of a module, its middle at height zero."""
    diagram = body.diagram
    taken = [node for node in diagram.nodes if node.role is not Role.OPERATION]
    rows = max(len(taken), len(diagram.output), 1)
    width, height, name = _box_size(body, rows)
    into = max([SHORTEST_LEG, *(_leg(diagram, node.indices[0], view) for node in taken)])
    left = DIAMETER / 2 + into if taken else 0.0
    shapes, labels, wires = [_box(body, left, width, height)], [name], []
    labels[0] = _shift_label(name, left + width / 2)
    for node, y in zip(taken, _heights(len(taken)), strict=True):
        shape = node_shape(node, (0.0, y), size=DIAMETER)
        shapes.append(shape)
        labels.append(node_label(node, shape, size=DIAMETER))
        wires.append(_wire(node.indices[0], (DIAMETER / 2, left), y, (node.name, body.name)))
        labels.append(_label(diagram, node.indices[0], (DIAMETER / 2 + left) / 2, y, view))
    right = left + width
    for leg, y in zip(diagram.output, _heights(len(diagram.output)), strict=True):
        tip = right + max(SHORTEST_LEG, _leg(diagram, leg, view))
        wires.append(_wire(leg, (right, tip), y, (body.name,)))
        labels.append(_label(diagram, leg, (right + tip) / 2, y, view))
    if isinstance(body, Call) and not body.is_exact:
        labels.append(_note("opaque", left + width / 2, height / 2))
    for place, line in enumerate(body.equations if isinstance(body, Call) else ()):
        labels.append(_note(f"${line}$", left + width / 2, height / 2 + place * EQUATION_LINE))
    if isinstance(body, Box):
        count = len(body.steps)
        labels.append(
            _note(f"{count} step{'' if count == 1 else 's'}", left + width / 2, height / 2)
        )
        inner = shapes[0]
        rim = Shape(
            f"{body.name} inside",
            ShapeKind.SQUARE,
            inner.x,
            inner.y,
            inner.width - 2 * RIM,
            inner.height - 2 * RIM,
            "module",
        )
        shapes.insert(1, rim)
    return Scene(
        body.name,
        title=body.title or body.name,
        wires=tuple(wires),
        shapes=tuple(shapes),
        labels=tuple(labels),
    )


def _heights(count: int) -> list[float]:
    return [LINE * (place - (count - 1) / 2) for place in range(count)]


def _box_size(body: Call | Box, rows: int) -> tuple[float, float, Label]:
    operation = next(node for node in body.diagram.nodes if node.role is Role.OPERATION)
    text = node_text(operation)
    label = place_label(text, (0.0, 0.0), size=NAME_FONT, style=f"on-{_style(body)}", anchor="mc")
    height = max(BOX_HEIGHT, LINE * (rows - 1) + BOX_HEIGHT)
    return text_width(text, NAME_FONT) + 2 * BOX_PADDING, height, label


def _style(body: Call | Box) -> str:
    if isinstance(body, Box):
        return "module"
    return "operation" if body.is_exact else "opaque"


def _box(body: Call | Box, left: float, width: float, height: float) -> Shape:
    what = body.kind if isinstance(body, Call) else f"{body.name}, {body.class_name}"
    return Shape(
        body.name,
        ShapeKind.SQUARE,
        left + width / 2,
        0.0,
        width,
        height,
        _style(body),
        f"{_style(body)} {what}",
    )


def _leg(diagram: Diagram, index: str, view: View) -> float:
    text = index_text(diagram.index_by_name[index], view)
    return text_width(text, SHAPE_FONT) + 2 * LEG_PADDING


def _label(diagram: Diagram, index: str, x: float, y: float, view: View) -> Label:
    text = index_text(diagram.index_by_name[index], view)
    return place_label(text, (x, y - LABEL_GAP), size=SHAPE_FONT, style="wire-generic", anchor="mb")


def _wire(name: str, ends: tuple[float, float], y: float, touched: tuple[str, ...]) -> Wire:
    return Wire(name, ((ends[0], y), (ends[1], y)), "wire-generic", ends=touched)


def _note(text: str, x: float, bottom: float) -> Label:
    return place_label(text, (x, bottom + LABEL_GAP), size=NOTE_FONT, style="muted", anchor="mt")


def _shift_label(label: Label, dx: float) -> Label:
    left, top, right, bottom = label.box
    return Label(
        label.text,
        label.x + dx,
        label.y,
        label.size,
        label.style,
        (left + dx, top, right + dx, bottom),
        label.owner,
    )


# --- Whole pictures beside and below each other ---------------------------------------------------


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

    def wire(old_wire: Wire) -> Wire:
        ends = tuple(f"{prefix}:{end}" for end in old_wire.ends)
        return replace(old_wire, name=f"{prefix}:{old_wire.name}", ends=ends)

    def label(old_wire: Label) -> Label:
        return replace(old_wire, owner=f"{prefix}:{old_wire.owner}") if old_wire.owner else old_wire

    return replace(
        scene,
        frames=shapes(scene.frames),
        wires=tuple(map(wire, scene.wires)),
        shapes=shapes(scene.shapes),
        marks=shapes(scene.marks),
        labels=tuple(map(label, scene.labels)),
    )


# --- Symbols of the values that pass between the steps of a network -------------------------------


def step_tex(step: Step) -> str:
    r"""The symbol of the array that a step makes, TeX without dollars.

    Example:
        >>> from rankscope.diagrams.parts import Index
        >>> body = Diagram("body", (Index("i"),), (Node("A", ("i",)),), ("i",))
        >>> print(step_tex(Step("norm_1", body)))
        \mathbf{norm\_1}
    """
    return step.label or plain_tex(step.name, face="mathbf")


def with_step_labels(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Give every node that reads a step the symbol of that step, so that lines refer to each other.

    Only the first run of a block is changed: it is the one that is shown. What comes after the
    block reads its last run, and gets the symbols of the first.
    """
    labels: dict[str, str] = {}
    labelled = []
    for block in blocks:
        shown = []
        for step in block.steps:
            shown.append(replace(step, body=_relabel(step.body, labels)))
            for place, array in enumerate(step.arrays):
                mark = rf"^{{({place + 1})}}" if place else ""
                labels[array] = step_tex(step) + mark
        for last, first in zip(block.repetitions[-1], block.steps, strict=True):
            labels |= {
                made: labels[shown] for made, shown in zip(last.arrays, first.arrays, strict=True)
            }
        labelled.append(replace(block, repetitions=(tuple(shown), *block.repetitions[1:])))
    return tuple(labelled)


def _relabel(body: Body, labels: Mapping[str, str]) -> Body:
    def node(old_node: Node) -> Node:
        if old_node.role is Role.DATA and old_node.source in labels:
            return replace(old_node, label=labels[old_node.source])
        return old_node

    def diagram(old_node: Diagram) -> Diagram:
        return replace(old_node, nodes=tuple(map(node, old_node.nodes)))

    if isinstance(body, Diagram):
        return diagram(body)
    if isinstance(body, Call | Box):
        return replace(body, diagram=diagram(body.diagram))
    return replace(body, terms=tuple(replace(t, diagram=diagram(t.diagram)) for t in body.terms))


# --- A network as a page of a textbook: one line per step, "name = picture", repeats in a frame


DrawBody = Callable[[Body], Scene]

# Pixels.
NAME_SIZE, NOTE_SIZE, COUNT_SIZE = 25.0, 16.0, 22.0
FRAME_PADDING, NOTE_GAP = 26.0, 16.0


def network_page(network: Network, draw: DrawBody) -> Scene:
    """Lay out a network; `draw` lays out the body of a step around height zero."""
    parts: list[Scene] = []
    loose: list[Scene] = []
    for block in with_step_labels(collapse(network)):
        lines = [_line(step, draw) for step in block.steps]
        if block.count == 1:
            loose += lines
            continue
        parts += [columns(loose)] if loose else []
        parts.append(_frame_block(block, columns(lines)))
        loose = []
    parts += [columns(loose)] if loose else []
    return below(parts)


def _line(step: Step, draw: DrawBody) -> Scene:
    """The equals sign ends at x = 0, with the picture right of it and the name left."""
    picture = named(draw(step.body), step.name)
    equals = sign("=")
    equals = equals.shifted(-equals.box[2], 0.0)
    name = place_label(
        f"${step_tex(step)}$",
        (equals.box[0] - SIGN_GAP / 3, 0.0),
        size=NAME_SIZE,
        style="caption",
        anchor="rc",
    )
    line = Scene("line", labels=(name,)).joined(
        [equals, picture.shifted(0.8 * SIGN_GAP - picture.box[0], 0.0)]
    )
    if step.label is None:
        return line
    return line.joined([_note_network_page(step.name, line)])


def _note_network_page(text: str, line: Scene) -> Scene:
    """The name of the array that a step makes, small, above its symbol."""
    name = line.labels[0]
    place = (name.box[2], name.box[1] - NOTE_GAP)
    # As text, not as mathematics, where a full stop has a space behind it.
    plain = text.replace("$", r"\$")
    words = place_label(plain, place, size=NOTE_SIZE, style="muted", anchor="rb")
    return Scene("note", labels=(words,))


def _frame_block(block: Block, content: Scene) -> Scene:
    left, _, right, bottom = content.box
    base = bottom + FRAME_PADDING
    count = place_label(
        rf"$\times\,{block.count}$", (right, base), size=COUNT_SIZE, style="on-plate", anchor="rt"
    )
    written = [count]
    if block.carried:
        note = _carry_note(block)
        middle = (count.box[1] + count.box[3]) / 2
        written.append(
            place_label(note, (left, middle), size=NOTE_SIZE, style="muted", anchor="lm")
        )
    content = content.joined([Scene("note", labels=tuple(written))])
    left, top, right, bottom = content.box
    frame = Shape(
        f"block {block.steps[0].name}",
        ShapeKind.FRAME,
        (left + right) / 2,
        (top + bottom) / 2,
        right - left + 2 * FRAME_PADDING,
        bottom - top + 2 * FRAME_PADDING,
        "block",
        f"{len(block.steps)} steps, repeated {block.count} times",
    )
    return replace(content, frames=(frame, *content.frames))


def _carry_note(block: Block) -> str:
    """Which value takes the place of which in the next round."""
    read = {
        node.source: node_text(node)[1:-1]
        for step in block.steps
        for node in nodes_of(step.body)
        if node.role is Role.DATA
    }
    made_as = {
        array: step_tex(step) + (rf"^{{({place + 1})}}" if place else "")
        for step in block.steps
        for place, array in enumerate(step.arrays)
    }
    pairs = (
        rf"${made_as[made]}\,\to\,{read[entry]}$" for made, entry in block.carried if entry in read
    )
    return f"next round: {',  '.join(pairs)}"


# --- One picture for anything that can be drawn: a diagram, a sum, an equation, a network ---------


WIDEST_LINE = 1400.0


def compose(drawable: Drawable, hints: Hints = NO_HINTS, view: View = PLAIN_VIEW) -> Scene:
    """Lay out a diagram, a sum or a network as one picture that describes itself in words.

    Raises:
        LayoutError: if hints or a cut, which name parts of one diagram, are given for several.
    """
    if not isinstance(drawable, Diagram):
        _refuse_names(drawable, hints, view)
    match drawable:
        case Network():
            scene = network_page(drawable, lambda body: _body_scene(body, hints, view))
        case Sum():
            scene = _sum_scene(drawable, view)
        case Diagram():
            scene = lay_out(drawable, hints, view)
    return _with_title(scene, drawable)


def _with_title(scene: Scene, drawable: Drawable) -> Scene:
    return replace(
        scene,
        name=drawable.name,
        title=drawable.title or drawable.name,
        description=describe(drawable),
    )


def _refuse_names(drawable: Sum | Network, hints: Hints, view: View) -> None:
    hinted = (*hints.positions, *hints.legs, *hints.label_sides, *view.cut)
    if hinted:
        raise LayoutError(
            f"Hints and cuts name parts of one diagram, but {drawable.name!r} holds several, so "
            f"{hinted[0]!r} could be in any of them. Compose that diagram by itself."
        )


def _body_scene(body: Body, hints: Hints, view: View) -> Scene:
    """A body's picture, its axis at height zero."""
    if isinstance(body, Diagram):
        scene = lay_out(body, hints, view)
        return scene.shifted(0.0, -axis(scene))
    return _sum_scene(body, view) if isinstance(body, Sum) else call_picture(body, view)


def _sum_scene(total: Sum, view: View) -> Scene:
    """Terms with their signs, broken into lines where they would be too wide."""
    lines: list[list[Scene]] = [[]]
    width = 0.0
    for number, term in enumerate(total.terms, start=1):
        picture = named(lay_out(term.diagram, NO_HINTS, view), f"term {number}")
        before = sign_text(term.coefficient, is_first=number == 1)
        parts = [sign(before), picture] if before else [picture]
        wide = sum(part.box[2] - part.box[0] + SIGN_GAP for part in parts)
        if lines[-1] and width + wide > WIDEST_LINE:
            lines.append([])
            width = 0.0
        lines[-1] += parts
        width += wide
    first, *others = [beside(line) for line in lines]
    # The first line keeps its axis, which is where a name and an equals sign would stand.
    return below((first, *others)).shifted(0.0, first.box[1]) if others else first


def sign_text(coefficient: float, *, is_first: bool) -> str:
    r"""What stands before a term of a sum, TeX without dollars.

    Example:
        >>> sign_text(1.0, is_first=True), sign_text(-1.0, is_first=False)
        ('', '-')
        >>> sign_text(-0.5, is_first=True), sign_text(1e-5, is_first=False)
        ('-0.5', '+\\,10^{-5}')
    """
    mark = "-" if coefficient < 0 else "" if is_first else "+"
    size = f"{abs(coefficient):g}"
    if size == "1":
        return mark
    mantissa, _, exponent = size.partition("e")
    if exponent:
        factor = "" if mantissa == "1" else rf"{mantissa}\times "
        size = f"{factor}10^{{{int(exponent)}}}"
    return mark + (r"\," if mark and not is_first else "") + size
