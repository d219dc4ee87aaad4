"""Baselines: rows of models that ignore the property which an experiment asks about.

Tables of the last characters (Witten and Bell), a linear function of neighbouring pixels or a copy
of one, the most frequent class, logistic regression. A comparison of networks of which the better
one does not beat its baseline says nothing, see `statements`. Baselines have no seed: all of them
are deterministic.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rankscope.errors import ExperimentError
from rankscope.lab.data.text_data import load_text, windows
from rankscope.lab.experiments.experiment import Entry, Row, RunContext
from rankscope.lab.experiments.sequence_models import CharacterTask, PixelTask
from rankscope.networks.batches import TensorData
from rankscope.networks.datasets import load_data_set

BASELINE = "baseline"  # a column that only rows of baselines have, and the start of their names

Reals = NDArray[numpy.float64]
_Samples = tuple[Reals, NDArray[numpy.int64]]  # features, and what is wanted


@dataclass(frozen=True)
class BaselineEntry(Entry):
    """A row of a baseline; subclasses are frozen dataclasses."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """What it is, in a few words of letters, digits and hyphens."""

    @property
    def name(self) -> str:
        """Its kind."""
        return f"{BASELINE}-{self.kind}"

    @abstractmethod
    def score(self, context: RunContext) -> Row:
        """The columns of the models that it is compared with."""

    def run(self, context: RunContext) -> Row:
        """Fit and score."""
        return {BASELINE: self.kind, **self.score(context)}


# --- Characters: how often each followed the last ones --------------------------------------------


@dataclass(frozen=True)
class NGramBaseline(BaselineEntry):
    r"""The next symbol from the n - 1 before it, as often as it followed them in the training part.

    .. math:: P(w | h) = \frac{c(h w) + T(h) P(w | h')}{c(h) + T(h)}

    with T(h) different successors of h, h' without its first symbol, and all symbols alike in the
    end. It is scored on the windows that the networks are scored on, and sees what they see.

    Args:
        task: the text and its windows.
        order: n.

    Reference:
        Witten & Bell (1991), doi:10.1109/18.87000.
    """

    task: CharacterTask
    order: int

    @property
    def kind(self) -> str:
        """The order."""
        return f"{self.order}-gram"

    def score(self, context: RunContext) -> Row:
        """The loss in nats."""
        text = load_text(self.task.text, context.data, max_symbols=self.task.max_symbols)
        test = windows(text.test, self.task.length)
        assert test.targets is not None, "windows have the symbols that follow"
        loss = witten_bell_loss(
            text.train, test.inputs, test.targets, self.order, len(text.vocabulary.symbols)
        )
        return {"test loss": loss}


def witten_bell_loss(
    train: Tensor, inputs: Tensor, targets: Tensor, order: int, num_symbols: int
) -> float:
    """Mean of -ln P of targets (count, length) after inputs (count, length).

    Example:
        >>> text = torch.tensor([0, 1, 0, 1, 0, 1])
        >>> loss = witten_bell_loss(text, text[None, :5], text[None, 1:], 2, 2)
        >>> loss < 0.3
        True

    Raises:
        ExperimentError: if the order is below 1.
    """
    if order < 1:
        raise ExperimentError(f"witten_bell_loss: the order must be at least 1, got {order}.")
    probability = numpy.full(targets.shape, 1 / num_symbols)
    known, symbols, wanted = (one.numpy() for one in (train, inputs, targets))
    length = symbols.shape[1]
    for count in range(order):  # symbols before the wanted one
        pairs, contexts = _codes(known, count + 1, num_symbols), _codes(known, count, num_symbols)
        seen, often = numpy.unique(pairs, return_counts=True)
        # Every pair that was seen is one successor of its context.
        before, totals = numpy.unique(contexts[: len(pairs)], return_counts=True)
        kinds = numpy.bincount(
            numpy.searchsorted(before, seen // num_symbols), minlength=len(before)
        )
        for place in range(max(count - 1, 0), length):
            context = numpy.zeros(len(symbols), dtype=numpy.int64)
            for back in range(count):
                context += symbols[:, place - back].astype(numpy.int64) * num_symbols**back
            total, kind = _find(before, totals, context), _find(before, kinds, context)
            own = _find(seen, often, context * num_symbols + wanted[:, place])
            mixed = own + kind * probability[:, place]
            weight = total + kind
            probability[:, place] = numpy.where(
                weight > 0, mixed / numpy.maximum(weight, 1), probability[:, place]
            )
    return float(-numpy.log(probability).mean())


def _codes(text: NDArray[numpy.int64], length: int, num_symbols: int) -> NDArray[numpy.int64]:
    """Every run of so many symbols as one number, the last symbol counting least."""
    count = len(text) - length + 1
    codes = numpy.zeros(count, dtype=numpy.int64)
    for place in range(length):
        codes = codes * num_symbols + text[place : place + count]
    return codes


def _find(
    known: NDArray[numpy.int64], values: NDArray[numpy.int64], wanted: NDArray[numpy.int64]
) -> Reals:
    """The values of numbers in a sorted list; 0 of those that are not in it."""
    places = numpy.minimum(numpy.searchsorted(known, wanted), len(known) - 1)
    return numpy.where(known[places] == wanted, values[places], 0).astype(numpy.float64)


# --- Pixels: a function of the neighbours, and how far it is off ----------------------------------


_LEFT: tuple[tuple[int, int], ...] = ((0, -1),)
_FOUR = ((0, -1), (-1, -1), (-1, 0), (-1, 1))
NEIGHBOURS = {"copy-of-left-pixel": _LEFT, "linear-left-pixel": _LEFT, "linear-4-neighbours": _FOUR}
_FITTED = 20_000  # images


@dataclass(frozen=True)
class PixelBaseline(BaselineEntry):
    """An intensity from those of neighbouring pixels that came before, and a histogram of errors.

    Args:
        task: the images.
        form: a name of `NEIGHBOURS`: the same colour of the left pixel, or least squares on all
            colours of some pixels and those colours of the same pixel that come before, which the
            networks see, too.
    """

    task: PixelTask
    form: str

    @property
    def kind(self) -> str:
        """The form."""
        return self.form

    def score(self, context: RunContext) -> Row:
        """Bits for each intensity of the test images that the networks are scored on."""
        train, test, levels = self.task.images_of(context.data)
        (known, wanted), (seen, targets) = (
            _predictors(some, self.task.side, NEIGHBOURS[self.form])
            for some in (train[:_FITTED], test[: self.task.num_tested])
        )
        bits = [self._bits((known, wanted), (seen, targets), colour, levels) for colour in range(3)]
        return {"bits": sum(bits) / 3}

    def _bits(self, train: _Samples, test: _Samples, colour: int, levels: int) -> float:
        if self.form.startswith("copy"):
            # Columns are a constant, then the colours of the left pixel.
            known, seen = (features[:, 1 + colour] for features, _ in (train, test))
        else:
            columns, asked = (
                numpy.concatenate([features, wanted[:, :colour]], axis=1)
                for features, wanted in (train, test)
            )
            fitted, *_ = numpy.linalg.lstsq(columns, train[1][:, colour].astype(float), rcond=None)
            known, seen = columns @ fitted, asked @ fitted
        histogram = _error_histogram(known, train[1][:, colour], levels)
        return _mean_bits(seen, test[1][:, colour], histogram, levels)


def _predictors(
    images: Tensor, side: int, neighbours: Sequence[tuple[int, int]]
) -> tuple[Reals, NDArray[numpy.int64]]:
    """(count, features) and the intensities (count, 3) that they shall predict.

    Where a neighbour lies outside, its colours are 0 and a feature of its own is 1.
    """
    grid = images.numpy().reshape(-1, side, side, 3)
    parts = [numpy.ones((*grid.shape[:3], 1))]
    for down, right in neighbours:
        shifted = numpy.zeros(grid.shape)
        outside = numpy.ones((*grid.shape[:3], 1))
        rows, columns = slice(max(-down, 0), side), _columns(right, side)
        source = slice(0, side + down) if down < 0 else slice(0, side), _columns(-right, side)
        shifted[:, rows, columns] = grid[:, source[0], source[1]]
        outside[:, rows, columns] = 0
        parts += [shifted, outside]
    features = numpy.concatenate(parts, axis=3)
    return features.reshape(-1, features.shape[3]), grid.reshape(-1, 3)


def _columns(shift: int, side: int) -> slice:
    return slice(-shift, side) if shift < 0 else slice(0, side - shift)


def _error_histogram(predicted: Reals, wanted: NDArray[numpy.int64], levels: int) -> Reals:
    """How often each error -levels..levels occurred, each once more than it did."""
    errors = wanted - _rounded(predicted, levels)
    return 1.0 + numpy.bincount(errors + levels, minlength=2 * levels + 1).astype(numpy.float64)


def _mean_bits(
    predicted: Reals, wanted: NDArray[numpy.int64], histogram: Reals, levels: int
) -> float:
    sums = numpy.concatenate([[0.0], numpy.cumsum(histogram)])
    low = levels - _rounded(predicted, levels)  # the place of intensity 0
    total = sums[low + levels] - sums[low]  # only intensities that there are
    return float(-numpy.log2(histogram[wanted + low] / total).mean())


def _rounded(predicted: Reals, levels: int) -> NDArray[numpy.int64]:
    return numpy.clip(numpy.rint(predicted), 0, levels - 1).astype(numpy.int64)


# --- Classes: the most frequent one, and logistic regression --------------------------------------


_DECAY, _ITERATIONS = 1e-4, 200


@dataclass(frozen=True)
class ClassBaseline(BaselineEntry):
    """The most frequent class, or multinomial logistic regression on all inputs.

    Args:
        data_set: its name.
        is_logistic: whether it is the regression.
        num_samples: training samples, the first ones; None for all.
        column: of the accuracy, as the models' rows call it.
    """

    data_set: str
    is_logistic: bool = True
    num_samples: int | None = None
    # Not shown: rows say it themselves, and older ones were computed without it.
    column: str = field(default="test accuracy", kw_only=True, repr=False)

    @property
    def kind(self) -> str:
        """The data set and the method."""
        return f"{self.data_set}-{'logistic-regression' if self.is_logistic else 'majority'}"

    def score(self, context: RunContext) -> Row:
        """The accuracy on the test samples, in percent."""
        data = load_data_set(self.data_set, context.data)
        train = data.train if self.num_samples is None else data.train.head(self.num_samples)
        (inputs, labels), (tests, answers) = (flat(part) for part in (train, data.test))
        if self.is_logistic:
            guesses = fitted_regression(inputs, labels, data.num_classes)(tests).argmax(dim=1)
        else:
            guesses = labels.mode().values.expand(len(answers))
        right = 100 * float((guesses == answers).double().mean())
        return {self.column: right}


def flat(part: TensorData) -> tuple[Tensor, Tensor]:
    """All samples as vectors, not augmented, and their labels."""
    plain = TensorData(part.inputs, part.targets, normalize=part.normalize)
    batch = plain.batches(len(plain))[0]
    assert batch.targets is not None, "every data set of an experiment has labels"
    return batch.inputs.float().flatten(1), batch.targets


def fitted_regression(inputs: Tensor, labels: Tensor, num_classes: int) -> nn.Linear:
    """Fitted to the training samples by a quasi-Newton method, with a small weight decay."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Linear(inputs.shape[1], num_classes)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    scale = inputs.std().clamp(min=1e-12)
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=_ITERATIONS, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = nn.functional.cross_entropy(model(inputs / scale), labels)
        value = value + _DECAY * model.weight.square().sum()
        torch.autograd.backward(value)
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        model.weight /= scale
    return model


def language_baselines(task: CharacterTask) -> tuple[NGramBaseline, ...]:
    """Tables of the last one, two and three characters."""
    return tuple(NGramBaseline(task, order) for order in (2, 3, 4))


def pixel_baselines(task: PixelTask) -> tuple[PixelBaseline, ...]:
    """All of `NEIGHBOURS`."""
    return tuple(PixelBaseline(task, form) for form in NEIGHBOURS)


def class_baselines(
    data_set: str, num_samples: int | None = None, *, column: str = "test accuracy"
) -> tuple[ClassBaseline, ...]:
    """The most frequent class, and logistic regression."""
    return tuple(
        ClassBaseline(data_set, is_logistic, num_samples, column=column)
        for is_logistic in (False, True)
    )
