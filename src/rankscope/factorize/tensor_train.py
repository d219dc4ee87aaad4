"""Tensor-train decompositions, and rounding of trains that exist."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rankscope.errors import DecompositionError
from rankscope.factorize.svd import num_within, thin_svd
from rankscope.factorize.truncation import (
    Bonds,
    KeepParameters,
    MaxBond,
    RelativeError,
    Scaled,
    Truncation,
    bond_sizes,
    frobenius_norm,
    to_scaled,
)

# --- Tensors as trains: one core for each position, joined in a row by bonds ----------------------


Train = tuple[Tensor, ...]  # cores (left_bond, size, right_bond)


@dataclass(frozen=True, eq=False)
class TensorTrain:
    """A train of cores.

    Args:
        cores: each (left_bond, size, right_bond); the first and the last bond are 1. All but the
            last have orthonormal columns as matrices (left_bond * size, right_bond).
        relative_error: Frobenius norm of the difference, measured, over that of the tensor.
        error_bound: the root of the discarded squares over the norm: proven never to be less
            than the error, rounding aside.
    """

    cores: Train
    relative_error: float
    error_bound: float

    @property
    def bonds(self) -> tuple[int, ...]:
        """Sizes of the bonds between neighbours, from left to right."""
        return tuple(core.shape[2] for core in self.cores[:-1])

    @property
    def num_parameters(self) -> int:
        """Number of entries of all cores."""
        return sum(core.numel() for core in self.cores)

    def to_dense(self) -> Tensor:
        """The tensor that the train stands for."""
        return contract_train(self.cores)


def decompose_tensor_train(tensor: Tensor, truncation: Truncation) -> TensorTrain:
    r"""Approximate a tensor by a train of cores, cutting it from left to right.

    .. math:: T_{j_1 \dots j_N} \approx G^{(1)}_{j_1} G^{(2)}_{j_2} \cdots G^{(N)}_{j_N}

    with matrices :math:`G^{(k)}_j = G^{(k)}[:, j, :]`. The squared error is the sum of the
    discarded squares, at most that of the tails of the N - 1 matricizations, and so at most N - 1
    times the least possible. There are N - 1 bonds.

    Args:
        tensor: of order 1 or more.
        truncation: of the bonds, from left to right.

    Example:
        >>> from rankscope.factorize.truncation import MaxBond
        >>> train = decompose_tensor_train(torch.ones(2, 3, 4), MaxBond(2))
        >>> [tuple(core.shape) for core in train.cores]
        [(1, 2, 2), (2, 3, 2), (2, 4, 1)]

    Raises:
        DecompositionError: if the tensor is none of finite floating-point numbers, or the
            truncation does not fit.

    Reference:
        Oseledets (2011), Tensor-train decomposition, Thm. 2.2 and Cor. 2.4,
        doi:10.1137/090752286.
    """
    scaled = to_scaled(tensor, truncation, who="decompose_tensor_train")
    sizes = tuple(tensor.shape)
    block = scaled.unit.reshape(1, *sizes, 1)
    if isinstance(truncation, RelativeError):
        cores, discarded = cut_within(block, scaled.allowed(truncation.error))
    else:
        cores, discarded = cut_to_bonds(block, _bonds(sizes, truncation))
    whole = frobenius_norm(scaled.unit)
    return TensorTrain(
        (*cores[:-1], cores[-1] * scaled.scale),
        scaled.relative_error(contract_train(cores)),
        math.sqrt(discarded) / whole if whole else 0.0,
    )


def contract_train(cores: Sequence[Tensor]) -> Tensor:
    """The tensor that a train with ends of size 1 stands for.

    Reference:
        Oseledets (2011), Tensor-train decomposition, Eq. 1.3, doi:10.1137/090752286.
    """
    whole = cores[0]
    for core in cores[1:]:
        whole = torch.tensordot(whole, core, dims=1)
    return whole.squeeze(-1).squeeze(0)


def limited_bonds(sizes: Sequence[int], bonds: Sequence[int]) -> tuple[int, ...]:
    """Bonds from left to right, none larger than the tensor or the bond before it allows.

    Example:
        >>> limited_bonds((2, 3, 4), (9, 9))
        (2, 4)

    Reference:
        Oseledets (2011), Tensor-train decomposition, Thm. 2.1, doi:10.1137/090752286.
    """
    limited: list[int] = []
    for place, bond in enumerate(bonds):
        rows = sizes[place] * (limited[-1] if limited else 1)
        limited.append(min(bond, rows, math.prod(sizes[place + 1 :])))
    return tuple(limited)


def count_train(sizes: Sequence[int], bonds: Sequence[int]) -> int:
    """Number of parameters of a train.

    Example:
        >>> count_train((2, 3, 4), (2, 4))
        44

    Reference:
        Oseledets (2011), Tensor-train decomposition, Sec. 1, doi:10.1137/090752286.
    """
    ends = (1, *bonds, 1)
    return sum(
        left * size * right for left, size, right in zip(ends, sizes, ends[1:], strict=False)
    )


def cut_to_bonds(block: Tensor, bonds: Sequence[int]) -> tuple[Train, float]:
    """Cut a block (left_bond, *sizes, right_bond) into cores; also the discarded squares.

    Bonds that are larger than the matrix to cut has singular values become smaller.

    Reference:
        Oseledets (2011), Tensor-train decomposition, Alg. 1, doi:10.1137/090752286.
    """
    return _cut(block, lambda step, values, _: min(bonds[step], len(values)))


def cut_within(block: Tensor, allowed: float) -> tuple[Train, float]:
    """The same with the smallest bonds that discard no more squares than allowed.

    What one cut does not discard of its share is left to the others.

    Reference:
        Oseledets (2011), Tensor-train decomposition, Alg. 1, doi:10.1137/090752286.
    """
    num_cuts = block.ndim - 3
    return _cut(
        block,
        lambda step, values, discarded: num_within(
            values, (allowed - discarded) / (num_cuts - step)
        ),
    )


def _cut(block: Tensor, keep: Callable[[int, Tensor, float], int]) -> tuple[Train, float]:
    bond, *sizes, last_bond = block.shape
    cores, discarded = [], 0.0
    for step, size in enumerate(sizes[:-1]):
        left, values, right, _ = thin_svd(block.reshape(bond * size, -1))
        kept = keep(step, values, discarded)
        discarded += float(values[kept:].double().square().sum())
        cores.append(left[:, :kept].reshape(bond, size, kept))
        block, bond = values[:kept, None] * right[:kept], kept
    return (*cores, block.reshape(bond, sizes[-1], last_bond)), discarded


def _bonds(sizes: tuple[int, ...], truncation: MaxBond | Bonds | KeepParameters) -> tuple[int, ...]:
    if len(sizes) == 1:
        return ()
    chosen = bond_sizes(
        truncation,
        limited_bonds(sizes, (math.prod(sizes),) * (len(sizes) - 1)),
        lambda bonds: count_train(sizes, limited_bonds(sizes, bonds)),
        num_entries=math.prod(sizes),
        who="decompose_tensor_train",
    )
    return limited_bonds(sizes, chosen)


# --- Trains with smaller bonds than they have, found without building their tensor ----------------


def round_tensor_train(cores: Sequence[Tensor], truncation: Truncation) -> TensorTrain:
    """Approximate a train by one with smaller bonds.

    Cores are made orthonormal from right to left, then truncated from left to right: the same
    promise as cutting the tensor itself, at a cost that never grows with its entries. The error
    is measured against the given train, and a share is one of the given parameters.

    Args:
        cores: each (left_bond, size, right_bond); the first and the last bond are 1.
        truncation: of the bonds between neighbours, from left to right.

    Example:
        >>> from rankscope.factorize.truncation import RelativeError
        >>> cores = [torch.ones(1, 4, 3), torch.ones(3, 5, 2), torch.ones(2, 6, 1)]
        >>> round_tensor_train(cores, RelativeError(0.1)).bonds
        (1, 1)

    Raises:
        DecompositionError: if these are no cores of a train, or the truncation does not fit.

    Reference:
        Oseledets (2011), Tensor-train decomposition, Alg. 2, doi:10.1137/090752286.
    """
    _require_train(cores)
    scaled = [to_scaled(core, truncation, who="round_tensor_train") for core in cores]
    double = any(one.unit.dtype == torch.float64 for one in scaled)
    given = tuple(one.unit.to(torch.float64 if double else torch.float32) for one in scaled)
    ready = _orthonormal_from_right(given)
    whole = frobenius_norm(ready[0])
    if isinstance(truncation, RelativeError):
        allowed = Scaled(ready[0], 1.0).allowed(truncation.error)
        rounded, discarded = _truncate(ready, None, allowed)
    else:
        rounded, discarded = _truncate(ready, _rounded_bonds(cores, truncation), 0.0)
    missing = frobenius_norm(_orthonormal_from_right(_difference(given, rounded))[0])
    scale = math.prod(one.scale for one in scaled)
    return TensorTrain(
        (*rounded[:-1], rounded[-1] * scale),
        missing / whole if whole else 0.0,
        math.sqrt(discarded) / whole if whole else 0.0,
    )


def _require_train(cores: Sequence[Tensor]) -> None:
    shapes = [tuple(core.shape) for core in cores]
    if not shapes or any(len(shape) != 3 for shape in shapes):
        raise DecompositionError(
            f"round_tensor_train needs cores of order 3, at least one, got shapes {shapes}."
        )
    ends = [1, *(shape[2] for shape in shapes)]
    if [*(shape[0] for shape in shapes), 1] != ends:
        raise DecompositionError(
            f"round_tensor_train needs each core's last size to be the next one's first, and 1 at "
            f"both ends, got shapes {shapes}."
        )


def _rounded_bonds(
    cores: Sequence[Tensor], truncation: MaxBond | Bonds | KeepParameters
) -> tuple[int, ...]:
    sizes = [core.shape[1] for core in cores]
    if len(sizes) == 1:
        return ()
    present = [core.shape[2] for core in cores[:-1]]
    chosen = bond_sizes(
        truncation,
        limited_bonds(sizes, present),
        lambda bonds: count_train(sizes, limited_bonds(sizes, bonds)),
        num_entries=sum(core.numel() for core in cores),
        who="round_tensor_train",
    )
    return limited_bonds(sizes, chosen)


def _orthonormal_from_right(cores: Train) -> Train:
    """The same train, whose cores but the first are orthonormal as rows (left_bond, the rest)."""
    ready: list[Tensor] = []
    core = cores[-1]
    for before in reversed(cores[:-1]):
        columns, triangle = torch.linalg.qr(core.flatten(1).T)
        ready.append(columns.T.reshape(-1, *core.shape[1:]))
        core = torch.tensordot(before, triangle.T, dims=1)
    return (core, *reversed(ready))


def _truncate(cores: Train, bonds: Sequence[int] | None, allowed: float) -> tuple[Train, float]:
    """Cut from left to right; a train that is orthonormal from the right shows what is lost."""
    rounded: list[Tensor] = []
    discarded, core, num_cuts = 0.0, cores[0], len(cores) - 1
    for step, after in enumerate(cores[1:]):
        left, values, right, _ = thin_svd(core.flatten(0, 1))
        if bonds is None:
            kept = num_within(values, (allowed - discarded) / (num_cuts - step))
        else:
            kept = min(bonds[step], len(values))
        discarded += float(values[kept:].double().square().sum())
        rounded.append(left[:, :kept].reshape(*core.shape[:2], kept))
        core = torch.tensordot(values[:kept, None] * right[:kept], after, dims=1)
    return (*rounded, core), discarded


def _difference(first: Train, second: Train) -> Train:
    """One train less the other, with bonds as large as both together."""
    if len(first) == 1:
        return (first[0] - second[0],)
    middle = [_side_by_side(*pair) for pair in zip(first[1:-1], second[1:-1], strict=True)]
    return (
        torch.cat([first[0], second[0]], dim=2),
        *middle,
        torch.cat([first[-1], -second[-1]], dim=0),
    )


def _side_by_side(first: Tensor, second: Tensor) -> Tensor:
    rows, size, columns = first.shape
    more_rows, _, more_columns = second.shape
    both = first.new_zeros(rows + more_rows, size, columns + more_columns)
    both[:rows, :, :columns], both[rows:, :, columns:] = first, second
    return both
