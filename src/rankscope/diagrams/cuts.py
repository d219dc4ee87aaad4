"""The cheapest cut between two groups of open legs: a bound on the rank between them."""

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext

import networkx

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.sizes import resolved_sizes
from rankscope.errors import DiagramError, printable

# Vertices of the flow network: ("part", node), ("enter", index), ("leave", index), the two ends.
Vertex = tuple[str, str]
LEFT: Vertex = ("end", "left")
RIGHT: Vertex = ("end", "right")


@dataclass(frozen=True)
class MinimalCut:
    """The cheapest set of wires that parts two groups of open legs.

    Args:
        value: product of the sizes of the cut indices; no tensor in the nodes makes the rank of
            the matricization `left_legs` x `right_legs` larger.
        indices: the indices that are cut, in the diagram's order; a hyperedge counts once.
        left_nodes: nodes and convolutions on the left side.
        right_nodes: nodes and convolutions on the right side.
        left_legs: open legs on the left: the group asked for, and those free to be on either side.
        right_legs: open legs on the right.
    """

    value: int
    indices: tuple[str, ...]
    left_nodes: tuple[str, ...]
    right_nodes: tuple[str, ...]
    left_legs: tuple[str, ...]
    right_legs: tuple[str, ...]

    def __str__(self) -> str:
        legs = f"{', '.join(self.left_legs)} | {', '.join(self.right_legs)}"
        return f"minimal cut {legs}: {self.value:,} through {', '.join(self.indices) or 'nothing'}"

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "value": self.value,
            "indices": list(self.indices),
            "left_nodes": list(self.left_nodes),
            "right_nodes": list(self.right_nodes),
            "left_legs": list(self.left_legs),
            "right_legs": list(self.right_legs),
        }


def minimal_cut(diagram: Diagram, left: tuple[str, ...], right: tuple[str, ...]) -> MinimalCut:
    r"""Find the indices of least product that part two groups of open legs.

    .. math:: \operatorname{rank} [T]_{L, R} \le \min_{L \subseteq S,\, R \cap S = \emptyset}
              \prod_{i \in \partial S} \text{size}(i)

    Open legs in neither group go with their node. The comparison of products is exact: logarithms
    are rounded so finely that different products never meet. Among cuts of equal product, one
    with fewest indices is returned, with as many nodes on the left as possible.

    Example:
        >>> from rankscope.diagrams.parts import Index, Node
        >>> train = Diagram(
        ...     "train",
        ...     (Index("a", 5), Index("r", 2), Index("b", 6), Index("s", 3), Index("c", 7)),
        ...     (Node("G1", ("a", "r")), Node("G2", ("r", "b", "s")), Node("G3", ("s", "c"))),
        ...     output=("a", "b", "c"),
        ... )
        >>> print(minimal_cut(train, ("a", "b"), ("c",)))
        minimal cut a, b | c: 3 through s

    Raises:
        DiagramError: if a group is empty, overlaps the other or names no open leg, or a region is
            not linear.
        SizeError: if a size is missing.

    Reference:
        Cohen & Shashua (2017), arXiv:1605.06743; Levine et al. (2018), arXiv:1704.01552.
    """
    _check_groups(diagram, left, right)
    _check_linear(diagram)
    sizes = resolved_sizes(diagram)
    bound = math.prod(sizes[leg] for leg in left)
    network = _flow_network(diagram, (left, right), _capacities(sizes, bound))
    _, (reached, _) = networkx.minimum_cut(network, LEFT, RIGHT)
    on_left = {part.name: ("part", part.name) in reached for part in diagram.holders}
    owners = diagram.structure.owners
    side = {leg: on_left[owners[leg][0]] for leg in diagram.output}
    side.update(dict.fromkeys(left, True) | dict.fromkeys(right, False))
    cut = []
    for index in diagram.index_by_name:
        ends = [on_left[owner] for owner in owners.get(index, ())]
        if index in (*left, *right):
            ends.append(index in left)
        if len(set(ends)) > 1:
            cut.append(index)
    return MinimalCut(
        math.prod(sizes[index] for index in cut),
        tuple(cut),
        tuple(name for name, is_left in on_left.items() if is_left),
        tuple(name for name, is_left in on_left.items() if not is_left),
        tuple(leg for leg in diagram.output if side[leg]),
        tuple(leg for leg in diagram.output if not side[leg]),
    )


def _check_groups(diagram: Diagram, left: tuple[str, ...], right: tuple[str, ...]) -> None:
    for name, group in (("left", left), ("right", right)):
        if not group:
            raise DiagramError(f"minimal_cut: the {name} group of open legs is empty.")
        for leg in group:
            if leg not in diagram.output:
                raise DiagramError(
                    f"minimal_cut: {leg!r} is not an open leg of {diagram.name!r}; "
                    f"these are: {printable(', '.join(diagram.output)) or 'none'}."
                )
    both = [leg for leg in left if leg in right]
    if both:
        raise DiagramError(f"minimal_cut: legs {', '.join(both)} are in both groups.")


def _check_linear(diagram: Diagram) -> None:
    for region in diagram.regions:
        if region.function.name != "identity" or region.causal is not None:
            what = "a causal mask" if region.function.name == "identity" else region.function.name
            raise DiagramError(
                f"minimal_cut: region {region.name!r} of {diagram.name!r} applies {what}, which "
                "changes entries one by one or divides by their sums and can make the rank larger "
                "than any product of wires; cut the diagram inside the region, or one without it."
            )


def _flow_network(
    diagram: Diagram,
    groups: tuple[tuple[str, ...], tuple[str, ...]],
    capacities: dict[str, int],
) -> networkx.DiGraph:
    """Each index is one edge that all its holders enter and leave freely, so it counts once."""
    network = networkx.DiGraph()
    network.add_nodes_from((LEFT, RIGHT))
    for index, capacity in capacities.items():
        network.add_edge(("enter", index), ("leave", index), capacity=capacity)
    ends: list[tuple[Vertex, str]] = [
        (("part", part.name), index) for part in diagram.holders for index in part.indices
    ]
    ends.extend((LEFT, leg) for leg in groups[0])
    ends.extend((RIGHT, leg) for leg in groups[1])
    for vertex, index in ends:
        network.add_edge(vertex, ("enter", index))
        network.add_edge(("leave", index), vertex)
    return network


def _capacities(sizes: dict[str, int], bound: int) -> dict[str, int]:
    """Logarithms of sizes as integers that order all products up to `bound` as they are.

    Two different products up to Q have logarithms at least 1 / (Q + 1) apart. A size is split
    into primes, so that equal products get equal sums; rounding each prime down by less than one
    unit is then off by less than log2 of the product of all sizes. Multiplying by more than the
    number of indices leaves space to prefer fewer of them.
    """
    total_bits = sum(size.bit_length() for size in sizes.values())
    precision = (bound + 1).bit_length() + total_bits.bit_length() + 2
    space = len(sizes) + 1
    logarithms: dict[int, int] = {}
    capacities = {}
    for index, size in sizes.items():
        capacity = 0
        for prime in prime_factors(size):
            if prime not in logarithms:
                logarithms[prime] = _logarithm(prime, precision)
            capacity += logarithms[prime]
        capacities[index] = capacity * space + 1
    return capacities


def _logarithm(prime: int, precision: int) -> int:
    """The natural logarithm times 2**precision, rounded down."""
    with localcontext() as context:
        context.prec = precision + 20
        return int(Decimal(prime).ln() * (1 << precision))


def prime_factors(number: int) -> tuple[int, ...]:
    """Prime factors in increasing order, as often as they occur.

    Example:
        >>> prime_factors(360)
        (2, 2, 2, 3, 3, 5)
    """
    factors = []
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1
    return (*factors, number) if number > 1 else tuple(factors)
