"""Measure the tables of docs/token_mixers.md: `python docs/make_token_mixer_tables.py`.

Every number is the rank of a square matrix of values at random weights modulo 16777213, grown until
the rank is smaller than the matrix. It is a lower bound for almost all weights; bold where it meets
a proved upper bound, so that it is exact. Samples stop at `LARGEST` points: ">=" marks those cells.
`--large` measures the large rows again; without it they are kept from the page as it is.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy

from rankscope.rank import Partition, rank_modulo
from rankscope.rank.networks.network import PolynomialNetwork
from rankscope.rank.networks.polynomial_transformer import PolynomialTransformer
from rankscope.rank.networks.recurrence import Kind, Recurrence

PAGE = Path(__file__).parent / "token_mixers.md"
PRIME = 16777213
LARGEST = 8192
LARGE = 16_500  # points of the large rows, above all their bounds


@dataclass(frozen=True)
class Row:
    """A network of the tables, by its name there."""

    name: str
    network: PolynomialNetwork

    @property
    def parameters(self) -> int:
        """Parameters of one layer."""
        layers = self.network.get_submodule("layers.0")
        return sum(parameter.numel() for parameter in layers.parameters())

    @property
    def memory(self) -> str:
        """Numbers a layer keeps: for each token of attention, in all of a recurrence."""
        if isinstance(self.network, PolynomialTransformer):
            shape = self.network.shape
            return f"{shape.latent or 2 * shape.num_kv_heads * shape.head_size} / token"
        assert isinstance(self.network, Recurrence)
        state = self.network.shape
        rows = state.head_size if state.kind.has_matrix_state else 1
        return f"{state.heads * rows * state.state} in all"


def transformer(name: str, tokens: int, **options: int | bool) -> Row:
    """A transformer of two layers unless told otherwise."""
    chosen = {"depth": 2, "num_tokens": tokens, **options}
    return Row(name, PolynomialTransformer(**chosen))  # type: ignore[arg-type]


def recurrence(kind: Kind, tokens: int, **options: int | bool) -> Row:
    """A recurrence of two layers unless told otherwise."""
    names = {Kind.DECAY: "linear attention, decay", Kind.DIAGONAL: "state space, diagonal",
             Kind.DENSE: "state space, dense", Kind.SELECTIVE: "selective state space",
             Kind.DELTA: "delta rule"}  # fmt: skip
    chosen = {"kind": str(kind), "depth": 2, "num_tokens": tokens, **options}
    return Row(names[kind], Recurrence(**chosen))  # type: ignore[arg-type]


def splits(order: int) -> list[Partition]:
    """Interleaved, past against future, all but the last token against the last."""
    recent = Partition.of(range(order - 1), order=order)
    return [Partition.interleaved(order), Partition.left_right(order), recent]


def rank_cell(network: PolynomialNetwork, partition: Partition, largest: int = LARGEST) -> str:
    """The rank, bold where it meets the bound, else with the bound behind it."""
    function, size = network.split(partition, seed=0, prime=PRIME), 64
    upper = network.upper_bound(partition)
    bound = None if upper is None else upper.value
    while True:
        points = numpy.arange(size)
        rank = rank_modulo(function.values(points, points), PRIME)
        if rank < size:
            break
        if size >= largest:
            return f">= {rank:,} (<= {upper.magnitude})" if upper else f">= {rank:,}"
        size = min(2 * size, largest)
    return f"**{rank:,}**" if rank == bound else f"{rank:,} (<= {bound:,})"


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Markdown lines, the first column to the left."""
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def rank_table(rows: list[Row]) -> list[str]:
    """Ranks over the three splits, with what a layer costs."""
    header = ["two layers", "parameters / layer", "keeps", "interleaved", "left-right", "recent"]
    lines = []
    for row in rows:
        cells = [rank_cell(row.network, p) for p in splits(row.network.num_positions)]
        lines.append([row.name, str(row.parameters), row.memory, *cells])
        print(lines[-1], flush=True)
    return table(header, lines)


def equal_width() -> list[str]:
    """Width 4, six tokens, all with a mask but the first."""
    tokens, width = 6, 4
    causal = {"width": width, "is_causal": True}
    rows = [
        transformer("multi-head, 2 heads, no mask", tokens, width=width, heads=2),
        transformer("one head of size 4", tokens, **causal),
        transformer("multi-head, 2 heads of size 2", tokens, **causal, heads=2),
        transformer("multi-head, 4 heads of size 1", tokens, **causal, heads=4),
        transformer("grouped, 4 heads, 2 groups", tokens, **causal, heads=4, num_kv_heads=2),
        transformer("multi-query, 4 heads", tokens, **causal, heads=4, num_kv_heads=1),
        transformer("multi-query, 2 heads", tokens, **causal, heads=2, num_kv_heads=1),
        *(transformer(f"latent {c}, 2 heads", tokens, **causal, heads=2, latent=c)
          for c in (1, 2, 3)),
        *(recurrence(kind, tokens, width=width, state=4) for kind in Kind),
    ]  # fmt: skip
    return rank_table(rows)


def equal_parameters() -> list[str]:
    """About 64 parameters in a layer, width 4, six tokens, a mask."""
    tokens, width = 6, 4
    causal = {"width": width, "is_causal": True}
    grouped = {"heads": 6, "head_size": 1, "num_kv_heads": 2}
    shared = {"heads": 3, "head_size": 2, "num_kv_heads": 1}
    states = {Kind.DECAY: 4, Kind.DIAGONAL: 5, Kind.DENSE: 4, Kind.SELECTIVE: 2, Kind.DELTA: 4}
    rows = [
        transformer("multi-head, 2 heads of size 2", tokens, **causal, heads=2),
        transformer("grouped, 6 heads of size 1, 2 groups", tokens, **causal, **grouped),
        transformer("multi-query, 3 heads of size 2", tokens, **causal, **shared),
        transformer("latent 3, 2 heads of size 2", tokens, **causal, heads=2, latent=3),
        *(recurrence(kind, tokens, width=width, state=state) for kind, state in states.items()),
    ]
    return rank_table(rows)


def equal_cache() -> list[str]:
    """Two numbers kept for each of six tokens, or twelve in all, width 4."""
    tokens, width = 6, 4
    causal = {"width": width, "is_causal": True}
    states = {Kind.DECAY: 3, Kind.DIAGONAL: 12, Kind.DENSE: 12, Kind.DELTA: 3}
    rows = [
        transformer("one head of size 1", tokens, **causal, head_size=1),
        transformer("multi-query, 4 heads of size 1", tokens, **causal, heads=4, num_kv_heads=1),
        transformer("latent 2, 4 heads of size 1", tokens, **causal, heads=4, latent=2),
        transformer("latent 2, 2 heads of size 2", tokens, **causal, heads=2, latent=2),
        transformer("latent 2, 1 head of size 4", tokens, **causal, latent=2),
        *(recurrence(kind, tokens, width=width, state=state) for kind, state in states.items()),
    ]
    return rank_table(rows)


def what_options_add() -> list[str]:
    """One head of size 2 and two of size 1, width 2, four tokens."""
    tokens, rows = 4, []
    plain: dict[str, int | bool] = {"width": 2}
    turned: dict[str, int | bool] = {"has_rotary": True}
    residual: dict[str, int | bool] = {"has_residual": True}
    causal: dict[str, int | bool] = {"is_causal": True}
    options: list[tuple[str, dict[str, int | bool]]] = [
        ("plain", {}), ("residual", residual), ("positions", {"has_positions": True}),
        ("rotary", turned), ("mask", causal), ("mask, residual", causal | residual),
        ("mask, rotary", causal | turned), ("mask, rotary, residual", causal | turned | residual),
        ("gate of 2", {"gated": 2}), ("mask, gate of 2", causal | {"gated": 2}),
    ]  # fmt: skip
    for name, chosen in options:
        for depth in (1, 2):
            row = transformer(f"{name}, depth {depth}", tokens, **plain, **chosen, depth=depth)
            largest = 4096 if "gate" in name else LARGEST
            cells = [rank_cell(row.network, p, largest) for p in splits(tokens)]
            rows.append([row.name, *cells])
            print(rows[-1], flush=True)
    return table(["width 2, one head, four tokens", "interleaved", "left-right", "recent"], rows)


def growth() -> list[str]:
    """One layer over longer sequences, interleaved."""
    lengths, rows = (4, 6, 8, 10), []
    for width in (2, 3):
        networks = [
            (f"attention with a mask, width {width}",
             [transformer("", n, width=width, depth=1, is_causal=True) for n in lengths]),
            *((f"{kind}, width {width}, state {width}",
               [recurrence(kind, n, width=width, depth=1) for n in lengths])
              for kind in (Kind.DECAY, Kind.DENSE, Kind.SELECTIVE, Kind.DELTA)),
        ]  # fmt: skip
        for name, each in networks:
            cells = [rank_cell(one.network, splits(one.network.num_positions)[0]) for one in each]
            rows.append([name, *cells])
            print(rows[-1], flush=True)
    return table(["one layer, interleaved", *(f"N = {n}" for n in lengths)], rows)


def large() -> list[str]:
    """Ranks of some thousands."""
    rows = []
    for row in (
        transformer("mask, width 6, 2 heads, 12 tokens", 12, width=6, heads=2, is_causal=True),
        transformer("mask, width 8, 2 heads, 10 tokens", 10, width=8, heads=2, is_causal=True),
        transformer("the same, multi-query", 10, width=8, heads=2, num_kv_heads=1, is_causal=True),
    ):
        start = time.perf_counter()
        cell = rank_cell(row.network, splits(row.network.num_positions)[0], LARGE)
        rows.append([row.name, cell, f"{time.perf_counter() - start:.0f} s"])
        print(rows[-1], flush=True)
    return table(["two layers, interleaved", "rank", "time"], rows)


TABLES = {
    "equal-width": equal_width,
    "equal-parameters": equal_parameters,
    "equal-cache": equal_cache,
    "options": what_options_add,
    "growth": growth,
}


def main() -> None:
    """Replace every table of the page between its marks."""
    page = PAGE.read_text(encoding="utf-8")
    tables = TABLES | ({"large": large} if "--large" in sys.argv else {})
    for name, make in tables.items():
        start, stop = f"<!-- table {name} -->", f"<!-- end {name} -->"
        lines = "\n".join(make())
        before, after = page.split(start)[0], page.split(stop)[1]
        page = f"{before}{start}\n{lines}\n{stop}{after}"
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
