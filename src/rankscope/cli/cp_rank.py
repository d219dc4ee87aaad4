"""`rankscope cp-rank`: how many outer products add up to a tensor in a file."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope.cli import console
from rankscope.cli.options import Json
from rankscope.errors import RequestError
from rankscope.files import require_writable
from rankscope.progress import Progress, Report

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from rankscope.factorize.cp_fit import CPFit

_LARGEST = 2**22  # entries; fits of larger tensors take hours


def run(
    file: Annotated[Path, typer.Argument(help="A .npy, .npz, .safetensors or .pt file.")],
    name: Annotated[
        str | None, typer.Option(help="Which tensor, if the file holds several.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Draw the rank-error curve: .svg .pdf .png"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Enclose the CP rank of a tensor: proved from below, found from above."""
    if output is not None:
        require_writable(output)
    from rankscope.factorize.error_curve import cp_error_curve, draw_error_curve
    from rankscope.factorize.rank_interval import cp_rank

    tensor = _read(file, name)
    with console.reporting("cp-rank") as report:
        after_start = _starts_counted(report)
        interval = cp_rank(tensor, report=after_start)
        record = interval.to_dict()
        if output is not None:
            curve = cp_error_curve(tensor, interval, report=after_start)
            draw_error_curve(curve, output)
            record = {**curve.to_dict(), "output": str(output)}
    if as_json:
        shape = list(tensor.shape)
        console.print_json({"file": str(file), "name": name, "shape": shape, **record})
        return
    print(interval)
    if output is not None:
        print(output)


def _starts_counted(report: Report) -> "Callable[[CPFit], None]":
    """A callback of fits that says how many starts a number of components has had."""
    from rankscope.factorize.cp_fit import DEFAULT_FIT

    done: Counter[int] = Counter()

    def after_start(fit: "CPFit") -> None:
        size = fit.num_components
        done[size] += 1
        what = f"{size} components, relative error {fit.relative_error:.1e}"
        report(Progress(what, done[size], max(done[size], DEFAULT_FIT.num_restarts + 1)))

    return after_start


def _read(file: Path, name: str | None) -> "Tensor":
    from rankscope.tensor_files.opening import open_tensors

    source = open_tensors(file, may_be_bare=True)
    entries = {entry.name: entry for entry in source.entries}
    if name is None and len(entries) == 1:
        name = next(iter(entries))
    if name is None or name not in entries:
        shown = ", ".join(list(entries)[:10]) + (", …" if len(entries) > 10 else "")
        wanted = "choose one with --name" if name is None else f"there is no {name!r}"
        raise RequestError(
            f"cp-rank: {str(file)!r} holds {len(entries)} tensors ({shown}): {wanted}."
        )
    size = 1
    for extent in entries[name].shape:
        size *= extent
    if size > _LARGEST:
        raise RequestError(
            f"cp-rank: the tensor has {size:,} entries; {_LARGEST:,} are fitted at most."
        )
    tensor: Tensor = source.read(name)
    return tensor
