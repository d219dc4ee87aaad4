"""A curve of errors from a few points."""

import math
from collections.abc import Callable, Sequence

import numpy

NUM_FITS = 3
# Fits with more than this share of the tensor's own numbers are long, and rarely of use.
_LARGEST_SHARE = 0.5
# An exact fit: smaller errors are rounding, and have no useful logarithm.
_LEAST_ERROR = 1e-12


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
    half as many parameters as the tensor has entries, the squared error is taken to fall linearly
    to zero at as many parameters as entries: so does that of random tensors, and those with more
    structure have less error.

    Args:
        counts: parameters at each place, in any order.
        fit: the error found at a place.
        num_entries: of the tensor.
        num_fits: how often `fit` is called at most.

    Example:
        >>> found = [0.5, 0.0, 0.125]
        >>> errors = interpolated_errors([1, 2, 3], found.__getitem__, num_entries=6, num_fits=2)
        >>> [round(error, 9) for error in errors]
        [0.5, 0.25, 0.125]
    """
    ascending = sorted(range(len(counts)), key=lambda place: counts[place])
    small = [place for place in ascending if counts[place] <= _LARGEST_SHARE * num_entries]
    candidates = small or ascending[:1]
    steps = numpy.linspace(0, len(candidates) - 1, min(num_fits, len(candidates))).round()
    fitted = [candidates[int(step)] for step in steps]
    logarithms = [math.log(max(fit(place), _LEAST_ERROR)) for place in fitted]
    falling = numpy.minimum.accumulate(logarithms)
    found = numpy.exp(numpy.interp(counts, [counts[place] for place in fitted], falling))
    last = counts[fitted[-1]]
    left = (num_entries - numpy.maximum(counts, last)) / max(num_entries - last, 1)
    return [float(error) for error in (found * numpy.sqrt(left.clip(0, 1))).clip(max=1.0)]
