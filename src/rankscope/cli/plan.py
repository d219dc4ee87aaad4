"""`rankscope plan`: depth, width and heads for a budget of parameters."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rankscope.auditing.configuration import Configuration
from rankscope.cli import console
from rankscope.cli.options import Json

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
        int, typer.Option(help="Round the width to a multiple of this, such as 64.")
    ] = 1,
    compare: Compare = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Draw the depth-width plane: .svg, .pdf or .png"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Depth, width and heads for a budget of parameters, and the alternatives around them."""
    from rankscope.auditing.plan import plan
    from rankscope.cli.plan_table import print_plan

    found = plan(
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

        draw_plan(found, output)
    if as_json:
        console.print_json(found.to_dict() | ({} if output is None else {"file": str(output)}))
    else:
        print_plan(found)
        if output is not None:
            print(f"\n{output}")


def _models(paths: Sequence[Path]) -> dict[str, Configuration]:
    from rankscope.auditing.reading_configuration import read_configuration
    from rankscope.auditing.sources.documents import read_document

    found: dict[str, Configuration] = {}
    for path in paths:
        file = path / "config.json" if path.is_dir() else path
        name = file.parent.resolve().name if file.name == "config.json" else file.stem
        name = str(path) if name in found else name
        found[name] = read_configuration(read_document(file), who=str(file))
    return found
