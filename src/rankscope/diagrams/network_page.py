r"""A network as a page of a textbook: one line per step, "name = picture", repeats in a frame.

Equals signs are aligned. A frame with "× 12" shows the first of twelve equal blocks; the note in
its lower corner says which value takes the place of which in the next round.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from rankscope.diagrams.arrangement import SIGN_GAP, axis, below, columns, named, sign
from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.layout.wording import node_text, plain_tex
from rankscope.diagrams.mathtext import place_label
from rankscope.diagrams.network import Body, Network, Step, nodes_of
from rankscope.diagrams.parts import Node, Role
from rankscope.diagrams.repeats import Block, collapse
from rankscope.diagrams.scene import Scene, Shape, ShapeKind

DrawBody = Callable[[Body], Scene]

# Pixels.
NAME_SIZE, NOTE_SIZE, COUNT_SIZE = 25.0, 16.0, 22.0
FRAME_PADDING, NOTE_GAP = 26.0, 16.0


def network_page(network: Network, draw: DrawBody) -> Scene:
    """Lay out a network; `draw` lays out the body of a step."""
    labels: dict[str, str] = {}
    parts: list[Scene] = []
    loose: list[Scene] = []
    for block in collapse(network):
        lines = []
        for step in block.steps:
            lines.append(_line(step, labels, draw))
            labels[step.name] = step_tex(step)
        if block.count == 1:
            loose += lines
            continue
        parts += [columns(loose)] if loose else []
        parts.append(_framed(block, columns(lines), labels))
        loose = []
        # What comes after reads the last block; the picture shows the first.
        for last, first in zip(block.repetitions[-1], block.steps, strict=True):
            labels[last.name] = labels[first.name]
    parts += [columns(loose)] if loose else []
    return below(parts)


def step_tex(step: Step) -> str:
    """The symbol of the array that a step makes, TeX without dollars."""
    return step.label or plain_tex(step.name, face="mathbf")


def _line(step: Step, labels: Mapping[str, str], draw: DrawBody) -> Scene:
    """The equals sign ends at x = 0, with the picture right of it and the name left."""
    picture = named(draw(_relabelled(step.body, labels)), step.name)
    middle = axis(picture)
    equals = sign("=").shifted(0.0, middle)
    equals = equals.shifted(-equals.box[2], 0.0)
    name = place_label(
        f"${step_tex(step)}$",
        (equals.box[0] - SIGN_GAP / 2, middle),
        size=NAME_SIZE,
        style="caption",
        anchor="rc",
    )
    line = Scene("line", labels=(name,)).joined(
        [equals, picture.shifted(SIGN_GAP - picture.box[0], 0.0)]
    )
    if step.label is None:
        return line
    return line.joined([_note(step.name, line)])


def _note(text: str, line: Scene) -> Scene:
    """The name of the array that a step makes, small, above its symbol."""
    name = line.labels[0]
    place = (name.box[2], name.box[1] - NOTE_GAP)
    # As text, not as mathematics, where a full stop has a space behind it.
    plain = text.replace("$", r"\$")
    words = place_label(plain, place, size=NOTE_SIZE, style="muted", anchor="rb")
    return Scene("note", labels=(words,))


def _relabelled(body: Body, labels: Mapping[str, str]) -> Body:
    """Nodes that read a step carry its symbol, so that lines refer to each other."""

    def node(found: Node) -> Node:
        if found.role is Role.DATA and found.source in labels:
            return replace(found, label=labels[found.source])
        return found

    def diagram(found: Diagram) -> Diagram:
        return replace(found, nodes=tuple(map(node, found.nodes)))

    if isinstance(body, Diagram):
        return diagram(body)
    return replace(body, terms=tuple(replace(t, diagram=diagram(t.diagram)) for t in body.terms))


def _framed(block: Block, content: Scene, labels: Mapping[str, str]) -> Scene:
    left, _, right, bottom = content.box
    base = bottom + FRAME_PADDING
    count = place_label(
        rf"$\times\,{block.count}$", (right, base), size=COUNT_SIZE, style="on-plate", anchor="rt"
    )
    written = [count]
    if block.carried:
        note = _carry_note(block, labels)
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


def _carry_note(block: Block, labels: Mapping[str, str]) -> str:
    """Which value takes the place of which in the next round."""
    read = {
        node.source: labels.get(node.source) or node_text(node)[1:-1]
        for step in block.steps
        for node in nodes_of(step.body)
        if node.role is Role.DATA
    }
    pairs = (rf"${labels[made]}\,\to\,{read[entry]}$" for made, entry in block.carried)
    return f"next round: {',  '.join(pairs)}"
