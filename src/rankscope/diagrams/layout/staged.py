"""The staged spine: rows of tensors in the order of evaluation, and what hangs off them."""

from collections.abc import Mapping, Sequence

from rankscope.diagrams.layout.bands import finished
from rankscope.diagrams.layout.hanging import (
    branches,
    convolutions,
    dots_off_rows,
    dots_on_rows,
    slide_rows,
)
from rankscope.diagrams.layout.open_legs import point_legs, put_private_dots
from rankscope.diagrams.layout.placement import Placement, Side, View
from rankscope.diagrams.layout.rows import Row
from rankscope.diagrams.layout.sketch import Sketch, spread_columns
from rankscope.diagrams.layout.wires import Dot, Wiring


def place_rows(
    wiring: Wiring,
    rows: Sequence[Row],
    view: View,
    legs: Mapping[str, Side],
    wishes: Mapping[Dot, Side],
) -> Placement:
    """Place everything, given which tensors stand on which row."""
    sketch = Sketch(wiring, rows, view, wishes)
    spread_columns(sketch)
    dots_on_rows(sketch)
    branches(sketch)
    convolutions(sketch)
    dots_off_rows(sketch)
    slide_rows(sketch)
    sides = point_legs(sketch, legs)
    put_private_dots(sketch, sides)
    return finished(sketch, sides)
