"""What the page shows of a diagram: its picture, and everything that is said about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rankscope.diagrams.contraction import plan_contraction
from rankscope.diagrams.cost import cost
from rankscope.diagrams.describing import describe, wire_kind
from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.editing import (
    Document,
    History,
)
from rankscope.diagrams.einsum import to_einsum
from rankscope.diagrams.families.catalogue import FAMILIES
from rankscope.diagrams.program import einsum_program
from rankscope.diagrams.repeats import Run, collapse_runs
from rankscope.diagrams.search import IN_ORDER
from rankscope.diagrams.sizes import letters, resolved_sizes
from rankscope.errors import EinsumError, RankscopeError

KEPT_FROM = 25  # tensors: larger diagrams keep their places, since laying them out takes long


@dataclass(frozen=True)
class WorkspaceState:
    """The document with its history, where its parts stand, and what it is compared with."""

    history: History = field(default_factory=History)
    placement: Any = None
    compared: Document | None = None
    is_collapsed: bool = False  # whether runs of alike tensors are drawn as one


def drawn(history: History, before: WorkspaceState) -> tuple[dict[str, object], Any]:
    """The view of a state, and the placement of its picture."""
    document = history.present
    diagram = document.diagram
    runs: tuple[Run, ...] = ()
    if before.is_collapsed:
        shorter, runs = collapse_runs(diagram)
        kept = {name: at for name, at in document.positions.items() if name in shorter.node_by_name}
        svg, _ = _picture(replace(document, diagram=shorter, positions=kept), WorkspaceState())
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


def _picture(document: Document, before: WorkspaceState) -> tuple[str, Any]:
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
    svg, _ = _picture(other, WorkspaceState())
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
