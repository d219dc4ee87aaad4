"""Bounds on message passing: labels of the unrolled graph, and monomials that both sides can see.

From above: every vector that the network makes is given to the left side, to the right side or to
both, and what crosses is counted by its monomials. From below, and exactly at depth two for most
splits: the network at special weights is a product of powers of sums, whose terms are monomials of
the two sides; their exponents are images of the same integers under two incidence matrices, and
what both matrices keep apart is independent. The proofs are in docs/proofs.md, section 29.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy
from numpy.typing import NDArray

from rankscope.errors import BoundError
from rankscope.rank.bounds.counting import log_multiset, multiset, multiset_magnitude
from rankscope.rank.graphs import Graph
from rankscope.rank.partition import Partition
from rankscope.theorem import LowerBound, Magnitude, Status, Theorem, UpperBound

# Labels of vectors are improved one by one while a sweep over them has no more steps than this.
MAX_STEPS = 400_000
MAX_SWEEPS = 12
# Exponents are listed up to so many; a list twice as long takes a second.
MAX_LISTED = 300_000
# Vertices of the boundary up to which exact linear algebra takes about a second.
MAX_BOUNDARY = 200
# Vertices near the boundary among which active ones are searched for.
MAX_SEARCHED = 40

_NETWORK = "message passing by products, output coordinate 0 of a vertex or of all"
LABELS = Theorem(
    "Rankscope, labels of message passing",
    "docs/proofs.md, section 29",
    None,
    (_NETWORK, "all weights"),
    Status.PROVED_HERE,
)
IMAGES = Theorem(
    "Rankscope, monomials that both sides can tell apart",
    "docs/proofs.md, section 29",
    None,
    (_NETWORK, "almost all weights; the upper bound, at depth 2, for all weights"),
    Status.PROVED_HERE,
)
WALK_INDEX = Theorem(
    "Razin, Verbin & Cohen (2022)",
    "Thm 1",
    "2211.16494",
    (_NETWORK, "all weights"),
    Status.RECALLED,
)


@dataclass(frozen=True)
class GraphSplit:
    """A message passing network and a split of its vertices, by their sizes.

    Args:
        graph: on which messages are passed.
        partition: of its vertices.
        depth: layers.
        width: of the vectors of the vertices.
        target: the vertex that is read, or None for the product over all.
    """

    graph: Graph
    partition: Partition
    depth: int
    width: int
    target: int | None = None

    @cached_property
    def copies(self) -> tuple[tuple[int, ...], ...]:
        """How often the vector of each vertex after layer 0, 1, …, depth enters the output."""
        counts = [self.graph.walks(0, self.target)]
        for _ in range(self.depth):
            near = self.graph.neighbourhoods
            counts.append(tuple(sum(counts[-1][j] for j in one) for one in near))
        return tuple(reversed(counts))

    @property
    def walk_index(self) -> int:
        """Walks of length depth - 1 from the boundary to what is read."""
        return self.graph.walk_index(self.partition, self.depth, self.target)


def walk_index_upper_bound(split: GraphSplit) -> UpperBound:
    r"""The published bound: the width to the power of four times the walk index, and one.

    .. math:: \mathrm{sep} \le d^{4 \rho_{L-1}(C) + 1}

    Reference:
        Razin, Verbin & Cohen (2022), Thm 1, arXiv:2211.16494, as recalled; docs/proofs.md,
        section 29, proves more.
    """
    return UpperBound(Magnitude.of_power(split.width, 4 * split.walk_index + 1), WALK_INDEX)


# --- From above: every vector on the left, on the right, or on both sides -------------------------

LEFT, RIGHT, BOTH = 0, 1, 2
Labels = list[list[int]]


def label_upper_bound(split: GraphSplit) -> UpperBound:
    """The least product of the monomials that cross, over the labels that were tried.

    Any labels give a bound; which ones are tried decides only how good it is.

    Example:
        >>> path = Graph(4, ((0, 1), (1, 2), (2, 3)))
        >>> label_upper_bound(GraphSplit(path, Partition((0, 1), (2, 3)), depth=2, width=2)).value
        16

    Reference:
        ours (proved); docs/proofs.md, section 29.
    """
    best: _Labelling | None = None
    for labels in _candidates(split):
        labelling = _Labelling(split, labels)
        labelling.improve()
        if best is None or labelling.logarithm < best.logarithm:
            best = labelling
    if best is None:  # there is always a candidate
        raise BoundError("label_upper_bound: no labels were tried.")
    product = Magnitude.of(1)
    for factor in best.factors():
        product *= factor
    return UpperBound(product, LABELS)


def _candidates(split: GraphSplit) -> Iterator[Labels]:
    """Labels of the vectors after layer 0, 1, …, depth - 1; layer 0 has those of the split."""
    count, levels = split.graph.num_vertices, range(1, split.depth)
    left = set(split.partition.left)
    sides = [LEFT if vertex in left else RIGHT for vertex in range(count)]
    boundary = set(split.graph.boundary(split.partition))
    mixed = [BOTH if vertex in boundary else sides[vertex] for vertex in range(count)]
    yield [sides, *([LEFT] * count for _ in levels)]
    yield [sides, *([RIGHT] * count for _ in levels)]
    yield [sides, *(list(sides) for _ in levels)]
    yield [sides, *(list(mixed if level == 1 else sides) for level in levels)]
    yield [sides, *(list(mixed) for _ in levels)]
    for start in range(2, split.depth):
        for side in (LEFT, RIGHT):
            yield [
                sides,
                *([side] * count if level >= start else list(mixed) for level in levels),
            ]


class _Labelling:
    """Labels with their cost, kept up to date while single labels change."""

    def __init__(self, split: GraphSplit, labels: Labels) -> None:
        self.split, self.labels = split, labels
        self.near = split.graph.neighbourhoods
        count = split.graph.num_vertices
        # read[l][v]: how often vectors of each label read the vector of v after layer l.
        self.read = [[[0, 0, 0] for _ in range(count)] for _ in range(split.depth)]
        for vertex in range(count):
            self.read[-1][vertex][BOTH] = split.copies[split.depth - 1][vertex]
        for level in range(1, split.depth):
            for vertex in range(count):
                copies = split.copies[level][vertex]
                for j in self.near[vertex]:
                    self.read[level - 1][j][labels[level][vertex]] += copies

    @property
    def logarithm(self) -> float:
        """Of the bound."""
        return math.fsum(
            self._cost(self.labels[level][vertex], self.read[level][vertex])
            for level in range(self.split.depth)
            for vertex in range(self.split.graph.num_vertices)
        )

    def factors(self) -> Iterator[Magnitude]:
        """The numbers of monomials whose product is the bound."""
        for level, row in enumerate(self.labels):
            for vertex, label in enumerate(row):
                for degree in _degrees(label, self.read[level][vertex], self.split.width):
                    if degree:
                        yield multiset_magnitude(self.split.width, degree)

    def improve(self) -> None:
        """Change one label after the other as long as that lowers the bound."""
        steps = (self.split.depth - 1) * 3 * (2 * len(self.split.graph.edges) + 1)
        if steps > MAX_STEPS:
            return
        for _ in range(MAX_SWEEPS):
            changed = [
                self._improve_one(level, vertex)
                for level in range(self.split.depth - 1, 0, -1)
                for vertex in range(self.split.graph.num_vertices)
            ]
            if not any(changed):
                return

    def _improve_one(self, level: int, vertex: int) -> bool:
        if not self.split.copies[level][vertex]:
            return False
        before = self.labels[level][vertex]
        costs = {label: self._cost_with(level, vertex, label) for label in (LEFT, RIGHT, BOTH)}
        best = min(costs, key=lambda label: (costs[label], label != before))
        if best == before or costs[best] > costs[before] - 1e-9:
            return False
        copies = self.split.copies[level][vertex]
        for j in self.near[vertex]:
            self.read[level - 1][j][before] -= copies
            self.read[level - 1][j][best] += copies
        self.labels[level][vertex] = best
        return True

    def _cost_with(self, level: int, vertex: int, label: int) -> float:
        """What the vector and those that it reads cost with another label."""
        before, copies = self.labels[level][vertex], self.split.copies[level][vertex]
        total = self._cost(label, self.read[level][vertex])
        for j in self.near[vertex]:
            read = list(self.read[level - 1][j])
            read[before] -= copies
            read[label] += copies
            total += self._cost(self.labels[level - 1][j], read)
        return total

    def _cost(self, label: int, read: Sequence[int]) -> float:
        width = self.split.width
        return sum(_log_multiset(width, one) for one in _degrees(label, read, width))


def _degrees(label: int, read: Sequence[int], width: int) -> tuple[int, ...]:
    """The degrees in which the vector's monomials are counted."""
    left, right, both = read
    if label == LEFT:
        return (right,)
    if label == RIGHT:
        return (left,)
    # What vectors of both sides read may be counted with either one.
    choices = ((left + both, right), (left, right + both))
    return min(choices, key=lambda pair: sum(_log_multiset(width, one) for one in pair))


@lru_cache(maxsize=1 << 16)
def _log_multiset(width: int, degree: int) -> float:
    return log_multiset(width, degree) if degree and width > 1 else 0.0


# --- From below: monomials that both sides can tell apart -----------------------------------------


@dataclass(frozen=True)
class Hubs:
    """Vertices that multiply numbers of both sides in the first layer.

    Args:
        left: for each active vertex on the left, which hubs it is a neighbour of, as 0 and 1.
        right: the same on the right.
        degrees: how often the vector of each hub enters the output.
    """

    left: tuple[tuple[int, ...], ...]
    right: tuple[tuple[int, ...], ...]
    degrees: tuple[int, ...]


def monomial_image_lower_bound(split: GraphSplit) -> LowerBound:
    """The number of exponents that both sides can tell apart, for active vertices found by search.

    Example:
        >>> path = Graph(4, ((0, 1), (1, 2), (2, 3)))
        >>> split = GraphSplit(path, Partition((0, 1), (2, 3)), depth=2, width=2)
        >>> monomial_image_lower_bound(split).value
        16

    Raises:
        BoundError: if the boundary is too long for exact linear algebra.

    Reference:
        ours (proved); docs/proofs.md, section 29. With one active vertex on each side it is the
        bound of Razin, Verbin & Cohen (2022), Thm 2, arXiv:2211.16494.
    """
    if split.depth == 1:
        return LowerBound(Magnitude.of(1), IMAGES)
    return LowerBound(max(_counted(split), key=_by_size), IMAGES)


def monomial_image_upper_bound(split: GraphSplit) -> UpperBound:
    """At depth 2: the number of exponents that one side can tell apart.

    Raises:
        BoundError: at any other depth, or if the boundary is too long.

    Reference:
        ours (proved); docs/proofs.md, section 29.
    """
    if split.depth != 2:
        raise BoundError(f"monomial_image_upper_bound: wanted depth 2, got {split.depth}.")
    hubs = _hubs(split, split.partition.left, split.partition.right)
    sides = [_images(side, hubs.degrees, split.width)[1] for side in (hubs.left, hubs.right)]
    return UpperBound(min(sides, key=_by_size), IMAGES)


def _by_size(magnitude: Magnitude) -> tuple[float, int]:
    return magnitude.log3, magnitude.value or 0


def _counted(split: GraphSplit) -> Iterator[Magnitude]:
    """Lower bounds by choices of active vertices; the others are held at vectors of ones."""
    yield _seen_by_both(split, split.partition.left, split.partition.right)
    near = {j for hub in split.graph.boundary(split.partition) for j in _near(split, hub)}
    left = [vertex for vertex in split.partition.left if vertex in near]
    right = [vertex for vertex in split.partition.right if vertex in near]
    degrees = split.copies[1]
    best, chosen = 0, None
    for first in left:
        reach = set(_near(split, first))
        for second in {j for hub in reach for j in _near(split, hub)} & set(right):
            shared = sum(degrees[hub] for hub in reach & set(_near(split, second)))
            if shared > best:
                best, chosen = shared, (first, second)
    if chosen is None:
        return
    yield multiset_magnitude(split.width, best)
    if len(left) + len(right) > MAX_SEARCHED:
        return
    active = ({chosen[0]}, {chosen[1]})
    value = multiset_magnitude(split.width, best)
    for side, vertex in [*((0, v) for v in left), *((1, v) for v in right)]:
        tried = (set(active[0]), set(active[1]))
        tried[side].add(vertex)
        found = _seen_by_both(split, sorted(tried[0]), sorted(tried[1]))
        if not found.is_below(value):
            active, value = tried, found
    yield value


def _near(split: GraphSplit, vertex: int) -> tuple[int, ...]:
    return split.graph.neighbourhoods[vertex]


def _hubs(split: GraphSplit, left: Sequence[int], right: Sequence[int]) -> Hubs:
    degrees = split.copies[1]
    sides = [{j for v in side for j in _near(split, v)} for side in (left, right)]
    hubs = sorted(hub for hub in sides[0] & sides[1] if degrees[hub])
    if len(hubs) > MAX_BOUNDARY:
        raise BoundError(f"The boundary may have {MAX_BOUNDARY} vertices, got {len(hubs)}.")
    rows = [
        tuple(tuple(int(hub in set(_near(split, v))) for hub in hubs) for v in side)
        for side in (left, right)
    ]
    return Hubs(rows[0], rows[1], tuple(degrees[hub] for hub in hubs))


def _seen_by_both(split: GraphSplit, left: Sequence[int], right: Sequence[int]) -> Magnitude:
    hubs = _hubs(split, left, right)
    if not hubs.degrees:
        return Magnitude.of(1)
    return _images(_common_rows(hubs), hubs.degrees, split.width)[0]


def _common_rows(hubs: Hubs) -> tuple[tuple[int, ...], ...]:
    """Integer vectors that span what the row spaces of both incidence matrices share."""
    size = len(hubs.degrees)
    kernels = [*_kernel(hubs.left, size), *_kernel(hubs.right, size)]
    return _kernel(kernels, size)


def _kernel(rows: Sequence[Sequence[int]], size: int) -> tuple[tuple[int, ...], ...]:
    """A basis of the integer vectors that are orthogonal to some rows."""
    from flint import fmpz_mat

    if not rows:
        return tuple(tuple(int(i == j) for j in range(size)) for i in range(size))
    basis, nullity = fmpz_mat([list(row) for row in rows]).nullspace()
    columns = [[int(basis[i, j]) for i in range(size)] for j in range(int(nullity))]
    return tuple(
        tuple(number // (math.gcd(*column) or 1) for number in column) for column in columns
    )


def _images(
    rows: Sequence[Sequence[int]], degrees: Sequence[int], width: int
) -> tuple[Magnitude, Magnitude]:
    """Bounds of the number of images of exponents, from below and from above; equal if counted.

    Exponents give each hub a monomial of its degree in `width` coordinates; their image adds up
    the exponents of the hubs with the factors of a row, for every row and coordinate.
    """
    merged: dict[tuple[int, ...], int] = {}
    for place, degree in enumerate(degrees):
        column = tuple(row[place] for row in rows)
        merged[column] = merged.get(column, 0) + degree
    merged.pop((0,) * len(rows), None)  # hubs that nothing is seen of
    columns, sizes = list(merged), list(merged.values())
    low, high = Magnitude.of(1), Magnitude.of(1)
    for part in _independent_parts(columns):
        own_low, own_high = _part_images(
            [columns[place] for place in part], [sizes[place] for place in part], width
        )
        low, high = low * own_low, high * own_high
    return low, high


def _independent_parts(columns: list[tuple[int, ...]]) -> list[list[int]]:
    """Groups of columns of which no linear relation uses two: their images are independent."""
    import networkx

    relations = networkx.Graph()
    relations.add_nodes_from(range(len(columns)))
    if columns:
        transposed = list(zip(*columns, strict=True))
        # A reduced basis of the relations tells which columns they use together.
        for relation in _reduced(_kernel(transposed, len(columns))):
            used = [place for place, factor in enumerate(relation) if factor]
            relations.add_edges_from(pairwise(used))
    return [sorted(part) for part in networkx.connected_components(relations)]


def _reduced(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    from flint import fmpz_mat

    if not rows:
        return []
    matrix, _, rank = fmpz_mat([list(row) for row in rows]).rref()
    return [[int(matrix[i, j]) for j in range(len(rows[0]))] for i in range(int(rank))]


def _part_images(
    columns: list[tuple[int, ...]], degrees: list[int], width: int
) -> tuple[Magnitude, Magnitude]:
    counts = [multiset_magnitude(width, degree) for degree in degrees]
    product = math.prod(counts, start=Magnitude.of(1))
    if len(columns) == 1:
        return product, product
    listed = _listed(columns, degrees, width)
    if listed is not None:
        return Magnitude.of(listed), Magnitude.of(listed)
    # Exponents of independent columns, the others held fixed: the heaviest ones first.
    order = sorted(range(len(columns)), key=lambda place: -counts[place].log3)
    chosen: list[int] = []
    for place in order:
        tried = [*chosen, place]
        if not _kernel(list(zip(*(columns[one] for one in tried), strict=True)), len(tried)):
            chosen = tried
    return math.prod((counts[place] for place in chosen), start=Magnitude.of(1)), product


def _listed(columns: list[tuple[int, ...]], degrees: list[int], width: int) -> int | None:
    """How many images there are, by listing them; None if there are too many."""
    if width == 1:
        return 1  # one coordinate has one monomial of each degree
    images: NDArray[numpy.int64] = numpy.zeros((1, len(columns[0]) * (width - 1)), numpy.int64)
    for column, degree in zip(columns, degrees, strict=True):
        if len(images) * multiset(width, degree) > MAX_LISTED:
            return None
        exponents = numpy.array(list(_exponents(width - 1, degree)), numpy.int64)
        exponents = exponents.reshape(-1, width - 1)
        added = numpy.einsum("r,ec->erc", numpy.array(column), exponents)
        sums = images[:, None] + added.reshape(1, len(exponents), -1)
        images = numpy.unique(sums.reshape(-1, images.shape[1]), axis=0)
    return len(images)


def _exponents(places: int, degree: int) -> Iterator[tuple[int, ...]]:
    """All exponents of so many places that add up to the degree at most."""
    if places == 0:
        yield ()
        return
    for first in range(degree + 1):
        for rest in _exponents(places - 1, degree - first):
            yield (first, *rest)
