"""What a drawable costs: parameters, operations, and memory, counted from its own plan."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rankscope.diagrams.contraction import Contraction, RegionPlan, plan_contraction
from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Call, Drawable, diagrams_of, flattened
from rankscope.diagrams.parts import PARAMETER_ROLES
from rankscope.diagrams.running.arrays import arrays_of
from rankscope.diagrams.running.schedule import Schedule, schedule
from rankscope.diagrams.search import AUTOMATIC, Method
from rankscope.diagrams.sizes import resolved_sizes
from rankscope.display import Table, fragment
from rankscope.errors import SizeError

Positions = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class RegionCost:
    """One region of one diagram: its operations, its largest product, and its moves."""

    step: str
    diagram: str
    region: str | None
    flops: int
    largest_intermediate: int
    path: Positions

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "step": self.step,
            "diagram": self.diagram,
            "region": self.region,
            "flops": self.flops,
            "largest_intermediate": self.largest_intermediate,
            "path": [list(positions) for positions in self.path],
        }


@dataclass(frozen=True)
class Cost:
    """Exact counts for one drawable.

    Args:
        parameters: entries of parameter arrays; an array that several nodes read counts once.
        flops: operations of all contractions, a multiplication and an addition counted as two;
            functions, scales and the additions of a sum are not counted, look-ups cost nothing.
        largest_intermediate: entries of the largest product; outputs included, inputs not.
        peak_memory: entries alive at once when the plan is carried out without gradients:
            inputs and parameters all along, and every product until its last use. Where PyTorch
            has one call for several moves, a module needs less.
        regions: one row for each region, in the order they are computed.
        method: how the order was chosen.
        opaque: operators that are no contraction and cost nothing here, each with how often it
            is called.
    """

    name: str
    parameters: int
    flops: int
    largest_intermediate: int
    peak_memory: int
    regions: tuple[RegionCost, ...]
    method: str
    opaque: tuple[tuple[str, int], ...] = ()

    @property
    def num_opaque(self) -> int:
        """Number of steps that are no contraction, and so are not counted."""
        return sum(count for _, count in self.opaque)

    @property
    def path(self) -> tuple[Positions, ...]:
        """The contraction path of each region, in opt_einsum's notation."""
        return tuple(region.path for region in self.regions)

    def __str__(self) -> str:
        opaque = ""
        if self.opaque:
            kinds = ", ".join(f"{kind} × {count}" for kind, count in self.opaque)
            steps = "step" if self.num_opaque == 1 else "steps"
            opaque = f" and {self.num_opaque} opaque {steps} ({kinds})"
        return (
            f"{self.name}: {self.parameters:,} parameters, {self.flops:,} operations{opaque}, "
            f"largest intermediate {self.largest_intermediate:,}, "
            f"peak memory {self.peak_memory:,} entries [{self.method}]"
        )

    def __repr__(self) -> str:
        return f"<Cost of {self}>"

    def _repr_html_(self) -> str:
        rows = [
            ("parameters", f"{self.parameters:,}", "each array counted once"),
            ("operations", f"{self.flops:,}", "multiply-adds count two"),
            ("largest intermediate", f"{self.largest_intermediate:,}", "entries"),
            ("peak memory", f"{self.peak_memory:,}", "entries alive at once"),
        ]
        facts = [f"{kind} × {count} is no contraction." for kind, count in self.opaque]
        return fragment(f"Cost of {self.name}", facts, Table(("", "", ""), rows, numbers=(1,)))

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "name": self.name,
            "parameters": self.parameters,
            "flops": self.flops,
            "largest_intermediate": self.largest_intermediate,
            "peak_memory": self.peak_memory,
            "path": [[list(positions) for positions in path] for path in self.path],
            "regions": [region.to_dict() for region in self.regions],
            "method": self.method,
            "opaque": dict(self.opaque),
        }


def cost(drawable: Drawable, method: Method = AUTOMATIC) -> Cost:
    """Count what a drawable costs when it is contracted as `method` says.

    Example:
        >>> from rankscope.diagrams.diagram import Diagram
        >>> from rankscope.diagrams.parts import Index, Node, Role
        >>> layer = Diagram(
        ...     "layer",
        ...     (Index("b", 8), Index("i", 3), Index("o", 4)),
        ...     (Node("X", ("b", "i"), Role.DATA), Node("W", ("o", "i"))),
        ...     output=("b", "o"),
        ... )
        >>> print(cost(layer))  # doctest: +NORMALIZE_WHITESPACE
        layer: 12 parameters, 192 operations, largest intermediate 32,
        peak memory 68 entries [Automatic()]

    Raises:
        SizeError: if sizes are missing or contradict each other.
        DiagramError: if a node can be given no values.
        ContractionError: if a region cannot be contracted.
    """
    network = flattened(drawable)
    opaque = Counter(
        step.body.kind
        for step in network.steps
        if isinstance(step.body, Call) and not step.body.is_exact
    )
    parameters = sum(array.entries for array in arrays_of(drawable) if array.is_parameter)
    regions = tuple(
        _region_cost(step.name, diagram.name, region)
        for step in network.steps
        if not isinstance(step.body, Call)
        for diagram in diagrams_of(step.body)
        for region in plan_contraction(diagram, method).regions
    )
    return Cost(
        drawable.name,
        parameters,
        sum(region.flops for region in regions)
        + sum(step.body.operations for step in network.steps if isinstance(step.body, Call)),
        max((region.largest_intermediate for region in regions), default=0),
        peak_memory(schedule(network, method)),
        regions,
        repr(method),
        tuple(opaque.items()),
    )


Polynomial = tuple[tuple[int, tuple[int, ...]], ...]  # factors, and the sizes each is multiplied by


class CostFormula(NamedTuple):
    """The cost of a diagram in one order of contraction, as polynomials of some of its sizes.

    Planning takes a millisecond, which is long when thousands of ranks of the same diagram are to
    be compared; its moves are the same for all of them, so that only products of sizes are left.

    Args:
        parameters: entries of the parameter arrays.
        flops: operations, a multiplication and an addition counted as two.
        intermediates: entries of all products but the result: what passes through memory between.
    """

    parameters: Polynomial
    flops: Polynomial
    intermediates: Polynomial


def cost_formula(
    diagram: Diagram, names: Sequence[str] = (), method: Method = AUTOMATIC
) -> CostFormula:
    """What `cost` counts for a diagram without regions, for all sizes of some indices at once.

    The order is the one that `method` chooses at the diagram's own sizes. A polynomial is a sum of
    terms, each a factor and the places in `names` of the sizes that it is multiplied by.

    Example:
        >>> from rankscope.diagrams.diagram import Diagram
        >>> from rankscope.diagrams.parts import Index, Node, Role
        >>> layer = Diagram(
        ...     "layer",
        ...     (Index("b", 8), Index("i", 3), Index("o", 4)),
        ...     (Node("X", ("b", "i"), Role.DATA), Node("W", ("o", "i"))),
        ...     output=("b", "o"),
        ... )
        >>> cost_formula(layer, ["b"]).flops, cost(layer.with_sizes(b=16)).flops
        (((24, (0,)),), 384)

    Raises:
        SizeError, ContractionError: as `cost`; also if the diagram has no index of such a name, or
            a convolution ties it to others.
    """
    sizes = resolved_sizes(diagram)
    tied = {leg for convolution in diagram.convolutions for leg in convolution.indices}
    free = [name for name in sizes if name not in tied]
    for name in names:
        if name not in free:
            raise SizeError(
                f"{diagram.name}: no index {name!r} has a free size; "
                f"choose among {', '.join(free)}."
            )
    place = {name: number for number, name in enumerate(names)}

    def polynomial(terms: Iterable[tuple[int, tuple[str, ...]]]) -> Polynomial:
        return tuple(
            (
                count * math.prod(sizes[leg] for leg in legs if leg not in place),
                tuple(place[leg] for leg in legs if leg in place),
            )
            for count, legs in terms
        )

    moves = plan_contraction(diagram, method).contractions
    learned = {node.source: node.indices for node in diagram.nodes if node.role in PARAMETER_ROLES}
    return CostFormula(
        polynomial((1, indices) for indices in learned.values()),
        polynomial(_loop(diagram, move) for move in moves if not move.is_lookup),
        polynomial((1, move.output) for move in moves[:-1]),
    )


def _loop(diagram: Diagram, move: Contraction) -> tuple[int, tuple[str, ...]]:
    """What `Problem.merge` counts: a convolution loops over its output and its kernel."""
    fired = [diagram.convolution_by_name[name] for name in move.convolutions]
    entering = {convolution.input for convolution in fired}
    held = dict.fromkeys(index for indices in move.inputs for index in indices)
    held |= dict.fromkeys(convolution.output for convolution in fired)
    loop = tuple(index for index in held if index not in entering)
    return max(1, len(move.inputs) - 1) + (set(loop) != set(move.output)), loop


def peak_memory(planned: Schedule) -> int:
    """Entries alive at once at the worst moment; a view keeps alive what it looks at."""
    entries = {place: math.prod(array.shape) for place, array in enumerate(planned.arrays)}
    owner = {place: place for place in entries}
    for operation in planned.operations:
        stored = operation.stored_entries
        owner[operation.target] = (
            owner[operation.sources[0]] if stored is None else operation.target
        )
        entries[operation.target] = stored or 0
    last_use = _last_use_of_owner(planned, owner)
    alive = peak = sum(entries[place] for place in range(len(planned.arrays)))
    for place, operation in enumerate(planned.operations):
        alive += entries[operation.target]
        peak = max(peak, alive)
        alive -= sum(entries[value] for value in last_use[place])
    return peak


def _last_use_of_owner(planned: Schedule, owner: dict[int, int]) -> list[list[int]]:
    last: dict[int, int] = {}
    for place, operation in enumerate(planned.operations):
        for value in (operation.target, *operation.sources):
            last[owner[value]] = place
    kept = {owner[value] for value in planned.results}
    owned: list[list[int]] = [[] for _ in planned.operations]
    for value, place in last.items():
        if value >= len(planned.arrays) and value not in kept:
            owned[place].append(value)
    return owned


def _region_cost(step: str, diagram: str, plan: RegionPlan) -> RegionCost:
    return RegionCost(
        step,
        diagram,
        plan.region,
        sum(move.flops for move in plan.contractions),
        max((plan.size, *(move.size for move in plan.contractions))),
        plan.path,
    )
