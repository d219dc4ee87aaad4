"""Read every built-in network and forty models of other libraries, and write docs/models.md.

`python docs/make_models_table.py [NAME …]` (some 20 minutes of processor time; with names of models
or libraries, only their rows are measured again). Needs the `dev` extra.
"""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from rankscope.diagrams.cost import cost
from rankscope.diagrams.module import module_arrays, to_module
from rankscope.diagrams.network import Call, Network
from rankscope.drawing.drawing import draw
from rankscope.reading.network import from_trace
from rankscope.reading.trace import trace

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "reading"))
import zoo  # type: ignore[import-not-found]  # noqa: E402 - a helper of the tests

PAGE = HERE / "models.md"
INTRODUCTION = """# Which models are read

Made by `python docs/make_models_table.py`: every network that comes with the package, and forty
models of torchvision, timm and transformers with random weights. Each is traced (`torch.export`),
read as a network of diagrams (`from_module`), drawn with one box for each child (depth 1) and
whole, priced (`cost`), and run again by `to_module`, whose outputs have the structure of the
model's.

Seconds are processor time on one core of a shared machine. *Opaque* steps are no contractions (max
pooling, sorting, comparisons of integers) and run as the operator they are; *moves* only move
numbers or are linear in them (slices, concatenations, padding). The last column is the largest
difference of any output, over the largest entry of it.

"""
HEADINGS = (
    "from",
    "model",
    "export s",
    "read s",
    "steps",
    "opaque",
    "moves",
    "draw depth 1 s",
    "draw whole s",
    "operations",
    "difference",
)


def measured(place: int) -> tuple[str, ...]:
    """Read, draw, price and run one model; the cells of its row, or why it failed."""
    torch.set_num_threads(1)
    given = (*zoo.built_in(), *zoo.models())[place]
    try:
        return (given.source, given.name, *_cells(given.build(), given.example))
    except Exception as error:  # noqa: BLE001 - a page that says what failed is better than none
        lines = str(error).strip().splitlines() or ["no reason given"]
        return (given.source, given.name, f"{type(error).__name__}: {lines[0]}".replace("|", "/"))


def _cells(module: nn.Module, example: Any) -> tuple[str, ...]:
    started = time.process_time()
    made = trace(module, example)
    exported = time.process_time()
    arrays = module_arrays(module)
    network = from_trace(made, arrays)
    read = time.process_time()
    outline = from_trace(made, arrays, depth=1)
    drawn = [_seconds_to_draw(outline), _seconds_to_draw(network)]
    difference = _difference(module, network, example)
    assert _difference(module, outline, example) < 1e-3
    opaque: Counter[str] = Counter()
    moves = 0
    for step in network.steps:
        if isinstance(step.body, Call):
            moves += step.body.is_exact
            opaque.update([step.body.kind] if not step.body.is_exact else [])
    kinds = ", ".join(f"{kind} × {count}" for kind, count in opaque.items())
    return (
        f"{exported - started:.1f}",
        f"{read - exported:.2f}",
        str(len(network.steps)),
        f"{opaque.total()} ({kinds})" if kinds else "0",
        str(moves),
        f"{drawn[0]:.1f}",
        f"{drawn[1]:.1f}",
        f"{cost(network).flops:,}",
        f"{difference:.0e}",
    )


def _seconds_to_draw(network: Network) -> float:
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        draw(network, Path(folder) / "network.svg")
        return time.process_time() - started


def _difference(module: nn.Module, network: Network, example: Any) -> float:
    """Largest difference of any output, over its largest entry; infinite if structures differ."""
    arguments = (example,) if isinstance(example, Tensor) else ()
    options = example if isinstance(example, dict) else {}
    with torch.no_grad():
        wanted = module(*arguments, **options)
        given = to_module(network, module_arrays(module))(*arguments, **options)
    if type(wanted) is not type(given):
        return float("inf")
    pairs = zip(tree_leaves(wanted), tree_leaves(given), strict=True)
    return max(
        float((first - second).abs().max() / first.abs().max().clamp(min=1e-30))
        for first, second in pairs
        if isinstance(first, Tensor)
    )


def written() -> dict[tuple[str, str], tuple[str, ...]]:
    """The rows that the page has, by library and model."""
    lines = PAGE.read_text().splitlines() if PAGE.exists() else []
    cells = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    return {(row[0], row[1]): row for row in cells if len(row) > 2 and row[0] != "from"}


def write(rows: Mapping[tuple[str, str], tuple[str, ...]], order: Sequence[zoo.Model]) -> None:
    """Write the page: the rows in order, and how many models are read."""
    heading = f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}\n"
    shown = [rows[key] for key in ((m.source, m.name) for m in order) if key in rows]
    lines = [f"| {' | '.join(row)} |" for row in shown]
    read = Counter(row[0] for row in shown if len(row) == len(HEADINGS) and float(row[-1]) < 1e-4)
    counts = Counter(row[0] for row in shown)
    read_counts = ", ".join(
        f"{read[source]} of {count} of {source}" for source, count in counts.items()
    )
    summary = f"\nRead and run again to 1e-4: {read_counts}.\n"
    PAGE.write_text(INTRODUCTION + heading + "\n".join(lines) + "\n" + summary)


def main() -> None:
    """Measure all models, or those that are named, and write their rows."""
    everything = (*zoo.built_in(), *zoo.models())
    wanted = sys.argv[1:]
    places = [
        n
        for n, given in enumerate(everything)
        if not wanted or given.name in wanted or given.source in wanted
    ]
    rows = written()
    with ProcessPoolExecutor(2, get_context("spawn")) as workers:
        for row in workers.map(measured, places):
            print(" | ".join(row), flush=True)
            rows[(row[0], row[1])] = row
            write(rows, everything)


if __name__ == "__main__":
    main()
