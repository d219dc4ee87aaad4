r"""Singular values of weights, fast and to a stated precision.

Entries of at most 32 bits are squared without loss worth naming in float64, so the values are the
roots of the eigenvalues of the smaller Gram matrix. Their error is below
:math:`\sqrt{n \varepsilon_{64}}\, \sigma_1` for a shorter side n (4e-7 for n = 768), less than that
of a decomposition in float32; a long matrix is read in pieces, and no copy of it is made. Entries
of 64 bits are decomposed directly.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rankscope.auditing.spectra import Spectrum

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
