r"""What fine-tuning changed: for each tensor the size and the spectrum of the difference.

    compare_weights(open_model("base").weights, open_model("tuned").weights)

Two files are read tensor by tensor; no model is built. The difference :math:`\Delta = W' - W` of a
matrix has some singular values that stand out, and many that chance alone would give: its rank is
the number of those above the edge of random matrices.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import numpy
import torch
from torch import Tensor

from rankscope.auditing.spectra import RandomLaw, Spectrum, matrix_spectrum, random_quantiles
from rankscope.errors import ModelFileError, printable
from rankscope.progress import Progress, Report, ignore
from rankscope.tensor_files.sources import TensorSource

_NUM_SHOWN = 256
# Of random matrices the largest value exceeds the edge by more than that in 1 of 1000: a quantile
# of the law of Tracy and Widom.
_QUANTILE = 3.27


@dataclass(frozen=True)
class TensorDifference:
    """How one tensor was changed.

    Args:
        name: in both files.
        shape: of the tensor; more than two axes are read as a matrix, the first against the rest.
        norm: Frobenius norm of the difference.
        relative: the same over the norm of the tensor before (of zeros, 0 or infinity as None).
        rank: singular values of the difference above the random edge; None without two axes.
        edge: the largest singular value that chance would give, from the values below it.
        held: share of the squared norm in the values above the edge.
        singular_values: of the difference, at most 256 of them, evenly spaced, descending.
    """

    name: str
    shape: tuple[int, ...]
    norm: float
    relative: float | None
    rank: int | None = None
    edge: float | None = None
    held: float | None = None
    singular_values: tuple[float, ...] = ()

    @property
    def size(self) -> int:
        """Numbers in the tensor."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Differences:
    """All tensors that two files share, and the names of those that only one has.

    Args:
        tensors: in the order of the base.
        only_in_base: names.
        only_in_tuned: names.
        reshaped: names of tensors that have another shape.
    """

    tensors: tuple[TensorDifference, ...]
    only_in_base: tuple[str, ...]
    only_in_tuned: tuple[str, ...]
    reshaped: tuple[str, ...]

    @property
    def changed(self) -> tuple[TensorDifference, ...]:
        """The tensors with a difference."""
        return tuple(row for row in self.tensors if row.norm > 0)

    def to_dict(self) -> dict[str, object]:
        """Plain data, for JSON."""
        return asdict(self)


def compare_weights(
    base: TensorSource, tuned: TensorSource, *, report: Report = ignore
) -> Differences:
    """Compare the tensors of two files by name, one pair at a time.

    Args:
        base: before.
        tuned: after.
        report: called after every tensor.

    Raises:
        ModelFileError: if no name is in both, or a number is not finite.
    """
    shapes = [{entry.name: entry.shape for entry in source.entries} for source in (base, tuned)]
    shared = [name for name in shapes[0] if name in shapes[1]]
    if not shared:
        raise ModelFileError(
            f"diff: of {len(shapes[0]):,} tensors before and {len(shapes[1]):,} after, none has "
            "the same name; are they the same kind of model?"
        )
    alike = [name for name in shared if shapes[0][name] == shapes[1][name]]
    rows = []
    for done, name in enumerate(alike, start=1):
        before, after = (read_finite(source, name) for source in (base, tuned))
        coarsest = max(_precision(source, name) for source in (base, tuned))
        rows.append(_compare(name, before, after, coarsest))
        report(Progress(name, done, len(alike)))
    return Differences(
        tuple(rows),
        tuple(name for name in shapes[0] if name not in shapes[1]),
        tuple(name for name in shapes[1] if name not in shapes[0]),
        tuple(name for name in shared if shapes[0][name] != shapes[1][name]),
    )


def _precision(source: TensorSource, name: str) -> float:
    dtype = source.read(name).dtype
    return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


def read_finite(source: TensorSource, name: str) -> Tensor:
    """One tensor in double precision.

    Raises:
        ModelFileError: if a number in it is not finite.
    """
    tensor: Tensor = source.read(name).double()
    bad = int((~torch.isfinite(tensor)).sum())
    if bad:
        raise ModelFileError(
            f"diff: {printable(name)} has {bad:,} NaN or infinite numbers of {tensor.numel():,}."
        )
    return tensor


def _compare(name: str, before: Tensor, after: Tensor, precision: float) -> TensorDifference:
    difference = after - before
    norm, size = float(difference.norm()), float(before.norm())
    relative = norm / size if size else (0.0 if norm == 0 else None)
    row = TensorDifference(name, tuple(before.shape), norm, relative)
    if before.ndim < 2 or not before.numel():
        return row
    if norm == 0:
        return replace(row, rank=0, edge=0.0, held=0.0, singular_values=(0.0,))
    # Scaled, so that neither large nor small differences leave the range of float32.
    scale = float(difference.abs().max())
    spectrum = matrix_spectrum((difference.flatten(1) / scale).float())
    # Both files round each entry by half a unit: by chance, so that it spreads over all values.
    rows, columns = spectrum.shape
    rounded = precision / 2 * (size + float(after.norm())) / scale
    rounding = rounded * (1 / math.sqrt(rows) + 1 / math.sqrt(columns))
    spectrum = replace(spectrum, rounding=max(spectrum.rounding, rounding))
    rank, edge = rank_above_chance(spectrum)
    squares = numpy.square(spectrum.values)
    places = numpy.linspace(0, len(squares) - 1, min(len(squares), _NUM_SHOWN)).round()
    return replace(
        row,
        rank=rank,
        edge=scale * edge,
        held=min(1.0, float(squares[:rank].sum() / squares.sum())),
        singular_values=tuple((scale * spectrum.values[places.astype(int)]).tolist()),
    )


def rank_above_chance(spectrum: Spectrum) -> tuple[int, float]:
    r"""Singular values above the random edge, and that edge.

    The edge that belongs to k values taken away is that of a random
    :math:`(m - k) \times (n - k)` matrix with the mean square of the others. k is right if none of
    the others is above its edge, and the last one taken away would be above it as one of them. The
    search begins with the edge that follows from the median, which a few large values do not move.
    Finite matrices exceed the edge of Marchenko and Pastur by chance; how far follows Tracy and
    Widom.

    Example:
        >>> values = numpy.array([9.0, 5.0, 0.0, 0.0])
        >>> rank_above_chance(Spectrum((4, 4), values, 1e-9))
        (2, 1e-09)

    Reference:
        Gavish & Donoho (2014), "The optimal hard threshold for singular values is 4/sqrt(3)", IEEE
        Trans. Inf. Theory 60, section III (noise from the median); Johnstone (2001), "On the
        distribution of the largest eigenvalue in principal components analysis", Annals of
        Statistics 29, theorem 1.1.
    """
    values = spectrum.values
    median = float(values[len(values) // 2]) / random_quantiles(spectrum.shape, 1)[0]
    rank = int((values > max(spectrum.rounding, median * _excess(*spectrum.shape))).sum())
    if rank < len(values) and values[rank] <= spectrum.rounding:
        return rank, spectrum.rounding  # there is no noise, however small the matrix
    while rank and values[rank - 1] <= _edge(spectrum, rank - 1):
        rank -= 1
    while rank < len(values) and values[rank] > _edge(spectrum, rank):
        rank += 1
    return rank, _edge(spectrum, rank)


def _edge(spectrum: Spectrum, rank: int) -> float:
    """The random edge of what is left when the largest values are taken away."""
    left = spectrum.values[rank:]
    if not len(left):
        return spectrum.rounding
    rows, columns = (size - rank for size in spectrum.shape)
    mean = float(numpy.square(left).mean())
    chance = math.sqrt(mean * RandomLaw(rows, columns).edge) * _excess(rows, columns)
    return max(spectrum.rounding, chance)


def _excess(rows: int, columns: int) -> float:
    """How far the largest singular value may exceed the edge by chance, as a factor."""
    roots = math.sqrt(rows), math.sqrt(columns)
    width = (1 / roots[0] + 1 / roots[1]) ** (1 / 3) / sum(roots)
    return math.sqrt(1 + _QUANTILE * width)


def differing_names(differences: Differences) -> Iterator[str]:
    """Names that stand in the way of turning one file into the other."""
    yield from differences.only_in_base
    yield from differences.only_in_tuned
    yield from differences.reshaped
