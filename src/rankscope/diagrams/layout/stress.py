"""Stress layout, for networks that no rule fits: distances on paper follow distances in the graph.

Majorization (Gansner, Koren and North, 2004) from several starts; the picture is then turned
so that most wires run along rows and columns, and put on a grid if nothing collides.
"""

import cmath
import math
from collections.abc import Iterator, Mapping

import networkx
import numpy

from rankscope.diagrams.layout.mesh import Mesh, free_placement
from rankscope.diagrams.layout.placement import Placement, Side
from rankscope.diagrams.layout.wires import Dot, End

Array = numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.float64]]

BOND, ARM = 1.35, 0.9
ITERATIONS = 300
CLOSEST, CLOSEST_ON_GRID = 0.85, 0.8


def place_by_stress(mesh: Mesh, legs: Mapping[str, Side]) -> Iterator[Placement]:
    """Candidates, one or two for every start."""
    lengths = _lengths(mesh)
    for start in _starts(mesh):
        points = _turned(mesh, _settled(start, lengths))
        points = _scaled(mesh, points)
        snapped = numpy.round(points * 4) / 4
        if _closest(snapped) > CLOSEST_ON_GRID + mesh.excess:
            yield _placement(mesh, snapped, legs)
        yield _placement(mesh, points, legs)


def _placement(mesh: Mesh, points: Array, legs: Mapping[str, Side]) -> Placement:
    at = {end: (float(x), float(y)) for end, (x, y) in zip(mesh.vertices, points, strict=True)}
    return free_placement(mesh, at, {}, legs)


def _bond(first: End, second: End) -> float:
    return ARM if isinstance(first, Dot) or isinstance(second, Dot) else BOND


def _lengths(mesh: Mesh) -> Array:
    """Shortest ways between all pairs, in grid units."""
    place = {end: k for k, end in enumerate(mesh.vertices)}
    lengths = numpy.full((len(place), len(place)), math.inf)
    numpy.fill_diagonal(lengths, 0.0)
    for end, others in mesh.neighbours.items():
        for other in others:
            lengths[place[end], place[other]] = _bond(end, other) + mesh.excess + mesh.label_excess
    for middle in range(len(place)):
        via = lengths[:, middle, None] + lengths[None, middle, :]
        lengths = numpy.minimum(lengths, via)
    return lengths


def _starts(mesh: Mesh) -> Iterator[Array]:
    """A drawing without crossings if there is one, and a circle."""
    place = {end: k for k, end in enumerate(mesh.vertices)}
    # Whole numbers as names: their order does not depend on the hash seed.
    graph = networkx.Graph()
    graph.add_nodes_from(range(len(place)))
    graph.add_edges_from(
        (place[end], place[other]) for end, others in mesh.neighbours.items() for other in others
    )
    is_planar, embedding = networkx.check_planarity(graph)
    if is_planar and len(place) > 3:
        drawn = networkx.combinatorial_embedding_to_pos(embedding)
        yield numpy.array([drawn[k] for k in range(len(place))], dtype=numpy.float64)
    turns = 2 * math.pi * numpy.arange(len(place)) / len(place)
    yield numpy.stack([numpy.cos(turns), numpy.sin(turns)], axis=1) * len(place) / 4


def _settled(start: Array, lengths: Array) -> Array:
    """Majorize until it stands still."""
    count = len(start)
    if count < 2:
        return start
    with numpy.errstate(divide="ignore"):
        weights = numpy.where(lengths > 0, lengths**-2.0, 0.0)
    laplacian = numpy.diag(weights.sum(axis=1)) - weights
    inverse = numpy.linalg.pinv(laplacian)
    points: Array = start * (lengths.mean() / max(_pairwise(start).mean(), 1e-9))
    for _ in range(ITERATIONS):
        apart = _pairwise(points)
        with numpy.errstate(divide="ignore", invalid="ignore"):
            pull = numpy.where(apart > 1e-9, weights * lengths / apart, 0.0)
        moved: Array = inverse @ ((numpy.diag(pull.sum(axis=1)) - pull) @ points)
        step = float(numpy.abs(moved - points).max())
        points = moved
        if step < 1e-5:
            break
    return points


def _pairwise(points: Array) -> Array:
    difference = points[:, None, :] - points[None, :, :]
    apart: Array = numpy.sqrt((difference**2).sum(axis=2))
    return apart


def _turned(mesh: Mesh, points: Array) -> Array:
    """Most wires level or upright, wider than high, the first tensor top left."""
    place = {end: k for k, end in enumerate(mesh.vertices)}
    points = points - points.mean(axis=0)
    total = 0j
    for end, others in mesh.neighbours.items():
        for other in others:
            dx, dy = points[place[other]] - points[place[end]]
            total += cmath.exp(4j * math.atan2(dy, dx))
    turn = -cmath.phase(total) / 4 if abs(total) > 1e-6 else 0.0
    rotation = numpy.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
    points = numpy.matmul(points, rotation)
    width, height = numpy.ptp(points, axis=0)
    if height > 1.05 * width:
        points = points[:, ::-1] * numpy.array([1.0, -1.0])
    for axis in (0, 1):
        if points[0, axis] > points[len(mesh.wiring.diagram.nodes) - 1, axis] + 1e-6:
            points[:, axis] *= -1
    return points


def _scaled(mesh: Mesh, points: Array) -> Array:
    """Bonds as long as they should be, and no two vertices too near."""
    place = {end: k for k, end in enumerate(mesh.vertices)}
    stretched = [
        float(numpy.linalg.norm(points[place[end]] - points[place[other]])) / _bond(end, other)
        for end, others in mesh.neighbours.items()
        for other in others
    ]
    if not stretched:
        return points
    factor = max(1 / float(numpy.median(stretched)), CLOSEST / max(_closest(points), 1e-6))
    return points * factor * (1 + (mesh.excess + mesh.label_excess) / BOND)


def _closest(points: Array) -> float:
    apart = _pairwise(points)
    numpy.fill_diagonal(apart, math.inf)
    return float(apart.min()) if len(points) > 1 else math.inf
