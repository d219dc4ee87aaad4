"""`non-vacuous-bound`: how large can a network be, for a bound below one half that really holds?"""

from collections.abc import Sequence
from dataclasses import replace

from rankscope.experiments.experiment import Experiment, Row
from rankscope.experiments.line_figure import LineFigure
from rankscope.experiments.non_vacuous_entry import NonVacuousEntry
from rankscope.training.recipe import Cosine, Recipe

WANTED = 0.5
_RECIPE = Recipe(epochs=4, batch_size=128, learning_rate=5e-3, schedule=Cosine())
_SETTINGS = (
    ("mnist", 16, 2),
    ("mnist", 16, 4),
    ("mnist", 24, 2),
    ("mnist", 32, 2),
    ("mnist", 40, 2),
    ("fashion-mnist", 16, 2),
    ("fashion-mnist", 16, 3),
    ("fashion-mnist", 24, 2),
    ("cifar10", 16, 2),
)


def largest(rows: Sequence[Row]) -> list[Row]:
    """For each data set the largest setting, by parameters, with all bounds below one half."""
    found: list[Row] = []
    for data in dict.fromkeys(row["data"] for row in rows):
        settings: dict[str, list[Row]] = {}
        for row in (row for row in rows if row["data"] == data):
            settings.setdefault(str(row["setting"]), []).append(row)
        below = [own for own in settings.values() if _worst(own) < WANTED]
        chosen = max(below, key=lambda own: float(str(own[0]["parameters"])), default=None)
        found.append(_described(data, chosen))
    return found


def _described(data: object, chosen: list[Row] | None) -> Row:
    if chosen is None:
        return {"of": str(data), "largest below 0.5": "none"}
    errors = [float(str(row["test error"])) for row in chosen]
    return {
        "of": str(data),
        "largest below 0.5": str(chosen[0]["setting"]),
        "its parameters": chosen[0]["parameters"],
        "largest bound of its seeds": _worst(chosen),
        "largest test error": max(errors),
    }


def _worst(rows: Sequence[Row]) -> float:
    return max(float(str(row["bound"])) for row in rows)


NON_VACUOUS_BOUND = Experiment(
    name="non-vacuous-bound",
    title="A bound on the error that holds with probability 0.95, beside the test error",
    entries=tuple(
        NonVacuousEntry(data_set, width, bits, _RECIPE) for data_set, width, bits in _SETTINGS
    ),
    quick=(
        NonVacuousEntry("digits", 4, 2, replace(_RECIPE, epochs=12, batch_size=32)),
        NonVacuousEntry("digits", 8, 2, replace(_RECIPE, epochs=12, batch_size=32)),
    ),
    seconds=1800.0,
    seeds=3,
    figure=LineFigure("parameters", "bound", ("group",)),
    summary=largest,
    needs="MNIST/raw, FashionMNIST/raw and cifar-10-batches-bin",
    protocol=(
        "Images are averaged over 2 x 2 pixels; three convolutions of w, 2w and 2w channels "
        "and a linear map, ReLU, no biases, the second and third convolution in CP form at half "
        "the rank with as many parameters. All weights are codes times scales: 3 codes at 2 "
        "bits, 7 at 3, 15 at 4; scales suit the random initial weights, and so are fixed before "
        "any sample is seen. Trained straight through the rounding, with Adam from 5e-3 to 0 "
        "along a cosine, batches of 128, 4 epochs over all training images. The bound (Chernoff "
        "with relative entropy, and a union over all networks that the codes can describe) "
        "counts the weights, 100 settings tried, and a chance of 0.05; Hoeffding's is shown "
        "beside it."
    ),
)
