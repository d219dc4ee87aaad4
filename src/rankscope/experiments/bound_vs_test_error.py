"""`bound-vs-test-error`: does a bound from compression follow the test error during training?"""

from collections.abc import Sequence
from dataclasses import replace

from rankscope.experiments.bound_entry import BOUNDS, TEST_ERROR, BoundEntry
from rankscope.experiments.bound_figure import draw_bounds
from rankscope.experiments.cp_subject import CPSubject
from rankscope.experiments.experiment import Experiment, Row
from rankscope.experiments.partial_correlation import partial_correlation
from rankscope.generalization.analysis import usual_searches
from rankscope.training.recipe import Cosine, Recipe

_RECIPE = Recipe(epochs=48, batch_size=64, learning_rate=2e-3, schedule=Cosine())
# Without it, every component of these networks is needed, and no complexity ever changes.
_DECAYING = replace(_RECIPE, weight_decay=3.0)
_DIGITS = CPSubject("digits")
_FASHION, _CIFAR10 = (CPSubject(name, 2_000) for name in ("fashion-mnist", "cifar10"))
_PROVED = {name: usual_searches()[name] for name in ("triangle", "exact")}


def correlations(rows: Sequence[Row]) -> list[Row]:
    """Rank correlations over all measurements of all seeds of a setting.

    "complexity" is what a bound adds to the loss that was measured on the training sample.
    """
    found: list[Row] = []
    for setting in dict.fromkeys(str(row["setting"]) for row in rows):
        own = [row for row in rows if row["setting"] == setting]
        for name in BOUNDS:
            values = _joined(own, name)
            if values is not None:
                found.append(_correlated(own, setting, name, values))
    return found


def _correlated(rows: Sequence[Row], setting: str, name: str, values: list[float]) -> Row:
    errors, complexities = _joined(rows, TEST_ERROR), _joined(rows, f"{name} complexity")
    assert errors is not None, "errors are always finite"
    assert complexities is not None, "complexities are finite where bounds are"
    return {
        "of": setting,
        "bound": name,
        "with the test error": str(partial_correlation(values, errors, [])),
        "its complexity alone": str(partial_correlation(complexities, errors, [])),
    }


def _joined(rows: Sequence[Row], name: str) -> list[float] | None:
    joined: list[float] = []
    for row in rows:
        curve = row.get(f"{name} curve")
        if not isinstance(curve, list):
            return None
        joined += curve
    return joined


BOUND_VS_TEST_ERROR = Experiment(
    name="bound-vs-test-error",
    title="Bounds without constants beside the test error, after the last epoch",
    entries=(
        BoundEntry("digits", _DIGITS, _RECIPE),
        BoundEntry("digits-margin-5", _DIGITS, _RECIPE, margin=5.0),
        BoundEntry("digits-decay-3", _DIGITS, _DECAYING),
        BoundEntry("digits-decay-6", _DIGITS, replace(_RECIPE, weight_decay=6.0)),
        BoundEntry("digits-noise-0.4", _DIGITS, _RECIPE, noise=0.4),
        BoundEntry("fashion-mnist-decay-3", _FASHION, _DECAYING, searches=_PROVED),
        BoundEntry("cifar10-decay-3", _CIFAR10, _DECAYING, searches=_PROVED),
    ),
    quick=(
        BoundEntry(
            "digits",
            replace(_DIGITS, num_samples=400, width=8),
            replace(_RECIPE, epochs=10),
            every=2,
        ),
    ),
    seconds=1800.0,
    seeds=3,
    figure=draw_bounds,
    summary=correlations,
    needs="FashionMNIST/raw and cifar-10-batches-bin",
    protocol=(
        "Three convolutions of 16, 32 and 32 channels and a linear map, the two in the middle in "
        "CP form at the rank with as many parameters as plain ones; Adam from 2e-3 to 0 along a "
        "cosine, batches of 64, 48 epochs, on 1,437 digits or the first 2,000 images of "
        "Fashion-MNIST and CIFAR-10, no augmentation, without weight decay or with a "
        "decoupled one of 3 or 6, which makes components die out. Every 4 epochs, on the "
        "whole training sample at a fixed margin: ranks by the direct search in the triangle "
        "and the exact form, and (digits) the smallest that keep the margin on the sample; "
        "the order L_margin + sqrt(parameters kept / samples); the bound of Arora et al. without "
        "constants at the same margin, Jacobians on 16 samples; the error on the whole test set. "
        "With noise, the bounds are for noisy labels, and the test error is that on true ones. "
        "Intervals of the correlations take measurements for independent, which those of one run "
        "are not; the columns named correlation have one value for each seed."
    ),
)
