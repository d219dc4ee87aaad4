"""`rankscope verify`: check a certificate without trusting whoever made it."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from rankscope.cli import console
from rankscope.cli.options import Json

# An estimate below this is not worth a line.
_LONG_SECONDS = 10


def run(
    file: Annotated[Path, typer.Argument(help="A certificate.", show_default=False)],
    slow: Annotated[
        bool,
        typer.Option(
            "--slow", help="Take every value by the defining equations, however many there are."
        ),
    ] = False,
    max_seconds: Annotated[
        float,
        typer.Option(help="Refuse what is estimated to take longer, and give up after this time."),
    ] = 3600.0,
    jobs: Annotated[int | None, typer.Option(help="Workers (all cores).")] = None,
    as_json: Json = False,
) -> None:
    """Recompute what a certificate claims: PROVED with its soundness (exit 0) or FAILED (1)."""
    from rankscope.rank.certificate_file import read_certificate
    from rankscope.rank.verification import MAX_DEFINED, estimate_verification, verify
    from rankscope.workers import Workers

    certificate = read_certificate(file)
    workers, max_defined = Workers(jobs=jobs), None if slow else MAX_DEFINED
    estimate = estimate_verification(certificate, max_defined=max_defined, workers=workers)
    if estimate.seconds > _LONG_SECONDS or estimate.fast:
        print(f"rankscope: {estimate}", file=sys.stderr)
    with console.reporting(f"verifying {file.name}") as report:
        verdict = verify(
            certificate, report, max_defined=max_defined, max_seconds=max_seconds, workers=workers
        )
    if as_json:
        console.print_json(verdict.to_dict())
    else:
        console.print_text(str(verdict))
    if not verdict.is_proved:
        raise typer.Exit(1)
