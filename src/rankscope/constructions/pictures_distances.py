"""The lecture's figure: distances between binary distributions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy

from rankscope.constructions.dense import Reals
from rankscope.constructions.distances import DistributionDistances, compare_distributions
from rankscope.constructions.figures import FIRST, INK, MUTED, SECOND, THIRD, save_figure
from rankscope.errors import ConstructionError

NUM_POINTS = 201
TOP = 3.0
CROSS_ENTROPY = "cross-entropy of P and Q"


def draw_binary_distances(path: Path | str, *, probabilities: Sequence[float] = (0.3, 1.0)) -> Path:
    """Draw all distances from P = (p, 1 - p) to Q = (q, 1 - q) over q, a panel for each p.

    Raises:
        ConstructionError: if there is no p, or one is not between 0 and 1.
        OutputError: if the ending is not .svg, .pdf or .png, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    if not probabilities or not all(0 <= probability <= 1 for probability in probabilities):
        raise ConstructionError(
            f"draw_binary_distances needs probabilities between 0 and 1, got {list(probabilities)}."
        )

    def fill(figure: Any) -> None:
        panels = figure.subplots(1, len(probabilities), squeeze=False, sharey=True)[0]
        for axes, probability in zip(panels, probabilities, strict=True):
            _curves(axes, probability)
        panels[0].set_ylabel("nats, or probability")
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside right center", labelcolor=INK
        )

    return save_figure(path, fill, size=(3.0 * len(probabilities) + 2.2, 3.4))


def _curves(axes: Any, probability: float) -> None:
    # Closer together near 0 and 1, where logarithms are steep.
    steps = numpy.sin(numpy.linspace(0.0, numpy.pi / 2, NUM_POINTS)) ** 2
    found = [
        compare_distributions(numpy.array([probability, 1 - probability]), numpy.array([q, 1 - q]))
        for q in steps
    ]
    entropies = [each.cross_entropy for each in found]
    # Wide and pale: the divergence may lie on it.
    axes.plot(steps, _finite(entropies), color=THIRD, linewidth=4, alpha=0.35, label=CROSS_ENTROPY)
    for label, colour, dash, values in _lines(found):
        axes.plot(steps, _finite(values), dash, color=colour, label=label)
    axes.set_ylim(0, TOP)
    axes.set_xlim(0, 1)
    axes.set_xlabel("q")
    axes.set_title(
        f"P = ({probability:g}, {1 - probability:g}), Q = (q, 1 - q)", loc="left", color=INK
    )


def _finite(values: list[float]) -> Reals:
    """Nothing is drawn where a divergence is infinite."""
    return numpy.where(numpy.isinf(values), numpy.nan, values)


def _lines(found: list[DistributionDistances]) -> list[tuple[str, str, str, list[float]]]:
    return [
        ("$L^1$", FIRST, "-", [each.l1 for each in found]),
        ("$L^2$", FIRST, "--", [each.l2 for each in found]),
        (r"$L^\infty$ = total variation", FIRST, ":", [each.l_infinity for each in found]),
        ("KL(P ‖ Q)", SECOND, "-", [each.kullback_leibler for each in found]),
        ("KL(Q ‖ P)", SECOND, "--", [each.kullback_leibler_reversed for each in found]),
        ("2 TV², Pinsker", MUTED, ":", [each.pinsker for each in found]),
    ]
