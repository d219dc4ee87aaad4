"""Steps that are read in parts become several steps: one for queries, one for keys, ….

Many models compute queries, keys and values by one joint layer and take rows of its result.
Where the rows come from rows of parameters alone, each part is a layer of its own, with the
same arrays, the same number of operations and the same value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Body, Network, Step, Sum, diagrams_of, nodes_of
from rankscope.diagrams.parts import PARAMETER_ROLES, Node, Role
from rankscope.diagrams.reading.sketch import unused
from rankscope.diagrams.reading.splicing import with_reads, with_symbol_apart

Rows = tuple[int, int]
# Names of joint layers whose three parts are queries, keys and values.
JOINT = ("qkv", "c_attn", "in_proj", "to_qkv", "query_key_value", "Wqkv")


@dataclass(frozen=True)
class Part:
    """Some rows of a step, and the step that computes them alone."""

    rows: Rows
    step: Step


def split_rows(network: Network, num_rows: Mapping[str, int]) -> Network:
    """Replace every step that is read in parts by the parts, where that is possible.

    Args:
        network: what to change.
        num_rows: length of the first axis of each parameter array.
    """
    spans: dict[str, list[Rows | None]] = {}
    for node in nodes_of(network):
        if node.role is Role.DATA:
            spans.setdefault(node.source, []).append(node.rows)
    taken = [step.name for step in network.steps]
    steps: list[Step] = []
    names: dict[tuple[str, Rows], str] = {}
    for step in network.steps:
        read = replace(step, body=with_reads(step.body, {}, names))
        wanted = spans.get(step.name, [None])
        some = sorted({rows for rows in wanted if rows is not None})
        parts = [] if None in wanted else _parts(read, some, num_rows, taken)
        steps += [part.step for part in parts] or [read]
        names |= {(step.name, part.rows): part.step.name for part in parts}
    return replace(network, steps=tuple(steps))


def _parts(
    step: Step, spans: Sequence[Rows], num_rows: Mapping[str, int], taken: Sequence[str]
) -> list[Part]:
    word = step.name.rpartition(".")[2]
    is_joint = word in JOINT and len(spans) == 3
    marks = "QKV" if is_joint else [f"({number})" for number in range(1, len(spans) + 1)]
    names = ("query", "key", "value") if is_joint else [f"part{n + 1}" for n in range(len(spans))]
    found = []
    for span, mark, name in zip(spans, marks, names, strict=True):
        body = _narrowed(step.body, span, num_rows, mark)
        if body is None:
            return []
        label = rf"\mathbf{{{mark}}}" if is_joint else None
        found.append(Part(span, Step(unused(f"{step.name}.{name}", taken), body, label)))
    return found


def _narrowed(body: Body, span: Rows, num_rows: Mapping[str, int], mark: str) -> Body | None:
    diagrams = []
    for diagram in diagrams_of(body):
        found = _narrowed_diagram(diagram, span, num_rows, mark)
        if found is None:
            return None
        diagrams.append(found)
    if not isinstance(body, Sum):
        return diagrams[0]
    terms = zip(body.terms, diagrams, strict=True)
    return replace(body, terms=tuple(replace(term, diagram=found) for term, found in terms))


def _narrowed_diagram(
    diagram: Diagram, span: Rows, num_rows: Mapping[str, int], mark: str
) -> Diagram | None:
    """The diagram with some rows of its first open leg, or None if they are not parameters'."""
    leg = diagram.output[0]
    size = diagram.index_by_name[leg].size
    held = [i for c in diagram.convolutions for i in c.indices]
    held += [i for region in diagram.regions for i in (*region.over, *(region.causal or ()))]
    if size is None or leg in held:
        return None
    nodes = []
    for node in diagram.nodes:
        found = _narrowed_node(node, leg, size, span, num_rows)
        if found is None:
            return None
        changed = found is not node and node.role is not Role.CONSTANT
        nodes.append(replace(found, label=_marked(node.tex, mark)) if changed else found)
    start, stop = span
    if stop - start == 1:
        return _without_index(replace(diagram, nodes=tuple(nodes)), leg)
    others = {i.symbol: i.size for i in diagram.indices if i.symbol and i.name != leg}
    narrow = replace(diagram.index_by_name[leg], size=stop - start)
    fresh = with_symbol_apart(narrow, others)
    indices = tuple(fresh if index.name == leg else index for index in diagram.indices)
    return replace(diagram, indices=indices, nodes=tuple(nodes))


def _without_index(diagram: Diagram, name: str) -> Diagram:
    """The diagram without an index of which one position is left."""
    return replace(
        diagram,
        indices=tuple(index for index in diagram.indices if index.name != name),
        nodes=tuple(
            replace(node, indices=tuple(index for index in node.indices if index != name))
            for node in diagram.nodes
        ),
        output=tuple(index for index in diagram.output if index != name),
    )


def _narrowed_node(
    node: Node, leg: str, size: int, span: Rows, num_rows: Mapping[str, int]
) -> Node | None:
    if leg not in node.indices or node.role is Role.CONSTANT:
        return node
    first, last = node.rows or (0, num_rows.get(node.source, 0))
    is_leading = node.role in PARAMETER_ROLES and node.indices[0] == leg
    if not is_leading or node.indices.count(leg) > 1 or last <= first or (last - first) % size:
        return None
    unit = (last - first) // size
    return replace(node, array=node.source, rows=(first + span[0] * unit, first + span[1] * unit))


def _marked(label: str, mark: str) -> str:
    """A label with the mark of a part; an upper mark that is there already gives way."""
    return rf"{label.partition('^')[0]}^{{{mark}}}"
