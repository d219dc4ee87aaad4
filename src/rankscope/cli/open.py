"""`rankscope open`: a model in the browser, on this machine only."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from rankscope.errors import RequestError

PORT = 8642


def run(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A folder or config.json (Hugging Face style), .safetensors, .pt, "
            "package.module:factory, or a built-in network; nothing for the embedded transformer.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="Port of 127.0.0.1; 0 for any that is free.")] = PORT,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="The only folder that is written to."),
    ] = Path("rankscope-output"),
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address.")
    ] = False,
) -> None:
    """Look at a model in the browser: ranks, a plan under a slider, diagrams, splits."""
    from rankscope.files import require_writable
    from rankscope.page.server import address, bound_socket, make_app, serve
    from rankscope.page.session import Session

    if not 0 <= port < 2**16:
        raise RequestError(f"--port is a number from 0 to 65535, got {port}.")
    require_writable(output, is_folder=True)
    session = Session(model, output)
    make_app(session, port)  # refuses here what is not installed
    with bound_socket(port) as listening:
        where = address(session, listening)
        print(where, flush=True)
        if not no_browser:
            webbrowser.open(where)
        serve(session, listening)
