"""Tensor-ring decompositions with cores of least norm."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import opt_einsum
import torch
from torch import Tensor

from rankscope.errors import DecompositionError
from rankscope.factorize.svd import num_within, thin_svd
from rankscope.factorize.tensor_train import cut_to_bonds, cut_within, limited_bonds
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

# --- Alternating least squares on the cores of a ring ---------------------------------------------


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
    operands = [_index_numbers(cores, place) for place in range(order)]
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
        ring = _balance(ring)
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
        cores = [_index_numbers(ring, other) for other in others]
        twins = [_index_numbers(ring, other, twin=True) for other in others]
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


def _index_numbers(ring: Ring, place: int, *, twin: bool = False) -> Indexed:
    """The sizes of a core and the numbers of its indices: positions, then bonds, then twins'."""
    order = len(ring)
    offset = 2 * order if twin else order
    return list(ring[place].shape), [offset + place, place, offset + (place + 1) % order]


def _contraction(operands: list[Indexed], open_indices: list[int]) -> Contraction:
    """A function of tensors, for given sizes."""
    terms = ["".join(map(opt_einsum.get_symbol, indices)) for _, indices in operands]
    result = "".join(map(opt_einsum.get_symbol, open_indices))
    shapes = [sizes for sizes, _ in operands]
    contraction: Contraction = opt_einsum.contract_expression(
        f"{','.join(terms)}->{result}", *shapes
    )
    return contraction


def _balance(ring: Ring) -> Ring:
    """The same tensor with cores of one Frobenius norm."""
    norms = torch.tensor([frobenius_norm(core) for core in ring], dtype=torch.float64)
    if not bool((norms > 0).all()):
        return ring
    common = float(norms.log().mean().exp())
    return tuple(core * (common / float(norm)) for core, norm in zip(ring, norms, strict=True))


# --- The cores of least norm among all rings that stand for the same tensor -----------------------


_MOST_SWEEPS = 100
# A sweep that lowers the sum of squared norms by less than this share is the last one.
_LEAST_GAUGE_GAIN = 1e-4


def least_norm_cores(ring: Ring) -> Ring:
    """The same tensor, from cores of the least sum of squared norms.

    A bond with space to spare stays as it is: both sides would become 0 there, and no training
    could use it any more.

    Example:
        >>> large = torch.tensor([[1e3]])
        >>> [round(float(core), 6) for core in least_norm_cores((large[None], 1 / large[None]))]
        [1.0, 1.0]
    """
    cores, before = list(ring), _size(ring)
    for _ in range(_MOST_SWEEPS):
        for place in range(len(cores)):
            after = (place + 1) % len(cores)
            cores[place], cores[after] = _share_singular_values(cores[place], cores[after])
        now = _size(cores)
        if not before - now > _LEAST_GAUGE_GAIN * before:
            break
        before = now
    return tuple(cores)


def _size(cores: Ring | list[Tensor]) -> float:
    return sum(frobenius_norm(core) ** 2 for core in cores)


def _share_singular_values(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Two neighbours, each with half of the singular values of their product."""
    bond = len(right)
    one, one_triangle = torch.linalg.qr(left.reshape(-1, bond))
    other, other_triangle = torch.linalg.qr(right.reshape(bond, -1).mT)
    vectors, values, others = torch.linalg.svd(one_triangle @ other_triangle.mT)
    rounding = bond * torch.finfo(values.dtype).eps * values[0]
    if len(values) < bond or not bool(values[-1] > rounding):
        return left, right
    roots = values.sqrt()
    return (
        (one @ (vectors * roots)).reshape(left.shape),
        (other @ (others.mT * roots)).mT.reshape(right.shape),
    )


# --- Tensors as rings: one core for each position, the last joined to the first again -------------


# Of each start, before the better one goes on.
_TRIAL_SWEEPS = 2


@dataclass(frozen=True, eq=False)
class TensorRing:
    """A ring of cores.

    Args:
        cores: each (left_bond, size, right_bond); the last one's right bond is the first one's
            left bond.
        relative_error: Frobenius norm of the difference, measured entry by entry, over that of
            the tensor.
    """

    cores: Ring
    relative_error: float

    @property
    def bonds(self) -> tuple[int, ...]:
        """Sizes of the bonds behind each core; the last one closes the ring."""
        return tuple(core.shape[2] for core in self.cores)

    @property
    def num_parameters(self) -> int:
        """Number of entries of all cores."""
        return sum(core.numel() for core in self.cores)

    def to_dense(self) -> Tensor:
        """The tensor that the ring stands for."""
        return contract_ring(self.cores)


def decompose_tensor_ring(
    tensor: Tensor, truncation: Truncation, *, sweeps: int = 20, seed: int = 0
) -> TensorRing:
    r"""Approximate a tensor by a ring of cores.

    .. math:: T_{j_1 \dots j_N} \approx
              \mathrm{tr}(G^{(1)}_{j_1} G^{(2)}_{j_2} \cdots G^{(N)}_{j_N})

    There are two starts: a tensor train, whose ends are joined by the closing bond, and one whose
    first bond is split between its two neighbours. Two sweeps of alternating least squares tell
    which one to go on with: the end is never worse than either start, nor than the train with the
    same bonds. For a relative error, the one with fewer parameters is returned. Of all cores that
    stand for the ring, those of least norm are returned.

    Args:
        tensor: of order 2 or more.
        truncation: of the N bonds behind each core; the last one closes the ring.
        sweeps: at most so many, fewer if the error stops falling.
        seed: of the entries that start where a bond has space to spare.

    Example:
        >>> ring = decompose_tensor_ring(torch.ones(4, 5, 6), Bonds((2, 3, 2)))
        >>> [tuple(core.shape) for core in ring.cores]
        [(2, 4, 2), (2, 5, 3), (3, 6, 2)]

    Raises:
        DecompositionError: if the tensor is none of finite floating-point numbers, or sweeps or
            the truncation do not fit.

    Reference:
        Zhao, Zhou, Xie, Zhang & Cichocki (2016), Tensor ring decomposition, Alg. 1 and 2,
        arXiv:1606.05535.
    """
    scaled = to_scaled(tensor, truncation, who="decompose_tensor_ring", least_order=2)
    if sweeps < 0:
        raise DecompositionError(f"decompose_tensor_ring: sweeps must be at least 0, got {sweeps}.")
    generator = torch.Generator().manual_seed(seed)
    if isinstance(truncation, RelativeError):
        starts = list(_starts_within(scaled, truncation.error, generator))
        # Ties go to the train, whose bonds are one fewer.
        starts = [min(starts, key=lambda ring: sum(core.numel() for core in ring))]
    else:
        bonds = _bonds(tuple(tensor.shape), truncation)
        starts = list(_starts_with_bonds(scaled.unit, bonds, generator))
    tried = [descend_ring(scaled.unit, start, min(sweeps, _TRIAL_SWEEPS)) for start in starts]
    better = _nearest(scaled, starts + tried)
    last = descend_ring(scaled.unit, better.cores, max(0, sweeps - _TRIAL_SWEEPS))
    nearest = _nearest(scaled, [better.cores, last])
    least_norm = _nearest(scaled, [least_norm_cores(nearest.cores)])
    share = scaled.scale ** (1 / tensor.ndim)
    return TensorRing(tuple(core * share for core in least_norm.cores), least_norm.relative_error)


def _nearest(scaled: Scaled, rings: list[Ring]) -> TensorRing:
    return min(
        (TensorRing(ring, scaled.relative_error(contract_ring(ring))) for ring in rings),
        key=lambda ring: ring.relative_error,
    )


def limited_ring_bonds(sizes: Sequence[int], bonds: Sequence[int]) -> tuple[int, ...]:
    """Bonds behind each core, none larger than a neighbour's size and other bond make useful.

    Example:
        >>> limited_ring_bonds((2, 3, 9), (9, 9, 1))
        (2, 6, 1)

    Reference:
        Zhao, Zhou, Xie, Zhang & Cichocki (2016), Tensor ring decomposition, arXiv:1606.05535.
    """
    limited = list(bonds)
    order = len(limited)
    before: list[int] = []
    while limited != before:
        before = list(limited)
        for place in range(order):
            after = (place + 1) % order
            left, right = sizes[place] * limited[place - 1], sizes[after] * limited[after]
            limited[place] = min(limited[place], left, right)
    return tuple(limited)


def count_ring(sizes: Sequence[int], bonds: Sequence[int]) -> int:
    """Number of parameters of a ring.

    Example:
        >>> count_ring((2, 3, 9), (2, 6, 1))
        94

    Reference:
        Zhao, Zhou, Xie, Zhang & Cichocki (2016), Tensor ring decomposition, arXiv:1606.05535.
    """
    return sum(bonds[place - 1] * size * bonds[place] for place, size in enumerate(sizes))


def _bonds(sizes: tuple[int, ...], truncation: MaxBond | Bonds | KeepParameters) -> tuple[int, ...]:
    # With the bonds of a train every tensor is a ring, even without a closing bond.
    largest = max(limited_bonds(sizes, (math.prod(sizes),) * (len(sizes) - 1)))
    chosen = bond_sizes(
        truncation,
        (largest,) * len(sizes),
        lambda bonds: count_ring(sizes, limited_ring_bonds(sizes, bonds)),
        num_entries=math.prod(sizes),
        who="decompose_tensor_ring",
    )
    return limited_ring_bonds(sizes, chosen)


def _starts_with_bonds(
    unit: Tensor, bonds: tuple[int, ...], generator: torch.Generator
) -> Iterator[Ring]:
    first, *middle, closing = bonds
    block = unit[None, ..., None]
    train, _ = cut_to_bonds(block, limited_bonds(unit.shape, bonds[:-1]))
    yield _enlarge_bonds(train, bonds, generator)
    yield _split(unit, (closing, first), lambda rest: cut_to_bonds(rest, middle)[0], generator)


def _starts_within(scaled: Scaled, error: float, generator: torch.Generator) -> Iterator[Ring]:
    unit, allowed = scaled.unit, scaled.allowed(error)
    yield cut_within(unit[None, ..., None], allowed)[0]
    _, values, _, _ = thin_svd(unit.flatten(1))
    kept = num_within(values, allowed / (unit.ndim - 1))
    discarded = float(values[kept:].double().square().sum())
    closing = math.isqrt(kept)
    split = (closing, -(-kept // closing))
    yield _split(unit, split, lambda rest: cut_within(rest, allowed - discarded)[0], generator)


def _split(
    unit: Tensor,
    split: tuple[int, int],
    cut: Callable[[Tensor], Ring],
    generator: torch.Generator,
) -> Ring:
    """A ring whose first core holds the first position's singular vectors between two bonds.

    What the two bonds have space for beyond them is drawn there and 0 in the rest.
    """
    left, values, right, _ = thin_svd(unit.flatten(1))
    kept = min(math.prod(split), len(values))
    spare = math.prod(split) - kept
    noise = _noise((len(left), spare), left, generator)
    vectors = torch.cat([left[:, :kept], noise], dim=1)
    rest = torch.nn.functional.pad(values[:kept, None] * right[:kept], (0, 0, 0, spare))
    first = vectors.reshape(-1, *split).movedim(0, 1)
    block = rest.reshape(*split, *unit.shape[1:]).movedim(0, -1)
    return (first, *cut(block))


def _enlarge_bonds(train: Ring, bonds: tuple[int, ...], generator: torch.Generator) -> Ring:
    """The train with larger bonds: what is added is 0 before a bond, and drawn behind it."""
    ring = []
    for place, core in enumerate(train):
        left, size, right = core.shape
        more = _noise((bonds[place - 1] - left, size, right), core, generator)
        taller = torch.cat([core, more], dim=0)
        ring.append(torch.nn.functional.pad(taller, (0, bonds[place] - right)))
    return tuple(ring)


def _noise(shape: tuple[int, ...], like: Tensor, generator: torch.Generator) -> Tensor:
    drawn = torch.randn(shape, dtype=like.dtype, generator=generator) / math.sqrt(max(1, shape[0]))
    return drawn.to(like.device)
