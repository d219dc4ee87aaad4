"""`degree-budget`: which degree of a layer learns best with a budget of parameters?

Navon (2021) argues for degree 3, or e: the total degree d^(B / d) that B matrices buy is largest
there. Networks of degrees 2, 3, 4 and e learn polynomials that a lower degree provably cannot
represent, random functions and images.
"""

import math
import statistics
from collections.abc import Sequence

from rankscope.experiments.degree_entry import RECIPE, Budget, DegreeEntry
from rankscope.experiments.degree_targets import TargetSearch
from rankscope.experiments.degree_tasks import CertifiedTask, ImageTask, Task, WaveTask
from rankscope.experiments.experiment import Experiment, Row
from rankscope.experiments.table import Interval
from rankscope.training.recipe import Cosine, Recipe

DEGREES = (2.0, 3.0, 4.0, math.e)
# Each is out of reach of the degree below the one that represents it, at its own budget.
CUBIC = CertifiedTask(TargetSearch((3,), 16, num_inputs=6, lower_degree=2))
QUARTIC = CertifiedTask(TargetSearch((4,), 16, num_inputs=6, lower_degree=3))
# The longer the search, the larger the error of the lower degree, and the rougher the polynomial.
SMOOTH_NONIC = CertifiedTask(TargetSearch((3, 3), 12, num_inputs=4, lower_degree=8, steps=40))
ROUGH_NONIC = CertifiedTask(TargetSearch((3, 3), 12, num_inputs=4, lower_degree=8))
WAVES = WaveTask()
MNIST = ImageTask("mnist", 28, 4, num_samples=30_000)
DIGITS = ImageTask("digits", 8, 2, num_samples=1_437)
IMAGE_RECIPE = Recipe(
    epochs=8, batch_size=128, learning_rate=5e-3, schedule=Cosine(), clip_norm=1.0
)
# Parameters of the network of the target's own degree and width; the tests count them again.
COMPARISONS: tuple[tuple[Task, Budget, Recipe], ...] = (
    (CUBIC, Budget(3, 353), RECIPE),
    (QUARTIC, Budget(4, 465), RECIPE),
    (SMOOTH_NONIC, Budget(6, 661), RECIPE),
    (ROUGH_NONIC, Budget(6, 661), RECIPE),
    (WAVES, Budget(6, 1500), RECIPE),
    (WAVES, Budget(8, 2000), RECIPE),
    (WAVES, Budget(12, 3000), RECIPE),
    (MNIST, Budget(12, 15_000), IMAGE_RECIPE),
)
_QUICK = Recipe(epochs=6, batch_size=128, learning_rate=1e-2, schedule=Cosine(), clip_norm=1.0)
QUICK: tuple[tuple[Task, Budget, Recipe], ...] = (
    (
        CertifiedTask(TargetSearch((3,), 8, num_inputs=4, lower_degree=2, steps=20), 2048),
        Budget(3, 129),
        _QUICK,
    ),
    (WaveTask(num_samples=2048), Budget(6, 700), _QUICK),
    (DIGITS, Budget(6, 1500), _QUICK),
)


def _entries(comparisons: Sequence[tuple[Task, Budget, Recipe]]) -> tuple[DegreeEntry, ...]:
    return tuple(
        DegreeEntry(task, budget, degree, recipe)
        for task, budget, recipe in comparisons
        for degree in DEGREES
    )


def differences(rows: Sequence[Row]) -> list[Row]:
    """Error of degree 3 minus that of every other degree, seed by seed, for each comparison.

    Negative means that degree 3 is better; a verdict is given only where the 95 % interval lies on
    one side of 0.
    """
    curves = _curves(rows)
    found: list[Row] = []
    for group in dict.fromkeys(group for group, _ in curves):
        row: Row = {"group": group}
        for other in ("2", "4", "e"):
            row[f"3 minus {other}"] = _difference(curves, group, other)
        found.append(row)
    return found


def draw_curves(rows: Sequence[Row]) -> object:
    """A `matplotlib.figure.Figure`: mean test error after each epoch, one panel for each group."""
    from matplotlib.figure import Figure

    curves = _curves(rows)
    groups = list(dict.fromkeys(group for group, _ in curves))
    columns = min(4, len(groups))
    lines = -(-len(groups) // columns)
    figure = Figure(figsize=(3.2 * columns, 2.6 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).flatten()
    for panel, group in zip(panels, groups, strict=False):
        panel.set_title(group, fontsize="small")
        panel.set_yscale("log")
        for (name, degree), seeds in curves.items():
            if name == group:
                means = [statistics.fmean(values) for values in zip(*seeds.values(), strict=True)]
                panel.plot(range(1, len(means) + 1), means, label=f"degree {degree}")
    for panel in panels[len(groups) :]:
        panel.set_visible(False)
    panels[0].legend(fontsize="x-small")
    figure.supxlabel("epochs")
    figure.supylabel("test error")
    return figure


def _curves(rows: Sequence[Row]) -> dict[tuple[str, str], dict[int, list[float]]]:
    """The test errors of each seed, by group and degree."""
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row in rows:
        errors = row.get("errors")
        if isinstance(errors, list) and errors:
            seeds = found.setdefault((str(row["group"]), str(row["degree"])), {})
            seeds[int(str(row.get("seed") or 0))] = errors
    return found


def _difference(
    curves: dict[tuple[str, str], dict[int, list[float]]], group: str, other: str
) -> str | None:
    ours, theirs = curves.get((group, "3"), {}), curves.get((group, other), {})
    values = [ours[seed][-1] - theirs[seed][-1] for seed in ours if seed in theirs]
    if len(values) < 2:
        return None
    interval = Interval.of(values, seeds=len(values))
    verdict = "undecided"
    if abs(interval.mean) > interval.half_width:
        verdict = "better" if interval.mean < 0 else "worse"
    return f"{interval} ({verdict})"


DEGREE_BUDGET = Experiment(
    name="degree-budget",
    title="Which degree of a layer learns best within a budget? Test errors",
    entries=_entries(COMPARISONS),
    quick=_entries(QUICK),
    protocol=(
        "Networks whose layers are products of d affine maps (d = 2, 3, 4, or e: 72 % of the "
        "coordinates of a layer are products of three and the others of two), each followed by a "
        "batch normalization without shift, then a linear readout. B matrices buy B / d layers, "
        "rounded down; the width is the largest that keeps all parameters within the same number. "
        "Tasks: polynomials whose certified separation rank exceeds what the next lower degree can "
        "have at that budget, with the error that this degree cannot avoid; a sum of 64 random "
        "plane waves; images averaged over squares. Adam, half a cosine, the same learning rate, "
        "batches, epochs and gradient clipping for all degrees. The separation rank is exact, at "
        "the trained weights, between the halves of the inputs; for images, between two "
        "neighbouring squares with all others held at their mean."
    ),
    needs="MNIST (idx)",
    seeds=5,
    figure=draw_curves,
    summary=differences,
)
