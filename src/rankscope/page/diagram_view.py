"""The diagram workspace: the page sends edits, and gets back a picture, equations, code and costs.

The edited diagram lives here, as a `History` of the session; the page keeps nothing of it.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from string import ascii_letters
from typing import Any

from rankscope.diagrams.contraction import plan_contraction
from rankscope.diagrams.cost import cost
from rankscope.diagrams.describing import describe, wire_kind
from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.editing import (
    EMPTY,
    AddLeg,
    AddTensor,
    Clear,
    Connect,
    Contract,
    Detach,
    Document,
    Edit,
    Factor,
    Form,
    History,
    Pin,
    Release,
    Remove,
    Rename,
    SetBarrier,
    SetKind,
    SetOpen,
    SetRole,
    SetSize,
    UseDiagram,
    UseEinsum,
    UseTemplate,
    Wrap,
)
from rankscope.diagrams.einsum import to_einsum
from rankscope.diagrams.families.catalogue import FAMILIES
from rankscope.diagrams.network import Sum
from rankscope.diagrams.parts import RECIPES, IndexKind, Role
from rankscope.diagrams.program import einsum_program
from rankscope.diagrams.runs import Run, collapse_runs
from rankscope.diagrams.search import IN_ORDER
from rankscope.diagrams.serialization import from_dict, to_dict
from rankscope.diagrams.sizes import letters, resolved_sizes
from rankscope.diagrams.source import to_source
from rankscope.errors import EinsumError, RankscopeError, RequestError
from rankscope.page.endpoints import NOTHING, Body, Download, Endpoint
from rankscope.page.session import Session
from rankscope.strict_json import (
    Anything,
    Choice,
    Flag,
    Integer,
    ListOf,
    Number,
    Object,
    Optional,
    Pair,
    Reader,
    Record,
    Tagged,
    Text,
    Values,
)

LARGEST = 2**31 - 1
KEPT_FROM = 25  # tensors: larger diagrams keep their places, since laying them out takes long
NAMES = ListOf(Text(), at_most=600)
SIZE = Integer(low=1, high=LARGEST)
POINT = Pair(Number(), Number())

# What the page may send: the word `do`, and the fields of that edit.
EDITS: dict[str, Reader[Any]] = {
    "clear": Record(Clear, {}),
    "template": Record(UseTemplate, {"name": Text(), "settings": Values(Text(), at_most=40)}),
    "einsum": Record(UseEinsum, {"text": Text()}),
    "add-tensor": Record(
        AddTensor, {"legs": NAMES, "name": Optional(Text()), "role": Choice(tuple(Role))}
    ),
    "add-leg": Record(AddLeg, {"tensor": Text(), "size": SIZE}),
    "remove": Record(Remove, {"names": NAMES}),
    "rename": Record(Rename, {"name": Text(), "to": Text()}),
    "role": Record(SetRole, {"tensor": Text(), "role": Choice(tuple(Role))}),
    "size": Record(SetSize, {"name": Text(), "size": SIZE}),
    "kind": Record(SetKind, {"wire": Text(), "kind": Choice(tuple(IndexKind))}),
    "connect": Record(Connect, {"first": Text(), "second": Text()}),
    "detach": Record(Detach, {"tensor": Text(), "wire": Text()}),
    "open": Record(SetOpen, {"wire": Text(), "is_open": Flag()}),
    "wrap": Record(
        Wrap,
        {"members": NAMES, "function": Text(), "over": NAMES, "scale": Optional(Text())},
    ),
    "barrier": Record(
        SetBarrier,
        {"region": Text(), "function": Text(), "over": NAMES, "scale": Optional(Text())},
    ),
    "pin": Record(Pin, {"positions": Values(POINT, at_most=600)}),
    "release": Record(Release, {"names": NAMES}),
    "factor": Record(
        Factor, {"tensor": Text(), "form": Choice(tuple(Form)), "rank": SIZE, "left": NAMES}
    ),
    "contract": Record(Contract, {"names": NAMES}),
    "json": Object({"document": Anything()}),
}
EDIT = Tagged("do", EDITS)


@dataclass(frozen=True)
class State:
    """The document with its history, where its parts stand, and what it is compared with."""

    history: History = field(default_factory=History)
    placement: Any = None
    compared: Document | None = None
    is_collapsed: bool = False  # whether runs of alike tensors are drawn as one


class Workspace:
    """The state of one session; edits come one after the other."""

    def __init__(self, session: Session) -> None:
        self.lock = threading.Lock()
        self.state = State()
        # While a reader looks at the templates: what the first picture needs takes a second.
        threading.Thread(target=_prepare_labels, daemon=True).start()

    def change(self, history: History) -> dict[str, object]:
        """Draw a state and, only if that works, take it; the lock is held."""
        view, placement = drawn(history, self.state)
        self.state = replace(self.state, history=history, placement=placement)
        return view


def _prepare_labels() -> None:
    """Load what draws, and set the letters that new tensors and wires are called by."""
    from rankscope.drawing.layout.choosing import lay_out
    from rankscope.drawing.layout.placement import NO_HINTS, View

    chain = ",".join(map("".join, pairwise(ascii_letters)))
    lay_out(UseEinsum(f"{chain}->").apply(EMPTY).diagram, NO_HINTS, View(show_sizes=True))


def workspace(session: Session) -> Workspace:
    """The workspace of a session."""
    return session.state(Workspace)


# --- The view: a picture and everything that is said about it -------------------------------------


def drawn(history: History, before: State) -> tuple[dict[str, object], Any]:
    """The view of a state, and the placement of its picture."""
    document = history.present
    diagram = document.diagram
    runs: tuple[Run, ...] = ()
    if before.is_collapsed:
        shorter, runs = collapse_runs(diagram)
        kept = {name: at for name, at in document.positions.items() if name in shorter.node_by_name}
        svg, _ = _picture(replace(document, diagram=shorter, positions=kept), State())
        placement = before.placement
    else:
        svg, placement = _picture(document, before)
    view: dict[str, object] = {
        "svg": svg,
        "name": diagram.title or diagram.name,
        "description": describe(diagram) if diagram.nodes else "Nothing is drawn yet.",
        "can_undo": bool(history.past),
        "can_redo": bool(history.future),
        "template": _template(document),
        "tensors": _tensors(diagram),
        "wires": _wires(diagram),
        "regions": _regions(diagram),
        "pinned": sorted(document.positions),
        "einsum": _einsum(diagram),
        "program": _program(diagram),
        "cost": _cost(diagram),
        "timeline": _timeline(document),
        "compared": _compared(before.compared, document),
        "is_collapsed": before.is_collapsed,
        "runs": [{"shown": run.shown, "names": list(run.names)} for run in runs],
    }
    return view, placement


def _picture(document: Document, before: State) -> tuple[str, Any]:
    from rankscope.drawing.layout.choosing import placed
    from rankscope.drawing.layout.keeping import keep_places
    from rankscope.drawing.layout.placement import Hints, View
    from rankscope.drawing.layout.render import render
    from rankscope.drawing.svg import to_svg

    diagram = document.diagram
    view = View(show_sizes=True)
    hints = Hints(positions=document.positions)
    old = before.placement
    connected = {(part.name, part.indices) for part in before.history.present.diagram.holders}
    known = sum((part.name, part.indices) in connected for part in diagram.holders)
    is_pinned = document.positions != before.history.present.positions
    count = len(diagram.holders)
    is_kept = old is not None and count >= KEPT_FROM and 2 * known > count
    if is_kept and not is_pinned:
        placement = keep_places(diagram, old, view)
    else:
        placement = placed(diagram, hints, view)
    return to_svg(render(diagram, placement, view), prefix="diagram-"), placement


def _template(document: Document) -> dict[str, object] | None:
    template = document.template
    if template is None:
        return None
    family = FAMILIES[template.name]
    return {
        "name": template.name,
        "title": family.title,
        "settings": [
            {
                "name": setting.name,
                "description": setting.description,
                "value": template.settings.get(setting.name, ""),
                "is_list": setting.is_list,
            }
            for setting in family.settings
        ],
    }


def _tensors(diagram: Diagram) -> list[dict[str, object]]:
    sizes = diagram.sizes
    return [
        {
            "name": node.name,
            "array": node.source,
            "role": str(node.role),
            "legs": list(node.indices),
            "shape": " × ".join(str(sizes[index] or index) for index in node.indices) or "a number",
            "region": diagram.structure.parent[node.name],
        }
        for node in diagram.nodes
    ]


def _wires(diagram: Diagram) -> list[dict[str, object]]:
    known = resolved_or_given(diagram)
    return [
        {
            "name": index.name,
            "symbol": index.symbol or index.name,
            "size": known[index.name],
            "kind": str(index.kind),
            "ends": list(diagram.structure.owners.get(index.name, ())),
            "is_open": index.name in diagram.output,
            "meaning": str(wire_kind(diagram, index.name) or "used up by a convolution of"),
        }
        for index in diagram.indices
    ]


def resolved_or_given(diagram: Diagram) -> Mapping[str, int | None]:
    """Sizes with those that follow from convolutions, or as given where one is missing."""
    try:
        return resolved_sizes(diagram)
    except RankscopeError:
        return diagram.sizes


def _regions(diagram: Diagram) -> list[dict[str, object]]:
    return [
        {
            "name": region.name,
            "function": region.function.name,
            "normalizes": region.function.normalizes,
            "over": list(region.over),
            "scale": region.scale,
            "members": list(region.members),
            "legs": list(diagram.structure.legs[region.name]),
        }
        for region in diagram.regions
    ]


def _einsum(diagram: Diagram) -> dict[str, object]:
    """The equation, cut into pieces that belong to a tensor or a wire."""
    if not diagram.nodes:
        return {"text": "", "reason": None}
    try:
        return {"text": to_einsum(diagram), "reason": None}
    except EinsumError as error:
        return {"text": None, "reason": str(error)}


def _program(diagram: Diagram) -> list[list[list[object]]]:
    """Lines of pieces [text, kind, name]: kind is "wire", "tensor" or "" for the rest."""
    if not diagram.nodes:
        return []
    letter = letters(index.name for index in diagram.indices)
    wires = {short: name for name, short in letter.items()}
    arrays: dict[str, str] = {}
    for node in diagram.nodes:
        arrays.setdefault(node.source, node.name)
    parts = {**arrays, **{region.name: region.name for region in diagram.regions}}
    return [_pieces(line, wires, parts) for line in einsum_program(diagram).lines]


def _pieces(line: str, wires: Mapping[str, str], parts: Mapping[str, str]) -> list[list[object]]:
    pieces: list[list[object]] = []
    is_quoted, word = False, ""

    def finish() -> None:
        nonlocal word
        if word:
            kind = "tensor" if word in parts else ""
            pieces.append([word, kind, parts.get(word, "")])
        word = ""

    for character in line:
        if character == '"':
            finish()
            is_quoted = not is_quoted
            pieces.append([character, "", ""])
        elif is_quoted:
            name = wires.get(character, "")
            pieces.append([character, "wire" if name else "", name])
        elif character.isalnum() or character in "_.":
            word += character
        else:
            finish()
            pieces.append([character, "", ""])
    finish()
    return pieces


def code(session: Session, body: Body) -> dict[str, object]:
    """The Python source; apart from the view, which need not wait for it."""
    space = workspace(session)
    with space.lock:
        diagram = space.state.history.present.diagram
    if not diagram.nodes:
        return {"text": "", "reason": None}
    try:
        return {"text": to_source(diagram), "reason": None}
    except RankscopeError as error:
        return {"text": None, "reason": str(error)}


def _cost(diagram: Diagram) -> dict[str, object] | None:
    if not diagram.nodes:
        return None
    try:
        counted = cost(diagram)
    except RankscopeError as error:
        return {"reason": str(error)}
    return {
        "reason": None,
        "parameters": counted.parameters,
        "operations": counted.flops,
        "largest_intermediate": counted.largest_intermediate,
        "peak_memory": counted.peak_memory,
    }


def _timeline(document: Document) -> dict[str, object] | None:
    """The best order step by step, what the written order costs, and what was done by hand."""
    diagram = document.diagram
    if not diagram.nodes:
        return None
    try:
        plan = plan_contraction(diagram)
        written = plan_contraction(diagram, IN_ORDER).flops
    except RankscopeError as error:
        return {"reason": str(error)}
    letter = letters(index.name for index in diagram.indices)
    steps: list[dict[str, object]] = []
    for region in plan.regions:
        steps += [
            {
                "operands": list(move.operands),
                "tensors": _inside(move.operands, plan.contractions),
                "equation": ",".join("".join(letter[i] for i in held) for held in move.inputs)
                + "->"
                + "".join(letter[i] for i in move.output),
                "result": move.result,
                "operations": move.flops,
                "entries": move.size,
                "region": region.region,
            }
            for move in region.contractions
        ]
    hand = None
    if document.best_before is not None:
        hand = {"spent": document.spent, "rest": plan.flops, "best": document.best_before}
    return {"reason": None, "steps": steps, "best": plan.flops, "written": written, "hand": hand}


def _inside(names: tuple[str, ...], moves: tuple[Any, ...]) -> list[str]:
    """The tensors that went into products."""
    made = {move.result: move.operands for move in moves}
    found: list[str] = []
    pending = list(names)
    while pending:
        name = pending.pop(0)
        pending = [*made[name], *pending] if name in made else pending
        found += [] if name in made else [name]
    return found


def _compared(other: Document | None, document: Document) -> dict[str, object] | None:
    if other is None:
        return None
    svg, _ = _picture(other, State())
    before = {str(row["name"]): row["shape"] for row in _tensors(other.diagram)}
    after = {str(row["name"]): row["shape"] for row in _tensors(document.diagram)}
    return {
        "svg": svg.replace("diagram-", "compared-"),
        "name": other.diagram.title or other.diagram.name,
        "cost": _cost(other.diagram),
        "only_before": [name for name in before if name not in after],
        "only_after": [name for name in after if name not in before],
        "changed": [
            {"name": name, "before": shape, "after": after[name]}
            for name, shape in before.items()
            if name in after and after[name] != shape
        ],
    }


# --- What the page asks ---------------------------------------------------------------------------


def show(session: Session, body: Body) -> dict[str, object]:
    """The workspace as it is, and what can be chosen."""
    space = workspace(session)
    with space.lock:
        view = space.change(space.state.history)
    view["choices"] = {
        "templates": [
            {"name": family.name, "title": family.title, "summary": family.summary}
            for family in FAMILIES.values()
            if not isinstance(family.build(), Sum)
        ],
        "functions": [{"name": n, "normalizes": r.normalizes} for n, r in RECIPES.items()],
        "roles": [str(role) for role in Role if role is not Role.OPERATION],
        "kinds": [str(kind) for kind in IndexKind],
        "forms": [str(form) for form in Form],
        "formats": list(EXPORTS),
    }
    return view


def edit(session: Session, body: Body) -> dict[str, object]:
    """Apply one edit; an error of an equation also says at which letter."""
    space = workspace(session)
    asked = body["edit"]
    made: Edit = UseDiagram(_read_diagram(asked["document"])) if isinstance(asked, dict) else asked
    with space.lock:
        try:
            changed = space.state.history.applied(made, continues=body.get("continues", False))
        except EinsumError as error:
            return {"error_at": {"message": str(error), "position": error.position}}
        return space.change(changed)


def _read_diagram(document: object) -> Diagram:
    if not isinstance(document, dict):
        raise RequestError("A diagram is read from a JSON object, as the export writes it.")
    drawable = from_dict(document)
    if not isinstance(drawable, Diagram):
        raise RequestError(
            f"The document holds a {type(drawable).__name__.lower()}; here one diagram is edited."
        )
    return drawable


def undo(session: Session, body: Body) -> dict[str, object]:
    """One step back."""
    space = workspace(session)
    with space.lock:
        return space.change(space.state.history.undone())


def redo(session: Session, body: Body) -> dict[str, object]:
    """One step forward again."""
    space = workspace(session)
    with space.lock:
        return space.change(space.state.history.redone())


def compare(session: Session, body: Body) -> dict[str, object]:
    """Remember the diagram as it is now beside what follows, or forget it."""
    space = workspace(session)
    with space.lock:
        state = space.state
        kept = state.history.present if body["is_on"] else None
        space.state = replace(state, compared=kept)
        return space.change(state.history)


def collapse(session: Session, body: Body) -> dict[str, object]:
    """Draw runs of alike tensors as one, or all of them again."""
    space = workspace(session)
    with space.lock:
        space.state = replace(space.state, is_collapsed=body["is_on"])
        return space.change(space.state.history)


def step(session: Session, body: Body) -> dict[str, object]:
    """The picture after so many contractions of the best order."""
    space = workspace(session)
    with space.lock:
        document = space.state.history.present
    pictures = _steps(document.diagram, tuple(sorted(document.positions.items())))
    number = min(body["number"], len(pictures) - 1)
    svg, caption = pictures[number]
    return {"svg": svg, "caption": caption, "number": number, "last": len(pictures) - 1}


@lru_cache(maxsize=4)
def _steps(
    diagram: Diagram, positions: tuple[tuple[str, tuple[float, float]], ...]
) -> tuple[tuple[str, str], ...]:
    from rankscope.drawing.animation import draw_sequence, plain_caption
    from rankscope.drawing.frames import frame_sequences
    from rankscope.drawing.layout.placement import Hints, View
    from rankscope.drawing.svg import to_svg

    sequence = frame_sequences(diagram, plan_contraction)[0]
    drawn_frames = draw_sequence(sequence, Hints(positions=dict(positions)), View(show_sizes=True))
    return tuple(
        (to_svg(scene, prefix="diagram-"), plain_caption(frame))
        for frame, scene in zip(sequence.frames, drawn_frames.scenes, strict=True)
    )


# --- Exports --------------------------------------------------------------------------------------


def _scene(document: Document) -> Any:
    from rankscope.drawing.layout.choosing import lay_out
    from rankscope.drawing.layout.placement import Hints, View

    return lay_out(document.diagram, Hints(positions=document.positions), View(show_sizes=True))


def _svg(document: Document) -> bytes:
    from rankscope.drawing.svg import to_svg

    return to_svg(_scene(document)).encode()


def _pdf(document: Document) -> bytes:
    from rankscope.drawing.raster import to_pdf

    return to_pdf(_scene(document))


def _png(document: Document) -> bytes:
    from rankscope.drawing.raster import to_png

    return to_png(_scene(document))


def _tikz(document: Document) -> bytes:
    from rankscope.drawing.tikz import to_tikz

    return to_tikz(_scene(document)).encode()


def _json(document: Document) -> bytes:
    import json

    return (json.dumps(to_dict(document.diagram), indent=2, ensure_ascii=False) + "\n").encode()


def _python(document: Document) -> bytes:
    return to_source(document.diagram).encode()


EXPORTS = {
    "svg": (_svg, "svg", "image/svg+xml"),
    "pdf": (_pdf, "pdf", "application/pdf"),
    "png": (_png, "png", "image/png"),
    "tikz": (_tikz, "tikz", "text/plain"),
    "json": (_json, "json", "application/json"),
    "python": (_python, "py", "text/x-python"),
}


def export(session: Session, body: Body) -> Download:
    """The diagram as a file."""
    space = workspace(session)
    with space.lock:
        document = space.state.history.present
    if not document.diagram.nodes:
        raise RequestError("There is nothing to export yet; choose a template or add a tensor.")
    write, ending, media_type = EXPORTS[body["format"]]
    word = "".join(c if c.isascii() and c.isalnum() else "-" for c in document.diagram.name)
    return Download(f"{word[:60] or 'diagram'}.{ending}", write(document), media_type)


ENDPOINTS = (
    Endpoint("/diagrams", "The workspace as it is.", show),
    Endpoint(
        "/diagrams/edit",
        "Apply one edit.",
        edit,
        Object({"edit": EDIT, "continues": Flag()}, optional=("continues",)),
    ),
    Endpoint("/diagrams/code", "Its Python source.", code),
    Endpoint("/diagrams/undo", "One step back.", undo, NOTHING),
    Endpoint("/diagrams/redo", "One step forward.", redo, NOTHING),
    Endpoint("/diagrams/collapse", "Draw runs as one.", collapse, Object({"is_on": Flag()})),
    Endpoint("/diagrams/compare", "Compare with now.", compare, Object({"is_on": Flag()})),
    Endpoint(
        "/diagrams/step",
        "The picture after some contractions.",
        step,
        Object({"number": Integer(low=0, high=10_000)}),
    ),
    Endpoint(
        "/diagrams/export",
        "The diagram as a file.",
        export,
        Object({"format": Choice(tuple(EXPORTS))}),
    ),
)
