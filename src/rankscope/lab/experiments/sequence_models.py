"""Rows of sequence models: tasks, a transformer trained by a number of steps, its spectrum."""

import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from rankscope.compression.training.loop import Loss, fit
from rankscope.compression.training.recipe import History, PiecewiseLinear, Recipe
from rankscope.errors import ExperimentError
from rankscope.files import write_atomically
from rankscope.lab.data.scoring import bleu
from rankscope.lab.data.text_data import load_text, mean_loss, next_symbol_loss, windows
from rankscope.lab.data.translation_data import (
    END_NUMBER,
    IGNORED,
    START_NUMBER,
    PairedSentences,
    TranslationData,
    load_translation,
)
from rankscope.lab.experiments.experiment import KEPT, Entry, Row, RunContext
from rankscope.networks.batches import Batch, TensorData
from rankscope.networks.datasets import load_data_set
from rankscope.networks.sequence import (
    LanguageModel,
    PixelInput,
    PixelModel,
    TransformerShape,
    TranslationModel,
    bits_per_dimension,
)
from rankscope.rank.numeric import FunctionOptions, FunctionRank, separation_rank
from rankscope.rank.partition import Partition
from rankscope.seeds import seed_of

# How much memory a computation keeps until its gradients are taken.


def kept_bytes(call: Callable[[], object]) -> int:
    """Bytes of all tensors that a call keeps for its backward pass, parameters left out.

    It is what grows with batch and length, and the same number on every machine. What is computed
    again in the backward pass is not kept, and not counted.

    Example:
        >>> import torch
        >>> weight = torch.ones(1000, requires_grad=True)
        >>> kept_bytes(lambda: (weight * 2).exp().sum())
        4000
    """
    kept: dict[int, Tensor] = {}

    def note(tensor: Tensor) -> Tensor:
        # A view shares the memory of what it looks at; the tensor is held, so that no other one
        # can take its place in memory before all are counted.
        if not (tensor.is_leaf and tensor.requires_grad) and not _is_of_a_parameter(tensor):
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        result = call()  # alive until all is counted
    measured = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    del result
    return measured


def _is_of_a_parameter(tensor: Tensor) -> bool:
    base = tensor._base
    return base is not None and base.is_leaf and base.requires_grad


# How much a trained model joins the two halves of its context: spectrum, entropy, epsilon rank.


# (batch, tokens) to (batch, outputs).
Outputs = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class SpectrumSettings:
    """Settings of the measured spectra.

    Args:
        num_inputs: contexts; every first half is paired with every second half.
        num_outputs: of the model, each by itself; the row has their means.
        epsilon: root mean square distance, in standard deviations of the output.
    """

    num_inputs: int = 40
    num_outputs: int = 3
    epsilon: float = 0.1


DEFAULT_SPECTRUM = SpectrumSettings()


def last_logits(model: nn.Module) -> Outputs:
    """The logits of what comes after the last token of a language model."""

    def outputs(tokens: Tensor) -> Tensor:
        logits: Tensor = model(tokens)[:, -1]
        return logits

    return outputs


def evenly(tokens: Tensor, count: int, length: int) -> Tensor:
    """So many windows (count, length) at even distances over a text.

    Example:
        >>> evenly(torch.arange(10), 3, 2).tolist()
        [[0, 1], [4, 5], [8, 9]]

    Raises:
        ExperimentError: if the text is too short for windows that differ.
    """
    if len(tokens) < length + count - 1:
        raise ExperimentError(
            f"evenly: {count} windows of {length} need at least {length + count - 1:,} symbols, "
            f"got {len(tokens):,}."
        )
    starts = torch.linspace(0, len(tokens) - length, count).long()
    return tokens[starts[:, None] + torch.arange(length)]


def spectrum_row(
    outputs: Outputs,
    inputs: Tensor,
    settings: SpectrumSettings,
    partition: Partition | None = None,
) -> Row:
    """Entanglement entropy (nats), epsilon rank and spectrum between two groups of tokens.

    Every output is scaled to mean 0 and standard deviation 1 on the inputs as they are, so that
    neither a constant, which is a product, nor the scale of the logits decides.

    Args:
        outputs: of a model in inference mode.
        inputs: (count, tokens).
        settings: what is measured.
        partition: of the tokens; None for the left half against the right half.

    Raises:
        ExperimentError: if an output is the same for all inputs.
    """
    partition = partition or Partition.left_right(inputs.shape[1])
    results = [
        _measure_spectrum(outputs, inputs, number, settings, partition)
        for number in range(settings.num_outputs)
    ]
    epsilons = [one.epsilon.upper for one in results if one.epsilon is not None]
    spectrum = torch.as_tensor(results[0].numeric.singular_values)
    return {
        "entanglement entropy": statistics.fmean(
            one.numeric.entanglement_entropy for one in results
        ),
        "epsilon rank": statistics.fmean(epsilons),
        "spectrum": (spectrum / spectrum[0]).tolist(),
    }


def _measure_spectrum(
    outputs: Outputs,
    inputs: Tensor,
    number: int,
    settings: SpectrumSettings,
    partition: Partition,
) -> FunctionRank:
    with torch.no_grad():
        values = outputs(inputs)[:, number]
    mean, deviation = values.mean(), values.std()
    if not float(deviation) > 0:
        raise ExperimentError(
            f"spectrum_row: output {number} is {float(mean):g} for all {len(inputs)} inputs; "
            f"there is nothing to split."
        )
    return separation_rank(
        lambda tokens: (outputs(tokens)[:, number] - mean) / deviation,
        partition,
        inputs=inputs,
        epsilon=settings.epsilon,
        options=replace(FunctionOptions(), batch_size=512),
    )


# What sequence models are trained on: characters, translations, pixels.


_BATCH = 100  # samples that are scored at once


@dataclass(frozen=True, eq=False)
class LoadedTask:
    """A task with its data.

    Args:
        training: what `fit` is given.
        loss: of a model on a batch.
        build: a fresh model of a shape.
        score: what is measured of a trained model, in inference mode.
        validate: the loss on samples that are neither trained on nor scored, for choices.
    """

    training: TensorData
    loss: Loss
    build: Callable[[TransformerShape], nn.Module]
    score: Callable[[nn.Module], Row]
    validate: Callable[[nn.Module], float]


class SequenceTask(ABC):
    """Data, a model and a score. Subclasses are frozen dataclasses."""

    @abstractmethod
    def load(self, data: Path | None) -> LoadedTask:
        """The task with its data.

        Raises:
            DataError: if data are needed that are not there; the message says how to get them.
        """


@dataclass(frozen=True)
class CharacterTask(SequenceTask):
    """Guess the next character (or word); the score is in nats for each.

    Args:
        text: as `load_text` knows it.
        length: of the windows.
        max_symbols: see `load_text`.
    """

    text: str = "tinyshakespeare"
    length: int = 64
    max_symbols: int | None = None

    def load(self, data: Path | None) -> LoadedTask:
        """Windows of the training part; the score is that of the test part."""
        text = load_text(self.text, data, max_symbols=self.max_symbols)
        test = windows(text.test, self.length)
        return LoadedTask(
            windows(text.train, self.length),
            next_symbol_loss,
            lambda shape: LanguageModel(len(text.vocabulary.symbols), shape),
            lambda model: {"test loss": mean_loss(model, test)},
            lambda model: mean_loss(model, windows(text.validation, self.length)),
        )

    def contexts(self, data: Path | None, *, count: int, length: int) -> Tensor:
        """Windows (count, length) at even distances over the test part."""
        return evenly(load_text(self.text, data, max_symbols=self.max_symbols).test, count, length)


@dataclass(frozen=True)
class TranslationTask(SequenceTask):
    """German to English; the score is BLEU of the most likely words, in percent.

    Args:
        pairs: "multi30k", or "reversed" for made-up sentences whose translation is their reverse.
        max_words: of sentences that are trained on, and that are written.
        num_tested: of the test sentences, the first ones.
    """

    pairs: str = "multi30k"
    max_words: int = 16
    num_tested: int = 1000

    def load(self, data: Path | None) -> LoadedTask:
        """Pairs with the vocabularies of the training part."""
        if self.pairs == "reversed":
            result = _reversed_sentences()
        else:
            result = load_translation(self.pairs, data, min_count=5, max_words=self.max_words)
        sizes = (len(result.source_vocabulary.symbols), len(result.target_vocabulary.symbols))
        return LoadedTask(
            result.train.data,
            _pair_loss(result.train),
            lambda shape: TranslationModel(*sizes, shape),
            lambda model: self._score(model, result),
            lambda model: _mean_pair_loss(model, result.validation),
        )

    @torch.no_grad()
    def _score(self, model: nn.Module, data: TranslationData) -> Row:
        assert isinstance(model, TranslationModel), "built by this task"
        test = PairedSentences(data.test.data.head(self.num_tested), data.test.source_length)
        loss = _pair_loss(test)
        words = data.target_vocabulary.symbols
        losses, written = [], []
        for batch in test.data.batches(_BATCH):
            losses.append(float(loss(model, batch)))
            numbers = model.translate(
                test.parts(batch).sources,
                begin=START_NUMBER,
                end=END_NUMBER,
                max_words=self.max_words + 8,
            )
            written += [_sentence(row, words) for row in numbers.tolist()]
        references = data.references[: self.num_tested]
        return {"test loss": sum(losses) / len(losses), "BLEU": bleu(written, references)}


@dataclass(frozen=True)
class PixelTask(SequenceTask):
    """Guess the next pixel of a small image; the score is in bits for each intensity.

    Args:
        images: "cifar10", averaged over squares to `side` x `side`; or "digits", of which red is
            the digit, green its mirror image and blue the one that stands on its head.
        pixels: what a pixel is to the model.
        side: of the images.
        num_tested: of the test images, the first ones.
    """

    images: str = "cifar10"
    pixels: PixelInput = PixelInput.VECTOR
    side: int = 8
    num_tested: int = 1000

    def load(self, data: Path | None) -> LoadedTask:
        """Images as intensities (count, pixels, 3)."""
        train, test, levels = self.images_of(data)
        # Test images that are not scored; where all are, there is no choice to make either.
        validation = test[self.num_tested :][: self.num_tested]
        return LoadedTask(
            TensorData(train),
            lambda model, batch: bits_per_dimension(model, batch.inputs),
            lambda shape: PixelModel(levels, shape, self.pixels),
            lambda model: {"bits": _mean_bits(model, test[: self.num_tested])},
            lambda model: _mean_bits(model, validation),
        )

    def images_of(self, data: Path | None) -> tuple[Tensor, Tensor, int]:
        """Training and test images as intensities (count, pixels, 3), and how many there are."""
        result = load_data_set(self.images, data)
        train, test = (self._intensities(part.inputs) for part in (result.train, result.test))
        return train, test, 256 if self.images == "cifar10" else 17

    def _intensities(self, images: Tensor) -> Tensor:
        if self.images == "digits":
            numbers = (16 * images[:, 0]).round()
            channels = torch.stack([numbers, numbers.flip(-1), numbers.flip(-2)], -1)
        else:
            if images.shape[-1] % self.side:
                raise ExperimentError(
                    f"PixelTask: images of {images.shape[-1]} pixels in a row cannot be averaged "
                    f"to {self.side}; wanted a divisor."
                )
            averaged = nn.functional.avg_pool2d(images.float(), images.shape[-1] // self.side)
            channels = averaged.round().permute(0, 2, 3, 1)
        return channels.long().flatten(1, 2)


def _mean_bits(model: nn.Module, images: Tensor) -> float:
    with torch.no_grad():
        sums = [
            float(bits_per_dimension(model, some)) * len(some)
            for some in torch.split(images, _BATCH)
        ]
    return sum(sums) / len(images)


def _pair_loss(pairs: PairedSentences) -> Loss:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        parts = pairs.parts(batch)
        logits: Tensor = model(parts.sources, parts.inputs)
        return nn.functional.cross_entropy(
            logits.flatten(0, 1), parts.targets.flatten(), ignore_index=IGNORED
        )

    return loss


@torch.no_grad()
def _mean_pair_loss(model: nn.Module, pairs: PairedSentences) -> float:
    loss = _pair_loss(pairs)
    batches = pairs.data.batches(_BATCH)
    return sum(float(loss(model, batch)) for batch in batches) / len(batches)


def _sentence(numbers: list[int], words: tuple[str, ...]) -> list[str]:
    """The words up to the end of the sentence."""
    length = numbers.index(END_NUMBER) if END_NUMBER in numbers else len(numbers)
    return [words[number] for number in numbers[:length]]


def _reversed_sentences() -> TranslationData:
    """Sentences of 5 to 7 of ten letters, and their reverse; for runs without data."""
    generator = torch.Generator().manual_seed(0)
    sentences = []
    for _ in range(700):
        length = int(torch.randint(5, 8, (), generator=generator))
        numbers = torch.randint(10, (length,), generator=generator)
        sentences.append(["abcdefghij"[number] for number in numbers.tolist()])
    pairs = [(sentence, sentence[::-1]) for sentence in sentences]
    return TranslationData.of("reversed", pairs[:600], pairs[600:650], pairs[650:])


# One row of a table of sequence models: a transformer trained by a fixed number of steps.


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
class SearchedSteps(Steps):
    """The same after a search for the learning rate, declared in advance and equal for all models.

    Every rate is tried for a share of the steps from the same first weights; the one with the least
    loss on validation samples, which are not trained on, is taken for the whole training.

    Args:
        rates: that are tried; the learning rate of the steps is not used.
        share: of the steps, for each.
    """

    rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)
    share: float = 0.1

    def tried(self, rate: float) -> Steps:
        """The steps of a trial."""
        return Steps(max(1, round(self.share * self.count)), self.batch_size, rate)

    def at(self, rate: float) -> Steps:
        """The steps of the training."""
        return Steps(self.count, self.batch_size, rate)


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

    has_checkpoints: ClassVar[bool] = True

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

    def train(self, model: nn.Module, task: LoadedTask, context: RunContext) -> History:
        """Train a model in place, going on from the folder."""
        steps = self.steps
        if isinstance(steps, SearchedSteps):
            losses = {rate: self._tried(steps, rate, task, context) for rate in steps.rates}
            steps = steps.at(min(losses, key=lambda rate: losses[rate]))
        return self._fit(model, steps, task, context, "training")

    def _tried(
        self, steps: SearchedSteps, rate: float, task: LoadedTask, context: RunContext
    ) -> float:
        """The loss on validation samples after a trial of a rate."""
        model = self.fresh(task)
        self._fit(model, steps.tried(rate), task, context, f"rate-{rate:g}")
        return task.validate(model.eval())

    def _fit(
        self, model: nn.Module, steps: Steps, task: LoadedTask, context: RunContext, folder: str
    ) -> History:
        return fit(
            model,
            task.loss,
            task.training,
            steps.recipe(len(task.training), seed=self.seed),
            folder=context.folder / folder,
            progress=context.report,
        )

    def run(self, context: RunContext) -> Row:
        """Sizes, scores, memory and time."""
        task = self.task.load(context.data)
        model = self.fresh(task)
        memory = self._memory(model, task)
        history = self.train(model, task, context)
        row = {**self.sizes(model), **task.score(model.eval())}
        keep(model, context.folder / KEPT, identity=repr(self))
        return {**row, "kept MB": memory, "seconds": history.seconds}

    def sizes(self, model: nn.Module) -> Row:
        """Columns that describe the shape of a model."""
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
