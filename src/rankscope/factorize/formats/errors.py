"""Curves of errors: from spectra where truncation is optimal, else from a few fits."""

import math
from collections.abc import Callable, Sequence

import numpy
import torch
from torch import Tensor

from rankscope.factorize.truncation import MaxBond, to_scaled

NUM_FITS = 3
# Fits with more than this share of the tensor's own numbers, or more parameters, are long, and
# rarely of use.
_LARGEST_SHARE = 0.5
_MOST_PARAMETERS = 2**17
# Smaller errors are lost in the rounding of their squares.
_LEAST_BY_SQUARES = 1e-6
# An exact fit: smaller errors are rounding, and have no useful logarithm.
_LEAST_ERROR = 1e-12


def tails(matrix: Tensor) -> Tensor:
    """The relative Frobenius error of the best approximation of each rank, from 0 to full.

    Example:
        >>> tails(torch.diag(torch.tensor([3.0, 4.0]))).round(decimals=3)
        tensor([1.0000, 0.6000, 0.0000], dtype=torch.float64)

    Raises:
        DecompositionError: if an entry is not finite.

    Reference:
        Eckart & Young (1936), doi:10.1007/BF02288367.
    """
    unit = to_scaled(matrix, MaxBond(1), who="tails", least_order=2).unit
    tall = unit if unit.shape[0] >= unit.shape[1] else unit.mT
    # The eigenvalues of the smaller Gram matrix: half of the time of singular values.
    double = tall.double()
    errors = share_left(torch.linalg.eigvalsh(double.mT @ double).flip(0).clamp_min(0))
    if errors[-2] >= _LEAST_BY_SQUARES:
        return errors
    # The triangle has the same singular values; an elongated matrix is thus faster.
    values = torch.linalg.svdvals(torch.linalg.qr(tall, mode="r").R)
    return share_left(values.double().square())


def share_left(energies: Tensor) -> Tensor:
    """The root of what is left of a sum of squares after its first 0, 1, 2, ... summands."""
    left = torch.cat([energies.flip(0).cumsum(0).flip(0), energies.new_zeros(1)])
    return (left / left[0].clamp_min(torch.finfo(left.dtype).tiny)).sqrt()


def with_middle_cut(outer: float, middle: Tensor, bond: int) -> float:
    """The relative error of a train whose outer bonds are cut before its middle one.

    What the two cuts discard is orthogonal, so that their squares add up.

    Args:
        outer: relative error of the cuts of the outer bonds.
        middle: what they leave, (left_bond, size, size, right_bond).
        bond: that is left in the middle.
    """
    tail = tails(middle.flatten(0, 1).flatten(1))
    inner = float(tail[min(bond, len(tail) - 1)])
    return math.sqrt(outer**2 + inner**2 * (1 - outer**2))


def interpolated_errors(
    counts: Sequence[int],
    fit: Callable[[int], float],
    *,
    num_entries: int,
    num_fits: int = NUM_FITS,
) -> list[float]:
    """The error at each place of a ladder, from fits at a few of them.

    Between two fits the logarithm of the error is taken as linear in the number of parameters, and
    made to fall: more parameters never have a larger error. Beyond the last one, which has at most
    half as many parameters as the tensor has entries, and at most 131,072, the squared error is
    taken to fall linearly to zero at as many parameters as entries: so does that of random tensors,
    and those with more structure have less error.

    Args:
        counts: parameters at each place, in any order.
        fit: the error at a place.
        num_entries: of the tensor.
        num_fits: how often `fit` is called at most.

    Example:
        >>> fitted = [0.5, 0.0, 0.125]
        >>> errors = interpolated_errors([1, 2, 3], fitted.__getitem__, num_entries=6, num_fits=2)
        >>> [round(error, 9) for error in errors]
        [0.5, 0.25, 0.125]
    """
    ascending = sorted(range(len(counts)), key=lambda place: counts[place])
    most = min(_LARGEST_SHARE * num_entries, _MOST_PARAMETERS)
    small = [place for place in ascending if counts[place] <= most]
    candidates = small or ascending[:1]
    steps = numpy.linspace(0, len(candidates) - 1, min(num_fits, len(candidates))).round()
    fitted = [candidates[int(step)] for step in steps]
    logarithms = [math.log(max(fit(place), _LEAST_ERROR)) for place in fitted]
    falling = numpy.minimum.accumulate(logarithms)
    errors = numpy.exp(numpy.interp(counts, [counts[place] for place in fitted], falling))
    last = counts[fitted[-1]]
    left = (num_entries - numpy.maximum(counts, last)) / max(num_entries - last, 1)
    return [float(error) for error in (errors * numpy.sqrt(left.clip(0, 1))).clip(max=1.0)]
