"""`rankscope draw`: a picture of any model that has a diagram."""

import re
from pathlib import Path
from typing import Annotated

import typer

from rankscope.cli import console
from rankscope.cli.options import (
    Depth,
    Inputs,
    Json,
    Parameters,
    Settings,
    Sizes,
    What,
    opened_for,
)


def run(
    what: What,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The ending chooses: .svg .pdf .png .tikz .gif .html"),
    ] = None,
    settings: Settings = None,
    sizes: Sizes = None,
    inputs: Inputs = None,
    parameters: Parameters = None,
    depth: Depth = None,
    theme: Annotated[str, typer.Option(help="light, dark or print")] = "light",
    show_sizes: Annotated[bool, typer.Option(help="Write sizes beside the symbols.")] = False,
    width_by_size: Annotated[bool, typer.Option(help="Thicker wires for larger sizes.")] = False,
    steps: Annotated[
        bool, typer.Option("--steps", help="Draw the contraction step by step, as a storyboard.")
    ] = False,
    plate: Annotated[bool, typer.Option(help="Draw a batch index as a frame.")] = True,
    as_json: Json = False,
) -> None:
    """Draw a tensor diagram; prints the path of the picture."""
    from rankscope.drawing.drawing import draw
    from rankscope.drawing.layout.placement import View
    from rankscope.drawing.themes import THEMES
    from rankscope.errors import RequestError

    if theme not in THEMES:
        raise RequestError(f"--theme takes {', '.join(THEMES)}, got {theme!r}.")
    with console.working(f"drawing {what}"):
        model = opened_for("draw", what, settings, sizes, inputs, parameters)
        drawable = model.picture if depth is None else model.outline(depth)
        path = output or Path(f"{file_stem(drawable.name)}.svg")
        view = View(show_sizes=show_sizes, width_by_size=width_by_size, plate=plate)
        draw(drawable, path, theme=THEMES[theme], view=view, steps=steps)
    if as_json:
        console.print_json({"file": str(path), "name": drawable.name, "bytes": path.stat().st_size})
    else:
        print(path)


def file_stem(name: str) -> str:
    """A diagram's name as a file name.

    Example:
        >>> file_stem("ij,jk->ik")
        'ij_jk_ik'
    """
    return re.sub(r"[^A-Za-z0-9.-]+", "_", name.replace("->", "_")).strip("._-") or "diagram"
