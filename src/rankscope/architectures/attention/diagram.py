"""Softmax-free attention as a tensor diagram: one step for each layer."""

from dataclasses import dataclass

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Body, Network, Step, Sum, Term
from rankscope.diagrams.parts import Index, IndexKind, Node, Role

INPUTS = "x"
TOKENS = "tokens"


@dataclass(frozen=True)
class AttentionShape:
    """The sizes that an attention diagram is drawn with; arrays are named as parameters are.

    `heads` is None for layers that are chains, with `num_factors` factors each. The last layer
    computes coordinate 0 at `output_position` only.
    """

    depth: int
    width: int
    num_tokens: int
    output_position: int
    heads: int | None
    head_size: int
    num_factors: int
    embedding_rank: int | None
    has_positions: bool


def attention_network(shape: AttentionShape) -> Network:
    """Draw the network for one input (num_tokens, input_size); its value is the output."""
    steps = []
    source = INPUTS
    if shape.embedding_rank is not None or shape.has_positions:
        source = TOKENS
        steps.append(Step(TOKENS, _token_vectors(shape), r"\mathbf{X}_{0}"))
    for number in range(shape.depth):
        is_last = number == shape.depth - 1
        layer = (_chain if shape.heads is None else _attention)(shape, number, source)
        source = f"layer{number + 1}"
        steps.append(Step(source, layer, "y" if is_last else rf"\mathbf{{X}}_{{{number + 1}}}"))
    return Network("attention", tuple(steps), "Softmax-free self-attention")


def _token_vectors(shape: AttentionShape) -> Body:
    token = Index("n", shape.num_tokens, "N", IndexKind.SEQUENCE)
    feature = Index("f", shape.width, "F", IndexKind.FEATURE)
    output = ("n", "f")
    if shape.embedding_rank is None:
        data = Diagram(TOKENS, (token, feature), (_data("X", INPUTS, "nf"),), output)
    else:
        rank = Index("r", shape.embedding_rank, "R", IndexKind.RANK)
        embedding = Node("E", ("f", "r"), array="embedding")
        nodes = (_data("X", INPUTS, "nr"), embedding)
        data = Diagram(TOKENS, (token, feature, rank), nodes, output)
    if not shape.has_positions:
        return data
    positions = Diagram(
        "positions", (token, feature), (Node("positions", output, label=r"\mathbf{P}"),), output
    )
    return Sum(TOKENS, (Term(data), Term(positions)))


def _attention(shape: AttentionShape, number: int, source: str) -> Diagram:
    prefix, is_last = f"layers.{number}", number == shape.depth - 1
    nodes = (
        _query(shape, source, is_last=is_last),
        _weight("Q", f"{prefix}.query", "hdf"),
        _weight("K", f"{prefix}.key", "hdg"),
        _data("Xk", source, "mg"),
        _data("Xv", source, "me"),
        _weight("V", f"{prefix}.value", "hce"),
        _weight("O", f"{prefix}.output", "hc" if is_last else "ohc", is_row=is_last),
    )
    features = tuple(_feature(shape, name) for name in ("fge" if is_last else "fgeo"))
    inner = tuple(Index(name, shape.head_size, "D", IndexKind.FEATURE) for name in "dc")
    head = Index("h", shape.heads, "H", IndexKind.HEAD)
    return _layer(shape, number, (*features, *inner, head), nodes, ("m",))


def _chain(shape: AttentionShape, number: int, source: str) -> Diagram:
    is_last, length = number == shape.depth - 1, shape.num_factors - 1
    nodes = [_query(shape, source, is_last=is_last)]
    wire = "f"
    for place in range(length, 0, -1):
        nodes.append(_factor(number, place, (f"a{place}", wire)))
        nodes.append(_data(f"Xk{place}", source, (f"m{place}", f"a{place}")))
        nodes.append(_data(f"Xv{place}", source, (f"m{place}", f"b{place}")))
        wire = f"b{place}"
    nodes.append(_factor(number, 0, (wire,) if is_last else ("o", wire), is_row=is_last))
    places = range(length, 0, -1)
    names = ["f", *(f"{side}{place}" for place in places for side in "ab")]
    features = tuple(_feature(shape, name) for name in (names if is_last else [*names, "o"]))
    return _layer(shape, number, features, tuple(nodes), tuple(f"m{place}" for place in places))


def _layer(
    shape: AttentionShape,
    number: int,
    indices: tuple[Index, ...],
    nodes: tuple[Node, ...],
    keys: tuple[str, ...],
) -> Diagram:
    is_last = number == shape.depth - 1
    names = keys if is_last else ("n", *keys)
    tokens = tuple(Index(name, shape.num_tokens, "N", IndexKind.SEQUENCE) for name in names)
    output = () if is_last else ("n", "o")
    return Diagram(f"layer{number + 1}", (*tokens, *indices), nodes, output)


def _query(shape: AttentionShape, source: str, *, is_last: bool) -> Node:
    if not is_last:
        return _data("Xq", source, "nf")
    place = shape.output_position
    return Node("Xq", ("f",), Role.DATA, r"\mathbf{x}", array=source, rows=(place, place + 1))


def _data(name: str, source: str, indices: tuple[str, ...] | str) -> Node:
    return Node(name, tuple(indices), Role.DATA, r"\mathbf{X}", array=source)


def _weight(letter: str, array: str, indices: str, *, is_row: bool = False) -> Node:
    label = rf"\mathcal{{W}}^{{\,{letter}}}"
    rows = (0, 1) if is_row else None
    return Node(f"W{letter}", tuple(indices), label=label, array=array, rows=rows)


def _factor(number: int, place: int, indices: tuple[str, ...], *, is_row: bool = False) -> Node:
    array = f"layers.{number}.factors.{place}"
    rows = (0, 1) if is_row else None
    return Node(f"W{place}", indices, label=rf"\mathbf{{W}}_{{{place}}}", array=array, rows=rows)


def _feature(shape: AttentionShape, name: str) -> Index:
    return Index(name, shape.width, "F", IndexKind.FEATURE)
