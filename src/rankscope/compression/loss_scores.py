r"""Scores by the loss itself: what each weight's error does to the model's outputs, measured.

    compress(model, keep=0.8, calibration=Loss(batches))

For every weight a few truncations are put into the model, one at a time, and the change of the
loss is measured on calibration data; between them it is interpolated as a function of the weight's
squared error on its inputs. The planner adds these changes up. The loss is the divergence of the
outputs from those of the uncompressed model: unlike the change of a cross entropy it is never
negative and has no noise of its own, so that few tokens decide.
"""

import copy
import hashlib
import json
import math
from abc import ABC, abstractmethod
from bisect import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rankscope.compression.anchoring import Anchoring
from rankscope.compression.calibration import RIDGE, Activations
from rankscope.compression.chain import (
    NUM_PLACES,
    PLACES_IN_ALL,
    Chain,
    at_some_places,
    find_chain,
    output_tensor,
)
from rankscope.compression.scores import Batch, ErrorNorm, run, whiten
from rankscope.compression.sites import Site, read_sites
from rankscope.errors import CompressionError
from rankscope.files import write_atomically
from rankscope.modes import inference
from rankscope.progress import Progress, Report, ignore
from rankscope.strict_json import read_document
from rankscope.workers import Workers

NUM_POINTS = 3  # truncations of each weight whose loss is measured
MEASURED_SAMPLES, MEASURED_TOKENS = 256, 1024  # losses are measured on; moments come from all


# --- How far outputs are from those of the uncompressed model -------------------------------------


class OutputDistance(ABC):
    """Compares outputs with those of the uncompressed model. Subclasses are frozen dataclasses."""

    @abstractmethod
    def reference(self, outputs: Tensor) -> Tensor:
        """What is kept of the uncompressed model's outputs."""

    @abstractmethod
    def distance(self, outputs: Tensor, reference: Tensor) -> float:
        """A number of at least 0 (up to rounding), 0 for equal outputs, a mean over samples."""


@dataclass(frozen=True)
class Divergence(OutputDistance):
    r"""Kullback-Leibler divergence of predictions, a mean over samples (and places).

    .. math:: \mathrm{KL}(p \,\|\, q) = \sum_c p_c (\log p_c - \log q_c)

    Args:
        dim: of the classes; the last one for language models, 1 for images (batch, classes).
    """

    dim: int = -1

    def reference(self, outputs: Tensor) -> Tensor:
        return torch.log_softmax(outputs.float(), self.dim)

    def distance(self, outputs: Tensor, reference: Tensor) -> float:
        # Some rows at a time: outputs over a vocabulary are large, and there would be five of them.
        classes = reference.shape[self.dim]
        rows = [each.movedim(self.dim, -1).reshape(-1, classes) for each in (outputs, reference)]
        parts = [torch.split(each, max(1, _AT_ONCE // classes)) for each in rows]
        return math.fsum(map(self._sum, *parts)) * classes / reference.numel()

    def _sum(self, outputs: Tensor, reference: Tensor) -> float:
        logarithms = torch.log_softmax(outputs.float(), -1)
        shares = reference.exp()
        # A class that is masked has share 0 and logarithm -inf in both.
        terms = torch.where(shares > 0, shares * (reference - logarithms), 0.0)
        return float(terms.sum(dtype=torch.float64))


_AT_ONCE = 2**18  # numbers of outputs or weights that are copied at a time


@dataclass(frozen=True)
class RelativeSquaredError(OutputDistance):
    """Squared error of the outputs over their squared norm: for outputs that are no logits."""

    def reference(self, outputs: Tensor) -> Tensor:
        return outputs

    def distance(self, outputs: Tensor, reference: Tensor) -> float:
        size = float(reference.double().square().sum())
        error = float((outputs.double() - reference.double()).square().sum())
        return error / size if size else float(error > 0)


# --- The change of the loss as a function of a weight's squared error -----------------------------


@dataclass(frozen=True)
class LossCurve:
    """Measured changes of the loss over squared errors, and power laws between them.

    Below the first point the loss grows like the squared error; above the last one as steeply as
    between the last two, but at least like the squared error. Points without a change say that the
    weight does not matter so far, and are left out.

    Args:
        points: (squared error, change of the loss), both positive, errors growing.

    Example:
        >>> curve = LossCurve.through([(0.1, 0.02), (0.4, 0.32)])
        >>> [round(curve(error), 4) for error in (0.05, 0.1, 0.2, 0.8)]
        [0.01, 0.02, 0.08, 1.28]
    """

    points: tuple[tuple[float, float], ...]

    @classmethod
    def through(cls, measured: Iterable[tuple[float, float]]) -> "LossCurve":
        """The curve through measured points; a larger error never counts for less."""
        points: list[tuple[float, float]] = []
        for error, loss in sorted(measured):
            if loss > 0 and error > 0 and (not points or error > points[-1][0]):
                points.append((error, max(loss, points[-1][1]) if points else loss))
        return cls(tuple(points))

    def __call__(self, squared_error: float) -> float:
        """The loss at a squared error."""
        if squared_error <= 0 or not self.points:
            return 0.0
        errors = [error for error, _ in self.points]
        place = bisect(errors, squared_error)
        if place == 0:
            error, loss = self.points[0]
            return loss * squared_error / error
        low, loss = self.points[place - 1]
        return float(loss * (squared_error / low) ** self._slope(place))

    def _slope(self, place: int) -> float:
        is_inside = place < len(self.points)
        if len(self.points) == 1:
            return 1.0
        (low, start), (high, end) = (
            self.points[place - 1 : place + 1] if is_inside else (self.points[-2:])
        )
        slope = math.log(end / start) / math.log(high / low)
        return slope if is_inside else max(slope, 1.0)


# --- The scoring ----------------------------------------------------------------------------------


class Loss(Activations):
    """Errors of every site's outputs on batches, scored by the change of the loss they make.

    Args:
        batches: inputs as the model takes them, all of them for the moments of inputs.
        distance: of outputs from those of the uncompressed model. Without one, the `Divergence`
            of a model whose output has `logits`, and the `RelativeSquaredError` of any other.
        points: truncations of each weight whose loss is measured.
        measured: on so many of the batches, the first ones; None for as many as hold 256 samples,
            or 1,024 tokens.
        ridge: see `Activations`.
        workers: who measures; the curves are the same whoever does.
        memory: a file that keeps what was measured; the same call again goes on from there.
    """

    name: ClassVar[str] = "loss"

    def __init__(  # noqa: PLR0913 - what a measurement depends on, all by name
        self,
        batches: Iterable[Batch],
        *,
        distance: OutputDistance | None = None,
        points: int = NUM_POINTS,
        measured: int | None = None,
        ridge: float = RIDGE,
        workers: Workers | None = None,
        memory: Path | None = None,
    ) -> None:
        self.batches = list(batches)
        super().__init__(self.batches, ridge=ridge)
        if points < 1 or (measured is not None and measured < 1):
            raise CompressionError(
                f"Loss: wanted at least 1 point and 1 measured batch, got {points} and {measured}."
            )
        self._distance = distance
        self._points = points
        self._measured = self.batches[: measured or _enough(self.batches)]
        self._workers = workers or Workers("sequential")
        self._memory = memory
        self._curves: dict[str, LossCurve] = {}

    def prepare(
        self, model: nn.Module, *, left: Collection[str] = (), report: Report = ignore
    ) -> None:
        """Run the batches for moments, then measure the losses.

        Raises:
            CompressionError: see `Activations.prepare`; or if a loss is not a finite number.
        """
        self._curves = {}
        super().prepare(model, left=left, report=report)
        norms = {name: self.error_norm(name) for name in self._error_norms if name not in left}
        with torch.no_grad(), inference(model):
            batches = [at_some_places(model, batch) for batch in self._measured]
            places = f"{NUM_PLACES} {PLACES_IN_ALL}"
            settings = f"{self._points} {len(batches)} {places} {self._ridge} {self._distance}"
            kept = _KeptCurves.of(self._memory, model, self.batches, settings)
            self._curves |= {name: kept.curves[name] for name in norms if name in kept.curves}
            chain = find_chain(model, batches[0])
            outputs = [run(model, batch) for batch in batches]
            distance = self._distance or _distance_for(outputs[0])
            starts = tuple(
                _Start(batch, distance.reference(output_tensor(output)))
                for batch, output in zip(batches, outputs, strict=True)
            )
            del outputs
            wanted = {name: norm for name, norm in norms.items() if name not in kept.curves}
            tasks = [
                _Task(model, chain, block, part, starts, distance, self._points)
                for block, part in _by_block(model, chain, wanted)
            ]
            # Other processes have a model of their own; threads would change each other's.
            measure = _measure_copy if self._workers.backend == "threading" else _measure
            for done, (_, curves) in enumerate(self._workers.run(measure, tasks), start=1):
                self._curves |= curves
                kept.add(curves)
                report(Progress("losses", done, len(tasks)))

    def error_norm(self, site_name: str) -> ErrorNorm | None:
        """The norm of one site's error, and the loss that it makes."""
        error_norm = super().error_norm(site_name)
        curve = self._curves.get(site_name)
        return error_norm if curve is None else replace(error_norm or ErrorNorm(), curve=curve)

    def anchoring(self, model: nn.Module, names: Sequence[str]) -> Anchoring | None:
        """Fit to the original outputs, from the inputs that the compressed model gives."""
        return Anchoring(model, names, self.batches, ridge=self._ridge) if names else None


def _enough(batches: Sequence[Batch]) -> int:
    """How many of the first batches hold enough samples or tokens."""
    done, count = 0.0, 0
    for batch in batches:
        first = next(iter(_tensors(batch)), None)
        if done >= 1 or first is None:
            break
        is_tokens = not first.is_floating_point()
        done += first.numel() / MEASURED_TOKENS if is_tokens else len(first) / MEASURED_SAMPLES
        count += 1
    return max(count, 1)


def _by_block(
    model: nn.Module, chain: Chain | None, norms: Mapping[str, ErrorNorm | None]
) -> list[tuple[int | None, dict[str, ErrorNorm | None]]]:
    """Sites of one block together, so that the state before it is computed once."""
    groups: dict[int | None, dict[str, ErrorNorm | None]] = {}
    for site in read_sites(model).sites:
        if site.name in norms:
            block = None if chain is None else chain.block_of(site.module_name)
            groups.setdefault(block, {})[site.name] = norms[site.name]
    return list(groups.items())


@dataclass(frozen=True, eq=False)
class _KeptCurves:
    """Curves in a file, of one model on the same batches."""

    path: Path | None
    identity: str
    curves: dict[str, LossCurve]

    @classmethod
    def of(
        cls, path: Path | None, model: nn.Module, batches: Sequence[Batch], settings: str
    ) -> "_KeptCurves":
        if path is None:
            return cls(None, "", {})
        identity = _digest(model, batches, settings)
        document = read_document(path) if path.is_file() else {}
        if document.get("identity") != identity:
            return cls(path, identity, {})
        known = {
            name: LossCurve(tuple(map(tuple, points)))
            for name, points in document["curves"].items()
        }
        return cls(path, identity, known)

    def add(self, curves: Mapping[str, LossCurve]) -> None:
        self.curves.update(curves)
        if self.path is not None:
            known = {name: curve.points for name, curve in self.curves.items()}
            document = {"identity": self.identity, "curves": known}
            write_atomically(self.path, json.dumps(document).encode())


def _digest(model: nn.Module, batches: Sequence[Batch], settings: str) -> str:
    """Of everything that curves depend on."""
    found = hashlib.sha256(settings.encode())
    tensors = [*model.state_dict().values(), *(x for batch in batches for x in _tensors(batch))]
    for tensor in tensors:
        found.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return found.hexdigest()


def _tensors(batch: Batch) -> list[Tensor]:
    items = batch if isinstance(batch, tuple) else (batch,)
    items = tuple(batch.values()) if isinstance(batch, Mapping) else items
    return [item for item in items if isinstance(item, Tensor)]


def _distance_for(output: object) -> OutputDistance:
    return (
        Divergence()
        if isinstance(getattr(output, "logits", None), Tensor)
        else RelativeSquaredError()
    )


@dataclass(frozen=True, eq=False)
class _Task:
    """The sites of one block, all that a worker needs to measure their losses."""

    model: nn.Module
    chain: Chain | None
    block: int | None
    norms: dict[str, ErrorNorm | None]
    starts: tuple["_Start", ...]
    distance: OutputDistance
    points: int


def _copied(task: _Task) -> _Task:
    """The task with modules and parameters of its own, whose numbers are not copied."""
    tensors = (*task.model.parameters(), *task.model.buffers())
    own: dict[int, Any] = {id(one): one for one in tensors}
    for parameter in task.model.parameters():
        own[id(parameter)] = nn.Parameter(parameter.data, requires_grad=parameter.requires_grad)
    model, chain = copy.deepcopy((task.model, task.chain), own)
    return replace(task, model=model, chain=chain)


def _measure_copy(task: _Task) -> dict[str, LossCurve]:
    return _measure(_copied(task))


def _measure(task: _Task) -> dict[str, LossCurve]:
    with torch.no_grad(), inference(task.model):
        starts = [start.before_block(task) for start in task.starts]
        sites = [site for site in read_sites(task.model).sites if site.name in task.norms]
        return {site.name: _curve(task, site, starts) for site in sites}


@dataclass(frozen=True, eq=False)
class _Start:
    """One batch, what the uncompressed model gives for it, and from where the model is run."""

    batch: Batch
    reference: Tensor
    state: Tensor | None = None

    def before_block(self, task: _Task) -> "_Start":
        """With the state before the task's block, if there is one."""
        if task.chain is None or task.block is None:
            return self
        return replace(self, state=task.chain.state_before(task.block, self.batch))

    def run(self, task: _Task) -> object:
        if task.chain is None or self.state is None or task.block is None:
            return run(task.model, self.batch)
        return task.chain.run_from(task.block, self.state, self.batch)


def _curve(task: _Task, site: Site, starts: Sequence[_Start]) -> LossCurve:
    measured = []
    for squared_error, weight in truncations(site, task.norms[site.name], task.points):
        with _replaced(task.model, site, weight):
            losses = [
                task.distance.distance(output_tensor(start.run(task)), start.reference)
                for start in starts
            ]
        loss = sum(losses) / len(losses)
        if not math.isfinite(loss):
            raise CompressionError(
                f"Loss: with {site.name} at a squared error of {squared_error:.3g}, the outputs "
                "are not finite numbers; leave it alone, or check the data."
            )
        measured.append((squared_error, loss))
        del weight
    return LossCurve.through(measured)


def truncations(
    site: Site, error_norm: ErrorNorm | None, points: int
) -> Iterator[tuple[float, Tensor]]:
    r"""Squared relative errors and weights: the site's matrix cut at ranks that would save.

    With D W L = U S Vᵀ cut to rank r, the weight is D⁻¹ U_r U_rᵀ D W, or W L V_r V_rᵀ L⁻¹: the
    vectors of the shorter side, from its Gram matrix, are enough.
    """
    weight = site.weight.flatten(3) if site.weight.ndim > 3 else site.weight[..., None]
    rows, columns = weight.shape[1], weight.shape[2] * weight.shape[3]
    is_tall = rows > columns
    energies, vectors = torch.linalg.eigh(_gram(weight, error_norm, is_tall=is_tall))
    energies, vectors = energies.flip(-1).clamp_min(0), vectors.flip(-1)
    total = float(energies.sum())
    most = max(1, min(rows * columns // (rows + columns), energies.shape[-1] - 1))
    for rank in sorted({max(1, round(most * (2 * n + 1) / (2 * points))) for n in range(points)}):
        lost = float(energies[:, rank:].sum())
        if lost > total * energies.shape[-1] * torch.finfo(energies.dtype).eps:
            kept = vectors[..., :rank]
            cut = (
                _cut_right(weight, kept, error_norm)
                if is_tall
                else _cut_left(weight, kept, error_norm)
            )
            yield lost / total, cut.reshape(site.weight.shape)
            del cut  # or there would be two of an embedding


def _gram(weight: Tensor, error_norm: ErrorNorm | None, *, is_tall: bool) -> Tensor:
    """Of the shorter side of D W L, in float64."""
    if not is_tall:
        whitened = whiten(weight, error_norm).flatten(2).double()
        return whitened @ whitened.mT
    norm, total = error_norm or ErrorNorm(), torch.zeros(())
    for some in _some_rows(weight):
        own = None if norm.rows is None else norm.rows[some]
        part = whiten(weight[:, some], replace(norm, rows=own)).flatten(2).double()
        total = total + part.mT @ part
    return total


def _some_rows(weight: Tensor) -> Iterator[slice]:
    """Rows of a weight, as many at a time as may be copied: an embedding has a great many."""
    step = max(1, 2 * _AT_ONCE // weight[:, 0].numel())
    return (slice(start, start + step) for start in range(0, weight.shape[1], step))


def _cut_left(weight: Tensor, kept: Tensor, error_norm: ErrorNorm | None) -> Tensor:
    """D⁻¹ U Uᵀ D W."""
    rows = None if error_norm is None else error_norm.rows
    scale = torch.ones(weight.shape[1]) if rows is None else rows
    scale = scale.to(kept)[None, :, None]
    projection = (kept / scale) @ (kept * scale).mT
    return projection.to(weight) @ weight.flatten(2)


def _cut_right(weight: Tensor, kept: Tensor, error_norm: ErrorNorm | None) -> Tensor:
    """W L V Vᵀ L⁻¹."""
    groups, _, *inputs = weight.shape
    norm = ErrorNorm() if error_norm is None else replace(error_norm, rows=None)
    right = unwhiten(kept.mT.reshape(groups, -1, *inputs), norm).flatten(2)
    cut = torch.empty_like(weight.flatten(2))
    for some in _some_rows(weight):
        left = whiten(weight[:, some], norm).flatten(2).to(kept)
        cut[:, some] = ((left @ kept) @ right).to(weight)
    return cut


def unwhiten(weight: Tensor, error_norm: ErrorNorm | None) -> Tensor:
    """W of D W L, the inverse of `whiten`."""
    if error_norm is None:
        return weight
    if error_norm.rows is not None:
        weight = weight / error_norm.rows.to(weight).reshape(1, -1, *(1,) * (weight.ndim - 2))
    if error_norm.factor is not None:
        factor = error_norm.factor.to(weight)
        factor = factor if factor.ndim == 3 else factor[None]
        last = weight.movedim(2, -1)
        solved: Tensor = torch.linalg.solve_triangular(
            factor, last.flatten(1, -2), upper=False, left=False
        )
        weight = solved.reshape(last.shape).movedim(-1, 2)
    return weight


@contextmanager
def _replaced(model: nn.Module, site: Site, weight: Tensor) -> Iterator[None]:
    """Put other numbers into the model's weight for a while; its own are not touched."""
    parameter = next(
        parameter
        for parameter in model.get_submodule(site.module_name).parameters()
        if 0 <= site.weight.data_ptr() - parameter.data_ptr() < parameter.nbytes
    )
    kept = parameter.data
    view = site.weight
    if view.shape == (1, *kept.shape) and view.stride()[1:] == kept.stride():
        other = weight[0].to(kept.dtype)
    else:
        other = torch.empty_strided(kept.shape, kept.stride(), dtype=kept.dtype, device=kept.device)
        other.copy_(kept)
        place = view.storage_offset() - kept.storage_offset()
        other.as_strided(view.shape, view.stride(), place).copy_(weight)
    parameter.data = other
    try:
        yield
    finally:
        parameter.data = kept
