"""`rankscope experiment list | run | show`: tables that anyone can compute again."""

from pathlib import Path
from typing import Annotated

import typer

from rankscope.cli import console
from rankscope.cli.options import Json

app = typer.Typer(help="Compute the tables of the documentation again: list, run, show.")


@app.command("list")
def list_experiments(as_json: Json = False) -> None:
    """All experiments: how many rows each has, and what it needs."""
    from rankscope.experiments.catalogue import EXPERIMENTS

    found = [
        {
            "name": experiment.name,
            "entries": [entry.name for entry in experiment.entries],
            "seconds": experiment.seconds,
            "needs": experiment.needs or "nothing",
            "title": experiment.title,
        }
        for experiment in EXPERIMENTS.values()
    ]
    if as_json:
        console.print_json({"experiments": found})
        return
    rows = [
        (experiment.name, str(len(experiment.entries)), experiment.needs or "no data")
        for experiment in EXPERIMENTS.values()
    ]
    console.print_columns([("experiment", "rows", "needs"), *rows], numbers=(1,))


@app.command("run")
def run_one(
    name: Annotated[str, typer.Argument(help="See `rankscope experiment list`.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder of the results; a run goes on from there."),
    ],
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with the data; else RANKSCOPE_DATA names one, or several."),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="For each row, at most.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="ENTRY", help="Only this row; may be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compute what is not finished yet, and write one file for each row and table.md."""
    from rankscope.experiments.catalogue import find_experiment
    from rankscope.experiments.running import RunOptions, run_experiment

    experiment = find_experiment(name)
    options = RunOptions(
        data=data, seconds=None if minutes is None else 60.0 * minutes, only=tuple(only or ())
    )
    with console.reporting(name) as report:
        run_experiment(experiment, output, options, report=report)
    show(output, as_json=as_json)


@app.command("show")
def show(
    folder: Annotated[Path, typer.Argument(help="Folder of the results.")],
    as_json: Json = False,
) -> None:
    """Print the rows that are finished, and write table.md."""
    from rankscope.experiments.catalogue import find_experiment
    from rankscope.experiments.results import TABLE, read_manifest
    from rankscope.experiments.running import write_table

    experiment = find_experiment(read_manifest(folder).experiment)
    table = write_table(experiment, folder)
    if as_json:
        console.print_json({"experiment": experiment.name, "rows": list(table.rows)})
        return
    print(table.title)
    if table.rows:
        numbers = table.numeric_columns()
        console.print_columns([list(table.columns), *table.cells()], numbers=numbers)
    missing = len(experiment.entries) - len(table.rows)
    if missing:
        print(f"{missing} of {len(experiment.entries)} rows are not finished.")
    print(folder / TABLE)
