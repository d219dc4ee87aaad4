"""`rankscope code`: the same diagram as Python that runs, or as an einsum program."""

from pathlib import Path
from typing import Annotated

import typer

from rankscope.cli.options import Inputs, Parameters, Settings, Sizes, What, opened_for


def run(
    what: What,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write to a file.")] = None,
    settings: Settings = None,
    sizes: Sizes = None,
    inputs: Inputs = None,
    parameters: Parameters = None,
    einsum: Annotated[bool, typer.Option("--einsum", help="Only the einsum program.")] = False,
) -> None:
    """Print a PyTorch module (or, with --einsum, the einsum program) that equals the picture."""
    from rankscope.diagrams.program import einsum_program
    from rankscope.diagrams.source import to_source
    from rankscope.files import require_writable, write_atomically

    if output is not None:
        require_writable(output)
    drawable = opened_for("code", what, settings, sizes, inputs, parameters).diagram
    text = str(einsum_program(drawable)) if einsum else to_source(drawable)
    if output is None:
        print(text.rstrip("\n"))
    else:
        write_atomically(output, (text.rstrip("\n") + "\n").encode())
        print(output)
