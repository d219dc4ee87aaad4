"""Certified accuracy over the radius, with the attack's curve above it.

The true robust accuracy lies between both. The same certification gives the same bytes.
"""

from pathlib import Path
from typing import Any

from rankscope.diagrams.pictures.figure_file import write_figure
from rankscope.diagrams.pictures.themes import LIGHT
from rankscope.robustness.certification import Certification

_INK, _MUTED = LIGHT.label("caption"), LIGHT.label("muted")
_PROVED, _BETWEEN = LIGHT.shape("parameter").stroke, LIGHT.shape("parameter").fill
_ATTACKED = LIGHT.wire("cut").color


def draw_certification(certification: Certification, path: Path | str) -> Path:
    """Draw the curves to a .svg, .pdf or .png file.

    Raises:
        OutputError: if the ending is none of these, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    return write_figure(path, lambda: _figure(certification), what="a certification")


# Matplotlib's classes can only be named where it is imported; hence Any.
def _figure(found: Certification) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    figure = Figure(figsize=(6.0, 4.0), layout="constrained", facecolor=LIGHT.background)
    axes = figure.add_subplot()
    # At radius 0 there is nothing to prove and nothing to attack with.
    rows = [row for row in found.radii if row.radius > 0]
    radii = [0.0, *(row.radius for row in rows)]
    certified = [found.clean, *(row.certified for row in rows)]
    attacked = [found.clean, *(row.attacked for row in rows)]
    axes.fill_between(radii, certified, attacked, color=_BETWEEN, alpha=0.5, linewidth=0)
    axes.plot(radii, attacked, color=_ATTACKED, marker="o", label="after the attack")
    axes.plot(radii, certified, color=_PROVED, marker="s", label=f"certified ({found.method})")
    axes.set_xlim(left=0.0)
    axes.set_ylim(0.0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel(f"radius of perturbations, {found.norm}", color=_INK)
    axes.set_ylabel("accuracy", color=_INK)
    axes.set_title(
        f"The truth is between the curves ({found.num_samples:,} samples)", loc="left", color=_INK
    )
    axes.tick_params(colors=_MUTED)
    axes.grid(color=_MUTED, alpha=0.15, linewidth=0.6)
    for spine in axes.spines.values():
        spine.set_color(_MUTED)
    axes.legend(labelcolor=_INK)
    return figure
