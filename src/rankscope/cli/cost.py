"""`rankscope cost`: what a diagram costs, counted from its own contraction order."""

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

# What each number means, printed beside it.
ROWS = (
    ("parameters", "parameters", "each array counted once"),
    ("operations", "flops", "multiply-adds count two; functions are not counted"),
    ("largest intermediate", "largest_intermediate", "entries, outputs included"),
    ("peak memory", "peak_memory", "entries alive at once, inputs included"),
)


def run(
    what: What,
    settings: Settings = None,
    sizes: Sizes = None,
    inputs: Inputs = None,
    parameters: Parameters = None,
    depth: Depth = None,
    method: Annotated[
        str, typer.Option(help="Order search: automatic, exhaustive, greedy or cotengra.")
    ] = "automatic",
    as_json: Json = False,
) -> None:
    """Parameters, operations, largest intermediate and contraction order."""
    from rankscope.diagrams.cost import cost
    from rankscope.diagrams.search import Automatic, Cotengra, Exhaustive, Greedy
    from rankscope.errors import RequestError

    methods = {
        "automatic": Automatic(),
        "exhaustive": Exhaustive(),
        "greedy": Greedy(),
        "cotengra": Cotengra(),
    }
    if method not in methods:
        raise RequestError(f"--method takes {', '.join(methods)}, got {method!r}.")
    with console.working(f"pricing {what}"):
        model = opened_for("cost", what, settings, sizes, inputs, parameters)
        drawable = model.diagram if depth is None else model.outline(depth)
        counted = cost(drawable, methods[method]).to_dict()
    if as_json:
        console.print_json(counted)
    else:
        rows = [(name, f"{counted[key]:,}", meaning) for name, key, meaning in ROWS]
        console.print_columns(rows, numbers=(1,))
