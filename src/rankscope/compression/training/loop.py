"""The training loop: the same steps for everything that is trained in this package.

    history = fit(model, cross_entropy, data, Recipe(epochs=10), folder=Path("run"))

Batches, augmentation and dropout follow from the recipe's seed and the number of the step, so that
a run that was interrupted goes on from its folder to the same bits.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor, nn

from rankscope.compression.training.checkpoint import Checkpoint, Position, model_state
from rankscope.compression.training.processes import OneProcess, Processes
from rankscope.compression.training.recipe import (
    FullPrecision,
    History,
    Recipe,
    Record,
    Spent,
    working_seconds,
)
from rankscope.errors import TrainingError
from rankscope.networks.batches import Batch, TensorData
from rankscope.progress import Progress, Report, ignore
from rankscope.seeds import seed_of

# --- A model while it is trained or scored: modes and gradients, all as they were afterwards ------


_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)

Evaluate = Callable[[nn.Module], dict[str, float]]


@dataclass(frozen=True)
class EveryFewEpochs:
    """Scores that cost more than an epoch: only after every so many, and after the last.

    Args:
        evaluate: gives the scores.
        epochs: how many from one time to the next.

    Example:
        >>> few = EveryFewEpochs(lambda model: {}, 4)
        >>> [epoch for epoch in range(1, 11) if few.is_due(epoch, last=10)]
        [4, 8, 10]

    Raises:
        TrainingError: if the number of epochs is below 1.
    """

    evaluate: Evaluate
    epochs: int

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise TrainingError(f"EveryFewEpochs: epochs must be at least 1, got {self.epochs}.")

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """The scores."""
        return self.evaluate(model)

    def is_due(self, epoch: int, *, last: int) -> bool:
        """Whether scores are wanted after this epoch, counted from 1."""
        return epoch % self.epochs == 0 or epoch == last


def trained_parameters(
    model: nn.Module, parameters: Sequence[nn.Parameter] | None
) -> dict[str, nn.Parameter]:
    """The parameters to train, by name.

    Args:
        model: whose they are.
        parameters: only these; None for all that require gradients.

    Raises:
        TrainingError: if there are none, or one is not the model's.
    """
    names = dict(model.named_parameters())
    if parameters is None:
        chosen = {name: value for name, value in names.items() if value.requires_grad}
    else:
        wanted = {id(parameter) for parameter in parameters}
        chosen = {name: value for name, value in names.items() if id(value) in wanted}
        if len(chosen) < len(wanted):
            raise TrainingError(
                f"fit: {len(wanted) - len(chosen)} of the {len(wanted)} parameters given are not "
                f"the model's."
            )
    if not chosen:
        raise TrainingError(f"fit: none of the model's {len(names)} parameters is to be trained.")
    return chosen


@contextmanager
def training_mode(
    model: nn.Module, names: Mapping[str, nn.Parameter], *, batch_norm_frozen: bool
) -> Iterator[None]:
    """Train mode, and gradients of what is trained only."""
    gradients = {value: value.requires_grad for value in model.parameters()}
    with _modes_kept(model):
        model.train()
        for module in model.modules():
            if batch_norm_frozen and isinstance(module, _BATCH_NORMS):
                module.eval()
        for name, value in model.named_parameters():
            value.requires_grad_(name in names)
        try:
            yield
        finally:
            for value, wanted in gradients.items():
                value.requires_grad_(wanted)
            for value in names.values():
                value.grad = None


def require_no_batch_statistics(model: nn.Module) -> None:
    """Refuse batch normalizations that would see only a share of each batch.

    Raises:
        TrainingError: if there is one in train mode that is not a `SyncBatchNorm`.
    """
    for name, module in model.named_modules():
        is_own = isinstance(module, _BATCH_NORMS) and not isinstance(module, nn.SyncBatchNorm)
        if is_own and module.training:
            raise TrainingError(
                f"fit: {name} ({type(module).__name__}) would see only a share of each batch in "
                f"each process. Use nn.SyncBatchNorm, set batch_norm_frozen, or train with one "
                f"process."
            )


def scores(model: nn.Module, evaluate: Evaluate) -> dict[str, float]:
    """What `evaluate` gives for the model in inference mode."""
    with _modes_kept(model), torch.no_grad():
        return evaluate(model.eval())


@contextmanager
def _modes_kept(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    try:
        yield
    finally:
        # Parents come before their parts, so that the parts have the last word.
        for module, mode in modes.items():
            module.train(mode)


CHECKPOINT_SECONDS = 30.0  # between two checkpoints inside an epoch
ALONE = OneProcess()

Loss = Callable[[nn.Module, Batch], Tensor]


def cross_entropy(model: nn.Module, batch: Batch) -> Tensor:
    """The usual loss of a classifier whose targets are numbers of classes."""
    logits: Tensor = model(batch.inputs)
    assert batch.targets is not None, "a classifier is trained on labels"
    return nn.functional.cross_entropy(logits, batch.targets)


def fit(  # noqa: PLR0913 - the parts of a run, all by name
    model: nn.Module,
    loss: Loss,
    data: TensorData,
    recipe: Recipe,
    *,
    parameters: Sequence[nn.Parameter] | None = None,
    folder: Path | None = None,
    evaluate: Evaluate | None = None,
    progress: Report | None = None,
    batch_norm_frozen: bool = False,
    processes: Processes = ALONE,
) -> History:
    """Train a model in place, from where its folder says it stands.

    Args:
        model: changed in place; its training modes are as before afterwards.
        loss: one number for a batch, the mean over its samples.
        data: what it is trained on.
        recipe: how.
        parameters: only these are trained; None for all that require gradients.
        folder: gets a checkpoint (every 30 seconds and after every epoch) and metrics.jsonl; a run
            that finds its own checkpoint there goes on from it.
        evaluate: called in inference mode after every epoch; what it gives is recorded. Wrapped in
            `EveryFewEpochs`, it is called less often.
        progress: called after every step.
        batch_norm_frozen: batch normalizations stay in inference mode, their statistics untouched.
        processes: that train together; all call `fit` with the same arguments, and see the same
            folder.

    Raises:
        TrainingError: if there is nothing to train, the loss is no longer finite, or the recipe
            does not fit the device or the processes.
        CheckpointError: if the folder is of another run, in use, or damaged.
    """
    names = trained_parameters(model, parameters)
    with (
        training_mode(model, names, batch_norm_frozen=batch_norm_frozen),
        torch.random.fork_rng(devices=[]),
        ExitStack() as stack,
    ):
        run = _Run(model, loss, data, recipe, names, processes)
        if folder is not None:
            identity = _identity(run, batch_norm_frozen=batch_norm_frozen)
            checkpoint = Checkpoint(folder, identity, is_writer=processes.rank == 0)
            stack.callback(checkpoint.close)
            run.go_on_from(checkpoint)
        while not run.is_over:
            run.run_epoch(progress or ignore)
            run.record({} if evaluate is None else run.scores(evaluate))
            run.save()
        return run.finish()


class _Run:
    """A run between two steps; everything that changes is in `position` and in the tensors."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        data: TensorData,
        recipe: Recipe,
        names: Mapping[str, nn.Parameter],
        processes: Processes,
    ) -> None:
        self.model, self.loss, self.data, self.recipe = model, loss, data, recipe
        self.names, self.processes = names, processes
        if processes.count > 1:
            require_no_batch_statistics(model)
        self.shared = processes.prepared(model)
        self.parameters = list(names.values())
        self.device = self.parameters[0].device
        self.optimizer = recipe.optimizer.build(self.parameters, weight_decay=recipe.weight_decay)
        self.position = Position()
        self.best: dict[str, Tensor] | None = None
        self.checkpoint: Checkpoint | None = None
        self.total_samples = min(recipe.epochs * len(data), recipe.max_samples or 2**62)
        self.saved_at, self.began = perf_counter(), working_seconds()

    def go_on_from(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        position = checkpoint.restore(self.model, self.optimizer, self.names)
        if position is not None:
            self.position, self.best = position, checkpoint.best()
            self.began -= position.seconds

    @property
    def seconds(self) -> float:
        """Spent in all, as process 0 says: all must agree on when the run is over."""
        own = working_seconds() - self.began if self.processes.rank == 0 else 0.0
        return self.processes.total(own)

    @property
    def complete_records(self) -> tuple[Record, ...]:
        at = self.position
        if at.samples >= self.total_samples:
            return at.records
        return tuple(record for record in at.records if record.epoch <= at.epoch)

    @property
    def is_complete(self) -> bool:
        stop = self.recipe.early_stop
        if stop is not None and stop.is_due(self.complete_records):
            return True
        return self.position.samples >= self.total_samples

    @property
    def is_over(self) -> bool:
        limit = self.recipe.max_seconds
        return self.is_complete or (limit is not None and self.position.seconds >= limit)

    def finish(self) -> History:
        """What was done; the model gets the best weights, if they were asked for."""
        at, epoch = self.position, None
        if self.best is not None and self.recipe.early_stop is not None:
            self.model.load_state_dict(self.best)
            epoch = self.recipe.early_stop.best_epoch(self.complete_records)
        return History(at.records, at.samples, at.seconds, self.is_complete, epoch)

    def run_epoch(self, report: Report) -> None:
        """Steps until the epoch, or the run, is over."""
        at, recipe = self.position, self.recipe
        batches = self.data.epoch(at.epoch, recipe.batch_size, seed=recipe.seed, start=at.batch)
        num_batches = self.data.num_batches(recipe.batch_size)
        for batch in batches:
            self.step(batch)
            if report is not ignore:
                report(self.progress(num_batches))
            if self.is_over:
                break
            if perf_counter() - self.saved_at > CHECKPOINT_SECONDS:
                self.save()

    def progress(self, num_batches: int) -> Progress:
        """How far, and how good by now: of the time if that ends the run, else of the epoch."""
        at, limit = self.position, self.recipe.max_seconds
        known = at.records[-1].metrics if at.records else {}
        scores = "".join(f", {name} {value:.4g}" for name, value in known.items())
        loss = f"loss {at.loss_sum / at.epoch_samples:.4g}{scores}"
        if limit is not None:
            done = min(int(at.seconds), int(limit))
            return Progress(f"epoch {at.epoch + 1}, {loss}", done, int(limit))
        what = f"epoch {at.epoch + 1} of {self.recipe.epochs}, {loss}"
        return Progress(what, at.batch, num_batches)

    def step(self, batch: Batch) -> None:
        at = self.position
        others = () if self.processes.rank == 0 else (self.processes.rank,)
        torch.manual_seed(seed_of("step", self.recipe.seed, at.epoch, at.batch, *others))
        rate = self.recipe.learning_rate * self.recipe.schedule.factor(self.spent)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        value = self.descend(batch)
        if self.recipe.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.recipe.clip_norm)
        self.optimizer.step()
        count = len(batch.inputs)
        self.position = replace(
            at,
            batch=at.batch + 1,
            samples=at.samples + count,
            epoch_samples=at.epoch_samples + count,
            loss_sum=at.loss_sum + value * count,
            learning_rate=rate,
            seconds=self.seconds,
        )

    def descend(self, batch: Batch) -> float:
        """The gradients and the loss of a batch, of which every process computes its share."""
        own, weight = self.processes.share(batch)
        with self.recipe.precision.context(self.device):
            loss = self.loss(self.shared, own.to(self.device))
        count = self.processes.count
        value = self.processes.total(weight * float(loss.detach()) / count)
        self.require_finite(value)
        self.processes.backward(loss if weight == 1.0 else weight * loss)
        return value

    @property
    def spent(self) -> Spent:
        at, limit = self.position, self.recipe.max_seconds
        seconds = 0.0 if limit is None else min(at.seconds / limit, 1.0)
        return Spent(at.epoch, at.samples / self.total_samples, seconds)

    def require_finite(self, value: float) -> None:
        if not abs(value) < float("inf"):
            at = self.position
            raise TrainingError(
                f"fit: the loss is {value} in epoch {at.epoch + 1}, batch {at.batch + 1}. Lower "
                f"the learning rate (now {self.recipe.learning_rate}) or set clip_norm."
            )

    def scores(self, evaluate: Evaluate) -> dict[str, float]:
        """Scores as process 0 computes them, so that all processes agree on the best epoch."""
        last, epoch = self.recipe.epochs, self.position.epoch + 1
        if isinstance(evaluate, EveryFewEpochs) and not evaluate.is_due(epoch, last=last):
            return {}
        own = scores(self.model, evaluate) if self.processes.rank == 0 else {}
        return self.processes.agreed(own)

    def record(self, metrics: Mapping[str, float]) -> None:
        """Write down an epoch; of one that was resumed only the last record stays."""
        at = self.position
        mean = at.loss_sum / at.epoch_samples
        record = Record(at.epoch + 1, at.samples, at.seconds, at.learning_rate, mean, metrics)
        kept = tuple(old for old in at.records if old.epoch <= at.epoch)
        self.position = replace(at, records=(*kept, record), seconds=self.seconds)
        if at.epoch_samples == len(self.data):
            self.position = replace(
                self.position, epoch=at.epoch + 1, batch=0, epoch_samples=0, loss_sum=0.0
            )
        self.keep_best()

    def keep_best(self) -> None:
        stop, records = self.recipe.early_stop, self.complete_records
        if stop is None or not records or self.position.records[-1] is not records[-1]:
            return
        if stop.best_epoch(records) == records[-1].epoch:
            state = model_state(self.model)
            self.best = {name: value.detach().clone() for name, value in state.items()}

    def save(self) -> None:
        if self.checkpoint is not None and self.processes.rank == 0:
            self.checkpoint.write(self.model, self.optimizer, self.names, self.position, self.best)
            self.saved_at = perf_counter()


def _identity(run: _Run, *, batch_norm_frozen: bool) -> dict[str, str]:
    shapes = {name: tuple(parameter.shape) for name, parameter in run.names.items()}
    recipe = run.recipe
    identity = {
        "recipe": repr(replace(recipe, max_seconds=None)),
        "number of samples": str(len(run.data)),
        "list of trained parameters": str(shapes),
        "batch_norm_frozen": str(batch_norm_frozen),
    }
    if recipe.early_stop is not None:
        identity["early stop"] = str(recipe.early_stop)
    if recipe.precision != FullPrecision():
        identity["precision"] = str(recipe.precision)
    return identity
