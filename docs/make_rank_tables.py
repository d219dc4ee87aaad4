"""Measure the tables of docs/separation_rank.md and certify their largest entries: `make tables`.

`--crown` also measures and certifies depth 3, width 4 again (some 15 minutes on two cores); its
row is taken from its certificate otherwise. Names of tables choose some of them:
`python docs/make_rank_tables.py zeros`.
"""

import itertools
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy

from rankscope.rank import (
    AttentionSizes,
    Partition,
    counting_upper_bound,
    quadric_lower_bound,
    rank_modulo,
)
from rankscope.rank.bounds.attention import (
    heads_terms,
    published_lower_bound,
    published_upper_bound,
)
from rankscope.rank.bounds.common_zeros import zeros_terms, zeros_upper_bound
from rankscope.rank.certificate_file import read_certificate, write_certificate
from rankscope.rank.measured import MeasuredRank
from rankscope.rank.measuring import measure_rank
from rankscope.rank.networks.convolutional import ConvolutionalCircuit
from rankscope.rank.networks.network import PolynomialNetwork
from rankscope.rank.networks.products import ProductNetwork
from rankscope.rank.networks.recurrent import RecurrentCircuit
from rankscope.rank.networks.self_attention import SelfAttention
from rankscope.rank.networks.tensor_train import TensorTrain
from rankscope.rank.verification import certify_rank, verify
from rankscope.theorem import Bound

HERE = Path(__file__).parent
PAGE = HERE / "separation_rank.md"
CERTIFICATES = HERE / "certificates"
PRIME = 16777213
CROWN = "attention-depth-3-width-4"


def measured_cell(measured: MeasuredRank) -> str:
    """The rank, with a mark where no theorem closes it from above."""
    return f"**{measured.lower:,}**" if measured.is_exact else f"{measured.lower:,} *"


def bound_cell(bound: Bound | None) -> str:
    """A bound, or a dash where no theorem applies."""
    return "-" if bound is None else str(bound.magnitude)


def rows_to_table(header: str, rows: list[list[str]]) -> list[str]:
    """Markdown lines, numbers to the right."""
    titles = [title.strip() for title in header.split("|")]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---:|" * len(titles)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def crown() -> None:
    """Measure and certify the largest network of the page."""
    network = SelfAttention(depth=3, width=4)
    partition = Partition.interleaved(network.num_positions)
    certificate = certify_rank(network, partition, measure(network))
    write_certificate(CERTIFICATES / f"{CROWN}.json", certificate)


def depth_table() -> list[str]:
    """One head, tokens on both sides at least as many as the width."""
    rows = []
    shapes = [(1, d) for d in range(1, 7)] + [(2, d) for d in range(1, 9)]
    shapes += [(3, 1), (3, 2), (3, 3), (4, 1), (4, 2), (5, 1)]
    for depth, width in shapes:
        network = SelfAttention(depth=depth, width=width)
        measured = measure(network)
        sizes = AttentionSizes(depth, width)
        lower = None if depth < 2 or width < 2 else quadric_lower_bound(sizes)
        rows.append(
            [
                str(depth),
                str(width),
                measured_cell(measured),
                bound_cell(counting_upper_bound(sizes)),
                bound_cell(lower),
                bound_cell(published_lower_bound(sizes)),
                bound_cell(published_upper_bound(sizes)),
            ]
        )
    rows.append(crown_row())
    header = "depth | width | measured | our count | our lower | published lower | published upper"
    return rows_to_table(header, rows)


def crown_row() -> list[str]:
    """Depth 3, width 4, from its certificate; the page says how it was measured."""
    sizes = AttentionSizes(3, 4)
    certified = read_certificate(CERTIFICATES / f"{CROWN}.json").lower
    bounds = [
        counting_upper_bound(sizes),
        quadric_lower_bound(sizes),
        published_lower_bound(sizes),
        published_upper_bound(sizes),
    ]
    is_exact = certified == zeros_upper_bound(sizes).value
    return [
        "3",
        "4",
        f"**{certified:,}**" if is_exact else f"{certified:,} *",
        *map(bound_cell, bounds),
    ]


def zeros_table() -> list[str]:
    """Every part that stays below its count, for one head and few tokens on the two sides."""
    rows = []
    for depth, width in ((2, 2), (2, 3), (2, 4), (2, 5), (3, 2), (3, 3)):
        for own, other in itertools.product(range(1, width + 1), repeat=2):
            network = SelfAttention(depth=depth, width=width, num_tokens=own + other)
            partition = Partition.of(range(own), order=own + other)
            sizes = AttentionSizes(depth, width, own_tokens=own, other_tokens=other)
            counted, bounds = heads_terms(sizes), zeros_terms(sizes)
            points = numpy.arange(max(counted) + 4)
            parts = network.split(partition, seed=0, prime=PRIME).graded_values(points, points)
            for k, part in enumerate(parts):
                rank = rank_modulo(part[: counted[k] + 4, : counted[k] + 4], PRIME)
                if rank < counted[k]:
                    shown = f"**{rank:,}**" if rank == bounds[k] else f"{rank:,}"
                    cells = [str(n) for n in (depth, width, own, other, k)]
                    rows.append([*cells, f"{counted[k]:,}", shown, f"{bounds[k]:,}"])
    rows.append(
        [
            "3",
            "4",
            "4",
            "4",
            "7",
            "11,440",
            "**11,436**",
            f"{zeros_terms(AttentionSizes(3, 4))[7]:,}",
        ]
    )
    sizes_header = "depth | width | tokens beside the output | others | degree"
    return rows_to_table(f"{sizes_header} | count | measured | less common zeros", rows)


def heads_table() -> list[str]:
    """Rank against heads and head size, width fixed."""
    rows = []
    for depth, width in ((2, 3), (2, 4), (2, 6), (3, 2), (3, 3)):
        for head_size in range(1, width + 1):
            ranks = []
            for heads in range(1, 9):
                network = SelfAttention(depth=depth, width=width, heads=heads, head_size=head_size)
                ranks.append(measured_cell(measure(network)))
            rows.append([str(depth), str(width), str(head_size), *ranks])
    columns = " | ".join(f"H = {count}" for count in range(1, 9))
    return rows_to_table(f"depth | width | head size | {columns}", rows)


def degree_table() -> list[str]:
    """Chains of Gram matrices, and fully connected products."""
    rows = []
    for degree, depth, width in (
        (3, 1, 3), (5, 1, 3), (7, 1, 3), (9, 1, 3), (3, 2, 3), (5, 2, 2), (9, 1, 2), (3, 2, 2),
    ):  # fmt: skip
        network = SelfAttention(depth=depth, width=width, degree=degree)
        sizes = AttentionSizes(depth, width, degree=degree)
        count = bound_cell(counting_upper_bound(sizes))
        cells = ["chain", str(degree), str(depth), str(width)]
        rows.append([*cells, measured_cell(measure(network)), count])
    for inputs, degree, depth in (
        (4, 2, 1), (4, 3, 1), (4, 2, 2), (4, 3, 2), (4, 4, 2), (4, 2, 3), (4, 3, 3), (6, 3, 2),
    ):  # fmt: skip
        products = ProductNetwork(num_inputs=inputs, degree=degree, depth=depth)
        cells = ["products", str(degree), str(depth), str(inputs)]
        bound = bound_cell(products.upper_bound(Partition.interleaved(inputs)))
        rows.append([*cells, measured_cell(measure(products)), bound])
    return rows_to_table("layer | degree | depth | width | measured | our count", rows)


def partition_table() -> list[str]:
    """The same network over different splits of eight positions."""
    networks: list[tuple[str, PolynomialNetwork]] = [
        ("attention, depth 2, width 4, 1 head", SelfAttention(depth=2, width=4)),
        (
            "convolutional, window 2, M = 3, channels 3, 3, 3",
            ConvolutionalCircuit(num_tokens=8, num_templates=3, channels=(3, 3, 3)),
        ),
        (
            "recurrent, M = R = 2, depth 2",
            RecurrentCircuit(num_tokens=8, num_templates=2, channels=2, depth=2),
        ),
        (
            "tensor train, n = r = 3, equal cores",
            TensorTrain(order=8, size=3, bond=3, has_equal_cores=True),
        ),
    ]
    splits = {
        "interleaved": Partition.interleaved(8),
        "left-right": Partition.left_right(8),
        "random, seed 0": Partition.balanced_random(8, seed=0),
        "random, seed 1": Partition.balanced_random(8, seed=1),
    }
    rows = [
        [name, *(measured_cell(measure_rank(network, split)) for split in splits.values())]
        for name, network in networks
    ]
    return rows_to_table("network | " + " | ".join(splits), rows)


def certificate_table() -> list[str]:
    """Certified here, and verified again from the file."""
    rows = []
    largest = {
        "attention-depth-2-width-8-heads-2": SelfAttention(depth=2, width=8, heads=2),
        "attention-depth-3-width-3": SelfAttention(depth=3, width=3),
        "attention-depth-4-width-2": SelfAttention(depth=4, width=2),
    }
    for name, network in largest.items():
        partition = Partition.interleaved(network.num_positions)
        measured = measure(network)
        write_certificate(CERTIFICATES / f"{name}.json", certify_rank(network, partition, measured))
    for path in sorted(CERTIFICATES.glob("*.json")):
        is_kept = path.stem == CROWN and "--crown" not in sys.argv
        certificate = read_certificate(path)
        verdict = None if is_kept else verify(certificate)
        assert verdict is None or verdict.is_proved, verdict
        size = f"{path.stat().st_size / 1024:,.0f} KiB"
        shown = "see below" if verdict is None else verdict.soundness
        link = f"[{path.stem}](certificates/{path.name})"
        rows.append([link, f"{certificate.lower:,}", size, shown])
    return rows_to_table("certificate | rank at least | size | soundness error", rows)


TABLES: dict[str, Callable[[], list[str]]] = {
    "depth and width": depth_table,
    "zeros": zeros_table,
    "heads": heads_table,
    "degree": degree_table,
    "partitions": partition_table,
    "certificates": certificate_table,
}


def measure(network: PolynomialNetwork) -> MeasuredRank:
    """Over the interleaved split; says on standard error how long it took."""
    started = time.perf_counter()
    measured = measure_rank(network, Partition.interleaved(network.num_positions))
    elapsed = time.perf_counter() - started
    print(f"{network.family} {network.settings}: {measured} ({elapsed:.1f} s)", file=sys.stderr)
    return measured


def main() -> None:
    """Rewrite every table of the page, between its two comments."""
    CERTIFICATES.mkdir(exist_ok=True)
    if "--crown" in sys.argv:
        crown()
    text = PAGE.read_text(encoding="utf-8")
    chosen = [name for name in sys.argv[1:] if not name.startswith("--")] or list(TABLES)
    for name in chosen:
        make = TABLES[name]
        start, stop = f"<!-- table: {name} -->", "<!-- end -->"
        pattern = re.compile(re.escape(start) + r".*?" + re.escape(stop), re.DOTALL)
        assert pattern.search(text), f"no table {name!r} in {PAGE.name}"
        before, after = pattern.split(text, maxsplit=1)
        text = before + "\n".join([start, *make(), stop]) + after
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
