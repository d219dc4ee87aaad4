"""`rankscope cost`: what a diagram costs, counted from its own contraction order."""

from typing import TYPE_CHECKING

from rankscope.cli import console
from rankscope.cli.options import Inputs, Json, Parameters, Settings, Sizes, What

if TYPE_CHECKING:
    from rankscope.diagrams.cost import Cost


def run(
    what: What,
    settings: Settings = None,
    sizes: Sizes = None,
    inputs: Inputs = None,
    parameters: Parameters = None,
    as_json: Json = False,
) -> None:
    """Parameters, operations, largest intermediate and contraction order."""
    from rankscope.cli.resolve import Request, resolve
    from rankscope.diagrams.cost import cost

    found = cost(resolve(Request.of(what, settings, sizes, inputs, parameters)))
    if as_json:
        console.print_json(found.to_dict())
    else:
        _print_table(found)


def _print_table(found: "Cost") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    table.add_row("parameters", f"{found.parameters:,}", "")
    table.add_row(
        "operations", f"{found.flops:,}", "multiply-adds count two; functions not counted"
    )
    table.add_row("largest intermediate", f"{found.largest_intermediate:,}", "entries")
    table.add_row("peak memory", f"{found.peak_memory:,}", "entries alive at once, inputs included")
    Console(soft_wrap=True).print(table)
