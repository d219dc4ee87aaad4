r"""How good, how large and how fast a model is, alone or beside the dense model it came from.

    evaluate(model, Text(tokens, context=1024), dense=dense)

What it is evaluated on is an object: `Text` (perplexity), `Labelled` (accuracy) or `Inputs` (only
the comparison with the dense model). Both models see the same inputs, and are timed in turns.
Perplexity is :math:`\exp` of the mean negative log-likelihood of the tokens that are predicted.
"""

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.compression.activation_memory import inference_bytes, training_bytes
from rankscope.compression.chain import output_tensor
from rankscope.compression.compressing import count_parameters
from rankscope.compression.evaluation_tasks import Piece, Task, Text, num_places
from rankscope.compression.exporting import tensors
from rankscope.compression.loss_scores import Divergence, OutputDistance, RelativeSquaredError
from rankscope.compression.planning import state_bytes
from rankscope.compression.usage import run_example
from rankscope.errors import CompressionError, RequestError
from rankscope.modes import inference
from rankscope.progress import Progress, Report, ignore

REPEATS = 3  # of every timing, after one that is not counted
GENERATED = 16  # tokens, of which each is timed
_ROWS_AT_ONCE = 256
_LARGEST_EXPONENT = 709  # beyond it, a perplexity is no double


# --- What is said about a model -------------------------------------------------------------------


@dataclass(frozen=True)
class Measures:
    """One model in numbers; None where a number has no meaning for it.

    Args:
        perplexity: on the tokens that were predicted.
        loss: mean negative log-likelihood of tokens or labels, in nats.
        accuracy: share of labels that have the largest output.
        parameters: numbers that it holds, shared ones once.
        bytes: of its state dict.
        inference_activation_bytes: peak of activations on the example, without a cache.
        training_activation_bytes: the same in a training step.
        cache_bytes_per_token: that the key-value cache grows by, for one sequence.
        prefill_tokens_per_second: of one window.
        generated_tokens_per_second: one after the other, with the cache.
        samples_per_second: of the example batch, where inputs are no text.
    """

    perplexity: float | None
    loss: float | None
    accuracy: float | None
    parameters: int
    bytes: int
    inference_activation_bytes: int
    training_activation_bytes: int | None
    cache_bytes_per_token: float | None
    prefill_tokens_per_second: float | None
    generated_tokens_per_second: float | None
    samples_per_second: float | None


@dataclass(frozen=True)
class Evaluation:
    """A model in numbers, and beside its dense model if there is one.

    Args:
        model: its measures.
        dense: those of the dense model, on the same inputs in the same run.
        tokens: of the text that were read; None without a text.
        predicted: how many of them count in the perplexity.
        context: tokens of a window.
        stride: from window to window.
        samples: that were run, where inputs are no text.
        divergence: mean Kullback-Leibler divergence from the dense model's predictions, in nats.
        agreement: share of predictions whose likeliest class is that of the dense model.
        output_error: squared error over the squared norm of the dense model's outputs, where they
            are no logits.
        threads: that PyTorch used.
        notes: why a number is not there.
    """

    model: Measures
    dense: Measures | None
    tokens: int | None
    predicted: int | None
    context: int | None
    stride: int | None
    samples: int | None
    divergence: float | None
    agreement: float | None
    output_error: float | None
    threads: int
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Plain data, for JSON: the model's measures stand at the top, the dense one's inside."""
        document = asdict(self)
        measures: dict[str, object] = document.pop("model")
        return {**measures, **document, "notes": list(self.notes)}


def evaluate(
    model: nn.Module,
    task: Task,
    *,
    dense: nn.Module | None = None,
    repeats: int = REPEATS,
    report: Report = ignore,
) -> Evaluation:
    """Score, count and time a model, alone or beside the dense model it came from.

    Args:
        model: any module that takes the task's inputs; it is run in inference mode.
        task: what it is evaluated on.
        dense: the model it is compared with; its outputs must have the same classes.
        repeats: of every timing.
        report: called with the progress.

    Example:
        >>> from rankscope.compression import Labelled
        >>> samples = Labelled(torch.eye(4), torch.tensor([0, 1, 2, 0]))
        >>> evaluate(nn.Linear(4, 4, bias=False), samples).model.parameters
        16

    Raises:
        RequestError: if context, stride or repeats do not fit, or the dense model gives outputs of
            another shape.
        CompressionError: if a model does not take the inputs, or gives numbers that are not finite.
    """
    if repeats < 1:
        raise RequestError(f"evaluate: wanted at least 1 repeat, got {repeats}.")
    models = (model,) if dense is None else (model, dense)
    if isinstance(task, Text):
        task = task.fitted(*models)
    with torch.no_grad(), inference(model), inference(dense or model):
        sums = _score(models, task, report)
        speeds = _speeds(models, task, repeats)
    notes = list(sums.notes)
    measures = [
        _measures(one, task, sums, number, speeds[number], notes)
        for number, one in enumerate(models)
    ]
    is_text = isinstance(task, Text)
    return Evaluation(
        measures[0],
        measures[1] if dense is not None else None,
        tokens=len(task.tokens) if isinstance(task, Text) else None,
        predicted=sums.with_target if is_text else None,
        context=task.context if isinstance(task, Text) else None,
        stride=task.stride if isinstance(task, Text) else None,
        samples=None if is_text else sums.samples,
        divergence=sums.mean_distance(Divergence),
        agreement=sums.agreement,
        output_error=sums.mean_distance(RelativeSquaredError),
        threads=torch.get_num_threads(),
        notes=tuple(dict.fromkeys(notes)),
    )


# --- Scores ---------------------------------------------------------------------------------------


def score(model: nn.Module, task: Task, dense: nn.Module) -> dict[str, float]:
    """What a model is worth on a task, by one name: nothing is counted or timed.

    Its perplexity or accuracy; where it has none, its likeness to the dense model: `agreement`, or
    `output error` where outputs are no logits.

    Example:
        >>> from rankscope.compression import Labelled
        >>> model = nn.Identity()
        >>> score(model, Labelled(torch.eye(4), torch.tensor([0, 1, 2, 0])), model)
        {'accuracy': 0.75}

    Raises:
        CompressionError: if a model does not take the inputs, or gives numbers that are not finite.
    """
    is_text = isinstance(task, Text)
    if isinstance(task, Text):
        task = task.fitted(model, dense)
    with torch.no_grad(), inference(model), inference(dense):
        sums = _score((model,), task, ignore)
        if sums.with_target:
            loss = sums.losses[0] / sums.with_target
            if is_text:
                return {"perplexity": math.exp(min(loss, _LARGEST_EXPONENT))}
            return {"accuracy": sums.right[0] / sums.with_target}
        sums = _score((model, dense), task, ignore)
    if sums.agreement is not None:
        return {"agreement": sums.agreement}
    return {"output error": sums.far / sums.rows}


@dataclass
class _Sums:
    """Sums over all pieces; numbers of the two models in a list."""

    losses: list[float] = field(default_factory=lambda: [0.0, 0.0])
    right: list[int] = field(default_factory=lambda: [0, 0])
    with_target: int = 0
    samples: int = 0
    rows: int = 0
    distance: OutputDistance | None = None
    far: float = 0.0
    same: int = 0
    notes: list[str] = field(default_factory=list)

    def mean_distance(self, kind: type[OutputDistance]) -> float | None:
        return self.far / self.rows if isinstance(self.distance, kind) else None

    @property
    def agreement(self) -> float | None:
        return self.same / self.rows if isinstance(self.distance, Divergence) else None


def _score(models: Sequence[nn.Module], task: Task, report: Report) -> _Sums:
    sums = _Sums()
    total = len(list(task.windows())) if isinstance(task, Text) else None
    for piece in task.pieces(models[0]):
        given = [run_example(one, piece.inputs) for one in models]
        outputs = [piece.select(output_tensor(one)) for one in given]
        for one in outputs:
            _require_finite(one)
        sums.samples += len(outputs[0])
        if piece.targets is not None:
            _add_targets(sums, outputs, piece.targets)
        if len(models) == 2:
            has_classes = piece.targets is not None or hasattr(given[0], "logits")
            _add_distance(sums, outputs[0], outputs[1], has_classes=has_classes)
        report(Progress("inputs", sums.samples, total or sums.samples))
    if isinstance(task, Text) and not sums.with_target:
        sums.notes.append(
            "No perplexity: the model gives no prediction of the next token from those before it "
            "(it has no logits of tokens, or they depend on later tokens)."
        )
    return sums


def _require_finite(outputs: Tensor) -> None:
    # A class may be masked by minus infinity.
    bad = int((outputs.isnan() | (outputs == math.inf)).sum())
    if bad:
        raise CompressionError(
            f"evaluate: the model gives {bad:,} NaN or infinite numbers of {outputs.numel():,}."
        )


def _add_targets(sums: _Sums, outputs: Sequence[Tensor], targets: Tensor) -> None:
    wanted = targets.flatten()
    for number, one in enumerate(outputs):
        rows = one.reshape(-1, one.shape[-1])
        if len(rows) != len(wanted) or int(wanted.min()) < 0 or int(wanted.max()) >= rows.shape[-1]:
            raise RequestError(
                f"evaluate: labels {int(wanted.min())} to {int(wanted.max())} of {len(wanted):,} "
                f"places do not fit outputs of shape {tuple(one.shape)}."
            )
        pairs = zip(*(torch.split(one, _ROWS_AT_ONCE) for one in (rows, wanted)), strict=True)
        for logits, classes in pairs:
            losses = functional.cross_entropy(logits.float(), classes, reduction="none")
            sums.losses[number] += float(losses.double().sum())
            sums.right[number] += int((logits.argmax(-1) == classes).sum())
    sums.with_target += len(wanted)


def _add_distance(sums: _Sums, outputs: Tensor, dense: Tensor, *, has_classes: bool) -> None:
    if outputs.shape != dense.shape:
        raise RequestError(
            f"evaluate: the model gives {outputs.shape[-1]:,} classes (shape "
            f"{tuple(outputs.shape)}), but the dense one {dense.shape[-1]:,} (shape "
            f"{tuple(dense.shape)}); compare models of the same vocabulary."
        )
    sums.distance = Divergence() if has_classes else RelativeSquaredError()
    if not has_classes:
        reference = sums.distance.reference(dense)
        sums.far += sums.distance.distance(outputs, reference) * len(outputs)
        sums.rows += len(outputs)
        return
    classes = outputs.shape[-1]
    flat = (one.reshape(-1, classes) for one in (outputs, dense))
    parts = (torch.split(one, _ROWS_AT_ONCE) for one in flat)
    for one, other in zip(*parts, strict=True):
        reference = sums.distance.reference(other)
        sums.far += sums.distance.distance(one, reference) * len(one)
        sums.same += int((one.argmax(-1) == other.argmax(-1)).sum())
        sums.rows += len(one)


def _measures(
    model: nn.Module,
    task: Task,
    sums: _Sums,
    number: int,
    speed: "_Speed",
    notes: list[str],
) -> Measures:
    loss = sums.losses[number] / sums.with_target if sums.with_target else None
    is_text, piece = isinstance(task, Text), task.example(model)
    perplexity = None
    if is_text and loss is not None:
        perplexity = math.exp(loss) if loss < _LARGEST_EXPONENT else None
        if perplexity is None:
            notes.append(f"No perplexity: exp({loss:.6g}) is larger than any number.")
    return Measures(
        perplexity,
        loss,
        sums.right[number] / sums.with_target if loss is not None and not is_text else None,
        count_parameters(model),
        state_bytes(model),
        inference_bytes(model, piece.inputs),
        _training_bytes(model, piece, notes),
        speed.cache_bytes,
        *((speed.prefill, speed.generation, None) if is_text else (None, None, speed.prefill)),
    )


def _training_bytes(model: nn.Module, piece: Piece, notes: list[str]) -> int | None:
    def loss(given: object) -> Tensor:
        outputs = piece.select(output_tensor(given))
        if piece.targets is None:
            return outputs.float().square().mean()
        rows = outputs.reshape(-1, outputs.shape[-1]).float()
        return functional.cross_entropy(rows, piece.targets.flatten())

    try:
        return training_bytes(model, piece.inputs, loss)
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        notes.append(f"No memory of a training step: the model cannot be trained here: {reason}")
        return None


# --- Speed, and the cache -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Speed:
    """Tokens or samples per second, and what the cache takes."""

    prefill: float
    generation: float | None
    cache_bytes: float | None


def _speeds(models: Sequence[nn.Module], task: Task, repeats: int) -> list[_Speed]:
    """In turns, so that whatever else the machine does meets both models alike."""
    pieces = [task.example(model) for model in models]
    prompts = [_prompt(model, piece) for model, piece in zip(models, pieces, strict=True)]
    seconds: list[list[tuple[float, float]]] = [[] for _ in models]
    for _ in range(1 + repeats):
        for number, model in enumerate(models):
            seconds[number].append(
                (_run_seconds(model, pieces[number]), _generation_seconds(model, prompts[number]))
            )
    results = []
    for piece, prompt, model, timed in zip(pieces, prompts, models, seconds, strict=True):
        whole, single = (statistics.median(column) for column in zip(*timed[1:], strict=True))
        results.append(
            _Speed(
                _count(piece, is_text=isinstance(task, Text)) / whole,
                None if prompt is None else 1 / single,
                None if prompt is None else _cache_growth(model, prompt),
            )
        )
    return results


def _count(piece: Piece, *, is_text: bool) -> int:
    first = tensors(piece.inputs)[0]
    return first.numel() if is_text else len(first)


def _prompt(model: nn.Module, piece: Piece) -> Tensor | None:
    """Tokens to go on from; None if the model does not generate with a cache."""
    inputs: Any = piece.inputs
    if piece.first is None or not isinstance(inputs, Mapping) or "use_cache" not in inputs:
        return None
    rows: Tensor = inputs["input_ids"]
    prompt = rows[:, : max(1, rows.shape[1] - GENERATED)]
    given: Any = model(input_ids=prompt, use_cache=True)
    return prompt if getattr(given, "past_key_values", None) is not None else None


def _run_seconds(model: nn.Module, piece: Piece) -> float:
    inputs = piece.inputs
    if isinstance(inputs, Mapping) and "use_cache" in inputs and piece.first is not None:
        inputs = {**inputs, "use_cache": True}  # a prefill is there to fill it
    start = time.perf_counter()
    run_example(model, inputs)
    return time.perf_counter() - start


def _generation_seconds(model: nn.Module, prompt: Tensor | None) -> float:
    """Seconds for one token, as a mean over several."""
    if prompt is None:
        return math.nan
    given: Any = model(input_ids=prompt, use_cache=True)
    places = num_places(model)
    count = GENERATED if places is None else max(1, min(GENERATED, places - prompt.shape[1]))
    start = time.perf_counter()
    for _ in range(count):
        token = given.logits[:, -1:].argmax(-1)
        given = model(input_ids=token, past_key_values=given.past_key_values, use_cache=True)
    return (time.perf_counter() - start) / count


def _cache_growth(model: nn.Module, prompt: Tensor) -> float | None:
    """What the second token adds: a state that does not grow with the text does not count."""
    if prompt.shape[1] < 2:
        prompt = prompt.repeat(1, 2)
    one, two = (
        _num_bytes(model(input_ids=prompt[:, :length], use_cache=True).past_key_values, set())
        for length in (1, 2)
    )
    return float(two - one)


def _num_bytes(held: object, known: set[int]) -> int:
    """Bytes of all tensors in an object, each once."""
    if id(held) in known:
        return 0
    known.add(id(held))
    if isinstance(held, Tensor):
        return held.numel() * held.element_size()
    parts: Any = held if isinstance(held, tuple | list) else getattr(held, "__dict__", {})
    inside = held.values() if isinstance(held, Mapping) else parts
    inside = inside.values() if isinstance(inside, Mapping) else inside
    return sum(_num_bytes(part, known) for part in inside)
