"""The diagram workspace: the page sends edits, and gets back a picture, equations, code and costs.

The edited diagram lives here, as a `History` of the session; the page keeps nothing of it.
"""

import threading
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from string import ascii_letters
from typing import Any

from rankscope.diagrams.contraction import plan_contraction
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
from rankscope.diagrams.families.catalogue import FAMILIES
from rankscope.diagrams.network import Sum
from rankscope.diagrams.parts import RECIPES, IndexKind, Role
from rankscope.diagrams.serialization import from_dict, to_dict
from rankscope.diagrams.source import to_source
from rankscope.errors import EinsumError, RankscopeError, RequestError
from rankscope.page.diagram_data import WorkspaceState, drawn
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


class Workspace:
    """The state of one session; edits come one after the other."""

    def __init__(self, session: Session) -> None:
        self.lock = threading.Lock()
        self.state = WorkspaceState()
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


# --- What the page asks ---------------------------------------------------------------------------


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
