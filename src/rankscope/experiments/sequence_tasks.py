"""What sequence models are trained on: characters, translations, pixels."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from rankscope.architectures.sequence_models.language_model import LanguageModel
from rankscope.architectures.sequence_models.pixel_model import (
    PixelInput,
    PixelModel,
    bits_per_dimension,
)
from rankscope.architectures.sequence_models.shape import TransformerShape
from rankscope.architectures.sequence_models.translation import TranslationModel
from rankscope.errors import ExperimentError
from rankscope.experiments.experiment import Row
from rankscope.experiments.trained_spectrum import evenly
from rankscope.training.batches import Batch, TensorData
from rankscope.training.datasets import load_data_set
from rankscope.training.loop import Loss
from rankscope.training.scoring.bleu import bleu
from rankscope.training.text_data import load_text, mean_loss, next_symbol_loss, windows
from rankscope.training.translation_data import (
    END_NUMBER,
    IGNORED,
    START_NUMBER,
    PairedSentences,
    TranslationData,
    load_translation,
)

_BATCH = 100  # samples that are scored at once


@dataclass(frozen=True, eq=False)
class LoadedTask:
    """A task with its data.

    Args:
        training: what `fit` is given.
        loss: of a model on a batch.
        build: a fresh model of a shape.
        score: what is measured of a trained model, in inference mode.
    """

    training: TensorData
    loss: Loss
    build: Callable[[TransformerShape], nn.Module]
    score: Callable[[nn.Module], Row]


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
            found = _reversed_sentences()
        else:
            found = load_translation(self.pairs, data, min_count=5, max_words=self.max_words)
        sizes = (len(found.source_vocabulary.symbols), len(found.target_vocabulary.symbols))
        return LoadedTask(
            found.train.data,
            _pair_loss(found.train),
            lambda shape: TranslationModel(*sizes, shape),
            lambda model: self._score(model, found),
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
        found = load_data_set(self.images, data)
        train, test = (self._intensities(part.inputs) for part in (found.train, found.test))
        levels = 256 if self.images == "cifar10" else 17
        return LoadedTask(
            TensorData(train),
            lambda model, batch: bits_per_dimension(model, batch.inputs),
            lambda shape: PixelModel(levels, shape, self.pixels),
            lambda model: {"bits": _mean_bits(model, test[: self.num_tested])},
        )

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
