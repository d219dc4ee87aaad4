"""How the error of a weight falls as its ranks grow, for one format."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from rankscope.compression.scores import Weighing
from rankscope.compression.sites import Site
from rankscope.compression.whitening import can_whiten, is_plain, relative_error, whiten
from rankscope.layers.formats.format import Format, Ranks, WeightShape

NUM_FITS = 4  # of a curve whose errors can only be measured one by one
SMALLEST_ERROR = 1e-12  # where logarithms of errors are taken


def ladder_of_ranks(
    format: Format, shape: WeightShape, *, num_steps: int, room: int = 1
) -> list[Ranks]:
    """Ranks from ones to where the cores are no longer smaller than the weight, geometrically.

    Empty if even ranks of one are not smaller.

    Args:
        format: of the cores.
        shape: of the weight.
        num_steps: at most so many ranks.
        room: cores may hold fewer than so many times the numbers of the weight; more than once if
            each of them takes less space.

    Example:
        >>> from rankscope.layers.formats.catalogue import FORMATS
        >>> ladder_of_ranks(FORMATS["svd"], WeightShape(64, 64), num_steps=6)
        [(1,), (3,), (7,), (15,), (31,)]
    """
    smallest = format.num_parameters(shape, (1,) * len(format.full_ranks(shape)))
    largest = room * shape.num_parameters - 1
    if smallest > largest:
        return []
    ratio = (largest / smallest) ** (1 / (num_steps - 1))
    targets = [math.floor(smallest * ratio**step + 1e-9) for step in range(num_steps - 1)]
    found = [format.largest_ranks(shape, target) for target in [*targets, largest]]
    return list(dict.fromkeys(ranks for ranks in found if ranks is not None))


def error_curve(
    site: Site, format: Format, ladder: Sequence[Ranks], weighing: Weighing | None
) -> list[float]:
    """The relative error of a site at each of several ranks.

    Formats that cannot take a whitening back are fitted at a few ranks and measured there; what
    lies between is interpolated (logarithms of error over parameters), and an estimate.
    """
    if not is_plain(weighing) and not can_whiten(format, weighing):
        return _measured(site, format, ladder, weighing)
    # Formats choose their own precision: a copy is made only where there is something to whiten.
    whitened = site.weight if is_plain(weighing) else whiten(site.weight, weighing)
    norms = [float(torch.linalg.vector_norm(group)) for group in whitened]
    curves = [
        format.errors(group, ladder) if norm else [0.0] * len(ladder)
        for group, norm in zip(whitened, norms, strict=True)
    ]
    size = math.hypot(*norms)
    return [
        math.hypot(*(error * norm for error, norm in zip(errors, norms, strict=True))) / size
        if size
        else 0.0
        for errors in zip(*curves, strict=True)
    ]


def _measured(
    site: Site, format: Format, ladder: Sequence[Ranks], weighing: Weighing | None
) -> list[float]:
    last = len(ladder) - 1
    fitted = sorted({round(step * last / (NUM_FITS - 1)) for step in range(NUM_FITS)})
    errors = [
        relative_error(site.weight, _rebuilt(site, format, ladder[place]), weighing)
        for place in fitted
    ]
    sizes = [math.log(format.num_parameters(site.shape, ranks)) for ranks in ladder]
    return _interpolated(sizes, fitted, errors)


def _rebuilt(site: Site, format: Format, ranks: Ranks) -> Tensor:
    return torch.stack(
        [
            format.to_dense(format.decompose(group, ranks), site.shape).to(group.dtype)
            for group in site.weight
        ]
    )


def _interpolated(
    sizes: Sequence[float], fitted: Sequence[int], errors: Sequence[float]
) -> list[float]:
    """Errors at all places from those at some: straight lines between the logarithms."""
    found = {fitted[0]: errors[0]}
    for (left, right), (start, end) in zip(pairwise(fitted), pairwise(errors), strict=True):
        low, high = (math.log(max(error, SMALLEST_ERROR)) for error in (start, end))
        for place in range(left + 1, right):
            share = (sizes[place] - sizes[left]) / (sizes[right] - sizes[left])
            found[place] = math.exp(low + share * (high - low))
        found[right] = end
    return [found[place] for place in range(len(sizes))]
