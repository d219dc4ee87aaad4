"""Recurrent arithmetic circuits of any depth."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Network, Step
from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.rank.bounds.networks import recurrent_upper_bound, start_end_lower_bound
from rankscope.rank.networks.network import Arithmetic, Setting, TokenNetwork, require_sizes
from rankscope.rank.partition import Partition
from rankscope.theorem import LowerBound, UpperBound

# The published lower bound is for circuits of one and of two layers.
_DEEPEST_LOWER_BOUND = 2


class RecurrentCircuit(TokenNetwork):
    r"""States that meet the layer below, or the token, by products.

    .. math:: h^{t,l} = (W^{H,l} h^{t-1,l}) * (W^{I,l} h^{t,l-1}), \qquad
              h^{t,0} = f(x^t), \qquad y = \langle w, h^{T,L} \rangle

    The initial states are learned. The source fixes them so that the first products are with
    ones, which is the same class of functions: h^{0,l} only scales channels, and so does a
    change of the other weights, as long as no entry of W^{H,l} h^{0,l} is 0.

    Args:
        num_tokens: T.
        num_templates: M, the size of f(x^t).
        channels: R, the size of every state.
        depth: L, the number of layers.
        on_templates: measure on the grid of the M basis templates, as the theorems do. From two
            layers on the output is not multilinear, and arbitrary vectors may give more.
        generator: where the initial weights come from.

    Example:
        >>> circuit = RecurrentCircuit(num_tokens=4, num_templates=3, channels=2, depth=2)
        >>> circuit(torch.ones(5, 4, 3)).shape, circuit.input_degree
        (torch.Size([5]), 10)

    Raises:
        SizeError: if a size is not positive, or there are fewer than two tokens.

    Reference:
        Levine et al. (2017), arXiv:1710.09431.
    """

    family = "recurrent"
    default_partition = "start-end"

    def __init__(
        self,
        *,
        num_tokens: int,
        num_templates: int,
        channels: int,
        depth: int = 1,
        on_templates: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        who = "RecurrentCircuit"
        require_sizes(who, least=2, num_tokens=num_tokens)
        require_sizes(who, num_templates=num_templates, channels=channels, depth=depth)
        self.num_positions = num_tokens
        self.input_size = num_templates
        self.num_templates = num_templates if on_templates else None
        self.channels = channels
        self.depth = depth
        identity = torch.eye(channels)
        self.input_maps = nn.ParameterList(
            _near(torch.ones(channels, num_templates) if layer == 0 else identity, generator)
            for layer in range(depth)
        )
        self.hidden_maps = nn.ParameterList(_near(identity, generator) for _ in range(depth))
        self.initial_states = nn.ParameterList(torch.ones(channels) for _ in range(depth))
        self.output = nn.Parameter(torch.randn(channels, generator=generator))

    @property
    def settings(self) -> dict[str, Setting]:
        return {
            "num_tokens": self.num_positions,
            "num_templates": self.input_size,
            "channels": self.channels,
            "depth": self.depth,
            "on_templates": self.num_templates is not None,
        }

    @property
    def weight_degree(self) -> int:
        """Two maps for each state, along all lattice paths, and the initial states."""
        degrees = [0, *[1] * self.depth]
        for _ in range(self.num_positions):
            for layer in range(1, self.depth + 1):
                degrees[layer] += degrees[layer - 1] + 2
        return degrees[-1] + 1

    @property
    def input_degree(self) -> int:
        """Lattice paths from the tokens to the output."""
        return math.comb(self.num_positions + self.depth - 1, self.depth)

    def evaluate(
        self, numbers: Arithmetic, weights: Mapping[str, Tensor], tokens: Sequence[Tensor]
    ) -> Tensor:
        layers = range(self.depth)
        states = [weights[f"initial_states.{layer}"][None, None] for layer in layers]
        for token in tokens:
            below = token
            for layer in layers:
                hidden, input_map = weights[f"hidden_maps.{layer}"], weights[f"input_maps.{layer}"]
                states[layer] = below = numbers.multiply(
                    numbers.contract("oi,abi->abo", hidden, states[layer]),
                    numbers.contract("oi,abi->abo", input_map, below),
                )
        return numbers.contract("i,abi->ab", weights["output"], states[-1])

    def upper_bound(self, partition: Partition) -> UpperBound:
        """Minimal cut over time; never above the start-end bounds."""
        self.require_covered(partition)
        return recurrent_upper_bound(
            partition.left,
            num_tokens=self.num_positions,
            num_templates=self.input_size,
            num_channels=self.channels,
            depth=self.depth,
            is_on_templates=self.num_templates is not None,
        )

    def lower_bound(self, partition: Partition) -> LowerBound | None:
        """The published theorem: start against end, an even number of tokens, depth 1 or 2."""
        self.require_covered(partition)
        start_end = Partition.start_end(self.num_positions)
        is_covered = self.num_positions % 2 == 0 and self.depth <= _DEEPEST_LOWER_BOUND
        if not is_covered or partition not in (start_end, start_end.swapped):
            return None
        return start_end_lower_bound(
            num_tokens=self.num_positions,
            num_templates=self.input_size,
            num_channels=self.channels,
            depth=self.depth,
        )

    def diagram(self) -> Network:
        """One step for each state: from two layers on a state is read twice."""
        steps = [
            Step(f"h{time}_{layer}", self._state(time, layer), _state_label(time, layer))
            for time in range(1, self.num_positions + 1)
            for layer in range(1, self.depth + 1)
        ]
        last = _read(self.num_positions, self.depth, "i")
        weights = Node("output", ("i",), label=r"\mathbf{w}")
        index = Index("i", self.channels, "R", IndexKind.RANK)
        steps.append(Step("y", Diagram("output", (index,), (weights, last), ()), "y"))
        title = f"Recurrent circuit of {self.num_positions} tokens and {self.depth} layers"
        return Network("recurrent", tuple(steps), title)

    def _state(self, time: int, layer: int) -> Diagram:
        """The products that make one state."""
        below = (
            Index("i", self.input_size, "M", IndexKind.FEATURE)
            if layer == 1
            else Index("i", self.channels, "R", IndexKind.RANK)
        )
        states = tuple(Index(name, self.channels, "R", IndexKind.RANK) for name in ("s", "r"))
        nodes = (
            _read(time - 1, layer, "s"),
            Node("H", ("r", "s"), Role.PARAMETER, _map_label("H", layer), _array("hidden", layer)),
            _read(time, layer - 1, "i"),
            Node("I", ("r", "i"), Role.PARAMETER, _map_label("I", layer), _array("input", layer)),
        )
        return Diagram(f"h{time}_{layer}", (below, *states), nodes, ("r",))


def _read(time: int, layer: int, index: str) -> Node:
    """A token (layer 0), an initial state (time 0), or a state that an earlier step made."""
    name, label = f"h{time}_{layer}", _state_label(time, layer)
    if layer == 0:
        return Node(name, (index,), Role.DATA, label, "inputs", (time - 1, time))
    if time == 0:
        return Node(name, (index,), Role.PARAMETER, label, f"initial_states.{layer - 1}")
    return Node(name, (index,), Role.DATA, label)


def _array(kind: str, layer: int) -> str:
    return f"{kind}_maps.{layer - 1}"


def _map_label(kind: str, layer: int) -> str:
    return rf"\mathbf{{W}}^{{{kind},{layer}}}"


def _state_label(time: int, layer: int) -> str:
    return rf"\mathbf{{x}}_{{{time}}}" if layer == 0 else rf"\mathbf{{h}}^{{{time},{layer}}}"


def _near(start: Tensor, generator: torch.Generator | None) -> Tensor:
    # States stay near ones on the templates, however many products there are.
    return start + torch.randn(start.shape, generator=generator) * 0.1 / start.shape[0]
