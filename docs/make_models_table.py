"""Read every built-in network, every compressed one and forty models of other libraries.

`python docs/make_models_table.py [NAME …]` writes docs/models.md (some 40 minutes of processor
time; with names of models or sources, only their rows are measured again, and with `missing` those
that the page lacks). Needs the `dev` extra.
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
from rankscope.errors import DiagramError
from rankscope.reading.network import from_trace
from rankscope.reading.trace import trace

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "reading"))
import zoo  # type: ignore[import-not-found]  # noqa: E402 - a helper of the tests

PAGE = HERE / "models.md"
MOST_DIFFERENT = 1e-4
INTRODUCTION = """# Which models are read

Made by `python docs/make_models_table.py`: every network that comes with the package, what
`compress` makes of each at half of its parameters (at 80 % where half cannot be reached), and forty
models of torchvision, timm and transformers with random weights. Each is traced (`torch.export`),
read as a network of diagrams (`from_module`), drawn with one box for each child (depth 1) and
whole, priced (`cost`), and run again by `to_module`, whose outputs have the structure of the
model's. A row with these numbers has gone through all of it; otherwise the row says which part
refused, and why.

Seconds are processor time on one core of a shared machine; *read s* is our own share, without
torch.export. *Opaque* steps are no contractions (max pooling, sorting, comparisons of integers) and
run as the operator they are; *exact calls* only move numbers (slices, concatenations, padding),
are linear in them (interpolation) or are recurrences, whose equations stand in the picture. The
last column is the largest difference of any output, over the largest entry of it. Networks of the
package get two samples of the shape that their catalogue names.

"""
NAMES = {
    "rankscope": "built-in networks",
    "compressed": "compressed ones",
    "torchvision": "of torchvision",
    "timm": "of timm",
    "transformers": "of transformers",
}
HEADINGS = (
    "from",
    "model",
    "export s",
    "read s",
    "steps",
    "opaque",
    "exact calls",
    "draw depth 1 s",
    "draw whole s",
    "operations",
    "difference",
)


def everything() -> tuple[zoo.Model, ...]:
    """All rows, in the order of the page."""
    return (*zoo.built_in(), *zoo.compressed(), *zoo.models())


class Stages:
    """Where the time goes, and what was being done when something failed."""

    def __init__(self) -> None:
        self.name = "built"
        self.started = time.process_time()
        self.seconds: dict[str, float] = {}

    def begin(self, name: str) -> None:
        """End one stage and begin the next."""
        now = time.process_time()
        self.seconds[self.name] = now - self.started
        self.name, self.started = name, now


def measured(place: int) -> tuple[str, ...]:
    """Read, draw, price and run one model; the cells of its row, or why it failed."""
    torch.set_num_threads(1)
    given = everything()[place]
    stages = Stages()
    try:
        return (given.source, given.name, *_cells(given, stages))
    except Exception as error:  # noqa: BLE001 - a page that says what failed is better than none
        lines = str(error).strip().splitlines() or ["no reason given"]
        stage = "compressed" if stages.name + given.source == "builtcompressed" else stages.name
        reason = f"not {stage}: {type(error).__name__}: {lines[0]}".replace("|", "/")
        return (given.source, given.name, reason)


def _cells(given: zoo.Model, stages: Stages) -> tuple[str, ...]:
    module, example = given.build(), given.example
    stages.begin("exported")
    made = trace(module, example)
    stages.begin("read")
    arrays = module_arrays(module)
    network = from_trace(made, arrays)
    stages.begin("read at depth 1")
    outline = from_trace(made, arrays, depth=1)
    stages.begin("drawn at depth 1")
    _draw(outline)
    stages.begin("drawn whole")
    _draw(network)
    stages.begin("priced")
    operations = cost(network).flops
    stages.begin("run again")
    difference = _difference(module, network, example)
    if _difference(module, outline, example) > MOST_DIFFERENT:
        raise DiagramError("the network with boxes gives other outputs than the model")
    calls = [step.body for step in network.steps if isinstance(step.body, Call)]
    opaque = Counter(call.kind for call in calls if not call.is_exact)
    kinds = ", ".join(f"{kind} × {count}" for kind, count in opaque.items())
    return (
        f"{stages.seconds['exported']:.1f}",
        f"{stages.seconds['read']:.2f}",
        str(len(network.steps)),
        f"{opaque.total()} ({kinds})" if kinds else "0",
        str(len(calls) - opaque.total()),
        f"{stages.seconds['drawn at depth 1']:.1f}",
        f"{stages.seconds['drawn whole']:.1f}",
        f"{operations:,}",
        f"{difference:.0e}",
    )


def _draw(network: Network) -> None:
    with tempfile.TemporaryDirectory() as folder:
        draw(network, Path(folder) / "network.svg")


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
    read = Counter(
        row[0] for row in shown if len(row) == len(HEADINGS) and float(row[-1]) < MOST_DIFFERENT
    )
    counts = Counter(row[0] for row in shown)
    read_counts = ", ".join(
        f"{read[source]} of {count} {NAMES[source]}" for source, count in counts.items()
    )
    summary = f"\nRead and run again to 1e-4: {read_counts}.\n"
    missing = [f"{m.name} ({m.source})" for m in order if (m.source, m.name) not in rows]
    if missing:
        summary += f"\nNot measured yet: {', '.join(missing)}.\n"
    PAGE.write_text(INTRODUCTION + heading + "\n".join(lines) + "\n" + summary)


def main() -> None:
    """Measure all models, or those that are named, and write their rows."""
    order = everything()
    wanted = set(sys.argv[1:])
    rows = written()
    places = [
        n
        for n, given in enumerate(order)
        if not wanted
        or wanted & {given.name, given.source}
        or ("missing" in wanted and (given.source, given.name) not in rows)
    ]
    with ProcessPoolExecutor(2, get_context("spawn")) as workers:
        for row in workers.map(measured, places):
            print(" | ".join(row), flush=True)
            rows[(row[0], row[1])] = row
            write(rows, order)


if __name__ == "__main__":
    main()
