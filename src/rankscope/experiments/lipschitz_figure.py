"""Accuracy over the radius, after an attack and certified; one panel for each network."""

import math
from collections.abc import Sequence
from typing import Any

from rankscope.diagrams.pictures.themes import LIGHT
from rankscope.experiments.experiment import Row

_PROVED, _ATTACKED = LIGHT.shape("parameter").stroke, LIGHT.wire("cut").color
_ACROSS = 4  # panels beside each other


# Matplotlib's classes can only be named where it is imported; hence Any.
def draw_accuracies(rows: Sequence[Row]) -> Any:
    """A figure of rows of `LipschitzEntry`, two lines for each seed; the truth is between them."""
    from matplotlib.figure import Figure

    networks = dict.fromkeys(str(row["network"]) for row in rows)
    across = min(_ACROSS, len(networks))
    down = math.ceil(len(networks) / across)
    figure = Figure(figsize=(2.4 * across, 2.2 * down), layout="constrained")
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).flatten()
    for panel, network in zip(panels, networks, strict=False):
        panel.set_title(network)
        for row in rows:
            if row["network"] == network:
                _draw_row(panel, row)
    for panel in panels[len(networks) :]:
        panel.set_axis_off()
    panels[0].set_ylim(0, 100)
    panels[0].set_ylabel("accuracy in percent")
    figure.supxlabel("radius of perturbations, l2")
    handles = panels[0].get_lines()[:2]
    figure.legend(handles=handles, loc="outside lower right", ncols=2)
    return figure


def _draw_row(panel: Any, row: Row) -> None:
    radii, attacked, certified = (row[name] for name in ("radii", "attacked", "certified"))
    assert isinstance(radii, list), "rows of LipschitzEntry hold lists"
    assert isinstance(attacked, list), "rows of LipschitzEntry hold lists"
    assert isinstance(certified, list), "rows of LipschitzEntry hold lists"
    places = [0.0, *radii]
    panel.plot(places, [row["clean"], *attacked], color=_ATTACKED, label="after the attack")
    panel.plot(places, [row["clean"], *certified], color=_PROVED, label="certified")
