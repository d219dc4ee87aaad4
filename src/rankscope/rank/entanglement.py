r"""How entangled a data set is: how much two groups of features know of each other and the label.

The data tensor of M samples with N features is

.. math:: D = \sum_m y_m \, \phi(x_{m1}) \otimes \dots \otimes \phi(x_{mN}), \qquad
          \phi(v) = (\cos \tfrac{\pi v}{2}, \sin \tfrac{\pi v}{2})

with features scaled to 0..1. It has 2^N entries and is never formed: between a group of features
and the others it is a matrix A^T Y B with one row of A and of B for each sample, whose singular
values follow from the M x M Gram matrices A A^T and B B^T, products of cosines. The canonical
splits are the blocks of features that recursive halving makes, each against all other features;
networks with local connections fit data well if these splits are little entangled.

Reference:
    Alexander, De La Vega, Razin & Cohen (2023), arXiv:2303.11249.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from rankscope.budget import require_within
from rankscope.errors import DataError
from rankscope.progress import Progress, Report, ignore

Reals = NDArray[numpy.float64]
Order = tuple[int, ...]

MOST_SAMPLES = 2048  # of a split: two eigenvalue problems of this size take ten seconds
MOST_FEATURES = 4096
DEFAULT_LEVELS = 6


@dataclass(frozen=True, eq=False)
class DataTable:
    """Samples with features, and a label for each.

    Args:
        features: (samples, features), finite.
        labels: (samples,) numbers of classes, or None.

    Raises:
        DataError: if the shapes do not fit, a number is not finite, or there is too little.
        BudgetError: if there are too many features.
    """

    features: Reals
    labels: NDArray[numpy.int64] | None = None

    def __post_init__(self) -> None:
        shape = self.features.shape
        if len(shape) != 2 or min(shape) < 2:
            raise DataError(
                f"Entanglement needs at least 2 samples with 2 features, got shape {shape}."
            )
        require_within("entanglement", "the number of features", shape[1], MOST_FEATURES)
        if self.labels is not None and self.labels.shape != (shape[0],):
            raise DataError(
                f"There are {shape[0]} samples, but labels of shape {self.labels.shape}."
            )
        bad = ~numpy.isfinite(self.features)
        if bad.any():
            row, column = (int(one[0]) for one in numpy.nonzero(bad))
            raise DataError(
                f"{int(bad.sum()):,} of {bad.size:,} features are not finite, the first in sample "
                f"{row}, feature {column}; leave these samples out, or fill the gaps."
            )

    def head(self, count: int, *, seed: int) -> "DataTable":
        """So many samples, drawn at random; all of them if there are no more."""
        if count >= len(self.features):
            return self
        chosen = numpy.random.default_rng(seed).permutation(len(self.features))[:count]
        labels = None if self.labels is None else self.labels[chosen]
        return DataTable(self.features[chosen], labels)

    def reordered(self, order: Sequence[int]) -> "DataTable":
        """The same with the features in another order."""
        return DataTable(self.features[:, list(order)], self.labels)


@dataclass(frozen=True)
class SplitEntanglement:
    """One block of features against all others.

    Args:
        level: how often the features were halved.
        start: the first feature of the block.
        stop: the first one after it.
        entropy: of the squared singular values, in nats.
        most: the largest entropy that a matrix of this size with so many samples can have.
    """

    level: int
    start: int
    stop: int
    entropy: float
    most: float

    @property
    def effective_rank(self) -> float:
        """How many equal singular values have this entropy."""
        return math.exp(self.entropy)

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "level": self.level,
            "start": self.start,
            "stop": self.stop,
            "entropy": self.entropy,
            "effective_rank": self.effective_rank,
            "most": self.most,
        }


def canonical_splits(
    data: DataTable, *, levels: int = DEFAULT_LEVELS, report: Report = ignore
) -> list[SplitEntanglement]:
    """The entanglement of every block that recursive halving makes, each split once.

    Of the two halves of all features the first is taken; the label of several classes stands with
    the features that are no block.

    Args:
        data: with at most 2,048 samples; more are refused, draw some with `head`.
        levels: how often blocks are halved at most.
        report: called with the progress.

    Raises:
        BudgetError: if there are too many samples.
    """
    require_within("entanglement", "the number of samples", len(data.features), MOST_SAMPLES)
    scaled = scaled_features(data.features)
    found = list(_blocks(0, scaled.shape[1], 0, levels))
    results: list[SplitEntanglement] = []
    labels = _label_gram(data.labels, len(scaled))
    legs = 1 if data.labels is None or _signs(data.labels) is not None else _classes(data.labels)
    for level, start, stop, outside in _with_outside(scaled, found, labels):
        report(Progress("splits", len(results), len(found)))
        inside = scaled[:, start:stop]
        sizes = (2 ** min(stop - start, 30), legs * 2 ** min(scaled.shape[1] - (stop - start), 30))
        entropy = _entropy(_spectrum(inside, outside, _signs(data.labels)))
        most = math.log(min(*sizes, len(scaled)))
        results.append(SplitEntanglement(level, start, stop, entropy, most))
    return sorted(results, key=lambda one: (one.level, one.start))


def mean_entropies(splits: Sequence[SplitEntanglement]) -> dict[int, float]:
    """The mean entropy of each level."""
    levels = sorted({one.level for one in splits})
    return {
        level: float(numpy.mean([one.entropy for one in splits if one.level == level]))
        for level in levels
    }


def scaled_features(features: Reals) -> Reals:
    """Every feature scaled to 0..1; one that never changes becomes 0."""
    low, high = features.min(axis=0), features.max(axis=0)
    width = numpy.where(high > low, high - low, 1.0)
    scaled: Reals = (features - low) / width
    return scaled


def split_entropy(data: DataTable, left: Sequence[int]) -> float:
    """The entropy (nats) between some features and the others.

    Example:
        >>> equal = numpy.array([[0.0, 0.0], [1.0, 1.0]])
        >>> round(split_entropy(DataTable(equal), [0]) / math.log(2), 6)
        1.0

    Raises:
        DataError: if a side is empty.
    """
    chosen = sorted(set(left))
    others = [place for place in range(data.features.shape[1]) if place not in set(chosen)]
    if not chosen or not others:
        raise DataError("A split of features needs one on each side.")
    scaled = scaled_features(data.features)
    outside = _gram(scaled[:, others]) * _label_gram(data.labels, len(scaled))
    return _entropy(_spectrum(scaled[:, chosen], outside, _signs(data.labels)))


def _blocks(start: int, stop: int, level: int, levels: int) -> Iterator[tuple[int, int, int]]:
    """Blocks below a range; of two halves of everything, which are one split, the first."""
    if level == levels or stop - start < 2:
        return
    middle = (start + stop + 1) // 2
    yield level + 1, start, middle
    if level:
        yield level + 1, middle, stop
    yield from _blocks(start, middle, level + 1, levels)
    yield from _blocks(middle, stop, level + 1, levels)


def _with_outside(
    scaled: Reals, blocks: Sequence[tuple[int, int, int]], labels: Reals
) -> Iterator[tuple[int, int, int, Reals]]:
    """Every block with the Gram matrix of all other features and the labels."""
    wanted = {(start, stop): level for level, start, stop in blocks}
    # Depth first: at most one matrix for each level is held.
    pending = [(0, scaled.shape[1], labels)]
    while pending:
        start, stop, outside = pending.pop()
        if (start, stop) in wanted:
            yield wanted[start, stop], start, stop, outside
        middle = (start + stop + 1) // 2
        halves = ((start, middle), (middle, stop))
        is_needed = any(
            start <= first and last <= stop and (first, last) != (start, stop)
            for first, last in wanted
        )
        if stop - start < 2 or not is_needed:
            continue
        for own, other in (halves, halves[::-1]):
            pending.append((*own, outside * _gram(scaled[:, slice(*other)])))


def _gram(scaled: Reals) -> Reals:
    """Products over features of inner products of φ: cosines of differences."""
    product = numpy.ones((len(scaled), len(scaled)))
    for column in scaled.T:
        product *= numpy.cos(numpy.pi / 2 * (column[:, None] - column[None, :]))
    return product


def _classes(labels: NDArray[numpy.int64]) -> int:
    return len(numpy.unique(labels))


def _signs(labels: NDArray[numpy.int64] | None) -> Reals | None:
    """Two classes are +1 and -1; None if the label is no factor."""
    if labels is None or _classes(labels) != 2:
        return None
    return numpy.where(labels == labels.max(), 1.0, -1.0)


def _label_gram(labels: NDArray[numpy.int64] | None, count: int) -> Reals:
    """Several classes are unit vectors, a leg of the tensor on the side that is no block."""
    if labels is None or _classes(labels) == 2:
        return numpy.ones((count, count))
    gram: Reals = (labels[:, None] == labels[None, :]).astype(numpy.float64)
    return gram


def _spectrum(inside: Reals, outside: Reals, signs: Reals | None) -> Reals:
    """Squared singular values of A^T Y B, from A or its Gram matrix and that of B."""
    count, size = inside.shape
    signed = outside if signs is None else outside * signs[:, None] * signs[None, :]
    if 2**size <= count // 2:
        angles = numpy.pi / 2 * inside
        rows: Reals = numpy.ones((count, 1))
        for cosine, sine in zip(numpy.cos(angles).T, numpy.sin(angles).T, strict=True):
            pair = numpy.stack([cosine, sine], axis=1)
            rows = (rows[:, :, None] * pair[:, None, :]).reshape(count, -1)
    else:
        values, vectors = numpy.linalg.eigh(_gram(inside))
        rows = vectors * numpy.sqrt(numpy.maximum(values, 0))
    squared = numpy.linalg.eigvalsh(rows.T @ signed @ rows).astype(numpy.float64)
    return numpy.maximum(squared, 0)


def _entropy(squared: Reals) -> float:
    """Of the squared singular values, divided by their sum."""
    total = squared.sum()
    if total <= 0:
        return 0.0
    shares = squared[squared > 1e-15 * total] / total
    return max(0.0, float(-(shares * numpy.log(shares)).sum()))


# --- An order of the features that lowers it ------------------------------------------------------


def local_order(features: Reals) -> Order:
    """Features in an order in which recursive halving cuts little correlation.

    Blocks are halved so that the absolute correlations between the halves add up to little: by the
    second eigenvector of their Laplacian, then by swaps while one helps. The least such cut
    is a proxy for the least entanglement.

    Example:
        >>> generator = numpy.random.default_rng(0)
        >>> first, second = generator.normal(size=(2, 50))
        >>> mixed = numpy.stack([first, second, first + 1, 2 * second], axis=1)
        >>> local_order(mixed)
        (0, 2, 1, 3)

    Reference:
        Alexander et al. (2023), Sec. 5, arXiv:2303.11249; Kernighan & Lin (1970) for the swaps.
    """
    centred = features - features.mean(axis=0)
    norms = numpy.linalg.norm(centred, axis=0)
    unit = centred / numpy.where(norms > 0, norms, 1.0)
    weights = numpy.abs(unit.T @ unit)
    numpy.fill_diagonal(weights, 0)
    pending = [numpy.arange(features.shape[1])]
    placed: list[int] = []
    while pending:
        block = pending.pop()
        if len(block) < 3:
            placed += sorted(block.tolist())
            continue
        first, second = _halved(block, weights[numpy.ix_(block, block)])
        pending += [second, first]
    return tuple(placed)


def _halved(
    block: NDArray[numpy.int64], weights: Reals
) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64]]:
    """The larger half has the first feature, if they are equally long."""
    size = len(block)
    laplacian = numpy.diag(weights.sum(axis=0)) - weights
    order = numpy.argsort(numpy.linalg.eigh(laplacian)[1][:, 1], kind="stable")
    is_first = numpy.zeros(size, dtype=bool)
    is_first[order[: (size + 1) // 2]] = True
    for _ in range(4 * size):
        outer = numpy.where(is_first[:, None] != is_first[None, :], weights, 0).sum(axis=1)
        inner = numpy.where(is_first[:, None] == is_first[None, :], weights, 0).sum(axis=1)
        own, other = numpy.flatnonzero(is_first), numpy.flatnonzero(~is_first)
        gains = (outer - inner)[own][:, None] + (outer - inner)[other][None, :]
        gains = gains - 2 * weights[numpy.ix_(own, other)]
        best = numpy.unravel_index(gains.argmax(), gains.shape)
        if gains[best] <= 1e-12:
            break
        is_first[own[best[0]]], is_first[other[best[1]]] = False, True
    if size % 2 == 0 and not is_first[0]:
        is_first = ~is_first
    return block[is_first], block[~is_first]
