"""`rankscope verify`: check a certificate without trusting whoever made it."""

from pathlib import Path
from typing import Annotated

import typer

from rankscope.cli import console
from rankscope.cli.options import Json


def run(
    file: Annotated[Path, typer.Argument(help="A certificate.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Recompute what a certificate claims: PROVED with its soundness (exit 0) or FAILED (1)."""
    from rankscope.rank.certificate_file import read_certificate
    from rankscope.rank.verification import verify

    certificate = read_certificate(file)
    with console.reporting(f"verifying {file.name}") as report:
        verdict = verify(certificate, report=report)
    if as_json:
        console.print_json(verdict.to_dict())
    else:
        print(verdict)
    if not verdict.is_proved:
        raise typer.Exit(1)
