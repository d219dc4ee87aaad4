"""A network with as many affine regions as Montúfar's lower bound promises."""

import itertools
from collections.abc import Sequence

import numpy
from torch import nn

from rankscope.constructions.dense import DenseLayer, Reals, relu_network
from rankscope.constructions.region_bounds import montufar_lower_bound


def montufar_network(*, num_inputs: int, widths: Sequence[int]) -> nn.Sequential:
    """A network with exactly the lower bound's activation patterns inside the unit box.

    Each layer but the last folds the box onto itself: p = ⌊n / d⌋ units for each coordinate make
    a zigzag of p pieces. The last layer cuts every folded copy by n_L hyperplanes in general
    position, all of whose crossings lie inside. Units that are left over are never switched on.

    With more units in the last layer than inputs, some unit of it is switched on everywhere, the
    function is constant nowhere, and folds are breaks: its maximal affine pieces are as many.

    Raises:
        ConstructionError: if a layer is narrower than the input.

    Reference:
        Montúfar, Pascanu, Cho & Bengio (2014), Theorem 4, arXiv:1402.1869.
    """
    montufar_lower_bound(num_inputs=num_inputs, widths=widths)  # refuses sizes that do not fit
    layers, reading = [], DenseLayer(numpy.eye(num_inputs), numpy.zeros(num_inputs))
    for width in widths[:-1]:
        fold, following = _folding(num_inputs, width)
        layers.append(fold.after(reading))
        reading = following
    layers.append(_cutting(num_inputs, widths[-1]).after(reading))
    # Weights without a pattern: no sum of some of them vanishes, nor do their gradients.
    outputs = numpy.sqrt(numpy.arange(2.0, widths[-1] + 2.0)) + 1.0
    layers.append(DenseLayer(outputs[None, :], numpy.zeros(1)))
    return relu_network(layers)


def _folding(num_inputs: int, width: int) -> tuple[DenseLayer, DenseLayer]:
    """Units that fold [0, 1] in each coordinate, and the map that reads the zigzags off them.

    With p folds the zigzag is p x - 2 (p x - 1)_+ + 2 (p x - 2)_+ - …
    """
    folds = width // num_inputs
    weight, bias = numpy.zeros((width, num_inputs)), numpy.full(width, -1.0)
    reading = numpy.zeros((num_inputs, width))
    for coordinate in range(num_inputs):
        units = range(coordinate * folds, (coordinate + 1) * folds)
        for number, unit in enumerate(units):
            weight[unit, coordinate], bias[unit] = folds, -number
            reading[coordinate, unit] = (-1) ** number * (2 if number else 1)
    return DenseLayer(weight, bias), DenseLayer(reading, numpy.zeros(num_inputs))


def _cutting(num_inputs: int, width: int) -> DenseLayer:
    """Hyperplanes in general position in the unit box.

    Those of v -> θ_i^d - v_0 - v_1 θ_i - … - v_{d-1} θ_i^{d-1}: d + 1 of them meet in a point only
    if a monic polynomial of degree d had d + 1 zeros. Nor can one be negative at the largest θ and
    change its sign between all the others, if there are more than d: with alternating signs, some
    unit is switched on everywhere.
    """
    nodes = numpy.linspace(-1.0, 1.0, width) if width > 1 else numpy.zeros(1)
    normals = -numpy.vander(nodes, num_inputs, increasing=True)
    offsets = nodes**num_inputs
    reach = _farthest_crossing(normals, offsets)
    signs = (-1.0) ** numpy.arange(width)[::-1]
    # v = 4 reach (x - 1/2) brings all crossings to within 1/4 of the centre.
    scale = 4.0 * max(reach, 0.25)
    weight = normals * scale
    bias = offsets - weight.sum(axis=1) / 2
    return DenseLayer(signs[:, None] * weight, signs * bias)


def _farthest_crossing(normals: Reals, offsets: Reals) -> float:
    """The largest coordinate of a point in which as many hyperplanes meet as there are inputs."""
    chosen = itertools.combinations(range(len(offsets)), normals.shape[1])
    return max(
        float(numpy.abs(numpy.linalg.solve(normals[list(rows)], -offsets[list(rows)])).max())
        for rows in chosen
    )
