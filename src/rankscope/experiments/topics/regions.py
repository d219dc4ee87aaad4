"""Topics: how width and depth buy affine pieces."""

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy
import torch
from torch import nn

from rankscope.constructions.box import Box
from rankscope.constructions.dense import DenseLayer, relu_network
from rankscope.constructions.montufar import montufar_network
from rankscope.constructions.pictures_line import draw_sawtooth
from rankscope.constructions.pictures_regions import draw_regions
from rankscope.constructions.region_bounds import (
    MONTUFAR,
    PRODUCT,
    ZASLAVSKY,
    montufar_lower_bound,
    product_upper_bound,
    zaslavsky_upper_bound,
)
from rankscope.constructions.regions_line import regions_on_line
from rankscope.constructions.regions_plane import regions_in_plane
from rankscope.constructions.regions_space import regions_in_space
from rankscope.constructions.sawtooth import (
    TELGARSKY,
    depth_separation,
    distance_to_sawtooth,
    sawtooth_network,
)
from rankscope.constructions.topic import Shown, Topic
from rankscope.experiments.experiment import Workplace
from rankscope.experiments.teaching_regions import SQUARE, TrainedRegions
from rankscope.experiments.teaching_sawtooth import SawtoothRival

LARGE = Box.of([-50.0, -50.0], [50.0, 50.0])


def _random(*sizes: int) -> nn.Sequential:
    """Weights and biases of order one, the same on every machine."""
    draw = numpy.random.default_rng(1)
    layers = [
        DenseLayer(draw.normal(size=(outputs, inputs)), draw.normal(size=outputs))
        for inputs, outputs in itertools.pairwise(sizes)
    ]
    return relu_network(layers)


def _sawtooth() -> Shown:
    separation = depth_separation(2)
    with TemporaryDirectory() as folder:
        rival = SawtoothRival(2, 0, steps=400).train(Workplace(Path(folder), None, 60.0))
    found = distance_to_sawtooth(rival, separation.power)
    teeth = regions_on_line(sawtooth_network(separation.power), ends=(0.0, 1.0))
    rivals = {"trained, 2 layers, 4 units": regions_on_line(rival, ends=(0.0, 1.0)).function()}
    return Shown(
        {
            "hidden layers of rivals, at most": separation.num_layers,
            "hidden units of rivals, at most": separation.num_nodes,
            "tent map, times": separation.power,
            "pieces of the sawtooth": teeth.num_affine_pieces,
            "pieces of a rival, at most": separation.competitor_pieces,
            "every rival is at least so far away": str(separation.distance),
            "1/32 is less": bool(separation.distance >= 1 / 32),
        },
        measured={"distance of a trained rival": found.distance, "its pieces": found.num_pieces},
        pictures={"rival": lambda path: draw_sawtooth(separation.power, rivals, path)},
    )


def _affine_regions() -> Shown:
    network = _random(2, 6, 5, 1)
    plane = regions_in_plane(network, LARGE)
    space = regions_in_space(_random(3, 5, 3, 1))
    line = regions_on_line(_random(1, 6, 5, 1), exactly=True)
    return Shown(
        {
            "plane, layers of 6 and 5 units: activation patterns": plane.num_patterns,
            "plane: maximal affine pieces": plane.num_affine_pieces,
            "space, layers of 5 and 3 units: activation patterns": len(space.regions),
            "space: maximal affine pieces": space.num_affine_pieces,
            "space: regions that fractions did not prove": space.num_unproved,
            "line, layers of 6 and 5 units, in fractions: patterns": line.num_patterns,
            "line: maximal affine pieces": line.num_affine_pieces,
        },
        pictures={
            "plane": lambda path: draw_regions(
                regions_in_plane(network, Box.of([-4.0, -4.0], [4.0, 4.0])), path
            )
        },
    )


def _bounds() -> Shown:
    one, deep = _random(2, 8, 1), _random(2, 6, 5, 1)
    found = regions_in_plane(one, LARGE)
    return Shown(
        {
            "one layer of 8 units on the plane, at most": str(
                zaslavsky_upper_bound(num_inputs=2, width=8).magnitude
            ),
            "counted at random weights": found.num_patterns,
            "layers of 6 and 5 units, at most": str(
                product_upper_bound(num_inputs=2, widths=(6, 5)).magnitude
            ),
            "counted at random weights, deep": regions_in_plane(deep, LARGE).num_patterns,
            "one layer of 11 units instead, at most": str(
                zaslavsky_upper_bound(num_inputs=2, width=11).magnitude
            ),
        },
        pictures={
            "lines": lambda path: draw_regions(
                regions_in_plane(one, Box.of([-3.0, -3.0], [3.0, 3.0])),
                path,
                title="8 units are 8 lines; some regions are farther out",
            )
        },
    )


def _montufar() -> Shown:
    network = montufar_network(num_inputs=2, widths=(4, 4, 5))
    found = regions_in_plane(network, Box.unit(2))
    return Shown(
        {
            "layers": "4, 4 and 5 units on the plane",
            "lower bound for the best weights": str(
                montufar_lower_bound(num_inputs=2, widths=(4, 4, 5)).magnitude
            ),
            "counted in the network built for it": found.num_patterns,
            "its maximal affine pieces": found.num_affine_pieces,
            "upper bound for all weights": str(
                product_upper_bound(num_inputs=2, widths=(4, 4, 5)).magnitude
            ),
        },
        pictures={"folds": lambda path: draw_regions(found, path)},
    )


def _trained() -> Shown:
    with TemporaryDirectory() as folder:
        place = Workplace(Path(folder), None, 60.0)
        before, _ = TrainedRegions((8, 8), 0, 0).train(place)
        after, accuracy = TrainedRegions((8, 8), 0, 400).train(place)
    counts = [regions_in_plane(network, SQUARE) for network in (before, after)]
    with torch.no_grad():
        middle = float(after(torch.zeros(1, 2, dtype=torch.float64)))
    return Shown(
        {"affine pieces, at most": str(product_upper_bound(num_inputs=2, widths=(8, 8)).magnitude)},
        measured={
            "affine pieces before training": counts[0].num_affine_pieces,
            "affine pieces after 400 steps": counts[1].num_affine_pieces,
            "accuracy": accuracy,
            "the middle is inside the circle": middle > 0,
        },
        pictures={
            "before": lambda path: draw_regions(counts[0], path, title="Before training"),
            "after": lambda path: draw_regions(counts[1], path, title="After 400 steps"),
        },
    )


REGIONS = (
    Topic(
        "sawtooth",
        "What depth can do and width cannot",
        "The tent map applied m times is a ReLU network with 3m units and 2^m affine pieces on "
        "[0, 1]. For L ≥ 2 and m = L² + 2, every ReLU network with at most L hidden layers and "
        "2^L units has too few pieces to follow: its L1 distance is at least 1/32. Trained rivals "
        "stay above the bound, as they must.",
        TELGARSKY,
        _sawtooth,
    ),
    Topic(
        "affine-regions",
        "Affine regions, counted exactly",
        "A ReLU network is affine wherever its activation pattern does not change. There are two "
        "counts: activation patterns whose region has an interior, and maximal connected pieces "
        "on which the function is affine, which can be fewer. On lines and planes regions are cut "
        "layer by layer; in more dimensions linear programs find them and fractions prove them.",
        PRODUCT,
        _affine_regions,
    ),
    Topic(
        "region-bounds",
        "How many regions there can be",
        "One layer of n units cuts R^d into at most C(n, 0) + … + C(n, d) regions, and random "
        "weights do. Deep networks have at most the product of such sums, layer by layer.",
        ZASLAVSKY,
        _bounds,
    ),
    Topic(
        "montufar",
        "Folding: a network that attains the lower bound",
        "Each layer but the last can fold the unit box onto itself, ⌊n/d⌋ times in each "
        "coordinate, so that what later layers draw appears in every copy. The regions multiply: "
        "depth buys them exponentially. The network built here has exactly as many as the bound "
        "says.",
        MONTUFAR,
        _montufar,
    ),
    Topic(
        "trained-regions",
        "Regions of a trained network",
        "Training moves the breaks of a network and makes new pieces where they are useful; it "
        "learns the inside of a circle with far fewer than its sizes allow.",
        PRODUCT,
        _trained,
    ),
)
