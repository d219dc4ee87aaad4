"""Spectra of pretrained models on texts of their own."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from rankscope.architectures.models.catalogue import build_trained
from rankscope.architectures.models.encoder import mean_of_tokens
from rankscope.architectures.models.published_weights import find_data, find_weights
from rankscope.architectures.models.wordpiece import WordPieces
from rankscope.architectures.sequence_models.llama import read_llama2c
from rankscope.auditing.embedded import embedded_model
from rankscope.errors import ExperimentError
from rankscope.experiments.experiment import Entry, Row, Workplace
from rankscope.experiments.trained_spectrum import (
    DEFAULT_SPECTRUM,
    Outputs,
    SpectrumSettings,
    evenly,
    last_logits,
    spectrum_row,
)
from rankscope.training.readers.sentence_pairs import read_scored_pairs
from rankscope.training.text_data import mean_loss, windows

_LENGTH = 32  # of contexts
_PIECES = 16  # of MiniLM's
_BEGIN = 1  # what every story of stories260k begins with


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A model with contexts.

    Args:
        model: in inference mode.
        outputs: of contexts.
        contexts: (count, tokens).
        loss: in nats for each token, on a text of its own; None if it is no language model.
    """

    model: nn.Module
    outputs: Outputs
    contexts: Tensor
    loss: float | None


@dataclass(frozen=True)
class PretrainedEntry(Entry):
    """Measure a pretrained model.

    Args:
        model: "transformer" (which comes with the package), "stories260k" or "minilm".
        settings: of the measurement.

    Raises:
        ExperimentError: if there is no such model.
    """

    model: str
    settings: SpectrumSettings = DEFAULT_SPECTRUM

    def __post_init__(self) -> None:
        if self.model not in _LOADERS:
            raise ExperimentError(
                f"PretrainedEntry: there is no model {self.model!r}; choose one of "
                f"{', '.join(_LOADERS)}."
            )

    @property
    def name(self) -> str:
        """Of the model."""
        return f"pretrained-{self.model}"

    def run(self, place: Workplace) -> Row:
        """Loss, entropy, epsilon rank and spectrum."""
        found = _LOADERS[self.model](place.data, self.settings.num_inputs)
        return {
            "parameters": sum(parameter.numel() for parameter in found.model.parameters()),
            "loss on its own text": found.loss,
            **spectrum_row(found.outputs, found.contexts, self.settings),
        }


def _transformer(data: Path | None, count: int) -> Pretrained:
    del data  # it comes with the package
    model = build_trained("transformer")
    folder = embedded_model("transformer")
    numbers = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    text = (folder / "held_out.txt").read_text(encoding="utf-8")
    tokens = torch.tensor([numbers[character] for character in text])
    contexts = evenly(tokens, count, _LENGTH)
    return Pretrained(model, last_logits(model), contexts, mean_loss(model, windows(tokens, 64)))


def _stories(data: Path | None, count: int) -> Pretrained:
    source = "take stories260K.bin of huggingface.co/karpathy/tinyllamas, folder stories260K (MIT)"
    model = read_llama2c(find_data("stories260k/stories260K.bin", data, source=source))
    written = model.write(count, _LENGTH + 1, begin=_BEGIN, seed=0)
    with torch.no_grad():
        logits = model(written[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), written[:, 1:].flatten())
    return Pretrained(model, last_logits(model), written[:, :-1], float(loss))


def _minilm(data: Path | None, count: int) -> Pretrained:
    model = build_trained("minilm", data=data)
    tokenize = WordPieces(find_weights("minilm", data).parent / "tokenizer.json")
    source = "take the STS benchmark (CC BY-SA 4.0) as comma-separated sentences and scores"
    pairs = read_scored_pairs(find_data("stsb_en/stsb-en-test.csv", data, source=source))
    tokens = tokenize([sentence for sentence, _, _ in pairs])
    long_enough = tokens[(tokens != 0).sum(1) >= _PIECES][:, :_PIECES]

    def outputs(numbers: Tensor) -> Tensor:
        return mean_of_tokens(model(numbers), numbers)

    return Pretrained(model, outputs, long_enough[:count], None)


_LOADERS: dict[str, Callable[[Path | None, int], Pretrained]] = {
    "transformer": _transformer,
    "stories260k": _stories,
    "minilm": _minilm,
}
