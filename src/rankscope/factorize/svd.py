"""Truncated singular value decompositions, with the error actually made."""

from dataclasses import dataclass

import numpy
import scipy.linalg
import torch
from torch import Tensor

from rankscope.errors import DecompositionError
from rankscope.factorize.truncation import (
    RelativeError,
    Scaled,
    Truncation,
    bond_sizes,
    frobenius_norm,
    to_scaled,
)


@dataclass(frozen=True)
class Economy:
    """All singular vectors of the smaller side, then the largest ones: the best approximation."""


@dataclass(frozen=True)
class Randomized:
    """The largest singular vectors within the range of random combinations of the columns.

    Args:
        oversampling: how many combinations more than singular vectors that are wanted.
        power_iterations: how often the range is multiplied by the matrix and its transpose: more
            come nearer to the best approximation where singular values decay slowly.
        seed: of the combinations.
    """

    oversampling: int = 10
    power_iterations: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("oversampling", "power_iterations", "seed"):
            if getattr(self, name) < 0:
                raise DecompositionError(
                    f"Randomized: {name} must be at least 0, got {getattr(self, name)}."
                )


SVDMethod = Economy | Randomized
_Thin = tuple[Tensor, Tensor, Tensor, str]  # left vectors, singular values, right vectors, driver
_FIRST_WIDTH = 8  # of the range, when it is not known how many singular values an error takes
ECONOMY = Economy()


@dataclass(frozen=True, eq=False)
class SVD:
    """A matrix as left * singular_values @ right.

    Args:
        left: orthonormal columns (rows of the matrix, bond).
        singular_values: (bond), descending.
        right: orthonormal rows (bond, columns of the matrix).
        relative_error: Frobenius norm of the difference, measured entry by entry, over that of
            the matrix.
        driver: the LAPACK routine that found them: "gesdd", or "gesvd" where that one failed.
    """

    left: Tensor
    singular_values: Tensor
    right: Tensor
    relative_error: float
    driver: str = "gesdd"

    @property
    def bonds(self) -> tuple[int]:
        """The number of singular values that were kept."""
        return (len(self.singular_values),)

    @property
    def num_parameters(self) -> int:
        """Number of entries of the two factors; one of them absorbs the singular values."""
        return self.left.numel() + self.right.numel()

    def to_dense(self) -> Tensor:
        """The matrix of the kept singular values."""
        return self.left * self.singular_values @ self.right


def decompose_svd(matrix: Tensor, truncation: Truncation, *, method: SVDMethod = ECONOMY) -> SVD:
    r"""Approximate a matrix by its largest singular values and their vectors.

    .. math:: A \approx \sum_{s=1}^{r} \sigma_s u_s v_s^T

    By the economy method no matrix of rank r comes nearer, and the squared error is the sum of the
    squares of the other singular values. There is one bond, r.

    Example:
        >>> from rankscope.factorize.truncation import MaxBond
        >>> svd = decompose_svd(torch.diag(torch.tensor([3.0, 4.0, 0.0])), MaxBond(1))
        >>> svd.left.shape, round(svd.relative_error, 12)
        (torch.Size([3, 1]), 0.6)

    Raises:
        DecompositionError: if the matrix is none of finite floating-point numbers, or the
            truncation does not fit.

    Reference:
        Eckart & Young (1936), doi:10.1007/BF02288367; Halko, Martinsson & Tropp (2011), Alg. 4.4
        and 5.1, arXiv:0909.4061.
    """
    scaled = to_scaled(matrix, truncation, who="decompose_svd", least_order=2)
    if matrix.ndim != 2:
        raise DecompositionError(
            f"decompose_svd needs a matrix, got order {matrix.ndim} (shape {tuple(matrix.shape)})."
        )
    wanted = _wanted(scaled, truncation)
    if isinstance(method, Economy):
        (left, values, right, driver), missed = thin_svd(scaled.unit), 0.0
    else:
        (left, values, right, driver), missed = _randomized_svd(scaled, wanted, method)
    kept = wanted.bond or num_within(values, wanted.allowed - missed)
    left, values, right = left[:, :kept], values[:kept], right[:kept]
    error = scaled.relative_error(left * values @ right)
    return SVD(left, values * scaled.scale, right, error, driver)


def thin_svd(matrix: Tensor) -> _Thin:
    """Economy-size left vectors, singular values, right vectors, and the LAPACK driver.

    Divide and conquer ("gesdd") rarely fails on ill-conditioned matrices; then QR iterations
    ("gesvd") are used, slower and more robust.

    Raises:
        DecompositionError: if that one fails, too.

    Reference:
        Golub & Van Loan (2013), Matrix computations, Sec. 8.6, ISBN 978-1-4214-0794-4.
    """
    try:
        left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        return _by_qr_iterations(matrix)
    if not bool(values.isfinite().all()):
        return _by_qr_iterations(matrix)
    return left, values, right, "gesdd"


def left_singular_vectors(matrix: Tensor, count: int | None = None) -> tuple[Tensor, Tensor]:
    """All left singular vectors that there are, or so many, and the singular values.

    The triangle of the transpose has them, too: right vectors are never formed, and no precision
    is lost as it would be in the product with the transpose. Where the matrix has fewer columns
    than vectors asked for, its own are completed to an orthonormal basis.

    Reference:
        Golub & Van Loan (2013), Matrix computations, Sec. 8.6.3, ISBN 978-1-4214-0794-4.
    """
    rows, columns = matrix.shape
    if columns > rows:
        matrix = torch.linalg.qr(matrix.T, mode="r").R.T
    left, values, _, _ = thin_svd(matrix)
    if count is not None and count > left.shape[1]:
        left = torch.cat([left, torch.linalg.qr(left, mode="complete").Q[:, left.shape[1] :]], 1)
    return (left if count is None else left[:, :count]), values


def num_within(values: Tensor, allowed: float) -> int:
    """The fewest singular values, at least 1, whose rest has at most this sum of squares.

    Reference:
        Eckart & Young (1936), doi:10.1007/BF02288367.
    """
    tails = values.double().square().flip(0).cumsum(0)
    return max(1, len(values) - int((tails <= allowed).sum()))


@dataclass(frozen=True)
class _Wanted:
    """How many singular values, or, if that is None, which sum of squares may be left out."""

    bond: int | None
    allowed: float = 0.0


def _wanted(scaled: Scaled, truncation: Truncation) -> _Wanted:
    if isinstance(truncation, RelativeError):
        return _Wanted(None, scaled.allowed(truncation.error))
    rows, columns = scaled.unit.shape
    (bond,) = bond_sizes(
        truncation,
        (min(rows, columns),),
        lambda bonds: bonds[0] * (rows + columns),
        num_entries=rows * columns,
        who="decompose_svd",
    )
    return _Wanted(bond)


def _randomized_svd(scaled: Scaled, wanted: _Wanted, method: Randomized) -> tuple[_Thin, float]:
    """The thin decomposition within a random range, and the squares that the range misses.

    For an error, the range is widened until it misses at most half of what may be left out.
    """
    unit, generator = scaled.unit, torch.Generator().manual_seed(method.seed)
    width = wanted.bond or _FIRST_WIDTH
    while True:
        basis = _random_range(unit, width + method.oversampling, method, generator)
        within = basis.T @ unit
        missed = frobenius_norm(unit - basis @ within) ** 2
        if wanted.bond or missed <= wanted.allowed / 2 or basis.shape[1] == min(unit.shape):
            left, values, right, driver = thin_svd(within)
            return (basis @ left, values, right, driver), missed
        width *= 2


def _random_range(
    unit: Tensor, width: int, method: Randomized, generator: torch.Generator
) -> Tensor:
    width = min(width, *unit.shape)
    start = torch.randn(unit.shape[1], width, dtype=unit.dtype, generator=generator)
    basis: Tensor = torch.linalg.qr(unit @ start.to(unit.device)).Q
    for _ in range(method.power_iterations):
        basis = torch.linalg.qr(unit @ torch.linalg.qr(unit.T @ basis).Q).Q
    return basis


def _by_qr_iterations(matrix: Tensor) -> _Thin:
    try:
        parts = scipy.linalg.svd(matrix.cpu().numpy(), full_matrices=False, lapack_driver="gesvd")
    except numpy.linalg.LinAlgError as error:
        raise DecompositionError(
            f"No LAPACK driver finds the singular values of a matrix of shape "
            f"{tuple(matrix.shape)}: {error}."
        ) from error
    left, values, right = (torch.from_numpy(part).to(matrix) for part in parts)
    return left, values, right, "gesvd"
