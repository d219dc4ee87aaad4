"""Levenberg-Marquardt for small networks: all samples at once, derivatives of every output.

    history = fit_least_squares(model, data, validation, LeastSquares())

Stochastic gradients stop far from what a small network can represent; here the Jacobian of all
outputs is formed, and the damped Gauss-Newton equations are solved, as for CP fits: by a Cholesky
factorization, or from products with the Jacobian where there are more parameters. Everything is in
float64, and the model is in inference mode. The run ends by its number of iterations or by the
validation samples alone, and the weights of the least validation error are kept. With a folder it
goes on after an interruption, to the bit.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter

import numpy
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from rankscope.compression.training.recipe import working_seconds
from rankscope.errors import CheckpointError, TooLargeError, TrainingError
from rankscope.factorize.damped_descent import (
    FIRST_DAMPING,
    Solve,
    conjugate_gradients,
    damped_step,
    solve_damped,
)
from rankscope.factorize.truncation import Reals
from rankscope.files import write_atomically
from rankscope.networks.batches import TensorData
from rankscope.progress import Progress, Report, ignore
from rankscope.resumable import ResumableFolder, require_same

_FILE = "least_squares.safetensors"
_CHECKPOINT_SECONDS = 30.0
_CHUNK = 1024  # samples whose Jacobian is formed at once
_RELATIVE_RESIDUAL = 0.02


@dataclass(frozen=True)
class LeastSquares:
    """When a run ends, how its equations are solved, and how large they may be.

    Args:
        max_iterations: at most.
        patience: iterations after the least validation error that end it.
        max_dense: parameters up to which the matrix of the equations is formed; its factorization
            takes a time that grows with their cube.
        max_products: of conjugate gradients for each step, where it is not.
        max_entries: of the Jacobian, samples times parameters.

    Raises:
        TrainingError: if a number is below 1.
    """

    max_iterations: int = 200
    patience: int = 25
    max_dense: int = 2000
    max_products: int = 60
    max_entries: int = 2**26

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 1:
                raise TrainingError(f"LeastSquares: {name} must be at least 1, got {value}.")


@dataclass(frozen=True)
class LeastSquaresHistory:
    """What a run did.

    Args:
        errors: root mean square error on the training samples after each iteration, the start
            first.
        validation_errors: the same on the validation samples.
        seconds: spent.
    """

    errors: tuple[float, ...]
    validation_errors: tuple[float, ...]
    seconds: float

    @property
    def best(self) -> int:
        """The iteration of the least validation error, whose weights are kept; 0 is the start."""
        return self.validation_errors.index(min(self.validation_errors))


def fit_least_squares(
    model: nn.Module,
    data: TensorData,
    validation: TensorData,
    rule: LeastSquares,
    *,
    folder: Path | None = None,
    progress: Report = ignore,
) -> LeastSquaresHistory:
    r"""Lower the mean squared error of a model, in place.

    .. math:: \min_w \sum_n |f_w(x_n) - y_n|^2 / \sum_n |y_n - \bar y|^2

    Args:
        model: gives (batch, outputs) of (batch, ...); it is used in inference mode, and its
            parameters that require gradients are trained.
        data: inputs with targets (count,) or (count, outputs).
        validation: the same, for the end of the run and the choice of the weights alone.
        rule: when it ends.
        folder: for checkpoints; a run goes on from there.
        progress: called after every iteration.

    Raises:
        TooLargeError: if the Jacobian would have more entries than allowed.
        TrainingError: if there are no targets, or nothing to train.
        CheckpointError: if the folder belongs to another run.

    Reference:
        Marquardt (1963), doi:10.1137/0111030; Nielsen (1999), IMM-REP-1999-05.
    """
    problem = _Problem(model, data, validation, rule)
    if folder is None:
        return problem.run(None, progress)
    with ResumableFolder(folder, {}, what="least-squares"):
        return problem.run(folder / _FILE, progress)


@dataclass
class _State:
    """Where a run stands: weights, the best ones, damping and errors."""

    weights: Reals
    best: Reals
    damping: float = FIRST_DAMPING
    errors: list[float] = field(default_factory=list)
    validation_errors: list[float] = field(default_factory=list)
    seconds: float = 0.0


class _Problem:
    def __init__(
        self, model: nn.Module, data: TensorData, validation: TensorData, rule: LeastSquares
    ) -> None:
        self.model, self.rule = model, rule
        self.names = {
            name: value for name, value in model.named_parameters() if value.requires_grad
        }
        if not self.names:
            raise TrainingError("fit_least_squares: the model has no parameter to train.")
        self.inputs, self.targets = _samples(data)
        self.validation = _samples(validation)
        self.size = sum(value.numel() for value in self.names.values())
        entries = self.size * self.targets.numel()
        if entries > rule.max_entries:
            raise TooLargeError(
                what=(
                    f"fit_least_squares: the Jacobian of {self.targets.numel():,} values by "
                    f"{self.size:,} parameters"
                ),
                entries=entries,
                limit=rule.max_entries,
                instead="Use fewer samples, or raise max_entries.",
            )
        # Errors are over the spread of the targets, so that dampings mean the same for every task.
        spread = (self.targets - self.targets.mean(dim=0)).square().sum().sqrt()
        self.scale = 1 / float(spread.clamp(min=torch.finfo(torch.float64).tiny))

    def run(self, path: Path | None, progress: Report) -> LeastSquaresHistory:
        was_training, types = self.model.training, _types(self.model)
        self.model.double().eval()
        try:
            history = self._descend(path, progress)
        finally:
            _restore_types(self.model, types)
            self.model.train(was_training)
        return history

    def _descend(self, path: Path | None, progress: Report) -> LeastSquaresHistory:
        state = self._restored(path) or self._start()
        began, saved = working_seconds() - state.seconds, perf_counter()
        while self._goes_on(state):
            state, is_stuck = self._iterate(state)
            state.seconds = working_seconds() - began
            progress(Progress("iterations", len(state.errors) - 1, self.rule.max_iterations))
            if path is not None and perf_counter() - saved > _CHECKPOINT_SECONDS:
                self._save(path, state)
                saved = perf_counter()
            if is_stuck:
                break
        self._load(state.best)
        return LeastSquaresHistory(
            tuple(state.errors), tuple(state.validation_errors), state.seconds
        )

    def _goes_on(self, state: _State) -> bool:
        done = len(state.errors) - 1
        least = state.validation_errors.index(min(state.validation_errors))
        return done < self.rule.max_iterations and done - least < self.rule.patience

    def _start(self) -> _State:
        weights = torch.cat([value.detach().flatten() for value in self.names.values()]).numpy()
        state = _State(weights.copy(), weights.copy())
        self._note(state, float(self._residual(self.inputs, self.targets).norm()))
        return state

    def _note(self, state: _State, error: float) -> None:
        """Write down the errors of the weights that the model has now, and keep the best."""
        rows, spread = len(self.targets), 1 / self.scale
        inputs, targets = self.validation
        validation = float(self._residual(inputs, targets).norm()) * spread
        validation /= math.sqrt(len(targets))
        if not state.validation_errors or validation < min(state.validation_errors):
            state.best = state.weights
        state.errors.append(error * spread / math.sqrt(rows))
        state.validation_errors.append(validation)

    def _iterate(self, state: _State) -> tuple[_State, bool]:
        """The state after one more step; whether no step goes down any more."""
        self._load(state.weights)
        residual = self._residual(self.inputs, self.targets)
        jacobian = self._jacobian()
        slope = jacobian.T @ residual.numpy()
        solve = self._equations(jacobian)

        def take(step: Reals) -> tuple[Reals, float]:
            weights = state.weights + step
            self._load(weights)
            return weights, float(self._residual(self.inputs, self.targets).norm())

        error = float(residual.norm())
        after, state.damping = damped_step(error, slope, solve, take, state.damping)
        if after is None:
            return state, True
        state.weights = after
        self._load(after)
        self._note(state, float(self._residual(self.inputs, self.targets).norm()))
        return state, False

    def _equations(self, jacobian: Reals) -> Solve:
        if self.size <= self.rule.max_dense:
            matrix = jacobian.T @ jacobian
            return lambda slope, damping: solve_damped(matrix, slope, damping)
        diagonal = numpy.einsum("np,np->p", jacobian, jacobian)

        def solve(slope: Reals, damping: float) -> Reals:
            return -conjugate_gradients(
                lambda vector: jacobian.T @ (jacobian @ vector) + damping * vector,
                lambda vector: vector / (diagonal + damping),
                slope,
                relative_residual=_RELATIVE_RESIDUAL,
                max_iterations=self.rule.max_products,
            )

        return solve

    @torch.no_grad()
    def _residual(self, inputs: Tensor, targets: Tensor) -> Tensor:
        outputs: Tensor = self.model(inputs)
        return ((outputs - targets) * self.scale).flatten()

    def _jacobian(self) -> Reals:
        """(samples times outputs, parameters), over the spread of the targets."""
        weights = {name: value.detach() for name, value in self.names.items()}
        buffers = dict(self.model.named_buffers())

        def outputs(own: dict[str, Tensor], sample: Tensor) -> Tensor:
            values: Tensor = functional_call(self.model, (own, buffers), (sample[None],))
            return values[0]

        derivatives = vmap(jacrev(outputs), in_dims=(None, 0))
        result = numpy.empty((self.targets.numel(), self.size))
        row = 0
        for some in torch.split(self.inputs, _CHUNK):
            parts: Sequence[Tensor] = list(derivatives(weights, some).values())
            flat = torch.cat([part.flatten(2) for part in parts], dim=2).flatten(0, 1)
            result[row : row + len(flat)] = flat.numpy()
            row += len(flat)
        result *= self.scale
        return result

    def _load(self, weights: Reals) -> None:
        with torch.no_grad():
            start = 0
            for value in self.names.values():
                part = weights[start : start + value.numel()]
                value.copy_(torch.from_numpy(part).reshape(value.shape))
                start += value.numel()

    # What a run goes on from.

    def _identity(self) -> dict[str, object]:
        return {
            "rule": repr(self.rule),
            "parameters": self.size,
            "samples": [len(self.targets), len(self.validation[1])],
        }

    def _save(self, path: Path, state: _State) -> None:
        plain = {name: value for name, value in vars(state).items() if name not in _WEIGHTS}
        tensors = {name: torch.from_numpy(getattr(state, name).copy()) for name in _WEIGHTS}
        text = json.dumps({**self._identity(), "state": plain}, allow_nan=False)
        write_atomically(path, save(tensors, {"run": text}))

    def _restored(self, path: Path | None) -> _State | None:
        if path is None or not path.is_file():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                document = json.loads((file.metadata() or {})["run"])
                tensors = {name: file.get_tensor(name).numpy() for name in _WEIGHTS}
            plain = document.pop("state")
            require_same(path.parent, document, self._identity(), what="run")
            return _State(**tensors, **plain)
        except CheckpointError:
            raise
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{str(path)!r} cannot be read: {error!r}. Delete it to start afresh."
            ) from error


_WEIGHTS = ("weights", "best")


def _samples(data: TensorData) -> tuple[Tensor, Tensor]:
    """Inputs and targets (count, outputs) in float64."""
    batch = data.batches(len(data))[0]
    if batch.targets is None:
        raise TrainingError(f"fit_least_squares: wanted targets for {len(data):,} samples.")
    targets = batch.targets.double()
    return batch.inputs.double(), targets.reshape(len(targets), -1)


def _types(model: nn.Module) -> dict[str, torch.dtype]:
    return {name: value.dtype for name, value in model.state_dict().items()}


def _restore_types(model: nn.Module, types: dict[str, torch.dtype]) -> None:
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, value in tensors.items():
        if name in types:
            value.data = value.data.to(types[name])
