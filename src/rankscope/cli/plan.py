"""`rankscope plan`: depth, width and heads for a budget of parameters."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope.auditing.configuration import Configuration
from rankscope.budget import require_within
from rankscope.cli import console
from rankscope.cli.options import LARGEST_SIZE, Json
from rankscope.files import is_folder, require_writable

if TYPE_CHECKING:
    from rankscope.auditing.shape_plan import Plan

Parameters = Annotated[
    float | None,
    typer.Option(
        "--params", help="Budget without embeddings: 12 x depth x width².", show_default=False
    ),
]
TotalParameters = Annotated[
    float | None,
    typer.Option(
        "--total-params", help="Budget with the embedding; needs --vocab.", show_default=False
    ),
]
Compare = Annotated[
    list[Path] | None,
    typer.Option("--compare", help="Configuration of a model to put beside it (repeatable)."),
]
More = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[CONFIG]...", help="More configurations for --compare."),
]


def run(
    more: More = None,
    params: Parameters = None,
    total_params: TotalParameters = None,
    vocab: Annotated[int | None, typer.Option(help="Number of tokens.")] = None,
    embedding_rank: Annotated[
        int | None, typer.Option(help="Largest rank of the embedding (min of vocab and width).")
    ] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads.")] = None,
    head_size: Annotated[int | None, typer.Option(help="Size of a head.")] = None,
    max_depth: Annotated[int | None, typer.Option(help="The most blocks.")] = None,
    multiple_of: Annotated[
        int | None,
        typer.Option(help="Round the width to a multiple of this; whole heads if not given."),
    ] = None,
    compare: Compare = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Draw the depth-width plane: .svg, .pdf or .png"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Depth, width and heads for a budget of parameters, and the alternatives around them."""
    from rankscope.auditing.shape_plan import plan

    sizes = (vocab, embedding_rank, heads, head_size, max_depth, multiple_of)
    words = (
        "--vocab",
        "--embedding-rank",
        "--heads",
        "--head-size",
        "--max-depth",
        "--multiple-of",
    )
    for word, size in zip(words, sizes, strict=True):
        require_within("plan", f"--{word}", size or 0, LARGEST_SIZE)
    if output is not None:
        require_writable(output)
    planned = plan(
        params,
        total_parameters=total_params,
        vocabulary=vocab,
        embedding_rank=embedding_rank,
        heads=heads,
        head_size=head_size,
        max_depth=max_depth,
        multiple_of=multiple_of,
        compare=_models([*(compare or ()), *(more or ())]),
    )
    if output is not None:
        from rankscope.auditing.plan_picture import draw_plan

        draw_plan(planned, output)
    if as_json:
        console.print_json(planned.to_dict() | ({} if output is None else {"file": str(output)}))
    else:
        _print(planned)
        if output is not None:
            print(f"\n{output}")


def _models(paths: Sequence[Path]) -> dict[str, Configuration]:
    from rankscope.auditing.families.catalogue import read_configuration
    from rankscope.strict_json import Numbers, read_document

    models: dict[str, Configuration] = {}
    for path in paths:
        file = path / "config.json" if is_folder(path) else path
        name = file.parent.resolve().name if file.name == "config.json" else file.stem
        name = str(path) if name in models else name
        document = read_document(file, numbers=Numbers.ANY)
        models[name] = read_configuration(document, who=str(file))
    return models


def _print(plan: "Plan") -> None:
    """Print a plan, its law, its notes, the alternatives and the models beside it."""
    embedding, law = plan.budget.embedding, plan.law
    share = plan.budget.size(plan.depth, plan.width) / plan.budget.parameters
    table = embedding.parameters_at(plan.width)
    console.print_columns(
        [
            ("depth", f"{plan.depth:,}", f"the law gives {plan.law_depth}"),
            ("width", f"{plan.width:,}", _within_fit(plan)),
            ("heads", f"{plan.shape.heads:,}", f"of size {plan.shape.head_size}"),
            ("parameters", f"{plan.parameters:,}", f"without embeddings; budget used: {share:.1%}"),
            (
                "embedding",
                "-" if table is None else f"{table:,.0f}",
                f"parameters; rank at most {plan.shape.embedding_rank:,}",
            ),
        ],
        numbers=(1,),
    )
    print()
    console.print_text(
        f"Law: ln(width) = {law.intercept} ± {law.intercept_error} + "
        f"({law.slope} ± {law.slope_error}) x depth    [{law.reference}]"
    )
    console.print_text(f"Fitted on {law.data}.")
    for note in plan.notes:
        print()
        console.print_text(note)
    print()
    _print_alternatives(plan)
    if plan.compared:
        print("\nModels, and the depth that the law gives the parameters in their blocks")
        _print_compared(plan)


def _within_fit(plan: "Plan") -> str:
    down, up = plan.shapes_within_fit
    return f"{down.depth} x {down.width:,} to {up.depth} x {up.width:,} within the fit's errors"


def _print_alternatives(plan: "Plan") -> None:
    regimes = {str(row.shape.regime) for row in plan.alternatives}
    # What all have in common is said once, and leaves the table narrow.
    common = f", all with {next(iter(regimes))}" if len(regimes) == 1 else ""
    title = f"Alternatives for the same budget{common}; bounds are log3 of the separation rank"
    console.print_text(title)
    regime = () if common else ("regime",)
    rows = [("depth", "width", "heads", "parameters", "at least", "at most", *regime, "")]
    for row in plan.alternatives:
        shape, lower = row.shape, row.shape.lower
        mark = "planned" if row.is_planned else "within the fit" if row.is_within_fit else ""
        rows.append(
            (
                f"{shape.depth:,}",
                f"{shape.width:,}",
                f"{shape.heads} x {shape.head_size}",
                f"{row.parameters:,}",
                "-" if lower is None else f"{lower.log3:,.4g}",
                f"{shape.count.log3:,.4g}",
                *(() if common else (str(shape.regime),)),
                mark,
            )
        )
    console.print_columns(rows, numbers=(0, 1, 2, 3, 4, 5))


def _print_compared(plan: "Plan") -> None:
    rows = [("model", "depth", "width", "parameters", "law's depth", "", "")]
    for model in plan.compared:
        rows.append(
            (
                model.name,
                str(model.shape.depth),
                f"{model.shape.width:,}",
                f"{model.parameters:,}",
                str(model.law_depth),
                model.verdict,
                model.remark or "",
            )
        )
    console.print_columns(rows, numbers=(1, 2, 3))
