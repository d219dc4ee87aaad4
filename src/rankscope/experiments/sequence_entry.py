"""One row of a table of sequence models: a transformer trained by a fixed number of steps."""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save
from torch import nn

from rankscope.architectures.sequence_models.shape import TransformerShape
from rankscope.experiments.experiment import KEPT, Entry, Row, Workplace
from rankscope.experiments.kept_memory import kept_bytes
from rankscope.experiments.sequence_tasks import LoadedTask, SequenceTask
from rankscope.files import write_atomically
from rankscope.seeds import seed_of
from rankscope.training.history import History
from rankscope.training.loop import fit
from rankscope.training.piecewise_schedule import PiecewiseLinear
from rankscope.training.recipe import Recipe

WEIGHTS, IDENTITY = "model.safetensors", "entry"
WARM_UP = PiecewiseLinear(((0.0, 0.0), (0.1, 1.0), (1.0, 0.0)))


@dataclass(frozen=True)
class Steps:
    """How long a model is trained: Adam, a tenth of warm-up, then down to nothing in a line.

    Args:
        count: of steps.
        batch_size: samples of each.
        learning_rate: the highest.
    """

    count: int
    batch_size: int = 32
    learning_rate: float = 2e-3

    def recipe(self, num_samples: int, *, seed: int) -> Recipe:
        """The same as `fit` takes it, for so many samples of training data."""
        wanted = self.count * self.batch_size
        return Recipe(
            epochs=-(-wanted // num_samples),
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            schedule=WARM_UP,
            clip_norm=1.0,
            seed=seed,
            max_samples=wanted,
        )


@dataclass(frozen=True)
class SequenceEntry(Entry):
    """Train a transformer and score it; its weights are kept.

    Args:
        label: name of the row.
        task: data, model and score.
        shape: of the transformer.
        steps: how long it is trained.
        seed: of the weights and of the order of the samples.
    """

    label: str
    task: SequenceTask
    shape: TransformerShape
    steps: Steps
    seed: int = 0

    @property
    def name(self) -> str:
        """The label."""
        return self.label

    def fresh(self, task: LoadedTask) -> nn.Module:
        """The model before training."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of("weights", self.seed))
            return task.build(self.shape)

    def train(self, model: nn.Module, task: LoadedTask, place: Workplace) -> History:
        """Train a model in place, going on from the folder."""
        recipe = self.steps.recipe(len(task.training), seed=self.seed)
        return fit(
            model,
            task.loss,
            task.training,
            recipe,
            folder=place.folder / "training",
            progress=place.report,
        )

    def run(self, place: Workplace) -> Row:
        """Sizes, scores, memory and time."""
        task = self.task.load(place.data)
        model = self.fresh(task)
        memory = self._memory(model, task)
        history = self.train(model, task, place)
        row = {**self.sizes(model), **task.score(model.eval())}
        keep(model, place.folder / KEPT, identity=repr(self))
        return {**row, "kept MB": memory, "seconds": history.seconds}

    def sizes(self, model: nn.Module) -> Row:
        """What the table says of the shape."""
        shape, attention = self.shape, self.shape.attention
        return {
            "shape": f"{shape.depth} x {shape.width}",
            "depth": shape.depth,
            "width": shape.width,
            "attention": attention.name,
            "heads": attention.num_heads,
            "head size": attention.features,
            "channels over width": attention.num_channels / shape.width,
            "embedding rank": shape.embedding_rank or shape.width,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "in blocks": shape.squares,
        }

    def _memory(self, model: nn.Module, task: LoadedTask) -> float:
        """Megabytes that one step keeps for its backward pass."""
        batch = task.training.head(self.steps.batch_size).batches(self.steps.batch_size)[0]

        return round(kept_bytes(lambda: task.loss(model, batch)) / 1e6, 3)


def keep(model: nn.Module, folder: Path, *, identity: str) -> None:
    """Write the weights of a model, and what it is, where a run keeps them."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.contiguous() for name, value in model.state_dict().items()}
    write_atomically(folder / WEIGHTS, save(tensors, {IDENTITY: identity}))
