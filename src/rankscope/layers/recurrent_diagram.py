"""One step of an LSTM or a GRU as a network of diagrams.

Inputs are `x`, `h` and, for an LSTM, `c`, of one sample; the value is the next hidden state.
"""

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.functions import Function
from rankscope.diagrams.network import Network, Step, Sum, Term
from rankscope.diagrams.parts import Index, IndexKind, Node, Region, Role
from rankscope.layers.linear_diagram import linear_steps
from rankscope.layers.recurrent_weights import Weights

_UNIT = "u"  # the index of a cell's units, on everything that is multiplied entry by entry


def lstm_network(weights: Weights, suffix: str, hidden_size: int) -> Network:
    """See `lstm_step`; `weights` holds those of the layer and direction that `suffix` names."""
    draw = _Drawer(hidden_size)
    steps = _both(weights, suffix)
    gates = Index(_UNIT, 4 * hidden_size, "4H", IndexKind.FEATURE)
    read = [Node("X", (_UNIT,), Role.DATA, array=name) for name in ("xs", "hs")]
    terms = tuple(Term(Diagram(node.source, (gates,), (node,), (_UNIT,))) for node in read)
    steps.append(Step("gates", Sum("gates", terms)))
    kept = draw.product(draw.gate("gates", 1, "sigmoid"), draw.whole("c"))
    fresh = draw.product(draw.gate("gates", 0, "sigmoid"), draw.gate("gates", 2, "tanh"))
    steps.append(Step("cell", Sum("cell", (Term(kept), Term(fresh))), r"\mathbf{c}'"))
    shown = draw.product(draw.gate("gates", 3, "sigmoid"), draw.whole("cell", "tanh"))
    steps.append(Step("hidden", shown, r"\mathbf{h}'"))
    name = f"weight_hr_{suffix}"
    if name in weights:
        steps += linear_steps("projected", weights[name], "hidden", prefix=f"weights.{name}")
    return Network("lstm", tuple(steps), "One step of an LSTM")


def gru_network(weights: Weights, suffix: str, hidden_size: int) -> Network:
    """See `gru_step`; `weights` holds those of the layer and direction that `suffix` names."""
    draw = _Drawer(hidden_size)
    steps = _both(weights, suffix)
    for place, name in enumerate(("reset", "update")):
        terms = tuple(Term(draw.product(draw.gate(array, place))) for array in ("xs", "hs"))
        steps.append(Step(name, Sum(name, terms)))
    again = draw.product(draw.whole("reset", "sigmoid"), draw.gate("hs", 2))
    terms = (Term(draw.product(draw.gate("xs", 2))), Term(again))
    steps.append(Step("fresh", Sum("fresh", terms)))
    share, new = draw.whole("update", "sigmoid"), draw.whole("fresh", "tanh")
    terms = (
        Term(draw.product(new)),
        Term(draw.product(share, draw.whole("h"))),
        Term(draw.product(share, new), -1.0),
    )
    steps.append(Step("hidden", Sum("hidden", terms), r"\mathbf{h}'"))
    return Network("gru", tuple(steps), "One step of a GRU")


def _both(weights: Weights, suffix: str) -> list[Step]:
    """What the inputs give to all gates (`xs`), and what the state does (`hs`)."""
    steps: list[Step] = []
    for name, kind, source in (("xs", "ih", "x"), ("hs", "hh", "h")):
        weight = f"weight_{kind}_{suffix}"
        steps += linear_steps(name, weights[weight], source, prefix=f"weights.{weight}")
    return steps


class _Drawer:
    """Products entry by entry of arrays, or of parts of them, each through a function."""

    def __init__(self, hidden_size: int) -> None:
        self.size = hidden_size

    def gate(self, array: str, place: int, function: str = "identity") -> tuple[Node, str]:
        """One gate of an array that holds several."""
        rows = (place * self.size, (place + 1) * self.size)
        node = Node(f"{array}{place}", (_UNIT,), Role.DATA, array=array, rows=rows)
        return node, function

    def whole(self, array: str, function: str = "identity") -> tuple[Node, str]:
        """A whole array."""
        return Node(array, (_UNIT,), Role.DATA, array=array), function

    def product(self, *factors: tuple[Node, str]) -> Diagram:
        """Factors times each other, entry by entry."""
        regions = tuple(
            Region(f"{function} {node.name}", (node.name,), Function(function))
            for node, function in factors
            if function != "identity"
        )
        unit = Index(_UNIT, self.size, "H", IndexKind.FEATURE)
        nodes = tuple(node for node, _ in factors)
        return Diagram("product", (unit,), nodes, (_UNIT,), regions=regions)
