"""The training loop: the same steps for everything that is trained in this package.

    history = fit(model, cross_entropy, data, Recipe(epochs=10), folder=Path("run"))

Batches, augmentation and dropout follow from the recipe's seed and the number of the step, so that
a run that was interrupted goes on from its folder to the same bits.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor, nn

from rankscope.errors import TrainingError
from rankscope.separation.measuring.progress import Progress, Report, ignore
from rankscope.training.batches import Batch, TensorData, seed_of
from rankscope.training.checkpoint import Checkpoint, Position
from rankscope.training.clock import working_seconds
from rankscope.training.history import History, Record
from rankscope.training.recipe import Recipe, Spent

CHECKPOINT_SECONDS = 30.0  # between two checkpoints inside an epoch
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)

Loss = Callable[[nn.Module, Batch], Tensor]
Evaluate = Callable[[nn.Module], dict[str, float]]


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
        evaluate: called in inference mode after every epoch; what it gives is recorded.
        progress: told of every step.
        batch_norm_frozen: batch normalizations stay in inference mode, their statistics untouched.

    Raises:
        TrainingError: if there is nothing to train, or the loss is no longer finite.
        CheckpointError: if the folder is of another run, or damaged.
    """
    names = _trained(model, parameters)
    run = _Run(model, loss, data, recipe, names)
    checkpoint = (
        None
        if folder is None
        else Checkpoint(folder, _identity(run, batch_norm_frozen=batch_norm_frozen))
    )
    run.go_on_from(checkpoint)
    with (
        _prepared(model, names, batch_norm_frozen=batch_norm_frozen),
        torch.random.fork_rng(devices=[]),
    ):
        while not run.is_over:
            run.run_epoch(progress or ignore)
            run.record({} if evaluate is None else _evaluated(model, evaluate))
            run.save()
    return run.history


class _Run:
    """A run between two steps; everything that changes is in `position` and in the tensors."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        data: TensorData,
        recipe: Recipe,
        names: Mapping[str, nn.Parameter],
    ) -> None:
        self.model, self.loss, self.data, self.recipe = model, loss, data, recipe
        self.names = names
        self.parameters = list(names.values())
        self.optimizer = recipe.optimizer.build(self.parameters, weight_decay=recipe.weight_decay)
        self.position = Position()
        self.checkpoint: Checkpoint | None = None
        self.total_samples = min(recipe.epochs * len(data), recipe.max_samples or 2**62)

    def go_on_from(self, checkpoint: Checkpoint | None) -> None:
        self.checkpoint = checkpoint
        if checkpoint is not None:
            found = checkpoint.restore(self.model, self.optimizer, self.names)
            self.position = found or self.position
        self.saved_at = perf_counter()
        self.began = working_seconds() - self.position.seconds

    @property
    def is_complete(self) -> bool:
        return self.position.samples >= self.total_samples

    @property
    def is_over(self) -> bool:
        limit = self.recipe.max_seconds
        return self.is_complete or (limit is not None and self.position.seconds >= limit)

    @property
    def history(self) -> History:
        at = self.position
        return History(at.records, at.samples, at.seconds, self.is_complete)

    def run_epoch(self, report: Report) -> None:
        """Steps until the epoch, or the run, is over."""
        at, recipe = self.position, self.recipe
        batches = self.data.epoch(at.epoch, recipe.batch_size, seed=recipe.seed, start=at.batch)
        num_batches = self.data.num_batches(recipe.batch_size)
        for batch in batches:
            self.step(batch)
            what = f"epoch {at.epoch + 1} of {recipe.epochs}"
            report(Progress(what, self.position.batch, num_batches))
            if self.is_over:
                break
            if perf_counter() - self.saved_at > CHECKPOINT_SECONDS:
                self.save()

    def step(self, batch: Batch) -> None:
        at = self.position
        torch.manual_seed(seed_of("step", self.recipe.seed, at.epoch, at.batch))
        rate = self.recipe.learning_rate * self.recipe.schedule.factor(self.spent)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.model, batch)
        value = self.require_finite(loss)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.recipe.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.recipe.clip_norm)
        self.optimizer.step()
        self.position = replace(
            at,
            batch=at.batch + 1,
            samples=at.samples + batch.num_samples,
            epoch_samples=at.epoch_samples + batch.num_samples,
            loss_sum=at.loss_sum + value * batch.num_samples,
            learning_rate=rate,
            seconds=working_seconds() - self.began,
        )

    @property
    def spent(self) -> Spent:
        at, limit = self.position, self.recipe.max_seconds
        seconds = 0.0 if limit is None else min(at.seconds / limit, 1.0)
        return Spent(at.epoch, at.samples / self.total_samples, seconds)

    def require_finite(self, loss: Tensor) -> float:
        value = float(loss.detach())
        if not abs(value) < float("inf"):
            at = self.position
            raise TrainingError(
                f"fit: the loss is {value} in epoch {at.epoch + 1}, batch {at.batch + 1}. Lower "
                f"the learning rate (now {self.recipe.learning_rate}) or set clip_norm."
            )
        return value

    def record(self, metrics: Mapping[str, float]) -> None:
        """Write down an epoch; of one that was resumed only the last record stays."""
        at = self.position
        mean = at.loss_sum / at.epoch_samples
        record = Record(at.epoch + 1, at.samples, at.seconds, at.learning_rate, mean, metrics)
        kept = tuple(old for old in at.records if old.epoch <= at.epoch)
        self.position = replace(at, records=(*kept, record), seconds=working_seconds() - self.began)
        if at.epoch_samples == len(self.data):
            self.position = replace(
                self.position, epoch=at.epoch + 1, batch=0, epoch_samples=0, loss_sum=0.0
            )

    def save(self) -> None:
        if self.checkpoint is not None:
            self.checkpoint.write(self.model, self.optimizer, self.names, self.position)
            self.saved_at = perf_counter()


def _identity(run: _Run, *, batch_norm_frozen: bool) -> dict[str, str]:
    shapes = {name: tuple(parameter.shape) for name, parameter in run.names.items()}
    return {
        "recipe": repr(replace(run.recipe, max_seconds=None)),
        "number of samples": str(len(run.data)),
        "list of trained parameters": str(shapes),
        "batch_norm_frozen": str(batch_norm_frozen),
    }


def _trained(
    model: nn.Module, parameters: Sequence[nn.Parameter] | None
) -> dict[str, nn.Parameter]:
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
def _prepared(
    model: nn.Module, names: Mapping[str, nn.Parameter], *, batch_norm_frozen: bool
) -> Iterator[None]:
    """Train mode, and gradients of what is trained only; all as it was afterwards."""
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


def _evaluated(model: nn.Module, evaluate: Evaluate) -> dict[str, float]:
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
