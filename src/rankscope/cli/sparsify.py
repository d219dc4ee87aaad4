"""`rankscope sparsify`: fewer edges of a graph, chosen by walk index."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope.cli import console
from rankscope.cli.options import Json, choose
from rankscope.errors import BudgetError, RequestError
from rankscope.files import require_writable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rankscope.rank.sparsification import Rule, Sparsified


def run(
    edges: Annotated[
        Path, typer.Argument(help="File with two vertices on each line.", show_default=False)
    ],
    keep: Annotated[float, typer.Option(help="Share of the edges that is kept.")] = 0.5,
    depth: Annotated[int, typer.Option(help="Layers of the network that reads the graph.")] = 2,
    rule: Annotated[
        str, typer.Option(help="walk, one-walk, random or spectral: which edges -o writes.")
    ] = "walk",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the edges that are kept.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the rules that draw at random.")] = 0,
    max_seconds: Annotated[
        float, typer.Option(help="What the rule walk may take, by an estimate.")
    ] = 600.0,
    as_json: Json = False,
) -> None:
    """Remove edges of a graph by walk index, beside random and spectral removal."""
    if output is not None:
        require_writable(output)
    from rankscope.rank.graphs import NamedGraph, read_edge_file, write_edge_file
    from rankscope.rank.sparsification import Rule, sparsify

    chosen = choose("--rule", rule, {str(one): one for one in Rule})
    named = read_edge_file(edges)
    made: dict[Rule, Sparsified] = {}
    refused: dict[Rule, str] = {}
    with console.reporting("sparsify") as report:
        for one in Rule:
            try:
                made[one] = sparsify(
                    named.graph, keep, depth=depth, rule=one, seed=seed,
                    max_seconds=max_seconds, report=report,
                )  # fmt: skip
            except BudgetError as error:
                if one is chosen:
                    raise RequestError(f"{error} --rule one-walk is quick.") from error
                refused[one] = str(error)
        whole = sparsify(named.graph, 1.0, depth=depth, rule=Rule.ONE_WALK)
    if output is not None:
        write_edge_file(output, NamedGraph(made[chosen].graph, named.names))
    if as_json:
        console.print_json(
            {
                "vertices": named.graph.num_vertices,
                "edges": len(named.graph.edges),
                "depth": depth,
                "rule": str(chosen),
                "whole": {**whole.to_dict(), "rule": None},
                "rules": [result.to_dict() for result in made.values()],
                "not_computed": {str(one): reason for one, reason in refused.items()},
                "removed": [
                    [named.names[vertex] for vertex in edge] for edge in made[chosen].removed
                ],
                "file": None if output is None else str(output),
            }
        )
        return
    _print(whole, made.values(), refused)
    if output is not None:
        print(output)


def _print(
    whole: "Sparsified", made: "Iterable[Sparsified]", refused: "Mapping[Rule, str]"
) -> None:
    rows = [("rule", "edges", "components", "isolated", "least", "median", "mean")]
    for result in (whole, *made):
        one = result.to_dict()
        name = str(result.rule) if result.removed or result is not whole else "(all edges)"
        rows.append(
            (
                name,
                f"{one['kept']:,}",
                f"{one['components']:,}",
                f"{one['isolated']:,}",
                f"{one['least_walk_index']:,}",
                f"{one['median_walk_index']:,g}",
                f"{one['mean_walk_index']:,.4g}",
            )
        )
    console.print_columns(rows, numbers=range(1, 7))
    print(
        f"walk index of a vertex against all others: closed walks of {whole.depth} steps "
        "(least, median, mean)"
    )
    for rule, reason in refused.items():
        print(f"{rule}: not computed. {reason}")
