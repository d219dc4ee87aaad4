"""The `rankscope` command.

Exit codes: 0 done, 2 the request is wrong, 1 it failed, 130 interrupted, 141 whoever read the
output has gone. Errors are one line on standard error; `--debug` adds the traceback. With `--json`,
standard output is one document, also on errors.
"""

import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib.metadata import version
from types import FrameType
from typing import Annotated, Any

import typer
import typer.main

from rankscope.cli import (
    audit,
    bounds,
    certify,
    code,
    compress,
    console,
    cost,
    cp_rank,
    cut,
    diff,
    draw,
    entanglement,
    evaluate,
    experiment,
    explain,
    families,
    generalization,
    models,
    open,
    plan,
    rank,
    sparsify,
    verify,
)
from rankscope.cli.options import Command, Group
from rankscope.errors import RankscopeError

INTERRUPTED = 130  # what typer makes of Ctrl-C
NOBODY_READS = 141  # what a shell calls a program that wrote into a closed pipe

app = typer.Typer(
    name="rankscope",
    cls=Group,
    help="Measure and draw neural networks as tensor networks.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS: dict[str, Callable[..., None]] = {
    "open": open.run,
    "audit": audit.run,
    "plan": plan.run,
    "compress": compress.run,
    "evaluate": evaluate.run,
    "diff": diff.run,
    "certify": certify.run,
    "generalization": generalization.run,
    "rank": rank.run,
    "bounds": bounds.run,
    "verify": verify.run,
    "sparsify": sparsify.run,
    "entanglement": entanglement.run,
    "cp-rank": cp_rank.run,
    "draw": draw.run,
    "cost": cost.run,
    "cut": cut.run,
    "code": code.run,
    "models": models.run,
    "families": families.run,
    "explain": explain.run,
}
for _name, _run in COMMANDS.items():
    app.command(_name, cls=Command)(_run)
for _registered in experiment.app.registered_commands:
    _registered.cls = Command
app.add_typer(experiment.app, name="experiment", cls=Group)


def _print_version(is_wanted: bool) -> bool:
    if is_wanted:
        print(f"rankscope {version('rankscope')}")
        raise typer.Exit
    return is_wanted


@app.callback()
def options(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Compute the rank between two groups of inputs or weights; audit, compress and certify."""
    del show_version, debug  # the first has printed; main reads the second, wherever it stands


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # A character that no font has shows as a box, which is all that there is to say about it.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    # What is odd about a configuration is a finding, and not a line in between.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    is_debugging = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"] or ["--help"]
    try:
        with _interrupts_outside_of_callbacks():
            result = _run_application(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        console.discard_output()
        return NOBODY_READS
    except KeyboardInterrupt:
        result = INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost edge: one line, an exit code
        if is_debugging:
            traceback.print_exc()
        return _report(error, as_json="--json" in arguments)
    if result == INTERRUPTED:
        kept = "--checkpoint" in arguments or arguments[:2] == ["experiment", "run"]
        console.print_error(
            "interrupted" + ("; the same command goes on from its checkpoint." * kept)
        )
    return result if isinstance(result, int) else 0


@contextmanager
def _interrupts_outside_of_callbacks() -> Iterator[None]:
    """Let Ctrl-C wait while LLVM calls back or an object dies: what is raised there is lost."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler or (
        threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_name in _CALLED_BACK:
            threading.Timer(0.05, os.kill, (os.getpid(), number)).start()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


_CALLED_BACK = ("__del__", "_raw_object_cache_notify", "_raw_object_cache_getbuffer")  # of llvmlite


@cache
def _command() -> Any:
    """All commands, put together once for a process."""
    return typer.main.get_command(app)


def _run_application(arguments: list[str]) -> object:
    # Help is coloured, and says nothing that a stranger wrote.
    inert = nullcontext() if {"--help", "-h"} & {*arguments} else console.inert_output()
    with inert:
        try:
            return _command().main(args=arguments, prog_name="rankscope", standalone_mode=False)
        except SystemExit as ended:
            # What the library of commands makes of a closed pipe.
            if isinstance(ended.__context__, BrokenPipeError):
                raise ended.__context__ from None
            raise


def _report(error: Exception, *, as_json: bool) -> int:
    message, exit_code = _explain(error)
    console.print_error(message)
    if as_json:
        console.print_json({"error": " ".join(message.split())})
    return exit_code


def _explain(error: Exception) -> tuple[str, int]:
    # Typer raises its own errors for unknown options and the like; they say what to try.
    describe = getattr(error, "format_message", None)
    if isinstance(error, RankscopeError):
        return str(error), error.exit_code
    if callable(describe):
        return f"{str(describe()).rstrip('.')}. See rankscope --help.", 2
    return f"{type(error).__name__}: {error} (run again with --debug for the traceback)", 1
