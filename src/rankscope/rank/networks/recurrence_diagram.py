"""A recurrence as tensor diagrams, unrolled in time: a step for each state and for each token.

Parameters are named as those of `Recurrence`; the array `x` holds the tokens (tokens, width),
`unit` the first unit vector, with which the output reads coordinate 0.
"""

from dataclasses import dataclass

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Body, Network, Step, Sum, Term
from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.rank.networks.recurrence import Kind, RecurrenceShape

INPUTS, UNIT = "x", "unit"


def recurrence_diagram(shape: RecurrenceShape) -> Network:
    """Draw the network for one input (num_tokens, width); its value is the output."""
    last = shape.output_position
    steps = []
    for layer in range(1, shape.depth + 1):
        for time in range(last + 1):
            moment = _Moment(shape, layer, time)
            steps.append(Step(moment.state_name, moment.state(), moment.state_label))
            if layer < shape.depth or time == last:
                steps.append(Step(moment.token_name, moment.token(), moment.token_label))
    nodes = (
        Node("X", ("f",), Role.DATA, r"\mathbf{x}", _Moment(shape, shape.depth, last).token_name),
        Node("e", ("f",), Role.DATA, r"\mathbf{e}_0", UNIT),
    )
    steps.append(Step("y", Diagram("output", (_index(shape, "f"),), nodes, ()), "y"))
    title = f"Recurrence ({shape.kind}) of {shape.num_tokens} tokens and {shape.depth} layers"
    return Network("recurrence", tuple(steps), title)


@dataclass(frozen=True)
class _Moment:
    """A layer (from 1) at a time (from 0)."""

    shape: RecurrenceShape
    layer: int
    time: int

    @property
    def state_name(self) -> str:
        """The step that makes the state."""
        return f"state{self.layer}_{self.time}"

    @property
    def token_name(self) -> str:
        """The step that makes the token."""
        return f"token{self.layer}_{self.time}"

    @property
    def state_label(self) -> str:
        """TeX of the state."""
        letter = r"\mathbf{S}" if self.shape.kind.has_matrix_state else r"\mathbf{h}"
        return rf"{letter}^{{{self.layer}}}_{{{self.time}}}"

    @property
    def token_label(self) -> str:
        """TeX of the token."""
        return rf"\mathbf{{x}}^{{{self.layer}}}_{{{self.time}}}"

    def state(self) -> Body:
        """What is kept of the state, and what the token writes; at first only the latter."""
        terms = [Term(self._written())]
        if self.time:
            terms += self._kept()
        return Sum(self.state_name, tuple(terms)) if len(terms) > 1 else terms[0].diagram

    def token(self) -> Diagram:
        """What the state answers to the token."""
        if self.shape.kind.has_matrix_state:
            nodes = (
                self._weight("O", "output", "ogc"),
                self._held("gcs", self.time),
                self._weight("Q", "query", "gsf"),
                self._read("X", "f"),
            )
            return self._diagram("token", nodes, ("o",))
        nodes = (
            self._weight("C", "read", "gcs"),
            self._held("gs", self.time),
            self._weight("G", "gate", "gcf"),
            self._read("X", "f"),
        )
        return self._diagram("token", nodes, ("g", "c"))

    def _written(self) -> Diagram:
        if not self.shape.kind.has_matrix_state:
            linear = (self._weight("B", "write", "gsf"), self._read("X", "f"))
            return self._diagram("written", linear, ("g", "s"))
        nodes = (
            self._weight("V", "value", "gcf"),
            self._read("Xv", "f"),
            self._weight("K", "key", "gse"),
            self._read("Xk", "e"),
            *self._rate(),
        )
        return self._diagram("written", nodes, ("g", "c", "s"))

    def _kept(self) -> list[Term]:
        kind, before = self.shape.kind, self.time - 1
        if kind is Kind.DECAY:
            nodes = (self._weight("D", "decay", "g"), self._held("gcs", before))
            return [Term(self._diagram("kept", nodes, ("g", "c", "s")))]
        if kind is Kind.DELTA:
            kept = self._diagram("kept", (self._held("gcs", before),), ("g", "c", "s"))
            read = (
                self._held("gct", before),
                self._weight("Kr", "key", "gtf"),
                self._read("Xr", "f"),
                self._weight("Kw", "key", "gse"),
                self._read("Xw", "e"),
                *self._rate(),
            )
            return [Term(kept), Term(self._diagram("erased", read, ("g", "c", "s")), -1.0)]
        if kind is Kind.DIAGONAL:
            nodes = (self._weight("A", "transition", "gs"), self._held("gs", before))
            return [Term(self._diagram("kept", nodes, ("g", "s")))]
        nodes = (self._weight("A", "transition", "gst"), self._held("gt", before))
        terms = [Term(self._diagram("kept", nodes, ("g", "s")))]
        if kind is Kind.SELECTIVE:
            chosen = (
                self._weight("As", "selection", "gfst"),
                self._read("X", "f"),
                self._held("gt", before),
            )
            terms.append(Term(self._diagram("selected", chosen, ("g", "s"))))
        return terms

    def _rate(self) -> tuple[Node, ...]:
        if self.shape.kind is Kind.DECAY:
            return ()
        if not self.shape.has_input_rate:
            return (self._weight("b", "rate", "g"),)
        return (self._weight("b", "rate", "gr"), self._read("Xb", "r"))

    def _read(self, name: str, index: str) -> Node:
        """The token that the layer reads at its time."""
        if self.layer == 1:
            rows = (self.time, self.time + 1)
            return Node(name, (index,), Role.DATA, r"\mathbf{x}", INPUTS, rows)
        below = _Moment(self.shape, self.layer - 1, self.time)
        return Node(name, (index,), Role.DATA, below.token_label, below.token_name)

    def _held(self, indices: str, time: int) -> Node:
        """The state of the layer at a time."""
        moment = _Moment(self.shape, self.layer, time)
        return Node("S", tuple(indices), Role.DATA, moment.state_label, moment.state_name)

    def _weight(self, name: str, array: str, indices: str) -> Node:
        label = rf"\mathbf{{{name[0]}}}^{{{self.layer}}}"
        full = f"layers.{self.layer - 1}.{array}"
        return Node(name, tuple(indices), label=label, array=full)

    def _diagram(self, name: str, nodes: tuple[Node, ...], output: tuple[str, ...]) -> Diagram:
        used = dict.fromkeys(index for node in nodes for index in node.indices)
        indices = tuple(_index(self.shape, one) for one in used)
        return Diagram(f"{name}{self.layer}_{self.time}", indices, nodes, output)


def _index(shape: RecurrenceShape, name: str) -> Index:
    if name == "g":
        return Index(name, shape.heads, "H", IndexKind.HEAD)
    if name in "st":
        return Index(name, shape.state, "S", IndexKind.RANK)
    if name == "c":
        return Index(name, shape.head_size, "D", IndexKind.FEATURE)
    return Index(name, shape.width, "F", IndexKind.FEATURE)
