"""A tour in one minute: audit, measure, draw, price, run and read networks. `make demo` runs it.

Usage: python examples/tour.py [FOLDER]
"""

import json
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import nn

import rankscope
from rankscope.diagrams.network import Drawable
from rankscope.files import write_atomically
from rankscope.page.single_file import audit_to_html
from rankscope.rank import write_certificate

ATTENTION = {"N": 512, "M": 512, "F": 768}
FORMS: dict[str, Drawable] = {
    "multi-head, H=12, D=64": rankscope.diagrams.family("multi-head", **ATTENTION, H=12, D=64),
    "CP form, R=DH=768": rankscope.diagrams.family("cp-attention", **ATTENTION, R=768),
    "CP form, R=H=12": rankscope.diagrams.family("cp-attention", **ATTENTION, R=12),
}
PICTURES: dict[str, Drawable] = {
    "multi-head.svg": FORMS["multi-head, H=12, D=64"],
    "multi-head.html": FORMS["multi-head, H=12, D=64"],
    "multi-head.tikz": FORMS["multi-head, H=12, D=64"],
    "tucker2-conv.pdf": rankscope.diagrams.family("tucker2-conv"),
    "tensor-train.png": rankscope.diagrams.family("tensor-train"),
    "tensor-ring.svg": rankscope.diagrams.family("tensor-ring"),
    "single-head.gif": rankscope.diagrams.family("single-head", **ATTENTION, D=64),
    "einsum.svg": rankscope.diagrams.from_einsum("abc,cde,bfg,gdh,eij,hik,fkl->ajl"),
}


def audit(folder: Path, console: Console) -> None:
    """The small transformer that comes with the package: findings, and a page to look at."""
    report = rankscope.audit()
    console.print(f"An audit of {report.source}, {report.parameters.total:,} parameters:")
    for finding in report.findings:
        console.print(f"  {finding.severity.name.lower()}: {finding.title}", markup=False)
    document = json.dumps(report.to_dict(), indent=2, allow_nan=False)
    write_atomically(folder / "audit.json", document.encode())
    write_atomically(folder / "audit.html", audit_to_html(report).encode())
    console.print(f"Open {folder / 'audit.html'}; all numbers are in {folder / 'audit.json'}\n")


def measure(folder: Path, console: Console) -> None:
    """How many heads does a width of 4 need? Exact ranks, and a certificate for the last."""
    split = rankscope.Partition.interleaved(8)
    table = Table("softmax-free attention, depth 2, width 4", "separation rank", "", box=None)
    for heads, head_size in ((1, 4), (2, 2), (3, 2), (4, 1)):
        network = rankscope.SelfAttention(depth=2, width=4, heads=heads, head_size=head_size)
        measured = rankscope.measure_rank(network, split)
        certainty = "exact for almost all weights" if measured.is_exact else str(measured)
        table.add_row(f"heads {heads} x size {head_size}", f"{measured.lower}", certainty)
    console.print(table)
    path = folder / "rank-certificate.json"
    certificate = rankscope.certify_rank(network, split, measured)
    write_certificate(path, certificate)
    console.print(f"{path}: {rankscope.verify(certificate)}")


def price(console: Console) -> None:
    """Same parameters, nearly the same operations, 64 times the attention map."""
    table = Table("attention", "parameters", "operations", "largest intermediate", box=None)
    for name, form in FORMS.items():
        counted = rankscope.cost(form)
        table.add_row(
            name,
            f"{counted.parameters:,}",
            f"{counted.flops:,}",
            f"{counted.largest_intermediate:,}",
        )
    console.print(table)


def read_and_run(folder: Path, console: Console) -> None:
    """A PyTorch module becomes equations with pictures, and runs again from them."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).eval()
    network = rankscope.from_module(encoder, (2, 16, 64))
    rankscope.draw(network, folder / "transformer.svg")
    rebuilt = rankscope.to_module(network, rankscope.diagrams.module_arrays(encoder))
    inputs = torch.randn(2, 16, 64)
    with torch.no_grad():
        difference = float((encoder(inputs) - rebuilt(inputs)).abs().max())
    console.print(
        f"A 12-block transformer, read and run again from its {len(network.steps)} equations: "
        f"largest difference {difference:.1e}"
    )


def main(folder: Path) -> None:
    """Make the pictures and print the numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(soft_wrap=True)
    audit(folder, console)
    measure(folder, console)
    price(console)
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
        for name, drawable in progress.track(PICTURES.items(), description="drawing"):
            rankscope.draw(drawable, folder / name)
    read_and_run(folder, console)
    console.print(f"Pictures are in {folder}{'/'}: {', '.join([*PICTURES, 'transformer.svg'])}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output"))
