"""`rankscope audit`: what a model's configuration and weights say about it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rankscope.cli import console
from rankscope.cli.options import Json
from rankscope.errors import printable

SHOWN_TENSORS = 12


def run(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A folder or config.json (Hugging Face style), .safetensors, .pt, "
            "package.module:factory, or a built-in network (digits, resnet20, …); nothing for the "
            "embedded transformer.",
            show_default=False,
        ),
    ] = None,
    family: Annotated[
        str | None, typer.Option(help="How to read a configuration that does not say.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write audit.json and audit.html into this folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Parameters by part, bottlenecks, spectra, and findings with the command that acts on them."""
    from rankscope.files import require_writable
    from rankscope.verbs import audit

    if output is not None:
        require_writable(output, is_folder=True)
    with console.reporting("auditing") as report:
        audited = audit(model, family=family, report=report)
    written = [] if output is None else _write(audited, output)
    if as_json:
        console.print_json(audited.to_dict())
        return
    _print(audited)
    for path in written:
        print(path)


def _write(audited: Any, folder: Path) -> list[Path]:
    from rankscope.files import write_atomically
    from rankscope.page.single_file import audit_to_html
    from rankscope.resumable import ResumableFolder

    texts = {
        "audit.json": console.to_json(audited.to_dict()),
        "audit.html": audit_to_html(audited),
    }
    with ResumableFolder(folder, {}, what="audit", waits=True):
        for name, text in texts.items():
            write_atomically(folder / name, text.encode())
    return [folder / name for name in texts]


def _print(audited: Any) -> None:
    shape = audited.configuration
    print(audited.source)
    if shape is not None:
        console.print_text(
            f"{shape.family}, depth {shape.depth}, width {shape.width:,}, {shape.heads} heads of "
            f"{shape.head_size}, embedding rank {shape.embedding_rank:,}"
        )
    total = max(1, audited.parameters.total)
    counts = audited.parameters.to_dict()
    console.print_columns(
        [
            (name.replace("_", " "), f"{count:,}", f"{count / total:.1%}")
            for name, count in counts.items()
        ],
        numbers=(1, 2),
    )
    for finding in audited.findings:
        print()
        console.print_severity(finding.severity.name.lower(), finding.title)
        console.print_text(finding.reason, indent="  ")
        console.print_text(finding.reference, indent="  ")
        console.print_command(finding.command, indent="  ")
    _print_tensors(audited.tensors)


def _print_tensors(tensors: Any) -> None:
    """The matrices that are furthest below full rank."""
    seen = [
        (matrix.effective_rank / max(1, matrix.num_values), row, matrix)
        for row in tensors
        if row.same_as is None
        for matrix in row.matrices
        if matrix.name == ""
    ]
    if not seen:
        return
    seen.sort(key=lambda entry: entry[0])
    print(f"\n{len(tensors)} tensors; lowest effective rank over full rank:")
    console.print_columns(
        [("tensor", "shape", "effective", "99 %", "full", "largest")]
        + [
            (
                printable(row.name, at_most=100),
                " x ".join(map(str, row.shape)),
                f"{matrix.effective_rank:.1f}",
                f"{matrix.rank_at['99']:,}",
                f"{matrix.num_values:,}",
                f"{matrix.largest:.3g}",
            )
            for _, row, matrix in seen[:SHOWN_TENSORS]
        ],
        numbers=(2, 3, 4, 5),
    )
