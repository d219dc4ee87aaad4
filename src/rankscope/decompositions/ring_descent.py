"""Alternating least squares on the cores of a ring."""

from collections.abc import Callable
from dataclasses import dataclass

import opt_einsum
import torch
from torch import Tensor

from rankscope.decompositions.computing import frobenius_norm

Indexed = tuple[list[int], list[int]]  # sizes, and numbers of the indices that have them
Contraction = Callable[..., Tensor]
Ring = tuple[Tensor, ...]  # cores (left_bond, size, right_bond); the last bond is the first one

# A sweep that gains less than this share of the squared error is the last one.
_LEAST_GAIN = 1e-3
# Added to the diagonal of the equations, in units of rounding, so that they have one solution.
_RIDGE = 100


def contract_ring(cores: Ring) -> Tensor:
    """The tensor that a ring stands for.

    Reference:
        Zhao, Zhou, Xie, Zhang & Cichocki (2016), Tensor ring decomposition, Eq. 2,
        arXiv:1606.05535.
    """
    order = len(cores)
    operands = [_indexed(cores, place) for place in range(order)]
    return _contraction(operands, list(range(order)))(*cores)


def descend_ring(tensor: Tensor, start: Ring, sweeps: int) -> Ring:
    """Solve for one core after the other, round and round, as long as the error falls.

    Reference:
        Zhao, Zhou, Xie, Zhang & Cichocki (2016), Tensor ring decomposition, Alg. 2,
        arXiv:1606.05535.
    """
    square = frobenius_norm(tensor) ** 2
    best, before = start, float("inf")
    ring, steps = start, [_Step.of(start, place) for place in range(len(start))]
    for _ in range(sweeps):
        missing = square
        for step in steps:
            ring, missing = step.solved(tensor, ring, square)
        ring = _balanced(ring)
        if not before - missing > _LEAST_GAIN * missing:
            break
        best, before = ring, missing
    return best


@dataclass(frozen=True, eq=False)
class _Step:
    """How to solve for one core; the orders of contraction are found once for all sweeps.

    Args:
        place: of the core.
        seen: contracts the tensor and all other cores to (left_bond, right_bond, size).
        gram: contracts all other cores and their twins to (left_bond, right_bond, twins of both).
    """

    place: int
    seen: Contraction
    gram: Contraction

    @classmethod
    def of(cls, ring: Ring, place: int) -> "_Step":
        order = len(ring)
        positions, sizes = list(range(order)), [core.shape[1] for core in ring]
        others = [other for other in range(order) if other != place]
        bonds = [order + place, order + (place + 1) % order]
        cores = [_indexed(ring, other) for other in others]
        twins = [_indexed(ring, other, twin=True) for other in others]
        both = [*bonds, *(bond + order for bond in bonds)]
        return cls(
            place,
            _contraction([(sizes, positions), *cores], [*bonds, place]),
            _contraction([*cores, *twins], both),
        )

    def solved(self, tensor: Tensor, ring: Ring, square: float) -> tuple[Ring, float]:
        """The ring with the best core for all others, and the squared error that it leaves."""
        before, (left, size, right) = ring[: self.place], ring[self.place].shape
        after = ring[self.place + 1 :]
        others = (*before, *after)
        matrix = self.gram(*others, *others).reshape(left * right, left * right)
        wanted = self.seen(tensor, *others).reshape(left * right, size)
        precision = torch.finfo(matrix.dtype)
        # Not even a ring of zeros makes it 0.
        ridge = _RIDGE * precision.eps * matrix.diagonal().mean() + precision.tiny
        damped = matrix + ridge * torch.eye(len(matrix)).to(matrix)
        solution = torch.linalg.solve(damped, wanted)
        missing = square + float((solution * (matrix @ solution - 2 * wanted)).sum())
        return (*before, solution.reshape(left, right, size).movedim(1, 2), *after), missing


def _indexed(ring: Ring, place: int, *, twin: bool = False) -> Indexed:
    """The sizes of a core and the numbers of its indices: positions, then bonds, then twins'."""
    order = len(ring)
    offset = 2 * order if twin else order
    return list(ring[place].shape), [offset + place, place, offset + (place + 1) % order]


def _contraction(operands: list[Indexed], open_indices: list[int]) -> Contraction:
    """A function of tensors, for given sizes."""
    terms = ["".join(map(opt_einsum.get_symbol, indices)) for _, indices in operands]
    result = "".join(map(opt_einsum.get_symbol, open_indices))
    shapes = [sizes for sizes, _ in operands]
    found: Contraction = opt_einsum.contract_expression(f"{','.join(terms)}->{result}", *shapes)
    return found


def _balanced(ring: Ring) -> Ring:
    """The same tensor with cores of one Frobenius norm."""
    norms = torch.tensor([frobenius_norm(core) for core in ring], dtype=torch.float64)
    if not bool((norms > 0).all()):
        return ring
    common = float(norms.log().mean().exp())
    return tuple(core * (common / float(norm)) for core, norm in zip(ring, norms, strict=True))
