"""The same format and the same share for every convolution, by counted parameters."""

import copy
from collections.abc import Mapping

from torch import nn

from rankscope.errors import ExperimentError
from rankscope.experiments.subject import Subject
from rankscope.layers.convolution import FactorizedConv2d
from rankscope.layers.formats.format import Format, Ranks, WeightShape
from rankscope.layers.formats.reshaped import ReshapedFormat
from rankscope.layers.paths import Path


def compress_uniformly(
    subject: Subject, model: nn.Module, format: Format, keep: float, *, seed: int = 0
) -> nn.Module:
    """A copy of a model with every convolution of its stages in one format, at one rate.

    Raises:
        ExperimentError: if not even ranks of one are that small.
    """
    convolutions = subject.convolutions(model)
    shapes = {name: WeightShape.of(dense.weight) for name, dense in convolutions.items()}
    ranks = ranks_at_one_rate(format, shapes, keep)
    compressed = copy.deepcopy(model)
    for name, dense in convolutions.items():
        layer = FactorizedConv2d.from_dense(dense, format, ranks[name], seed=seed)
        if isinstance(format, ReshapedFormat):
            # Their chains pass maps as many times as large as the ranks, which training also keeps:
            # measured on ResNet-32 at 2 %, a step with the rebuilt kernel is 5 times as fast.
            layer.path = Path.REBUILT
        parent, _, child = name.rpartition(".")
        setattr(compressed.get_submodule(parent), child, layer)
    return compressed


def ranks_at_one_rate(
    format: Format, shapes: Mapping[str, WeightShape], keep: float
) -> dict[str, Ranks]:
    """Ranks with which each weight keeps about `keep` of its numbers, and all together not more.

    Ranks are rounded down; what that leaves over is carried to the next weight.

    Raises:
        ExperimentError: if not even ranks of one are that small.
    """
    found: dict[str, Ranks] = {}
    dense = kept = 0
    for name, shape in shapes.items():
        dense += shape.num_parameters
        limit = int(keep * dense) - kept
        ranks = format.largest_ranks(shape, limit)
        if ranks is None:
            raise ExperimentError(
                f"{format.name} cannot write {name}, of shape {shape.sizes}, with {limit:,} of its "
                f"{shape.num_parameters:,} numbers, not even with ranks of one."
            )
        kept += format.num_parameters(shape, ranks)
        found[name] = ranks
    return found
