"""The properties of every layer over its components, and its CP spectrum."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from rankscope.diagrams.pictures.figure_file import write_figure
from rankscope.diagrams.pictures.themes import LIGHT
from rankscope.generalization.analysis import Generalization
from rankscope.generalization.properties import Triangle, fourier_factors

_INK, _MUTED = LIGHT.label("caption"), LIGHT.label("muted")
_KEPT = LIGHT.wire("cut").color
_MOST_NAMES = 8  # more layers than these get numbers instead


def draw_properties(found: Generalization, path: Path | str) -> Path:
    """Draw the five properties and the CP spectra to a .svg, .pdf or .png file.

    One curve for each layer, over the share of its components; a dot where the rank kept is.

    Raises:
        OutputError: if the ending is none of these, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    return write_figure(path, lambda: _figure(found), what="properties")


# Matplotlib's classes can only be named where it is imported; hence Any.
def _figure(found: Generalization) -> Any:
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 6.0), layout="constrained", facecolor=LIGHT.background)
    panels = figure.subplots(2, 3)
    count = len(found.walk.layers)
    colors = [colormaps["viridis"](number / max(1, count)) for number in range(count)]
    for panel, (title, curves) in zip(panels.flat[:5], _curves(found), strict=True):
        _draw_curves(panel, curves, found.choice.ranks, colors)
        panel.set_title(title, loc="left", color=_INK)
        panel.set_xlabel("components, share", color=_MUTED)
    _draw_cushions(panels.flat[5], found, colors)
    for panel in panels.flat:
        panel.tick_params(colors=_MUTED)
        panel.grid(color=_MUTED, alpha=0.15, linewidth=0.6)
    figure.suptitle(
        f"{count} layers, margin {found.margin:g}; dots: ranks kept", x=0.01, ha="left", color=_INK
    )
    return figure


def _curves(found: Generalization) -> list[tuple[str, list[Tensor]]]:
    properties = [Triangle().of(layer) for layer in found.walk.layers]
    fourier = [fourier_factors(of) for of in properties]
    return [
        ("CP spectrum λ", [layer.components.weights for layer in found.walk.layers]),
        ("tensorization factor t", [of.factors for of in properties]),
        ("tensor noise bound ξ", [of.noises for of in properties]),
        ("Fourier factor η (kept)", [of.etas for of in fourier]),
        ("Fourier factor θ (dropped)", [of.thetas for of in fourier]),
    ]


def _draw_curves(
    panel: Any, curves: Sequence[Tensor], ranks: Sequence[int], colors: Sequence[Any]
) -> None:
    panel.set_yscale("log")
    for curve, rank, color in zip(curves, ranks, colors, strict=True):
        # What is exactly zero has no place on a logarithmic axis.
        points = [
            ((at + 1) / len(curve), number) for at, number in enumerate(curve.tolist()) if number
        ]
        panel.plot([x for x, _ in points], [y for _, y in points], color=color, linewidth=1.0)
        kept = float(curve[rank - 1])
        if kept:
            panel.plot([rank / len(curve)], [kept], ".", color=_KEPT)


def _draw_cushions(panel: Any, found: Generalization, colors: Sequence[Any]) -> None:
    names = [layer.name for layer in found.walk.layers]
    places = list(range(1, len(names) + 1))
    # Infinite where no sample reaches a layer.
    heights = [cushion if math.isfinite(cushion) else 0.0 for cushion in found.cushions]
    panel.bar(places, heights, color=colors)
    panel.set_title("layer cushion ζ", loc="left", color=_INK)
    panel.set_xlabel("layer", color=_MUTED)
    if len(names) <= _MOST_NAMES:
        panel.set_xticks(places, names, rotation=30, ha="right")
