"""Scoring: how the planner weights approximation errors.

The planner adds up, over all sites, what their errors count for: `multiplier * error**2`, or a
measured curve. With `Weights` the error is that of the weight; a scoring that has seen data gives
an `ErrorNorm` for every site instead, and the error becomes that of the site's outputs on them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from rankscope.errors import CompressionError
from rankscope.factorize.formats.format import Format
from rankscope.progress import Report, ignore

if TYPE_CHECKING:
    from rankscope.compression.anchoring import Anchoring

Batch = Tensor | tuple[object, ...] | Mapping[str, object]


@dataclass(frozen=True, eq=False)
class ErrorNorm:
    r"""How the error of one site is measured, and what it counts for.

    .. math:: \text{error} = \|D (W - W') L\| / \|D W L\|

    Args:
        factor: L, lower triangular and invertible, with L Lᵀ the second moments of the inputs:
            (in_size, in_size), or (groups, in_size, in_size) for a convolution in groups. Of a
            convolution, in_size counts channels. None for the identity.
        rows: the diagonal of D, positive: one number for each row of the weight. Of an embedding,
            the square roots of how often each row is looked up. None for ones.
        multiplier: what the squared error counts for among those of the other sites.
        curve: the score at a squared error, where it was measured; the multiplier is then unused.
    """

    factor: Tensor | None = None
    rows: Tensor | None = None
    multiplier: float = 1.0
    curve: Callable[[float], float] | None = None

    def score(self, error: float) -> float:
        """What an error of the site counts for."""
        return self.multiplier * error**2 if self.curve is None else self.curve(error**2)


class Scoring(ABC):
    """What errors are scored on. Subclasses may look at data once, in `prepare`."""

    name: ClassVar[str]  # as a plan says it: "weights", "activations", "loss"

    @abstractmethod
    def prepare(
        self, model: nn.Module, *, left: Collection[str] = (), report: Report = ignore
    ) -> None:
        """Look at the model, once, before the first question; it must be left as it was.

        Args:
            model: whose sites are asked for later.
            left: names of sites that stay as they are: nothing will be asked about them.
            report: called with the progress.
        """

    @abstractmethod
    def error_norm(self, site_name: str) -> ErrorNorm | None:
        """The norm of one site's error; None if no data reached it: then its weight counts."""

    def anchoring(self, model: nn.Module, names: Sequence[str]) -> "Anchoring | None":
        """How the weights of some modules are fitted one after the other; None: each by itself."""
        del model, names
        return None


@dataclass(frozen=True)
class Weights(Scoring):
    """Errors of the weights themselves, all sites alike: needs no data."""

    name: ClassVar[str] = "weights"

    def prepare(
        self, model: nn.Module, *, left: Collection[str] = (), report: Report = ignore
    ) -> None:
        """Nothing to look at."""

    def error_norm(self, site_name: str) -> ErrorNorm | None:
        """Every site as it is."""
        del site_name
        return ErrorNorm()


def run(model: nn.Module, batch: Batch) -> object:
    """Call a model with a batch: a tensor, a tuple of positional or a mapping of named inputs."""
    if isinstance(batch, tuple):
        return model(*batch)
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(batch)


# --- Second moments of inputs, summed batch by batch so that activations are never kept -----------


class Products:
    """Products XᵀY of rows, in float64; the last one is kept.

    Modules that read the same input (queries, keys and values) follow each other, so that theirs
    is computed once.
    """

    def __init__(self) -> None:
        self._key: object = None
        self._held: tuple[Tensor, ...] = ()

    def of(self, first: Tensor, second: Tensor) -> Tensor:
        """(groups, count, size) and (groups, count, other size) to (groups, size, other size)."""
        key = [(x.data_ptr(), x.shape, x.stride(), x._version) for x in (first, second)]
        if key != self._key:
            one = first.detach().to("cpu", torch.float64)
            other = one if second is first else second.detach().to("cpu", torch.float64)
            # The tensors are held, or their memory could be another one's by the next call.
            self._key, self._held = key, (one.mT @ other, first, second)
        return self._held[0]


class SecondMoments:
    r"""Sums of the outer products of vectors, in float64.

    .. math:: C = \tfrac{1}{n} \sum_{i=1}^{n} x_i x_i^T

    Args:
        size: of each vector.
        groups: how many kinds of vectors there are, each with moments of its own.

    Example:
        >>> moments = SecondMoments(2)
        >>> moments.add(torch.tensor([[[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]]]))
        >>> moments.mean().tolist()
        [[[3.0, 0.0], [0.0, 0.3333333333333333]]]
    """

    def __init__(self, size: int, groups: int = 1) -> None:
        self._sum = torch.zeros(groups, size, size, dtype=torch.float64)
        self._count = 0

    def add(self, vectors: Tensor, products: Products | None = None) -> None:
        """Count (groups, count, size) vectors in; products may know their moments already."""
        self._sum += (products or Products()).of(vectors, vectors)
        self._count += vectors.shape[1]

    def __eq__(self, other: object) -> bool:
        """Whether the same vectors were counted, as far as sums and counts tell."""
        if not isinstance(other, SecondMoments):
            return NotImplemented
        return self._count == other._count and torch.equal(self._sum, other._sum)

    __hash__ = None  # type: ignore[assignment] # sums grow

    def mean(self) -> Tensor:
        """The second moments (groups, size, size)."""
        return self._sum / max(self._count, 1)

    def factor(self, ridge: float, *, who: str) -> Tensor | None:
        """Lower triangular L with L Lᵀ = C + ridge · tr(C)/size · I, for each group.

        The ridge is what makes it invertible where inputs span less than everything. None if
        nothing but zeros, or nothing at all, was seen by a group.

        Raises:
            CompressionError: if an input was NaN or infinite.
        """
        mean = self.mean()
        if not bool(torch.isfinite(mean).all()):
            raise CompressionError(
                f"Calibration: the {self._count:,} inputs of {who} hold NaN or infinite numbers; "
                "clean the data, or check the model's weights."
            )
        scale = mean.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
        if not bool((scale > 0).all()):
            return None
        identity = torch.eye(mean.shape[-1], dtype=mean.dtype)
        factor: Tensor = torch.linalg.cholesky(mean + ridge * scale[:, None, None] * identity)
        return factor


# --- Weights as their inputs see them: errors of outputs instead of errors of weights -------------


# Above this many entries float32 is exact enough, and float64 would double the memory.
MAX_DOUBLE = 2**22


def is_plain(error_norm: ErrorNorm | None) -> bool:
    """Whether errors are those of the weight itself."""
    return error_norm is None or (error_norm.factor is None and error_norm.rows is None)


def whiten(weight: Tensor, error_norm: ErrorNorm | None) -> Tensor:
    """D W L of a weight (groups, out_size, in_size, *kernel), in float64 (float32 if large)."""
    exact = weight.to(torch.float64 if weight.numel() <= MAX_DOUBLE else torch.float32)
    if error_norm is None:
        return exact
    if error_norm.factor is not None:
        factor = _as_groups(error_norm.factor).to(exact)
        last = exact.movedim(2, -1)  # (groups, out_size, *kernel, in_size)
        product = last.flatten(1, -2) @ factor
        exact = product.reshape(last.shape).movedim(-1, 2)
    if error_norm.rows is not None:
        exact = exact * error_norm.rows.to(exact).reshape(1, -1, *(1,) * (exact.ndim - 2))
    return exact


def relative_error(weight: Tensor, rebuilt: Tensor, error_norm: ErrorNorm | None) -> float:
    """‖D (W - W') L‖ / ‖D W L‖, and 0 if the weight is 0 and rebuilt so."""
    size = float(torch.linalg.vector_norm(whiten(weight, error_norm)))
    error = float(torch.linalg.vector_norm(whiten(weight - rebuilt, error_norm)))
    return error / size if size else float(error > 0)


def can_whiten(format: Format, error_norm: ErrorNorm | None) -> bool:
    """Whether the format can decompose a whitened weight and take the whitening back."""
    if error_norm is None or is_plain(error_norm):
        return False
    if error_norm.factor is not None and format.input_core is None:
        return False
    return error_norm.rows is None or format.output_core is not None


def take_back(
    cores: Mapping[str, Tensor],
    format: Format,
    error_norm: ErrorNorm,
    *,
    groups: int = 1,
) -> dict[str, Tensor]:
    """Cores of W' from those of (D W L)'; cores of groups stand one after the other."""
    restored = dict(cores)
    if error_norm.factor is not None:
        assert format.input_core is not None
        name, position = format.input_core
        factor = _as_groups(error_norm.factor).to(torch.float64)
        restored[name] = _solve(restored[name], position, factor, groups)
    if error_norm.rows is not None:
        last = format.output_core
        assert last is not None
        core = restored[last]
        rows = error_norm.rows.to(core.device, torch.float64)
        rows = rows.repeat(len(core) // len(rows))  # once for each group
        restored[last] = (core.double() / rows.reshape(-1, *(1,) * (core.ndim - 1))).to(core.dtype)
    return {name: core.contiguous() for name, core in restored.items()}


def _as_groups(factor: Tensor) -> Tensor:
    return factor if factor.ndim == 3 else factor[None]


def _solve(core: Tensor, position: int, factor: Tensor, groups: int) -> Tensor:
    """The core times L⁻¹ at the position that carries `in_size`."""
    apart = core.double().reshape(groups, core.shape[0] // groups, *core.shape[1:])
    last = apart.movedim(position + 1, -1)
    rows = last.flatten(1, -2) if last.ndim > 2 else last[:, None]
    solved: Tensor = torch.linalg.solve_triangular(
        factor.to(core.device), rows, upper=False, left=False
    )
    return solved.reshape(last.shape).movedim(-1, position + 1).reshape(core.shape).to(core.dtype)
