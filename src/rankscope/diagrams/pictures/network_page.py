r"""A network as a page of a textbook: one line per step, "name = picture", repeats in a frame.

Equals signs are aligned. A frame with "× 12" shows the first of twelve equal blocks; the note in
its lower corner says which value takes the place of which in the next round.
"""

from collections.abc import Callable
from dataclasses import replace

from rankscope.diagrams.layout.wording import node_text
from rankscope.diagrams.network import Body, Network, Step, nodes_of
from rankscope.diagrams.parts import Role
from rankscope.diagrams.pictures.arrangement import SIGN_GAP, below, columns, named, sign
from rankscope.diagrams.pictures.mathtext import place_label
from rankscope.diagrams.pictures.scene import Scene, Shape, ShapeKind
from rankscope.diagrams.pictures.step_labels import step_tex, with_step_labels
from rankscope.diagrams.repeats import Block, collapse

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
        parts.append(_framed(block, columns(lines)))
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
    return line.joined([_note(step.name, line)])


def _note(text: str, line: Scene) -> Scene:
    """The name of the array that a step makes, small, above its symbol."""
    name = line.labels[0]
    place = (name.box[2], name.box[1] - NOTE_GAP)
    # As text, not as mathematics, where a full stop has a space behind it.
    plain = text.replace("$", r"\$")
    words = place_label(plain, place, size=NOTE_SIZE, style="muted", anchor="rb")
    return Scene("note", labels=(words,))


def _framed(block: Block, content: Scene) -> Scene:
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
