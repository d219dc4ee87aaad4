"""A contraction as an animated GIF: hold a frame, let the tensors of the next move meet."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rankscope.diagrams.contraction import plan_contraction
from rankscope.diagrams.describing import describe
from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Drawable
from rankscope.drawing.checks import crossings, lint
from rankscope.drawing.frames import (
    Frame,
    FrameSequence,
    Planner,
    frame_sequences,
    largest_intermediate,
    short_number,
    total_flops,
    values,
)
from rankscope.drawing.layout.choosing import place
from rankscope.drawing.layout.placement import NO_HINTS, PLAIN_VIEW, Hints, Placement, View, Wiring
from rankscope.drawing.layout.render import render
from rankscope.drawing.page import columns, named
from rankscope.drawing.raster import to_png
from rankscope.drawing.scene import Box, Label, Point, Scene, Shape, Wire, union
from rankscope.drawing.themes import LIGHT, Theme
from rankscope.drawing.typesetting import place_label, plain_text, text_width
from rankscope.errors import MissingExtraError

# --- Between two frames: what merges moves together, and everything else stays --------------------


# How many pieces a wire has while it changes from one form to another.
WIRE_PIECES = 40


def eased(share: float) -> float:
    """Slow at both ends: 3s² - 2s³.

    Example:
        >>> eased(0.0), eased(0.5), eased(1.0)
        (0.0, 0.5, 1.0)
    """
    return share * share * (3.0 - 2.0 * share)


def morph(first: Scene, second: Scene, move: Frame, share: float) -> Scene:
    """The picture at a share (0 to 1) of the way from a frame to the one that `move` leads to."""
    morphing = _Morph(first, second, move, share)
    return replace(
        first,
        frames=tuple(map(morphing.shape, first.frames)),
        wires=tuple(map(morphing.wire, first.wires)),
        shapes=tuple(map(morphing.shape, first.shapes)),
        marks=tuple(map(morphing.shape, first.marks)),
        labels=tuple(moved for label in first.labels if (moved := morphing.label(label))),
    )


class _Morph:
    def __init__(self, first: Scene, second: Scene, move: Frame, share: float) -> None:
        self.renamed = dict.fromkeys(move.merged, move.result)
        self.share = share
        self.before = _shapes(first)
        self.after = _shapes(second)
        self.target = self.after[move.result]
        self.wires: dict[tuple[str, tuple[str, ...]], list[Wire]] = {}
        for wire in second.wires:
            self.wires.setdefault((wire.name, tuple(sorted(wire.ends))), []).append(wire)
        self.labels = {(label.owner, label.style): label for label in second.labels}

    def goal(self, shape: Shape) -> Shape:
        """What a shape of the first picture becomes."""
        goal = self.after.get(shape.name)
        if goal is not None and goal.kind is shape.kind:
            return goal
        # A merging tensor keeps its own form until it has arrived.
        return replace(shape, x=self.target.x, y=self.target.y)

    def shape(self, shape: Shape) -> Shape:
        goal = self.goal(shape)
        return replace(
            shape,
            x=self._between(shape.x, goal.x),
            y=self._between(shape.y, goal.y),
            width=self._between(shape.width, goal.width),
            height=self._between(shape.height, goal.height),
        )

    def wire(self, wire: Wire) -> Wire:
        ends = tuple(sorted(dict.fromkeys(self.renamed.get(end, end) for end in wire.ends)))
        goals = self.wires.get((wire.name, ends), [])
        if wire in goals or len(goals) != 1:
            return wire if wire in goals else self._dragged(wire)
        (goal,) = goals
        points = goal.points
        if math.dist(points[0], wire.points[0]) > math.dist(points[-1], wire.points[0]):
            goal = replace(goal, points=points[::-1])
        if goal.is_curve == wire.is_curve and len(goal.points) == len(wire.points):
            return replace(wire, points=self._points(wire.points, goal.points))
        pairs = (wire.samples(WIRE_PIECES), goal.samples(WIRE_PIECES))
        return replace(wire, points=self._points(*pairs), is_curve=False, corner_radius=0.0)

    def _dragged(self, wire: Wire) -> Wire:
        """Both ends follow what they are fastened to, and the rest is pulled along."""
        first, last = (self._fastened(wire, wire.points[place]) for place in (0, -1))
        ways = [self._way_of(shape) for shape in (first, last)]
        if first and last and self._is_gone(first) and self._is_gone(last):
            goals = [(self.target.x, self.target.y)] * len(wire.points)
            return replace(wire, points=self._points(wire.points, goals))
        pieces = len(wire.points) - 1
        goals = [
            (
                x + ways[0][0] * (1 - place / pieces) + ways[1][0] * place / pieces,
                y + ways[0][1] * (1 - place / pieces) + ways[1][1] * place / pieces,
            )
            for place, (x, y) in enumerate(wire.points)
        ]
        return replace(wire, points=self._points(wire.points, goals))

    def _is_gone(self, shape: Shape) -> bool:
        return shape.name not in self.after or shape.name == self.target.name

    def _fastened(self, wire: Wire, point: Point) -> Shape | None:
        """What an end of a wire is fastened to; None for a tip."""
        ends = [self.before[name] for name in wire.ends if name in self.before]
        near = [shape for shape in ends if shape.covers(point, margin=4.0)]
        return min(near, key=lambda shape: math.dist((shape.x, shape.y), point), default=None)

    def _way_of(self, shape: Shape | None) -> Point:
        if shape is None:
            return (0.0, 0.0)
        goal = self.goal(shape)
        return (goal.x - shape.x, goal.y - shape.y)

    def label(self, label: Label) -> Label | None:
        """Labels go along with what they name; that of a wire that vanishes is gone at once."""
        owner = self.before.get(label.owner)
        goal = self.labels.get((label.owner, label.style))
        if owner is not None and label.style.startswith("on-") and goal is None:
            there = self.goal(owner)
            return _shift(label, *self._way((owner.x, owner.y), (there.x, there.y)))
        if goal is None:
            return label if self.share == 0 else None
        return _shift(label, *self._way((label.x, label.y), (goal.x, goal.y)))

    def _between(self, start: float, end: float) -> float:
        return start + self.share * (end - start)

    def _way(self, start: Point, end: Point) -> Point:
        return (self.share * (end[0] - start[0]), self.share * (end[1] - start[1]))

    def _points(self, starts: Sequence[Point], ends: Sequence[Point]) -> tuple[Point, ...]:
        return tuple(
            (self._between(x0, x1), self._between(y0, y1))
            for (x0, y0), (x1, y1) in zip(starts, ends, strict=True)
        )


def _shapes(scene: Scene) -> Mapping[str, Shape]:
    return {shape.name: shape for shape in (*scene.frames, *scene.marks, *scene.shapes)}


def _shift(label: Label, dx: float, dy: float) -> Label:
    left, top, right, bottom = label.box
    box = (left + dx, top + dy, right + dx, bottom + dy)
    return replace(label, x=label.x + dx, y=label.y + dy, box=box)


# --- Frozen layout: the frames share one placement, so that only what merges moves ----------------


FAULT_PENALTY, CROSSING_PENALTY = 1000.0, 20.0
# Nodes, convolutions and open legs up to which the best place is looked for.
MOST_PARTS = 20
# A wire this near (pixels) to a barrier seems to lie on it.
CLOSE = 14.0


@dataclass(frozen=True)
class DrawnSequence:
    """Pictures of a sequence's frames, in the same coordinates."""

    sequence: FrameSequence
    scenes: tuple[Scene, ...]


def draw_sequence(
    sequence: FrameSequence, hints: Hints = NO_HINTS, view: View = PLAIN_VIEW
) -> DrawnSequence:
    """Place the first frame, then keep everything where it is and let merging tensors meet."""
    start = sequence.frames[0].diagram
    placement = place(start, hints, view)
    scenes = [render(start, placement, view)]
    has_rows = all(index in start.output for index in placement.straight)
    placement = _with_slanted_legs(start, placement)
    for frame in sequence.frames[1:]:
        # A cut names indices of the first frame, which may be gone.
        cut = tuple(index for index in view.cut if index in frame.diagram.index_by_name)
        placement, scene = _best(placement, frame, replace(view, cut=cut), has_rows=has_rows)
        scenes.append(scene)
    return DrawnSequence(sequence, tuple(scenes))


def _best(
    placement: Placement, after: Frame, view: View, *, has_rows: bool
) -> tuple[Placement, Scene]:
    """Where the result stands best; of equally good places, the first."""
    trials: list[tuple[float, Placement, Scene]] = []
    # In a large picture many things are in the way, wherever one looks.
    is_large = len(after.diagram.holders) + len(after.diagram.output) > MOST_PARTS

    def consider(moved: Placement) -> None:
        scene = render(after.diagram, moved, view)
        least = min((penalty for penalty, _, _ in trials), default=math.inf)
        trials.append((0.0 if is_large else _penalty(scene, least), moved, scene))

    for point in _candidates(placement, after, has_rows=has_rows):
        consider(_move_result(placement, after, point))
        if trials[-1][0] == 0 or is_large:
            break
    if min(penalty for penalty, _, _ in trials) >= FAULT_PENALTY and not is_large:
        # Nothing along rows and columns is fine: step aside, with legs that slant.
        slanted = replace(placement, straight=tuple(after.diagram.index_by_name))
        for point in _asides(_mean(placement, after)):
            consider(_move_result(slanted, after, point))
            if trials[-1][0] < FAULT_PENALTY:
                break
    _, moved, scene = min(trials, key=lambda one: one[0])
    return replace(moved, straight=_known_indices(placement.straight, after)), scene


def _mean(placement: Placement, after: Frame) -> Point:
    points = [placement.nodes[name] for name in after.merged]
    return (
        sum(x for x, _ in points) / len(points),
        sum(y for _, y in points) / len(points),
    )


def _candidates(placement: Placement, after: Frame, *, has_rows: bool) -> list[Point]:
    """The mean of the operands, on a row that they come from; then other likely places."""
    points = [placement.nodes[name] for name in after.merged]
    mean = _mean(placement, after)
    if len(points) == 1 or not has_rows:
        return list(dict.fromkeys([mean, *points]))
    # The lowest row holds what is contracted last, where the result will be used.
    rows = sorted({y for _, y in points}, reverse=True)
    # In line with a dot across a barrier the result has a straight wire to it, if all of the
    # index inside the barrier is on the result.
    held = after.diagram.node_by_name[after.result].indices
    region = after.diagram.structure.parent[after.result]
    inside = {dot.index for dot in Wiring(after.diagram).dots if dot.region == region}
    across = [
        x
        for (index, place), (x, _) in placement.dots.items()
        if index in held and place != region and index not in inside
    ]
    in_line = [(x, row) for x in (mean[0], *across) for row in rows]
    return list(dict.fromkeys([*in_line, mean, *points]))


def _asides(point: Point) -> Iterator[Point]:
    """Places around a point, near ones first."""
    x, y = point
    for distance in (0.5, 0.75, 1.0, 1.4):
        for dx, dy in ((-1, -1), (1, -1), (-1, 1), (1, 1), (-1, 0), (1, 0), (0, -1), (0, 1)):
            yield (x + distance * dx, y + distance * dy)


def _penalty(scene: Scene, least: float) -> float:
    """Faults count most, then crossings and wires that hug a barrier, then corners.

    What is not better than `least` anyway is not looked at closely.
    """
    penalty = sum(map(_num_corners, scene.wires)) + CROSSING_PENALTY * _num_running_along(scene)
    if penalty < least:
        penalty += CROSSING_PENALTY * crossings(scene)
    if penalty < least:
        penalty += FAULT_PENALTY * len(lint(scene))
    return penalty


def _num_corners(wire: Wire) -> int:
    """Turns of a wire; a curve is one, and another if it slants."""
    if not wire.is_curve:
        return len(wire.points) - 2
    (x0, y0), (x1, y1) = wire.points[0], wire.points[-1]
    return 2 if abs(x0 - x1) > CLOSE and abs(y0 - y1) > CLOSE else 1


def _num_running_along(scene: Scene) -> int:
    """Wires with a piece that runs close beside the border of a barrier."""
    return sum(
        1
        for wire in scene.wires
        for frame in scene.frames
        if frame.style == "barrier"
        and any(_runs_along(piece, frame) for piece in pairwise(wire.points))
    )


def _runs_along(piece: tuple[Point, Point], frame: Shape) -> bool:
    (x0, y0), (x1, y1) = piece
    left, top, right, bottom = frame.box
    if abs(x0 - x1) < 1 and min(abs(x0 - left), abs(x0 - right)) < CLOSE:
        shared = min(max(y0, y1), bottom) - max(min(y0, y1), top)
    elif abs(y0 - y1) < 1 and min(abs(y0 - top), abs(y0 - bottom)) < CLOSE:
        shared = min(max(x0, x1), right) - max(min(x0, x1), left)
    else:
        return False
    return shared > CLOSE


def _move_result(placement: Placement, after: Frame, point: Point) -> Placement:
    places = {**placement.nodes, after.result: point}
    known = after.diagram.index_by_name
    dots = {(dot.index, dot.region) for dot in Wiring(after.diagram).dots}
    return replace(
        placement,
        nodes={part.name: places[part.name] for part in after.diagram.holders},
        dots={key: where for key, where in placement.dots.items() if key in dots},
        straight=_known_indices(placement.straight, after),
        label_sides={i: side for i, side in placement.label_sides.items() if i in known},
    )


def _known_indices(indices: tuple[str, ...], after: Frame) -> tuple[str, ...]:
    return tuple(index for index in indices if index in after.diagram.index_by_name)


def _with_slanted_legs(diagram: Diagram, placement: Placement) -> Placement:
    """Legs that point up or down fan out when their tensor moves; the others turn a corner."""
    owners = diagram.structure.owners
    upright = [
        index
        for index, (x, _) in placement.tips.items()
        if any(abs(placement.nodes[name][0] - x) < 0.01 for name in owners[index])
    ]
    return replace(placement, straight=tuple(dict.fromkeys((*placement.straight, *upright))))


# --- All frames of a contraction on one page, below each other ------------------------------------


# Pixels.
NUMBER_SIZE, FORMULA_SIZE, COST_SIZE, HEADING_SIZE = 22.0, 21.0, 17.0, 25.0
NUMBER_WIDTH, CAPTION_GAP, PANEL_GAP = 34.0, 36.0, 44.0
HEADING_GAP, SEQUENCE_GAP = 34.0, 70.0
# Height over width from which frames are set in columns.
TALLEST_BOARD, TALLEST_BOOK = 2.4, 1.5


def storyboard(
    drawable: Drawable,
    hints: Hints = NO_HINTS,
    view: View = PLAIN_VIEW,
    *,
    planner: Planner = plan_contraction,
) -> Scene:
    """Draw every step of a contraction: formula on the left, cost on the right, picture below.

    Raises:
        SizeError: if a size is missing, so that there is no best order.
    """
    sequences = frame_sequences(drawable, planner)
    drawn_sequences = [draw_sequence(sequence, hints, view) for sequence in sequences]
    pages = [
        _sequence_scene(drawn, number) for number, drawn in enumerate(drawn_sequences, start=1)
    ]
    scene = pages[0] if len(pages) == 1 else columns(pages, SEQUENCE_GAP, tallest=TALLEST_BOOK)
    return replace(
        scene,
        name=drawable.name,
        title=f"Contraction of {drawable.title or drawable.name}",
        description=f"{describe(drawable)} {describe_steps(sequences)}",
    )


def describe_steps(sequences: Sequence[FrameSequence]) -> str:
    """All steps of a contraction as plain sentences."""
    sentences = []
    for sequence in sequences:
        if sequence.heading:
            sentences.append(f"{plain_text(sequence.heading)}:")
        sentences += [
            f"Step {n}: {plain_caption(f)}" for n, f in enumerate(sequence.frames) if n > 0
        ]
    return " ".join((*sentences, f"In total {totals(sequences)}."))


def plain_caption(frame: Frame) -> str:
    """A frame's formula and cost as one plain sentence."""
    return f"{plain_text(frame.formula)}; {plain_text(frame.cost)}."


def totals(sequences: Sequence[FrameSequence]) -> str:
    """What all sequences cost together."""
    return (
        f"{short_number(total_flops(sequences), unit='FLOP')}, "
        f"largest intermediate {values(largest_intermediate(sequences))}"
    )


def add_caption(scene: Scene, drawn: DrawnSequence, number: int, box: Box) -> Scene:
    """A picture of frame `number` under its caption: number and formula left, cost right."""
    left, top, right, _ = box
    base = top - CAPTION_GAP
    frame = drawn.sequence.frames[number]
    written = [
        (f"${number}$", (left, base), NUMBER_SIZE, "muted", "lc"),
        (frame.formula, (left + NUMBER_WIDTH, base), FORMULA_SIZE, "caption", "lc"),
    ]
    if frame.cost:
        written.append((frame.cost, (right, base), COST_SIZE, "muted", "rc"))
    labels = tuple(
        place_label(text, place, size=size, style=style, anchor=anchor)
        for text, place, size, style, anchor in written
    )
    return replace(scene, labels=(*scene.labels, *labels))


def add_heading(scene: Scene, heading: str) -> Scene:
    """A picture under the heading of its sequence, if that has one."""
    if not heading:
        return scene
    place = (scene.box[0], scene.box[1] - HEADING_GAP)
    label = place_label(heading, place, size=HEADING_SIZE, style="caption", anchor="lb")
    return replace(scene, labels=(*scene.labels, label))


def panel_box(drawn: DrawnSequence) -> Box:
    """The box of all pictures of a sequence, wide enough for all captions."""
    left, top, right, bottom = union(scene.box for scene in drawn.scenes)
    wide = max(
        NUMBER_WIDTH
        + text_width(frame.formula, FORMULA_SIZE)
        + (2 * CAPTION_GAP + text_width(frame.cost, COST_SIZE) if frame.cost else 0.0)
        for frame in drawn.sequence.frames
    )
    missing = max(0.0, wide - (right - left)) / 2
    return (left - missing, top, right + missing, bottom)


def of_one_size(groups: Sequence[Sequence[Scene]]) -> list[list[Scene]]:
    """Pictures that show the same part of the plane within a group, and the same size in all."""
    boxes = [union(scene.box for scene in group) for group in groups]
    width = max(right - left for left, _, right, _ in boxes)
    height = max(bottom - top for _, top, _, bottom in boxes)
    resized = []
    for group, (left, top, right, bottom) in zip(groups, boxes, strict=True):
        dx, dy = (width - (right - left)) / 2, (height - (bottom - top)) / 2
        canvas = (left - dx, top - dy, right + dx, bottom + dy)
        resized.append([replace(scene, canvas=canvas) for scene in group])
    return resized


def _sequence_scene(drawn: DrawnSequence, sequence_number: int) -> Scene:
    left, _, right, _ = panel_box(drawn)
    panels = []
    for number, picture in enumerate(drawn.scenes):
        box = (left, picture.box[1], right, picture.box[3])
        panel = add_caption(picture, drawn, number, box)
        panels.append(named(panel, f"{sequence_number}.{number}"))
    page = add_heading(columns(panels, PANEL_GAP, tallest=TALLEST_BOARD), drawn.sequence.heading)
    return page.shifted(-page.box[0], 0.0)


# Milliseconds.
HOLD, LAST_HOLD = 1100, 2600
MOVE_STEPS, MOVE_STEP = 8, 50
COLORS = 128

Shot = tuple[Scene, int]


def to_gif(
    drawable: Drawable,
    *,
    theme: Theme = LIGHT,
    view: View = PLAIN_VIEW,
    hints: Hints = NO_HINTS,
    planner: Planner = plan_contraction,
    scale: float = 1.0,
) -> bytes:
    """Animate a contraction; the same input gives the same bytes.

    Raises:
        SizeError: if a size is missing, so that there is no best order.
        MissingExtraError: if Pillow or matplotlib is not installed.
    """
    drawn_sequences = [
        draw_sequence(sequence, hints, view) for sequence in frame_sequences(drawable, planner)
    ]
    return encode_gif(shots(drawn_sequences), theme, scale=scale)


def shots(drawn_sequences: Sequence[DrawnSequence]) -> list[Shot]:
    """Pictures of one size, and how many milliseconds each is shown."""
    sequences = [list(_sequence_shots(drawn)) for drawn in drawn_sequences]
    scenes = of_one_size([[scene for scene, _ in sequence] for sequence in sequences])
    times = [milliseconds for sequence in sequences for _, milliseconds in sequence]
    times[-1] = LAST_HOLD
    return list(zip((scene for group in scenes for scene in group), times, strict=True))


def _sequence_shots(drawn: DrawnSequence) -> Iterator[Shot]:
    box, heading = panel_box(drawn), drawn.sequence.heading
    for number, (frame, scene) in enumerate(zip(drawn.sequence.frames, drawn.scenes, strict=True)):
        if len(frame.merged) > 1:
            before = drawn.scenes[number - 1]
            for step in range(1, MOVE_STEPS + 1):
                moving = morph(before, scene, frame, eased(step / (MOVE_STEPS + 1)))
                yield add_heading(add_caption(moving, drawn, number, box), heading), MOVE_STEP
        yield add_heading(add_caption(scene, drawn, number, box), heading), HOLD


def encode_gif(shots: Sequence[Shot], theme: Theme, *, scale: float) -> bytes:
    """Pictures as one GIF that repeats for ever, with one palette for all."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError(what="Writing GIF", package="pillow", extra="draw") from error
    pictures = [
        np.asarray(Image.open(BytesIO(to_png(scene, theme, scale=scale))).convert("RGB"))
        for scene, _ in shots
    ]
    # Every colour is in the first picture or, for results, in the last.
    palette = _common_colors(
        np.concatenate([_pack_colors(pictures[0]), _pack_colors(pictures[-1])])
    )
    frames = []
    for picture in pictures:
        size = (picture.shape[1], picture.shape[0])
        frame = Image.frombytes("P", size, _nearest(picture, palette).tobytes())
        frame.putpalette(palette.astype(np.uint8).tobytes())
        frames.append(frame)
    buffer = BytesIO()
    frames[0].save(
        buffer,
        "GIF",
        save_all=True,
        append_images=frames[1:],
        duration=[milliseconds for _, milliseconds in shots],
        loop=0,
    )
    return buffer.getvalue()


def _pack_colors(pixels: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Colours as single numbers, which are quick to sort."""
    red, green, blue = (pixels[..., channel].astype(np.int64).reshape(-1) for channel in range(3))
    return red << 16 | green << 8 | blue


def _unpack_colors(colors: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.stack([colors >> 16, colors >> 8 & 255, colors & 255], axis=-1)


def _common_colors(colors: NDArray[np.int64]) -> NDArray[np.int64]:
    """The most frequent colours, exactly: an averaged white would not be white."""
    distinct, counts = np.unique(colors, return_counts=True)
    # A stable sort, so that equally frequent colours come in the same order in every run.
    return _unpack_colors(distinct[np.argsort(-counts, kind="stable")][:COLORS])


def _nearest(pixels: NDArray[np.uint8], palette: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Every pixel, row by row, as the number of the nearest colour of the palette."""
    distinct, places = np.unique(_pack_colors(pixels), return_inverse=True)
    distances = np.square(_unpack_colors(distinct)[:, None] - palette).sum(axis=-1)
    numbers: NDArray[np.uint8] = distances.argmin(axis=1).astype(np.uint8)
    return numbers[places]
