"""`rankscope experiment list | run | show | campaign`: tables that anyone can compute again."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope.cli import console
from rankscope.cli.options import Json
from rankscope.display import counted

if TYPE_CHECKING:
    from rankscope.lab.experiments.campaign import Campaign, Standing
    from rankscope.lab.experiments.claims import Statement

app = typer.Typer(help="Compute the tables of the documentation again: list, run, show, campaign.")


@app.command("list")
def list_experiments(as_json: Json = False) -> None:
    """All experiments: how many rows each has, and what it needs."""
    from rankscope.lab.experiments.catalogue import EXPERIMENTS, find_experiment

    if as_json:
        console.print_json(
            {"experiments": [find_experiment(name).to_dict() for name in EXPERIMENTS]}
        )
        return
    rows = [
        (one.name, str(one.num_rows), "yes" if one.has_quick else "-", one.needs or "no data")
        for one in EXPERIMENTS.values()
    ]
    console.print_columns([("experiment", "rows", "quick", "needs"), *rows], numbers=(1,))


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
    quick: Annotated[
        bool, typer.Option("--quick", help="Small and on embedded data, in two minutes at most.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(help="How many; else as many as the experiment says.")
    ] = None,
    backend: Annotated[
        str, typer.Option(help="sequential, or rows spread by joblib: loky, ray or dask.")
    ] = "sequential",
    jobs: Annotated[
        int | None, typer.Option(help="How many rows at once; else as many as there are cores.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compute what is not finished yet; write one file for each row, table.md and results.json."""
    from rankscope.lab.experiments.catalogue import find_experiment
    from rankscope.lab.experiments.running import RunOptions, run_experiment
    from rankscope.workers import Workers

    experiment = find_experiment(name)
    options = RunOptions(
        data=data,
        seconds=None if minutes is None else 60.0 * minutes,
        only=tuple(only or ()),
        quick=quick,
        seeds=seeds,
        workers=Workers(backend, jobs),
    )
    with console.reporting(name) as report:
        run_experiment(experiment, output, options, report=report)
    _print_results(output, as_json=as_json)


@app.command("campaign")
def run_campaign(
    file: Annotated[Path, typer.Argument(help="TOML or JSON: experiments with their options.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder with a folder of results for each.")
    ],
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with the data; else RANKSCOPE_DATA names one, or several."),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Only say what is left, and how long it takes.")
    ] = False,
) -> None:
    """Compute the rows of many experiments at low priority; started again, it goes on.

    Started twice, it uses two cores.
    """
    from rankscope.lab.experiments.campaign import Campaign, read_campaign

    campaign = Campaign(read_campaign(file), output, data)
    standings = campaign.standings()
    for standing in standings:
        print(standing)
    print(_left(standings), flush=True)
    if show:
        return
    with console.reporting("campaign") as report:
        campaign.run(report=report, on_row=_print_row)


def _print_row(name: str, campaign: "Campaign") -> None:
    print(f"{name}; {_left(campaign.standings())}", flush=True)


def _left(standings: "Sequence[Standing]") -> str:
    # An experiment may be named twice, for some of its hours first: its rows are computed once.
    in_order = sorted(standings, key=lambda standing: standing.seconds_left)
    widest = {standing.folder: standing for standing in in_order}.values()
    rows = sum(standing.left for standing in widest)
    hours = sum(standing.seconds_left for standing in widest) / 3600
    exact = all(standing.is_measured for standing in widest if standing.left)
    return (
        f"{counted(rows, 'row')} left, {'about' if exact else 'at most'} {hours:.1f} h of one core"
    )


@app.command("show")
def show(
    what: Annotated[
        str, typer.Argument(metavar="NAME_OR_FOLDER", help="An experiment, or a folder of results.")
    ],
    as_json: Json = False,
) -> None:
    """Say what an experiment does; or print what is finished in a folder, and write its files."""
    from rankscope.lab.experiments.catalogue import EXPERIMENTS
    from rankscope.lab.experiments.running import is_results_folder

    if what in EXPERIMENTS and not is_results_folder(Path(what)):
        _print_description(what, as_json=as_json)
    else:
        _print_results(Path(what), as_json=as_json)


def _print_description(name: str, *, as_json: bool) -> None:
    from rankscope.lab.experiments.catalogue import find_experiment
    from rankscope.lab.experiments.claims import Claims

    experiment = find_experiment(name)
    if as_json:
        console.print_json(experiment.to_dict())
        return
    console.print_text(experiment.title)
    claims = experiment.claims or Claims("")
    for label, text in (
        ("", claims.question),
        ("Hypothesis: ", claims.hypothesis),
        ("", experiment.protocol),
        ("Stopping rule: ", experiment.stopping),
    ):
        if text:
            console.print_text(f"{label}{text}")
    console.print_text(f"needs: {experiment.needs or 'nothing'}")
    for entry in experiment.entries:
        print(entry.name)
    print(f"{len(experiment.runs())} rows, at most {experiment.seconds:g} s each")


def _print_results(folder: Path, *, as_json: bool) -> None:
    from rankscope.lab.experiments.running import TABLE, pack

    outcome = pack(folder)
    if as_json:
        console.print_json(outcome.to_dict())
        return
    for table in (outcome.shown_table, outcome.summary):
        if table is not None:
            console.print_text(table.title)
        if table is not None and table.rows:
            cells = [list(table.columns), *table.cells()]
            console.print_columns(cells, numbers=table.numeric_columns())
    _print_statements(outcome.statements)
    missing = outcome.num_runs - len(outcome.finished)
    if missing:
        print(f"{missing} of {outcome.num_runs} rows are not finished.")
    print(folder / TABLE)


def _print_statements(statements: "Sequence[Statement]") -> None:
    """What the rows say: comparisons as a table, then the facts."""
    from rankscope.lab.experiments.claims import Verdict
    from rankscope.lab.experiments.wording import capitalized

    compared = [
        (capitalized(one.subject), one.detail, one.judgement)
        for one in statements
        if one.is_comparison
    ]
    if compared:
        console.print_columns([("comparison", "result", "verdict"), *compared])
    for one in statements:
        if one.verdict is Verdict.FACT:
            console.print_text(capitalized(str(one)))
