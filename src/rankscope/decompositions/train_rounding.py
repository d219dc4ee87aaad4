"""Trains with smaller bonds than they have, found without building their tensor."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from rankscope.decompositions.computing import Scaled, frobenius_norm, to_scaled
from rankscope.decompositions.svd import num_within, thin_svd
from rankscope.decompositions.tensor_train import (
    TensorTrain,
    Train,
    count_train,
    limited_bonds,
)
from rankscope.decompositions.truncation import (
    Bonds,
    KeepParameters,
    MaxBond,
    RelativeError,
    Truncation,
    bond_sizes,
)
from rankscope.errors import DecompositionError


def round_tensor_train(cores: Sequence[Tensor], truncation: Truncation) -> TensorTrain:
    """Approximate a train by one with smaller bonds.

    Cores are made orthonormal from right to left, then truncated from left to right: the same
    promise as cutting the tensor itself, at a cost that never grows with its entries. The error
    is measured against the given train, and a share is one of the given parameters.

    Args:
        cores: each (left_bond, size, right_bond); the first and the last bond are 1.
        truncation: of the bonds between neighbours, from left to right.

    Example:
        >>> from rankscope.decompositions.truncation import RelativeError
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
        rounded, discarded = _truncated(ready, None, allowed)
    else:
        rounded, discarded = _truncated(ready, _bonds(cores, truncation), 0.0)
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


def _bonds(
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


def _truncated(cores: Train, bonds: Sequence[int] | None, allowed: float) -> tuple[Train, float]:
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
