"""`rankscope diff`: what fine-tuning changed, and an adapter that changes it."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankscope.cli import console
from rankscope.cli.options import Json
from rankscope.errors import RequestError
from rankscope.files import require_writable

if TYPE_CHECKING:
    from rankscope.models import Model


def run(
    base: Annotated[str, typer.Argument(help="The model before: a folder or a file of weights.")],
    tuned: Annotated[str, typer.Argument(help="The model after.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write an adapter that peft loads into this folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show for each tensor how much was changed, and in how many directions above chance."""
    if output is not None:
        require_writable(output, is_folder=True)
    from rankscope.auditing.adapter import write_adapter
    from rankscope.auditing.differences import compare_weights

    before, after = (_open(word) for word in (base, tuned))
    first, second = before.weights, after.weights
    assert first is not None, "asked above"
    assert second is not None, "asked above"
    with console.reporting("diff") as report:
        differences = compare_weights(first, second, report=report)
    adapter = None
    if output is not None:
        adapter = write_adapter(
            output, first, second, differences, name=base, configuration=before.configuration
        )
    if as_json:
        written = None if adapter is None else {"folder": str(output), **asdict(adapter)}
        console.print_json(
            {"base": base, "tuned": tuned, **differences.to_dict(), "adapter": written}
        )
        return
    _print(differences)
    if adapter is not None:
        print(
            f"\nadapter: {adapter.parameters:,} numbers, {len(adapter.ranks)} modules in factors, "
            f"{len(adapter.whole)} whole\nerror: {adapter.error:.3g} of the difference, "
            f"{adapter.relative_error:.3g} of the weights"
        )
        print(output)


def _open(word: str) -> "Model":
    from rankscope.models import open_model

    opened = open_model(word)
    opened.require_for("diff")
    if opened.weights is None:
        raise RequestError(f"diff: {word!r} has a configuration, but no weights.")
    return opened


def _print(differences: Any) -> None:
    changed = differences.changed
    rows = [("name", "shape", "relative", "rank", "of", "held")]
    for row in changed:
        shape = "x".join(map(str, row.shape))
        relative = "" if row.relative is None else f"{row.relative:.3g}"
        if row.rank is None:
            rows.append((row.name, shape, relative, "", "", ""))
            continue
        most = min(row.shape[0], row.size // row.shape[0])
        rows.append((row.name, shape, relative, str(row.rank), str(most), f"{row.held:.2%}"))
    if changed:
        console.print_columns(rows, numbers=(2, 3, 4, 5))
    print(f"{len(changed)} of {len(differences.tensors)} tensors changed.")
    kinds = {
        "only before": differences.only_in_base,
        "only after": differences.only_in_tuned,
        "of another shape": differences.reshaped,
    }
    for words, names in kinds.items():
        if names:
            print(f"{len(names)} {words}: {', '.join(names)}")
