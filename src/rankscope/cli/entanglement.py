"""`rankscope entanglement`: how entangled a data set is, and a less entangled order of features."""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope.budget import require_within
from rankscope.cli import console
from rankscope.cli.options import Json
from rankscope.errors import RequestError
from rankscope.files import require_writable, write_atomically

if TYPE_CHECKING:
    from rankscope.rank.entanglement import DataTable, Order


def run(
    file: Annotated[
        Path,
        typer.Argument(
            help=".csv, .npy, .npz, an idx file or a CIFAR-10 batch: samples with features.",
            show_default=False,
        ),
    ],
    label: Annotated[
        str | None,
        typer.Option(help="Column of the labels: a name, or a number from 0 (-1 is the last)."),
    ] = None,
    samples: Annotated[
        int, typer.Option(min=2, help="Samples that are used, drawn at random.")
    ] = 400,
    levels: Annotated[int, typer.Option(min=1, help="How often blocks are halved.")] = 6,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write the order and the reordered data (.npz)."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Draws the samples.")] = 0,
    as_json: Json = False,
) -> None:
    """Entropy of each block of features against the others, as they stand and in a better order."""
    if output is not None:
        if output.suffix != ".npz":
            raise RequestError(f"-o writes .npz, got {str(output)!r}.")
        require_writable(output)
    from rankscope.networks.tables import read_table
    from rankscope.rank.entanglement import (
        MOST_SAMPLES,
        canonical_splits,
        local_order,
        mean_entropies,
    )

    require_within("entanglement", "--samples", samples, MOST_SAMPLES)
    table = read_table(file, label=label)
    used = table.head(samples, seed=seed)
    order = local_order(used.features)
    with console.reporting("entanglement") as report:
        before = canonical_splits(used, levels=levels, report=report)
        after = canonical_splits(used.reordered(order), levels=levels, report=report)
    if output is not None:
        _write(output, table, order)
    means = [mean_entropies(splits) for splits in (before, after)]
    if as_json:
        console.print_json(
            {
                "file": str(file),
                "samples": len(table.features),
                "used": len(used.features),
                "features": table.features.shape[1],
                "classes": None if table.labels is None else int(table.labels.max()) + 1,
                "mean_entropy": [{str(k): v for k, v in one.items()} for one in means],
                "splits": [one.to_dict() for one in before],
                "reordered": [one.to_dict() for one in after],
                "order": list(order),
                "output": None if output is None else str(output),
            }
        )
        return
    _print(table, len(used.features), means)
    if output is not None:
        print(output)


def _write(path: Path, table: "DataTable", order: "Order") -> None:
    import numpy

    memory, features = io.BytesIO(), table.features[:, list(order)]
    if table.labels is None:
        numpy.savez(memory, order=numpy.array(order), features=features)
    else:
        numpy.savez(memory, order=numpy.array(order), features=features, labels=table.labels)
    write_atomically(path, memory.getvalue())


def _print(table: "DataTable", used: int, means: Sequence[Mapping[int, float]]) -> None:
    count, features = table.features.shape
    labels = "no labels" if table.labels is None else f"{int(table.labels.max()) + 1} classes"
    print(f"{used:,} of {count:,} samples, {features:,} features, {labels}")
    rows = [("blocks of", "as they stand", "reordered", "effective rank", "reordered")]
    for level, entropy in means[0].items():
        size = max(1, round(features / 2**level))
        other = means[1][level]
        first, second = (f"{math.exp(one):.2f}" for one in (entropy, other))
        rows.append((f"{size}", f"{entropy:.4f}", f"{other:.4f}", first, second))
    console.print_columns(rows, numbers=range(5))
    print("mean entropy (nats) between a block and all other features, on the samples used")
