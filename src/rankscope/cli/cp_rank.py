"""`rankscope cp-rank`: how many outer products add up to a tensor in a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope.cli import console
from rankscope.cli.options import Json
from rankscope.errors import RequestError
from rankscope.files import require_writable

if TYPE_CHECKING:
    from torch import Tensor

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
    interval = cp_rank(tensor)
    record = interval.to_dict()
    if output is not None:
        curve = cp_error_curve(tensor, interval)
        draw_error_curve(curve, output)
        record = {**curve.to_dict(), "output": str(output)}
    if as_json:
        shape = list(tensor.shape)
        console.print_json({"file": str(file), "name": name, "shape": shape, **record})
        return
    print(interval)
    if output is not None:
        print(output)


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
