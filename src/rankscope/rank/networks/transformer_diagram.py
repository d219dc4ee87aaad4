"""A transformer as tensor diagrams: one step for the attention and one for the gate of each layer.

Parameters are named as those of `PolynomialTransformer`; the array `mask` (tokens, tokens) holds
ones where a token may look, `rotation` (tokens, head size, head size) the turns of rotary
positions, `unit` (width,) the first unit vector, with which a residual reads coordinate 0.
The last layer computes coordinate 0 at the output's position only.
"""

from dataclasses import dataclass

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Body, Network, Step, Sum, Term
from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.rank.networks.polynomial_transformer import TransformerShape

INPUTS, TOKENS = "x", "tokens"
MASK, ROTATION, UNIT = "mask", "rotation", "unit"


def transformer_diagram(shape: TransformerShape) -> Network:
    """Draw the network for one input (num_tokens, width); its value is the output."""
    steps, source = [], INPUTS
    if shape.has_positions:
        source = TOKENS
        shifted = Sum(
            TOKENS,
            (
                Term(_kept(shape, INPUTS, None)),
                Term(_simple(shape, Node("positions", ("n", "o"), label=r"\mathbf{P}"))),
            ),
        )
        steps.append(Step(TOKENS, shifted, r"\mathbf{X}_{0}"))
    for number in range(shape.depth):
        is_last = number == shape.depth - 1
        has_gate = shape.gated is not None
        place = shape.output_position if is_last else None
        layer = _Layer(shape, number, source, place, is_scalar=is_last and not has_gate)
        source = f"attention{number + 1}"
        label = rf"\mathbf{{X}}_{{{number + 1}}}"
        steps.append(Step(source, layer.attention(), "y" if layer.is_scalar else label))
        if has_gate:
            gate = _Layer(shape, number, source, place, is_scalar=is_last)
            source = f"gate{number + 1}"
            steps.append(Step(source, gate.gate(), "y" if is_last else label))
    return Network("polynomial-transformer", tuple(steps), "Softmax-free transformer")


@dataclass(frozen=True)
class _Layer:
    """A layer that reads `source`; of one token if there is a place, of coordinate 0 if scalar."""

    shape: TransformerShape
    number: int
    source: str
    place: int | None
    is_scalar: bool

    @property
    def output(self) -> tuple[str, ...]:
        """The open legs."""
        token = () if self.place is not None else ("n",)
        return token if self.is_scalar else (*token, "o")

    def attention(self) -> Body:
        """Scores and values, with a residual if there is one."""
        made = self._diagram("attention", (*self._queries(), *self._keys(), *self._values()))
        if not self.shape.has_residual:
            return made
        return Sum("attention", (Term(self._residual(is_row_known=False)), Term(made)))

    def gate(self) -> Body:
        """The product of two maps of a token, mapped back."""
        legs = () if self.place is not None else ("n",)
        nodes = (
            self._data("Xl", (*legs, "f")),
            self._weight("W1", "gate_left", "if"),
            self._data("Xr", (*legs, "e")),
            self._weight("W2", "gate_right", "ie"),
            self._weight("W3", "gate_output", "i" if self.is_scalar else "oi"),
        )
        made = self._diagram("gate", nodes)
        if not self.shape.has_residual:
            return made
        return Sum("gate", (Term(self._residual(is_row_known=self.place is not None)), Term(made)))

    def _queries(self) -> tuple[Node, ...]:
        token = () if self.place is not None else ("n",)
        rows = None if self.place is None else (self.place, self.place + 1)
        nodes = [Node("Xq", (*token, "f"), Role.DATA, r"\mathbf{X}", self.source, rows)]
        read = "f"
        if self.shape.query_latent is not None:
            nodes.append(self._weight("Cq", "query_latent", "pf"))
            read = "p"
        inner = "u" if self.shape.has_rotary else "d"
        nodes.append(self._weight("WQ", "query", f"gs{inner}{read}"))
        if self.shape.has_rotary:
            nodes.append(Node("Rq", (*token, "d", "u"), Role.DATA, r"\mathbf{R}", ROTATION, rows))
        if self.shape.is_causal:
            nodes.append(Node("M", (*token, "m"), Role.DATA, r"\mathbf{M}", MASK, rows))
        return tuple(nodes)

    def _keys(self) -> tuple[Node, ...]:
        nodes = [self._data("Xk", ("m", "k"))]
        read = "k"
        if self.shape.latent is not None:
            nodes.append(self._weight("Ck", "latent", "lk"))
            read = "l"
        inner = "w" if self.shape.has_rotary else "d"
        nodes.append(self._weight("WK", "key", f"g{inner}{read}"))
        if self.shape.has_rotary:
            nodes.append(Node("Rk", ("m", "d", "w"), Role.DATA, r"\mathbf{R}", ROTATION))
        return tuple(nodes)

    def _values(self) -> tuple[Node, ...]:
        nodes = [self._data("Xv", ("m", "e"))]
        read = "e"
        if self.shape.latent is not None:
            nodes.append(self._weight("Cv", "latent", "ve"))
            read = "v"
        nodes.append(self._weight("WV", "value", f"gc{read}"))
        nodes.append(self._weight("WO", "output", "gsc" if self.is_scalar else "ogsc"))
        return tuple(nodes)

    def _residual(self, *, is_row_known: bool) -> Diagram:
        """What the layer read; a last layer reads one token, or coordinate 0 of it."""
        if not self.is_scalar:
            place = None if is_row_known else self.place
            legs = ("o",) if self.place is not None else ("n", "o")
            return _kept(self.shape, self.source, place, legs)
        place = None if is_row_known else self.place
        return _coordinate(self.shape, self.source, place)

    def _data(self, name: str, indices: tuple[str, ...]) -> Node:
        return Node(name, indices, Role.DATA, r"\mathbf{X}", self.source)

    def _weight(self, name: str, array: str, indices: str) -> Node:
        label = rf"\mathbf{{{name[0]}}}^{{{name[1:]}}}"
        is_row = self.is_scalar and array in ("output", "gate_output")
        rows = (0, 1) if is_row else None
        full = f"layers.{self.number}.{array}"
        return Node(name, tuple(indices), label=label, array=full, rows=rows)

    def _diagram(self, name: str, nodes: tuple[Node, ...]) -> Diagram:
        used = dict.fromkeys(index for node in nodes for index in node.indices)
        indices = tuple(_index(self.shape, one) for one in used)
        return Diagram(f"{name}{self.number + 1}", indices, nodes, self.output)


def _index(shape: TransformerShape, name: str) -> Index:
    """Every leg that a layer may have, by the letter that names it."""
    head, feature = IndexKind.HEAD, IndexKind.FEATURE
    legs = {
        "nm": (shape.num_tokens, "N", IndexKind.SEQUENCE),
        "g": (shape.num_kv_heads, "K", head),
        "s": (shape.heads // shape.num_kv_heads, "H/K", head),
        "duwc": (shape.head_size, "D", feature),
        "lv": (shape.latent, "C", feature),
        "p": (shape.query_latent, "P", feature),
        "i": (shape.gated, "M", feature),
        "fkeo": (shape.width, "F", feature),
    }
    size, symbol, kind = next(leg for letters, leg in legs.items() if name in letters)
    return Index(name, size, symbol, kind)


def _kept(
    shape: TransformerShape, source: str, place: int | None, legs: tuple[str, ...] = ("n", "o")
) -> Diagram:
    rows = None if place is None else (place, place + 1)
    node = Node("X", legs, Role.DATA, r"\mathbf{X}", source, rows)
    return _simple(shape, node)


def _coordinate(shape: TransformerShape, source: str, place: int | None) -> Diagram:
    """Coordinate 0 of a token: the token times a row of the identity."""
    rows = None if place is None else (place, place + 1)
    nodes = (
        Node("X", ("o",), Role.DATA, r"\mathbf{x}", source, rows),
        Node("e", ("o",), Role.DATA, r"\mathbf{e}_0", UNIT),
    )
    return Diagram("kept", (_index(shape, "o"),), nodes, ())


def _simple(shape: TransformerShape, node: Node) -> Diagram:
    indices = tuple(_index(shape, name) for name in node.indices)
    return Diagram(node.name, indices, (node,), node.indices)
