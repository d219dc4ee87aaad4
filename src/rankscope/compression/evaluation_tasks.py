"""What a model is evaluated on: a text in windows, samples with labels, or inputs alone.

A task gives pieces: inputs that are run at once, with what is wanted of the outputs. It asks the
model how it takes tokens, and tries whether it predicts the next one from those before it: only
then is there a perplexity.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.compression.chain import output_tensor
from rankscope.compression.scores import Batch
from rankscope.compression.usage import run_example
from rankscope.errors import RequestError
from rankscope.modes import inference

CONTEXT = 1024  # tokens, unless the model or the text has fewer
BATCH_SIZE = 64  # samples
_MOST_LOGITS = 2**26  # numbers that a model may give at once
_ROUNDING = 64  # units in the last place that outputs may differ by although nothing changed
_CHECKED = 16  # tokens on which it is tried whether later ones change what was said before


@dataclass(frozen=True, eq=False)
class Piece:
    """Inputs that are run at once, and what is wanted of the outputs.

    Args:
        inputs: as the model takes them.
        targets: the right classes; None if nobody knows.
        first: of sequences, the place of the first token whose prediction counts; None if all
            outputs count.
    """

    inputs: Batch
    targets: Tensor | None = None
    first: int | None = None

    def select(self, outputs: Tensor) -> Tensor:
        """The outputs that count."""
        return outputs if self.first is None else outputs[:, self.first - 1 : -1]


class Task(ABC):
    """What a model is evaluated on. Subclasses are frozen dataclasses."""

    @abstractmethod
    def pieces(self, model: nn.Module) -> Iterator[Piece]:
        """Everything once, as this model takes it."""

    @abstractmethod
    def example(self, model: nn.Module) -> Piece:
        """What memory and speed are measured on."""


@dataclass(frozen=True, eq=False)
class Text(Task):
    """Tokens in their order, read in windows.

    Args:
        tokens: (count,), integers.
        context: tokens of a window, at least 2; None for as many as the model allows, at most 1024.
        stride: from the start of a window to that of the next; None for the context. Only tokens
            that no window before has predicted count, so that with a smaller stride each has at
            least context - stride tokens before it. The first token of a text, and with the stride
            equal to the context that of each window, cannot be predicted.
    """

    tokens: Tensor
    context: int | None = None
    stride: int | None = None

    def __post_init__(self) -> None:
        if self.tokens.ndim != 1 or len(self.tokens) < 2:
            raise RequestError(
                f"evaluate: wanted at least 2 tokens in a row, got {self.tokens.numel():,} of "
                f"shape {tuple(self.tokens.shape)}."
            )
        if self.context is not None and self.context < 2:
            raise RequestError(
                f"evaluate: wanted a context of at least 2 tokens, got {self.context}."
            )

    def fitted(self, *models: nn.Module) -> "Text":
        """The same with context and stride in numbers that all models allow.

        Raises:
            RequestError: if the context or the stride is too large.
        """
        places = [number for model in models if (number := num_places(model)) is not None]
        most = min(places, default=None)
        context = self.context
        if context is None:
            context = min(CONTEXT, *([] if most is None else [most]), len(self.tokens))
        elif most is not None and context > most:
            raise RequestError(
                f"evaluate: a context of {context:,} was asked for, but the model has only "
                f"{most:,} places."
            )
        stride = context if self.stride is None else self.stride
        if not 1 <= stride <= context:
            raise RequestError(
                f"evaluate: wanted a stride from 1 to the context {context:,}, got {stride:,}."
            )
        return Text(self.tokens, min(context, len(self.tokens)), stride)

    def windows(self) -> Iterator[tuple[int, int, int]]:
        """Start and stop of every window, and the place in it of the first token that counts."""
        assert self.context is not None, "fitted to a model"
        assert self.stride is not None, "fitted to a model"
        reached = 1
        for start in range(0, len(self.tokens), self.stride):
            stop = min(start + self.context, len(self.tokens))
            first = max(start + 1, reached)
            if first < stop:
                yield start, stop, first - start
            reached = stop
            if stop == len(self.tokens):
                return

    def pieces(self, model: nn.Module) -> Iterator[Piece]:
        is_causal, vocabulary = _predicts_next(model, self.tokens[:_CHECKED])
        most = max(1, _MOST_LOGITS // ((self.context or 1) * vocabulary))
        for rows, first in self._rows(most):
            targets = rows[:, first:] if is_causal else None
            yield Piece(as_inputs(model, rows), targets, first if is_causal else None)

    def _rows(self, most: int) -> Iterator[tuple[Tensor, int]]:
        """Windows alike, several at once."""
        kept: list[Tensor] = []
        place = 0
        for start, stop, first in self.windows():
            window = self.tokens[start:stop]
            if kept and (len(kept) == most or len(window) != len(kept[0]) or first != place):
                yield torch.stack(kept), place
                kept = []
            kept.append(window)
            place = first
        if kept:
            yield torch.stack(kept), place

    def example(self, model: nn.Module) -> Piece:
        rows = self.tokens[None, : self.context]
        is_causal, _ = _predicts_next(model, self.tokens[:_CHECKED])
        return Piece(
            as_inputs(model, rows),
            rows[:, 1:] if is_causal else None,
            1 if is_causal else None,
        )


@dataclass(frozen=True, eq=False)
class Labelled(Task):
    """Samples with their classes.

    Args:
        inputs: a tensor, or several by name, samples along the first axis.
        labels: (samples,), integers.
    """

    inputs: Tensor | Mapping[str, Tensor]
    labels: Tensor

    def __post_init__(self) -> None:
        count = _num_samples(self.inputs)
        if not count or self.labels.shape != (count,):
            raise RequestError(
                f"evaluate: wanted one label for each of at least 1 sample, got {count:,} samples "
                f"and labels of shape {tuple(self.labels.shape)}."
            )

    def pieces(self, model: nn.Module) -> Iterator[Piece]:
        for start in range(0, len(self.labels), BATCH_SIZE):
            part = slice(start, start + BATCH_SIZE)
            yield Piece(_cut(self.inputs, part), self.labels[part])

    def example(self, model: nn.Module) -> Piece:
        return next(self.pieces(model))


@dataclass(frozen=True, eq=False)
class Inputs(Task):
    """Samples without classes; models can only be compared on them.

    Args:
        inputs: a tensor, or several by name, at least one sample along the first axis.
    """

    inputs: Tensor | Mapping[str, Tensor]

    def __post_init__(self) -> None:
        if not _num_samples(self.inputs):
            raise RequestError("evaluate: wanted inputs of at least 1 sample each, got 0.")

    def pieces(self, model: nn.Module) -> Iterator[Piece]:
        for start in range(0, _num_samples(self.inputs), BATCH_SIZE):
            yield Piece(_cut(self.inputs, slice(start, start + BATCH_SIZE)))

    def example(self, model: nn.Module) -> Piece:
        return next(self.pieces(model))


def as_inputs(model: nn.Module, rows: Tensor) -> Batch:
    """Tokens (batch, length) as a model takes them: by name for models of transformers."""
    taken = inspect.signature(model.forward).parameters
    if "input_ids" not in taken:
        return rows
    named: dict[str, Any] = {"input_ids": rows}
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        named["decoder_input_ids"] = rows
    return named | ({"use_cache": False} if "use_cache" in taken else {})


def num_places(model: nn.Module) -> int | None:
    """The longest sequence that a model takes; None if it does not say."""
    config = getattr(model, "config", None)
    text = getattr(config, "get_text_config", lambda: None)()
    places = getattr(text, "max_position_embeddings", None) or getattr(model, "num_positions", None)
    return places if isinstance(places, int) and places > 0 else None


def _predicts_next(model: nn.Module, tokens: Tensor) -> tuple[bool, int]:
    """Whether a model predicts the next token at each place, and the number of its outputs there.

    It does if it gives a number for every token, and what it says at a place does not change with
    the tokens behind it: otherwise the right answer is among its inputs.
    """
    rows = tokens[None]
    with torch.no_grad(), inference(model):
        given = run_example(model, as_inputs(model, rows))
        outputs = output_tensor(given)
        classes = outputs.shape[-1] if outputs.ndim else 1
        has_logits = isinstance(given, Tensor) or isinstance(getattr(given, "logits", None), Tensor)
        if not has_logits or outputs.shape[:-1] != rows.shape or classes <= int(tokens.max()):
            return False, classes
        half = rows.shape[1] // 2
        changed = torch.cat([rows[:, :half], (rows[:, half:] + 1) % classes], dim=1)
        again = output_tensor(run_example(model, as_inputs(model, changed)))
    one, other = outputs[:, :half].float(), again[:, :half].float()
    # Experts may be given their tokens in another order, and sum in another one.
    tolerance = _ROUNDING * torch.finfo(outputs.dtype).eps * float(one.abs().max())
    return bool(((one - other).abs() <= tolerance).all()), classes


def _num_samples(inputs: Tensor | Mapping[str, Tensor]) -> int:
    tensors = [inputs] if isinstance(inputs, Tensor) else list(inputs.values())
    counts = {len(tensor) if tensor.ndim else 0 for tensor in tensors}
    return counts.pop() if len(counts) == 1 else 0


def _cut(inputs: Tensor | Mapping[str, Tensor], part: slice) -> Batch:
    if isinstance(inputs, Tensor):
        return inputs[part]
    return {name: tensor[part] for name, tensor in inputs.items()}
