"""Trained models of language that experiments compress: sentence vectors and pronunciation."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from rankscope.architectures.models.catalogue import build_trained
from rankscope.architectures.models.letter_to_phoneme import spell
from rankscope.architectures.models.published_weights import find_data, find_weights
from rankscope.architectures.models.wordpiece import WordPieces
from rankscope.training.batches import Batch, TensorData
from rankscope.training.loop import Loss
from rankscope.training.readers.sentence_pairs import read_scored_pairs
from rankscope.training.scoring.phonemes import pronunciation_score, read_pronunciations
from rankscope.training.scoring.sentence_similarity import similarity_correlation

_MAX_TOKENS = 48  # of a sentence that is trained on; the scored ones are cut at 256
_EVERY = 20  # of the dictionary's words, this one is scored and the others are trained on


@dataclass(frozen=True, eq=False)
class LanguageTask:
    """What a compressed model is repaired on, and how it is scored.

    Args:
        training: inputs, and what the loss wants of them.
        loss: of a model on a batch.
        score: of a model, in percent.
    """

    training: TensorData
    loss: Loss
    score: Callable[[nn.Module], float]


class LanguageSubject(ABC):
    """A published model of language. Subclasses are frozen dataclasses."""

    network: str

    @abstractmethod
    def task(self, model: nn.Module, data: Path | None) -> LanguageTask:
        """What to do with it.

        Raises:
            DataError: if data are needed that are not there; the message says how to get them.
        """

    def build(self, data: Path | None) -> nn.Module:
        """The trained model, in inference mode.

        Raises:
            DataError: if its weights are not there; the message says how to get them.
        """
        return build_trained(self.network, data=data)


@dataclass(frozen=True)
class SentenceVectors(LanguageSubject):
    """MiniLM, scored by Spearman's correlation on the test pairs of STS-B, in percent.

    It is repaired to give the states of the uncompressed model on the sentences of the training
    pairs, without their scores.
    """

    network: str = "minilm"

    def task(self, model: nn.Module, data: Path | None) -> LanguageTask:
        """Training and test pairs, tokens by the model's own tokenizer."""
        tokenizer = find_weights(self.network, data).parent / "tokenizer.json"
        tokenize = WordPieces(tokenizer)
        pairs = {part: _sentence_pairs(part, data) for part in ("train", "test")}
        sentences = [sentence for *both, _ in pairs["train"] for sentence in both]
        tokens = WordPieces(tokenizer, max_tokens=_MAX_TOKENS)(sentences)
        return LanguageTask(
            TensorData(tokens),
            _same_states(model),
            lambda other: 100 * similarity_correlation(other, tokenize, pairs["test"]),
        )


@dataclass(frozen=True)
class Pronunciation(LanguageSubject):
    """The GRU of g2p_en, scored by the words of CMUdict that it speaks rightly, in percent.

    Every twentieth word is scored; on the others it is repaired to speak as the uncompressed
    model does, right or wrong.
    """

    network: str = "letter-to-phoneme"

    def task(self, model: nn.Module, data: Path | None) -> LanguageTask:
        """Words of CMUdict."""
        source = "take cmudict.dict of github.com/cmusphinx/cmudict (BSD-like)"
        words = read_pronunciations(find_data("g2p_en/cmudict.dict", data, source=source))
        names = sorted(words)
        scored = {name: words[name] for name in names[::_EVERY]}
        letters = spell([name for name in names if name not in scored])
        return LanguageTask(
            TensorData(letters),
            _same_words(model),
            lambda other: 100 * pronunciation_score(other, scored).word_accuracy,
        )


def _sentence_pairs(part: str, data: Path | None) -> list[tuple[str, str, float]]:
    source = "take the STS benchmark (CC BY-SA 4.0) as comma-separated sentences and scores"
    return read_scored_pairs(find_data(f"stsb_en/stsb-en-{part}.csv", data, source=source))


def _same_states(reference: nn.Module) -> Loss:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        is_token = batch.inputs != 0
        with torch.no_grad():
            wanted = reference(batch.inputs)[is_token]
        return mse_loss(model(batch.inputs)[is_token], wanted)

    return loss


def _same_words(reference: nn.Module) -> Loss:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        with torch.no_grad():
            spoken = reference(batch.inputs).argmax(dim=2)
        logits = model(batch.inputs, spoken)
        return cross_entropy(logits.flatten(0, 1), spoken.flatten())

    return loss
