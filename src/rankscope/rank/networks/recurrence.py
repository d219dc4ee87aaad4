"""Recurrences that take the place of attention: a state of fixed size, read by every token.

Five kinds of layers, each a polynomial of its tokens: linear attention with a decay, the delta
rule, and state spaces with a diagonal, a dense and a selective transition. The equations below are
the definition, token by token and in any `Arithmetic`; `recurrence_programs` is the fast road.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from fractions import Fraction

import torch
from torch import Tensor, nn

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Body, Network, Step, Sum, Term
from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.errors import SizeError
from rankscope.rank.measured import SplitFunction
from rankscope.rank.networks.network import (
    Arithmetic,
    Setting,
    TokenMixer,
    require_sizes,
)
from rankscope.rank.networks.self_attention import normal
from rankscope.rank.partition import Partition
from rankscope.theorem import UpperBound


class Kind(StrEnum):
    """What a layer does with its state."""

    DECAY = "decay"
    DIAGONAL = "diagonal"
    DENSE = "dense"
    SELECTIVE = "selective"
    DELTA = "delta"

    @property
    def has_matrix_state(self) -> bool:
        """Whether a head's state is a matrix of values and keys."""
        return self in (Kind.DECAY, Kind.DELTA)


@dataclass(frozen=True)
class RecurrenceShape:
    """The sizes of a recurrent network, all of them resolved.

    Args:
        kind: see `Kind`.
        depth: number of layers, L.
        width: size of a token vector, d.
        state: S: the size of keys and queries of `decay` and `delta`, whose state is a matrix
            (head size, S); the size of the state vector of the other kinds.
        heads: each with a state of its own; the head size is width / heads.
        has_input_rate: the rate β of the delta rule is linear in the token, not constant.
        num_tokens: number of inputs, N.
        output_position: which token the output is read from.

    Raises:
        SizeError: if a size is not positive, or they contradict each other.
    """

    kind: Kind
    depth: int
    width: int
    state: int
    heads: int
    has_input_rate: bool
    num_tokens: int
    output_position: int

    def __post_init__(self) -> None:
        who = "Recurrence"
        require_sizes(
            who,
            depth=self.depth,
            width=self.width,
            state=self.state,
            heads=self.heads,
            num_tokens=self.num_tokens,
        )
        if self.width % self.heads:
            raise SizeError(f"{who}: {self.heads} heads do not divide width {self.width}.")
        if self.has_input_rate and self.kind is not Kind.DELTA:
            raise SizeError(f"{who}: only the delta rule has a rate, got kind {self.kind}.")
        if not 0 <= self.output_position < self.num_tokens:
            raise SizeError(
                f"{who}: the output position must lie in 0..{self.num_tokens - 1}, "
                f"got {self.output_position}."
            )

    @property
    def head_size(self) -> int:
        """Coordinates that a head writes."""
        return self.width // self.heads

    @property
    def is_homogeneous(self) -> bool:
        """Whether all terms of the output have one degree in the inputs."""
        return self.kind in (Kind.DECAY, Kind.DIAGONAL, Kind.DENSE)

    @property
    def rate_degree(self) -> int:
        """Degree of one update (key, key, rate) of the delta rule in its token."""
        return 3 if self.has_input_rate else 2

    def degrees(self) -> list[int]:
        """Degree in the inputs of the token at each position after all layers."""
        tokens = [1] * self.num_tokens
        for _ in range(self.depth):
            state, made = 0, []
            for degree in tokens:
                if self.kind is Kind.DELTA:
                    state += self.rate_degree * degree
                elif self.kind is Kind.SELECTIVE:
                    state += degree
                else:
                    state = degree * (2 if self.kind is Kind.DECAY else 1)
                made.append(state + degree)
            tokens = made
        return tokens

    def weight_degrees(self) -> list[int]:
        """Degree in the weights of the token at each position after all layers."""
        tokens = [0] * self.num_tokens
        for _ in range(self.depth):
            state, made = 0, []
            for degree in tokens:
                projected = degree + 1
                if self.kind is Kind.DELTA:
                    state += 2 * projected + (projected if self.has_input_rate else 1)
                elif self.kind is Kind.DECAY:
                    state = max(state + 1, 2 * projected)
                elif self.kind is Kind.SELECTIVE:
                    state += projected
                else:
                    state = max(state + 1, projected)
                made.append(state + projected + 1)
            tokens = made
        return tokens


class RecurrenceLayer(nn.Module):
    """The weights of a layer.

    `decay` and `delta`: `query` and `key` (heads, state, width), `value` (heads, head_size, width),
    `output` (width, heads, head_size), and `decay` (heads,) or `rate` (heads,), (heads, width) if
    it is read from the token. The others: `transition` (heads, state), with two axes of the state
    if it is no diagonal, `selection` (heads, width, state, state) for selective ones, `write`
    (heads, state, width), `read` (heads, head_size, state) and `gate` (heads, head_size, width).
    """

    def __init__(self, shape: RecurrenceShape, generator: torch.Generator | None) -> None:
        super().__init__()
        heads, size, width, state = shape.heads, shape.head_size, shape.width, shape.state

        def drawn(*sizes: int, summed: int) -> nn.Parameter:
            return nn.Parameter(normal(sizes, summed, generator))

        if shape.kind.has_matrix_state:
            self.query = drawn(heads, state, width, summed=width)
            self.key = drawn(heads, state, width, summed=width * state)
            self.value = drawn(heads, size, width, summed=width)
            self.output = drawn(width, heads, size, summed=heads * size)
            if shape.kind is Kind.DECAY:
                self.decay = nn.Parameter(torch.full((heads,), 0.9))
            elif shape.has_input_rate:
                self.rate = drawn(heads, width, summed=width)
            else:
                self.rate = nn.Parameter(torch.full((heads,), 0.5))
            return
        if shape.kind is Kind.DIAGONAL:
            self.transition = nn.Parameter(0.9 + 0.05 * normal((heads, state), 1, generator))
        else:
            self.transition = drawn(heads, state, state, summed=state)
        if shape.kind is Kind.SELECTIVE:
            self.selection = drawn(heads, width, state, state, summed=4 * width * state)
        self.write = drawn(heads, state, width, summed=width)
        self.read = drawn(heads, size, state, summed=state)
        self.gate = drawn(heads, size, width, summed=width)


def recur(
    shape: RecurrenceShape,
    numbers: Arithmetic,
    weights: Mapping[str, Tensor],
    prefix: str,
    tokens: Tensor,
) -> Tensor:
    r"""The tokens (batch, tokens, width) after a layer.

    .. math:: S \leftarrow \gamma S + v k^T, \quad y = \sum_h W^O_h S_h q_h \qquad
              S \leftarrow S (I - \beta k k^T) + \beta v k^T, \quad y = \sum_h W^O_h S_h q_h

    .. math:: h \leftarrow A h + B x, \quad y = (C h) * (G x), \qquad
              A(x) = A_0 + \sum_i x_i A_i \text{ if it is selective}

    Heads of the state spaces write coordinates of their own, one head after the other.
    """
    start = f"{prefix}."
    own = {name.removeprefix(start): w for name, w in weights.items() if name.startswith(start)}
    step = _matrix_step if shape.kind.has_matrix_state else _vector_step
    rows = shape.head_size if shape.kind.has_matrix_state else 1
    state = tokens.new_zeros(len(tokens), shape.heads, rows, shape.state)
    outputs = []
    for token in tokens.unbind(1):
        state, output = step(shape, numbers, own, state, token)
        outputs.append(output)
    return torch.stack(outputs, dim=1)


def _matrix_step(
    shape: RecurrenceShape,
    numbers: Arithmetic,
    own: Mapping[str, Tensor],
    state: Tensor,
    token: Tensor,
) -> tuple[Tensor, Tensor]:
    query, key, value = (
        numbers.contract("hsk,bk->bhs", own[name], token) for name in ("query", "key", "value")
    )
    if shape.kind is Kind.DECAY:
        kept = numbers.multiply(own["decay"][:, None, None], state)
        state = numbers.add(kept, numbers.contract("bha,bhs->bhas", value, key))
    else:
        if shape.has_input_rate:
            rate = numbers.contract("hk,bk->bh", own["rate"], token)
        else:
            rate = own["rate"].expand(len(token), -1)
        minus = numbers.constants([Fraction(-1)], token)
        known = numbers.contract("bhas,bhs->bha", state, key)
        missing = numbers.add(value, numbers.multiply(minus, known))
        scaled = numbers.multiply(rate[:, :, None], missing)
        state = numbers.add(state, numbers.contract("bha,bhs->bhas", scaled, key))
    answer = numbers.contract("bhas,bhs->bha", state, query)
    return state, numbers.contract("kha,bha->bk", own["output"], answer)


def _vector_step(
    shape: RecurrenceShape,
    numbers: Arithmetic,
    own: Mapping[str, Tensor],
    state: Tensor,
    token: Tensor,
) -> tuple[Tensor, Tensor]:
    vector = state[:, :, 0]
    if shape.kind is Kind.DIAGONAL:
        kept = numbers.multiply(own["transition"], vector)
    else:
        kept = numbers.contract("hst,bht->bhs", own["transition"], vector)
    if shape.kind is Kind.SELECTIVE:
        chosen = numbers.contract("hkst,bk->bhst", own["selection"], token)
        kept = numbers.add(kept, numbers.contract("bhst,bht->bhs", chosen, vector))
    vector = numbers.add(kept, numbers.contract("hsk,bk->bhs", own["write"], token))
    output = numbers.multiply(
        numbers.contract("has,bhs->bha", own["read"], vector),
        numbers.contract("hak,bk->bha", own["gate"], token),
    )
    return vector[:, :, None], output.flatten(1)


class Recurrence(TokenMixer):
    """Layers of a recurrence over the tokens; see `recur` for the equations.

    The output is coordinate 0 of the token at the output position after the last layer. With
    decay 1 and keys of the head size, `decay` is causal attention without softmax.

    Args:
        kind: see `Kind`, as a word.
        depth: see `RecurrenceShape`, also for the other arguments.
        width: size of a token vector.
        state: size of a head's keys, or of its state vector; `width // heads` if None.
        heads: each with a state of its own.
        has_input_rate: the rate of the delta rule is linear in the token.
        num_tokens: number of inputs; `2 * width` if None.
        output_position: the last token if None.
        generator: where the initial weights come from.

    Example:
        >>> network = Recurrence(kind="delta", depth=1, width=4, state=2, num_tokens=3)
        >>> network(torch.ones(5, 3, 4)).shape, network.input_degree
        (torch.Size([5]), 7)

    Raises:
        SizeError: if sizes do not fit each other, or there is no such kind.

    Reference:
        Katharopoulos et al. (2020), arXiv:2006.16236, for linear attention; Sun et al. (2023),
        arXiv:2307.08621, for the decay; Yang et al. (2024), arXiv:2406.06484, for the delta rule;
        Gu et al. (2021), arXiv:2111.00396, and Gu & Dao (2023), arXiv:2312.00752, for state spaces.
    """

    family = "recurrence"

    def __init__(  # noqa: PLR0913 - a certificate names each of these
        self,
        *,
        kind: str,
        depth: int,
        width: int,
        state: int | None = None,
        heads: int = 1,
        has_input_rate: bool = False,
        num_tokens: int | None = None,
        output_position: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if kind not in list(Kind):
            known = ", ".join(Kind)
            raise SizeError(f"Recurrence: kind must be one of {known}, got {kind!r}.")
        count = 2 * width if num_tokens is None else num_tokens
        require_sizes("Recurrence", heads=heads)
        self.shape = shape = RecurrenceShape(
            kind=Kind(kind),
            depth=depth,
            width=width,
            state=max(1, width // heads) if state is None else state,
            heads=heads,
            has_input_rate=has_input_rate,
            num_tokens=count,
            output_position=count - 1 if output_position is None else output_position,
        )
        self.num_positions, self.input_size = count, width
        self.output_position = shape.output_position
        self.layers = nn.ModuleList(RecurrenceLayer(shape, generator) for _ in range(depth))

    @property
    def settings(self) -> dict[str, Setting]:
        """All arguments but the generator; sizes that were left out are written down."""
        return {**asdict(self.shape), "kind": str(self.shape.kind)}

    @property
    def weight_degree(self) -> int:
        return self.shape.weight_degrees()[self.output_position]

    @property
    def input_degree(self) -> int:
        return self.shape.degrees()[self.output_position]

    def mix(self, numbers: Arithmetic, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        tokens = inputs
        for number in range(self.shape.depth):
            tokens = recur(self.shape, numbers, weights, f"layers.{number}", tokens)
        return tokens

    def grade_degrees(self, partition: Partition) -> tuple[int, ...]:
        """All degrees, every second one with decay; the output's token enters at least once."""
        if not self.shape.is_homogeneous:
            return (0,)
        first = int(self.output_position in partition.right)
        step = 2 if self.shape.kind is Kind.DECAY else 1
        return tuple(range(first, self.input_degree + first, step))

    def upper_bound(self, partition: Partition) -> UpperBound:
        """The least of the bounds by degrees and by monomials of states."""
        from rankscope.rank.networks.token_mixer_bounds import recurrence_upper_bound

        self.require_covered(partition)
        return recurrence_upper_bound(self.shape, partition)

    def grade_upper_bounds(self, partition: Partition) -> tuple[int, ...] | None:
        """The terms of the upper bound, by degree in the right side."""
        from rankscope.rank.networks.token_mixer_bounds import recurrence_terms

        return recurrence_terms(self.shape, partition, self.grade_degrees(partition))

    def diagram(self) -> Network:
        """One step for each state and each token that the output rests on."""
        return recurrence_diagram(self.shape)

    def program_products(self, defined: int) -> int:
        return defined

    def split_class(self) -> Callable[..., SplitFunction]:
        """The output as a function of the two sides, by straight-line programs."""
        from rankscope.rank.networks.recurrence_programs import recurrence_split

        return recurrence_split


# --- As tensor diagrams, unrolled in time: a step for each state and for each token ---------------


INPUTS, UNIT = "x", "unit"


def recurrence_diagram(shape: RecurrenceShape) -> Network:
    """Draw the network for one input (num_tokens, width); its value is the output.

    Parameters are named as those of `Recurrence`; the array `x` holds the tokens (tokens, width),
    `unit` the first unit vector, with which the output reads coordinate 0.
    """
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
