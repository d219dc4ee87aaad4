"""Singular values of weights: of matrices and convolutions, and the edge of random ones."""

import math
from dataclasses import dataclass, replace

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rankscope.auditing.tensors import MatrixRow
from rankscope.factorize.frequency_blocks import Torus, circular_spectrum

# --- The singular values that chance alone would give a matrix, or a product of two ---------------


_NUM_CELLS = 4096


class RandomLaw:
    r"""Law of the squared singular values of A, or of A B, with independent random entries.

    The squares are in units of their mean. A of size :math:`n_0 \times n_1` has one ratio
    :math:`c = \min / \max`; A B with :math:`n_0 \times n_1` and :math:`n_1 \times n_2` has two,
    :math:`c_i = \min / n_i` for the two larger sizes, in any order. Large matrices follow the law

    .. math:: x = \frac{(1 + z)(1 + c_1 z)(1 + c_2 z)}{z}, \qquad
              \rho(x) = \frac{|\operatorname{Im} z|}{\pi x},

    which for :math:`c_2 = 0` is that of Marchenko and Pastur. On the curve
    :math:`z = e^{i\varphi} / u`, x is real exactly if
    :math:`u^3 = (c_1 + c_2 + c_1 c_2) u + 2 c_1 c_2 \cos\varphi`, which is how it is drawn here.

    Args:
        sizes: rows and columns; of a product the three sizes of its chain.

    Example:
        >>> round(RandomLaw(100, 400).edge, 12)  # (1 + sqrt(1 / 4))², in units of the mean square
        2.25

    Reference:
        Marchenko & Pastur (1967), Math. USSR Sbornik 1, 457-483; Müller (2002), "On the asymptotic
        eigenvalue distribution of concatenated vector-valued fading channels", IEEE Trans. Inf.
        Theory 48, 2086-2091 (products, by the S-transform; as recalled).
    """

    def __init__(self, *sizes: int) -> None:
        smallest, *larger = sorted(sizes)
        first, second = (*(smallest / size for size in larger), 0.0)[:2]
        self._sum = first + second + first * second
        self._product = first * second
        self._start = 1 + first + second

    @property
    def edge(self) -> float:
        """The largest possible square, in units of the mean square."""
        return float(self._squares(numpy.zeros(1))[0])

    def cumulative(self, squares: NDArray[numpy.float64]) -> NDArray[numpy.float64]:
        """Share of the law below each of these squares, given in units of the mean square."""
        # Equal angles crowd where the law is steep: at zero, for square matrices.
        angles = numpy.linspace(math.pi, 0.0, _NUM_CELLS + 1)
        middles = (angles[1:] + angles[:-1]) / 2
        places, centres = self._squares(angles), self._squares(middles)
        density = numpy.sin(middles) / (math.pi * self._inverse(middles) * centres)
        reached = numpy.concatenate([[0.0], numpy.cumsum(density * numpy.diff(places))])
        shares: NDArray[numpy.float64] = numpy.interp(squares, places, reached / reached[-1])
        return shares

    def _inverse(self, angles: NDArray[numpy.float64]) -> NDArray[numpy.float64]:
        """The largest root u of the cubic, 1 / |z|; it has three real ones."""
        radius = math.sqrt(self._sum / 3)
        inner = numpy.clip(self._product * numpy.cos(angles) / radius**3, -1.0, 1.0)
        root: NDArray[numpy.float64] = 2 * radius * numpy.cos(numpy.arccos(inner) / 3)
        return root

    def _squares(self, angles: NDArray[numpy.float64]) -> NDArray[numpy.float64]:
        u = self._inverse(angles)
        return numpy.maximum(
            self._start
            + (u + self._sum / u) * numpy.cos(angles)
            + self._product / u**2 * numpy.cos(2 * angles),
            0.0,
        )


NUM_CELLS = 2048


def random_sizes(matrix: MatrixRow) -> tuple[int, ...]:
    """Sizes that the law of chance needs: of a product of thin matrices also the inner one."""
    if matrix.num_values < min(matrix.shape):
        return (*matrix.shape, matrix.num_values)
    return matrix.shape


def random_quantiles(sizes: tuple[int, ...], count: int) -> list[float]:
    """Singular values that chance gives a large matrix, descending, over its random edge.

    They stand at the probabilities (k + 1/2) / `count`.

    Example:
        >>> values = random_quantiles((64, 256), 16)
        >>> len(values), all(value < 1 for value in values)
        (16, True)
    """
    law = RandomLaw(*sizes)
    values = numpy.linspace(0.0, 1.0, NUM_CELLS + 1)
    reached = law.cumulative(law.edge * values**2)
    wanted = 1 - (numpy.arange(count) + 0.5) / count
    interpolated: list[float] = numpy.interp(wanted, reached, values).tolist()
    return interpolated


# --- From singular values to the numbers in a row -------------------------------------------------


Reals = NDArray[numpy.float64]

SHARES = (50, 90, 95, 99)
NUM_SHOWN = 256


@dataclass(frozen=True, eq=False)
class Spectrum:
    """All singular values of a matrix that can differ from zero.

    Args:
        shape: rows, columns; of a convolution those of its blocks.
        values: descending.
        rounding: values up to this one may be rounding alone.
        inner_size: of a product of two matrices, the size that is summed over; otherwise None.
    """

    shape: tuple[int, int]
    values: Reals
    rounding: float
    inner_size: int | None = None

    def to_row(self, name: str) -> MatrixRow:
        """All numbers of the row; of the zero matrix they are zero."""
        largest = float(self.values[0])
        # Scaling by the largest keeps the squares from overflowing.
        squares = numpy.square(self.values / largest) if largest > 0 else 0 * self.values
        entropy = _entropy(squares)
        edge, distance = self._against_chance(squares)
        places = numpy.linspace(0, len(squares) - 1, min(len(squares), NUM_SHOWN)).round()
        return MatrixRow(
            name=name,
            shape=self.shape,
            num_values=len(squares),
            singular_values=tuple(self.values[places.astype(int)].tolist()),
            largest=largest,
            frobenius=largest * math.sqrt(squares.sum()),
            numeric_rank=int((self.values > self.rounding).sum()),
            stable_rank=float(squares.sum()),
            effective_rank=math.exp(entropy) if largest > 0 else 0.0,
            entropy=_relative_entropy(entropy, squares),
            rank_at={str(share): _rank_at(squares, share) for share in SHARES},
            random_edge=largest * edge,
            outliers=int((numpy.sqrt(squares) > edge).sum()),
            random_distance=distance,
        )

    def _against_chance(self, squares: Reals) -> tuple[float, float]:
        """Edge of the random law, and the Kolmogorov-Smirnov distance from it."""
        mean = float(squares.mean())
        if mean == 0:
            return 0.0, 0.0
        inner = () if self.inner_size is None else (self.inner_size,)
        law = RandomLaw(*self.shape, *inner)
        expected = law.cumulative(squares[::-1] / mean)
        steps = numpy.arange(len(squares) + 1) / len(squares)
        above, below = steps[1:] - expected, expected - steps[:-1]
        return math.sqrt(mean * law.edge), float(max(above.max(), below.max()))


def _entropy(squares: Reals) -> float:
    """Entropy of the shares of the squares, in nats."""
    present = squares[squares > 0]
    shares = present / present.sum()
    return max(0.0, -float(numpy.sum(shares * numpy.log(shares))))


def _relative_entropy(entropy: float, squares: Reals) -> float:
    if len(squares) == 1 or squares[0] == 0:
        return float(squares[0])  # one value is as even as it can be
    return min(1.0, entropy / math.log(len(squares)))


def _rank_at(squares: Reals, percent: int) -> int:
    """The smallest number of squares that hold this much of their sum."""
    held = numpy.cumsum(squares)
    if held[-1] == 0:
        return 0
    # Rounding in the sum must not cost one more.
    wanted = percent / 100 * held[-1] * (1 - 1e-12)
    return int(numpy.searchsorted(held, wanted)) + 1


# --- Singular values of weights, fast and to a stated precision -----------------------------------


EPSILON = torch.finfo(torch.float64).eps
_ROWS_AT_ONCE = 2048


def matrix_spectrum(matrix: Tensor) -> Spectrum:
    r"""The spectrum of a real matrix of floating-point numbers of any precision.

    Every stored entry may be off by half a unit in its last place, and the matrix by
    :math:`\tfrac12 \varepsilon \|W\|_F`: no singular value above that (or above the error of the
    computation, if larger) can be rounding alone.

    Example:
        >>> matrix_spectrum(torch.diag(torch.tensor([3.0, 4.0]))).values.tolist()
        [4.0, 3.0]
    """
    rows, columns = matrix.shape
    if matrix.dtype == torch.float64:
        values = torch.linalg.svdvals(matrix)
    else:
        values = _roots(_gram(matrix))
    stored = torch.finfo(matrix.dtype).eps / 2 * float(values.norm())
    computed = computation_error(matrix.dtype, min(rows, columns)) * float(values[0])
    return Spectrum((rows, columns), values.numpy(), max(stored, computed))


def block_values(blocks: Tensor, dtype: torch.dtype) -> Tensor:
    """Singular values of a batch of complex128 blocks that were made from entries of a dtype."""
    if dtype == torch.float64:
        values: Tensor = torch.linalg.svdvals(blocks)
        return values
    if blocks.shape[-2] > blocks.shape[-1]:
        blocks = blocks.mT
    return _roots(blocks @ blocks.mH)


def computation_error(dtype: torch.dtype, size: int) -> float:
    """Error of a singular value over the largest one."""
    return size * EPSILON if dtype == torch.float64 else math.sqrt(size * EPSILON)


@dataclass(frozen=True, eq=False)
class Triangle:
    """The triangular factor R of a tall matrix Q R, all that products of its singular values need.

    Args:
        factor: (..., k, inner).
        length: rows of the tall matrix.
        precision: of the entries it was made from.
    """

    factor: Tensor
    length: int
    precision: float

    @classmethod
    def of(cls, tall: Tensor) -> "Triangle":
        """Decompose (..., length, inner) in float64."""
        factor = torch.linalg.qr(tall.double(), mode="r").R
        return cls(factor, tall.shape[-2], torch.finfo(tall.dtype).eps)

    def times(self, other: "Triangle") -> Spectrum:
        r"""Spectrum of :math:`A B^\top` for one pair of tall matrices, without forming it.

        .. math:: A B^\top = Q_A (R_A R_B^\top) Q_B^\top

        has the singular values of the small core in the middle. Stored entries are off by half a
        unit in both factors, the product by :math:`\varepsilon \|A\|_F \|B\|_F`.
        """
        core = self.factor @ other.factor.mT
        inner = self.factor.shape[-1]
        values = torch.linalg.svdvals(core)
        precision = max(self.precision, other.precision)
        rounding = precision * float(self.factor.norm() * other.factor.norm())
        shape = (self.length, other.length)
        return Spectrum(shape, values.numpy(), rounding, inner_size=inner)


def _gram(matrix: Tensor) -> Tensor:
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.mT
    size = tall.shape[1]
    total = torch.zeros(size, size, dtype=torch.float64)
    for piece in torch.split(tall, _ROWS_AT_ONCE):
        exact = piece.double()
        total.addmm_(exact.mT, exact)
    return total


def _roots(gram: Tensor) -> Tensor:
    squares: Tensor = torch.linalg.eigvalsh(gram)
    return squares.clamp(min=0).sqrt().flip(-1)


def working_memory(rows: int, columns: int, dtype: torch.dtype) -> int:
    """About how many bytes `matrix_spectrum` takes beside the matrix."""
    if dtype == torch.float64:
        return 16 * rows * columns
    short, long = sorted((rows, columns))
    return 8 * (3 * short**2 + short * min(long, _ROWS_AT_ONCE))


# --- Convolutions as operators on images, with their true singular values -------------------------


# Image sides to choose from: the first whose decompositions take less than about this many steps.
_SIDES = (32, 16, 8)
_MOST_STEPS = 2**31


@dataclass(frozen=True)
class Geometry:
    """Stride, dilation and groups of a convolution, which a file of weights does not hold.

    Args:
        stride: the same along all axes of the image, as are the others.
        dilation: distance of neighbouring entries of the kernel.
        groups: of channels that do not mix.
    """

    stride: int = 1
    dilation: int = 1
    groups: int = 1

    def __str__(self) -> str:
        said = [f"stride {self.stride}"]
        if self.dilation > 1:
            said.append(f"dilation {self.dilation}")
        if self.groups > 1:
            said.append(f"{self.groups} groups")
        return ", ".join(said)


def geometries(module: nn.Module) -> dict[str, Geometry]:
    """The geometry of every convolution of a module, by the name of its weight.

    One with different strides or dilations along its axes is left out: it is seen as in a file.

    Example:
        >>> geometries(nn.Sequential(nn.Conv2d(4, 8, 3, stride=2, groups=2)))
        {'0.weight': Geometry(stride=2, dilation=1, groups=2)}
    """
    results = {}
    for name, part in module.named_modules():
        if isinstance(part, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            strides, dilations = set(part.stride), set(part.dilation)
            if len(strides) == len(dilations) == 1:
                place = f"{name}.weight" if name else "weight"
                results[place] = Geometry(strides.pop(), dilations.pop(), part.groups)
    return results


def image_side(shape: tuple[int, ...], geometry: Geometry, wanted: int | None = None) -> int:
    """The side of the image that a kernel is looked at on: a multiple of the stride.

    If none is wanted, 32 for up to about 128 channels, 8 for 512 and more, and never smaller than
    the kernel; otherwise the one wanted, rounded up.

    Example:
        >>> image_side((64, 64, 3, 3), Geometry()), image_side((512, 512, 3, 3), Geometry())
        (32, 8)
    """
    if wanted is not None:
        return math.ceil(wanted / geometry.stride) * geometry.stride
    rows, columns = shape[0] // geometry.groups, shape[1]
    order = len(shape) - 2
    steps = shape[0] * columns * min(rows, columns)
    side = next((s for s in _SIDES if steps * s**order // 2 <= _MOST_STEPS), _SIDES[-1])
    extent = geometry.dilation * (max(shape[2:]) - 1) + 1
    return math.ceil(max(side, extent) / geometry.stride) * geometry.stride


def convolution_spectrum(kernel: Tensor, side: int, geometry: Geometry) -> Spectrum:
    r"""All singular values of a convolution on an image with equal sides and circular padding.

    Those of all blocks of `frequency_blocks` together. Padding with zeros changes only what touches
    the border.

    Args:
        kernel: (channels out, channels in of one group, positions ...).
        side: of the image; a multiple of the stride. A larger kernel is wrapped around.
        geometry: stride, dilation, groups.

    Raises:
        MatrixError: if the stride does not divide the side, or the groups the channels.
    """
    order = kernel.ndim - 2
    torus = Torus(
        (side,) * order, (geometry.stride,) * order, (geometry.dilation,) * order, geometry.groups
    )
    values = circular_spectrum(kernel, torus, lambda blocks: block_values(blocks, kernel.dtype))
    columns = kernel.shape[1] * geometry.stride**order
    return _with_rounding(kernel, values, (kernel.shape[0] // geometry.groups, columns))


def depthwise(shape: tuple[int, ...], geometry: Geometry) -> Geometry:
    """The same with one channel to each group."""
    return replace(geometry, groups=shape[0])


def _with_rounding(kernel: Tensor, values: Tensor, shape: tuple[int, int]) -> Spectrum:
    """The transform of an error of the kernel is at most the root of the positions as large."""
    positions = math.sqrt(math.prod(kernel.shape[2:]))
    stored = torch.finfo(kernel.dtype).eps / 2 * positions * float(kernel.double().norm())
    computed = computation_error(kernel.dtype, min(shape)) * float(values[0])
    return Spectrum(shape, values.numpy(), max(stored, computed))
