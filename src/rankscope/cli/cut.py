"""`rankscope cut`: the cheapest cut between two groups of open legs, and its picture."""

from pathlib import Path
from typing import Annotated

import typer

from rankscope.cli import console
from rankscope.cli.options import Inputs, Json, Parameters, Settings, Sizes, What, opened_for

Legs = Annotated[str, typer.Option(metavar="i,j", help="Open legs on this side, by name.")]


def run(
    what: What,
    left: Legs,
    right: Legs,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also draw it: .svg .pdf .png .tikz")
    ] = None,
    settings: Settings = None,
    sizes: Sizes = None,
    inputs: Inputs = None,
    parameters: Parameters = None,
    as_json: Json = False,
) -> None:
    """Bound the rank between two groups of open legs by the minimal cut."""
    from rankscope.diagrams.cuts import minimal_cut
    from rankscope.diagrams.diagram import Diagram
    from rankscope.drawing.drawing import draw
    from rankscope.drawing.layout.placement import View
    from rankscope.errors import RequestError

    diagram = opened_for("cut", what, settings, sizes, inputs, parameters).diagram
    if not isinstance(diagram, Diagram):
        raise RequestError(f"cut takes one diagram, but {what!r} is a {type(diagram).__name__}.")
    cut = minimal_cut(diagram, tuple(left.split(",")), tuple(right.split(",")))
    if output is not None:
        draw(diagram, output, view=View(cut=cut.indices))
    if as_json:
        console.print_json(cut.to_dict())
    else:
        console.print_text(str(cut))
