"""A picture in words, for screen readers and terminals."""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Body, Box, Call, Drawable, Network, Step, Sum, Term
from rankscope.diagrams.parts import Convolution, Index, Node, Region, Role
from rankscope.diagrams.repeats import Block, collapse

ROLE_WORDS = {
    Role.DATA: "data",
    Role.PARAMETER: "parameter",
    Role.CORE: "core",
    Role.BUFFER: "buffer",
    Role.CONSTANT: "constant",
    Role.RESULT: "result",
    Role.OPERATION: "operation",
}


class WireKind(StrEnum):
    """What becomes of an index; the value is how a sentence names it."""

    OPEN = "open leg of"
    SUMMED = "summed on"
    TRACE = "trace of"
    DIAGONAL = "diagonal of"
    CONTRACTION = "contraction of"
    BATCH_PRODUCT = "batch product of"
    HYPER_CONTRACTION = "hyper-contraction of"


def wire_kind(diagram: Diagram, index: str) -> WireKind | None:
    """What becomes of an index; None when a convolution uses it up, or nothing holds it.

    Example:
        >>> product = Diagram(
        ...     "product",
        ...     (Index("i"), Index("j"), Index("k")),
        ...     (Node("A", ("i", "j")), Node("B", ("j", "k"))),
        ...     output=("i", "k"),
        ... )
        >>> [str(wire_kind(product, index)) for index in "ijk"]
        ['open leg of', 'contraction of', 'open leg of']
    """
    owners = diagram.structure.owners.get(index, ())
    is_used_up = any(index in (part.input, part.kernel) for part in diagram.convolutions)
    if is_used_up or not owners:
        return None
    closed, opened = WireKind.HYPER_CONTRACTION, WireKind.BATCH_PRODUCT
    if len(owners) == 1:
        closed, opened = WireKind.SUMMED, WireKind.OPEN
    elif len(dict.fromkeys(owners)) == 1:
        closed, opened = WireKind.TRACE, WireKind.DIAGONAL
    elif len(owners) == 2:
        closed = WireKind.CONTRACTION
    return opened if index in diagram.output else closed


def describe(drawable: Drawable) -> str:
    """Say in words what the picture shows: tensors, wires, barriers, sums and steps.

    Example:
        >>> trace = Diagram("trace", (Index("i", 3),), (Node("A", ("i", "i")),), output=())
        >>> print(describe(trace))
        Tensor diagram trace: 1 tensor. Parameter: A[i, i]. Index i (size 3): trace of A. \
Open legs: none, the value is a number.
    """
    match drawable:
        case Diagram():
            return " ".join(_diagram_sentences(drawable))
        case Sum():
            return " ".join(_sum_sentences(drawable))
        case Network():
            return " ".join(_network_sentences(drawable))


def _diagram_sentences(diagram: Diagram) -> list[str]:
    count = len(diagram.nodes)
    title = diagram.title or diagram.name
    sentences = [f"Tensor diagram {title}: {count} tensor{'' if count == 1 else 's'}."]
    return sentences + _contents(diagram)


def _contents(diagram: Diagram) -> list[str]:
    sentences = [sentence for role in Role if (sentence := _role_sentence(diagram, role))]
    sentences += [
        f"Index {_sized(index)}: {kind} {_owners(diagram, index.name)}."
        for index in diagram.indices
        if (kind := wire_kind(diagram, index.name)) is not None
    ]
    sentences += [_convolution_sentence(diagram, part) for part in diagram.convolutions]
    sentences += [
        _region_sentence(diagram, diagram.region_by_name[region])
        for region in diagram.structure.evaluation_order
        if region is not None
    ]
    legs = ", ".join(diagram.output) or "none, the value is a number"
    return [*sentences, f"Open legs: {legs}."]


def _role_sentence(diagram: Diagram, role: Role) -> str:
    nodes = [node for node in diagram.nodes if node.role is role]
    if not nodes:
        return ""
    plural = "s" if len(nodes) > 1 and role is not Role.DATA else ""
    return f"{ROLE_WORDS[role].capitalize()}{plural}: {', '.join(map(_node_words, nodes))}."


def _node_words(node: Node) -> str:
    words = f"{node.name}[{', '.join(node.indices)}]" if node.indices else node.name
    notes = []
    if node.source != node.name:
        notes.append(f"array {node.source}")
    if node.rows is not None:
        notes.append(f"rows {node.rows[0]} to {node.rows[1] - 1}")
    if node.is_one_hot:
        notes.append("one-hot")
    if node.narrow_side is not None:
        notes.append(f"isometry, narrow side {node.narrow_side}")
    if node.role is Role.CONSTANT:
        notes.append(f"every entry {node.fill:g}")
    return f"{words} ({'; '.join(notes)})" if notes else words


def _sized(index: Index) -> str:
    size = "" if index.size is None else str(index.size)
    words = " = ".join(word for word in (index.symbol or "", size) if word)
    return f"{index.name} (size {words})" if words else index.name


def _owners(diagram: Diagram, index: str) -> str:
    counted = Counter(diagram.structure.owners[index])
    names = [f"{name} ({count} axes)" if count > 1 else name for name, count in counted.items()]
    if len(counted) == 1:
        names = list(counted)
    crossed = [
        region.name for region in diagram.regions if index in diagram.structure.legs[region.name]
    ]
    barriers = f", through barrier{'s' if len(crossed) > 1 else ''} {_listed(crossed)}"
    return _listed(names) + (barriers if crossed else "")


def _listed(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _convolution_sentence(diagram: Diagram, part: Convolution) -> str:
    owners = diagram.structure.owners
    data, kernel = (
        next(name for name in owners[leg] if name != part.name) for leg in (part.input, part.kernel)
    )
    settings = [f"stride {part.stride}"]
    if part.padding != (0, 0):
        settings.append(
            f"padding {part.padding[0]} before and {part.padding[1]} after ({part.padding_mode})"
        )
    if part.dilation != 1:
        settings.append(f"dilation {part.dilation}")
    sizes = diagram.index_by_name
    return (
        f"Convolution {part.name} slides index {_sized(sizes[part.kernel])} of {kernel} "
        f"along index {_sized(sizes[part.input])} of {data} "
        f"into index {_sized(sizes[part.output])}, "
        f"{', '.join(settings)}."
    )


def _region_sentence(diagram: Diagram, region: Region) -> str:
    over = f" over {_listed(region.over)}" if region.over else ""
    scale = f" times {region.scale}" if region.scale else ""
    causal = ""
    if region.causal is not None:
        query, key = region.causal
        causal = f", with entries where {key} comes after {query} masked,"
    options = [f"{key} {value}" for key, value in region.function.options]
    settings = f" ({', '.join(options)})" if options else ""
    return (
        f"Barrier {region.name}: {region.function.name}{settings}{over} is applied to the product "
        f"of {_listed(diagram.structure.members[region.name])}{scale}{causal} "
        "before anything outside is contracted."
    )


def _sum_sentences(total: Sum) -> list[str]:
    count = len(total.terms)
    title = total.title or total.name
    sentences = [f"Sum {title} of {count} term{'' if count == 1 else 's'}."]
    for number, term in enumerate(total.terms, start=1):
        sentences += [f"Term {number}{_coefficient(term)}:", *_diagram_sentences(term.diagram)]
    return sentences


def _coefficient(term: Term) -> str:
    return "" if term.coefficient == 1 else f", times {term.coefficient:g}"


def _network_sentences(network: Network) -> list[str]:
    count = len(network.steps)
    title = network.title or network.name
    sentences = [f"Network {title}: {count} step{'' if count == 1 else 's'} in order."]
    number = 1
    for block in collapse(network):
        sentences += _block_sentences(block, number)
        number += block.count * len(block.steps)
    return [*sentences, f"The value of the network is {network.steps[-1].name}."]


def _block_sentences(block: Block, number: int) -> list[str]:
    sentences = []
    if block.count > 1:
        length = len(block.steps)
        last = number + block.count * length - 1
        sentences.append(
            f"Steps {number} to {last} repeat the next {length} "
            f"step{'' if length == 1 else 's'} {block.count} times"
            + "".join(f", {made} becoming {read} of the next round" for made, read in block.carried)
            + "."
        )
    for position, step in enumerate(block.steps):
        sentences += _step_sentences(step, number + position)
    return sentences


def _step_sentences(step: Step, number: int) -> list[str]:
    return [f"Step {number} computes {step.name}.", *_body_sentences(step.body)]


def _body_sentences(body: Body) -> list[str]:
    match body:
        case Diagram():
            return _diagram_sentences(body)
        case Sum():
            return _sum_sentences(body)
        case Call():
            return [_call_sentence(body)]
        case Box():
            count = len(body.steps)
            what = (
                f"Module {body.name} ({body.class_name}), {count} step{'' if count == 1 else 's'}"
            )
            return [f"{what} drawn as one box, takes {_taken(body)}."]


def _call_sentence(call: Call) -> str:
    made = " and ".join("×".join(map(str, shape)) or "one number" for shape in call.shapes)
    how = "opaque operation, no contraction"
    if call.is_exact:
        how = "exact linear map" if call.operations else "exact rearrangement"
    if call.equations:
        how = "exact recurrence"
    return f"{call.kind} ({how}) takes {_taken(call)} and makes {made}."


def _taken(body: Call | Box) -> str:
    nodes = [node.source for node in body.diagram.nodes if node.role is not Role.OPERATION]
    return _listed(nodes) or "nothing"
