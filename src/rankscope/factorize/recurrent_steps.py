"""One step of an LSTM or a GRU, as a function and as diagrams, and the walk over time."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Network, Step, Sum, Term
from rankscope.diagrams.parts import Function, Index, IndexKind, Node, Region, Role
from rankscope.factorize.linear import LinearLayer, linear_steps

Weights = Mapping[str, LinearLayer]
State = tuple[Tensor, ...]
Apply = Callable[[Tensor], Tensor]
CellStep = Callable[[Tensor, State], State]


def lstm_step(from_input: Tensor, state: State, recurrent: Apply, project: Apply | None) -> State:
    r"""The next hidden state and cell.

    .. math:: c' = \sigma(f) \odot c + \sigma(i) \odot \tanh(g), \qquad
              h' = W_{hr} (\sigma(o) \odot \tanh(c'))

    with the gates i, f, g, o in this order, each a sum of what `from_input` holds and of what
    `recurrent` makes of h, biases included. Without `project`, there is no W_hr.
    """
    hidden, cell = state
    entered, kept, fresh, shown = (from_input + recurrent(hidden)).chunk(4, -1)
    cell = torch.sigmoid(kept) * cell + torch.sigmoid(entered) * torch.tanh(fresh)
    hidden = torch.sigmoid(shown) * torch.tanh(cell)
    return (hidden if project is None else project(hidden)), cell


def gru_step(from_input: Tensor, state: State, recurrent: Apply) -> State:
    r"""The next hidden state.

    .. math:: n = \tanh(x_n + \sigma(x_r + h_r) \odot h_n), \qquad
              h' = (1 - z) \odot n + z \odot h, \quad z = \sigma(x_z + h_z)

    with the gates r, z, n in this order, x in `from_input` and h from `recurrent`. The reset gate
    acts on what `recurrent` returns, its bias included, not on the state before it.
    """
    (hidden,) = state
    reset, update, fresh = from_input.chunk(3, -1)
    reset_again, update_again, fresh_again = recurrent(hidden).chunk(3, -1)
    fresh = torch.tanh(fresh + torch.sigmoid(reset + reset_again) * fresh_again)
    share = torch.sigmoid(update + update_again)
    return (fresh + share * (hidden - fresh),)


def scan(
    step: CellStep, inputs: Tensor, state: State, *, is_reverse: bool, lengths: Tensor | None
) -> tuple[Tensor, State]:
    """Carry a state over time; the outputs are its first part after each step.

    Args:
        step: from an input and a state to the next state.
        inputs: (time, batch, ...).
        state: before the first step.
        is_reverse: from the last input to the first.
        lengths: of each sample, on the device of the inputs; beyond it a state stays as it is.
            None if all are of full length.
    """
    outputs = []
    times = range(len(inputs))
    for time in reversed(times) if is_reverse else times:
        after = step(inputs[time], state)
        if lengths is not None:
            goes_on = (time < lengths)[:, None]
            pairs = zip(after, state, strict=True)
            after = tuple(torch.where(goes_on, new, old) for new, old in pairs)
        state = after
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if is_reverse else outputs), state


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
        steps += linear_steps("projected", weights[name], "hidden", prefix=f"weights.{name}.")
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
        steps += linear_steps(name, weights[weight], source, prefix=f"weights.{weight}.")
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
