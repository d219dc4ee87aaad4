"""`rankscope generalization`: how far a network can be compressed, and the bounds that follow."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rankscope.budget import require_within
from rankscope.cli import console
from rankscope.cli.options import LARGEST_SIZE, Json, choose
from rankscope.files import is_folder, require_writable, write_atomically
from rankscope.resumable import ResumableFolder


def run(
    model: Annotated[
        str,
        typer.Argument(
            help="package.module:factory, or a built-in network (digits, cp-digits, cp-vgg16-bn, "
            "…).",
            show_default=False,
        ),
    ],
    data: Annotated[
        str,
        typer.Option(
            help="What the model was trained on: digits, mnist, fashion-mnist, cifar10, a folder "
            "with the model's data set, or a .safetensors or .npz file of inputs and labels.",
            show_default=False,
        ),
    ],
    margin: Annotated[
        float, typer.Option(help="Of scores, that the compression may use up.")
    ] = 1.0,
    weights: Annotated[
        Path | None,
        typer.Option(help="A .safetensors file, or a state dict saved by torch (weights only)."),
    ] = None,
    search: Annotated[
        str,
        typer.Option(
            help="Of ranks: direct or paper (proved on the sample), or measured (checked on it)."
        ),
    ] = "direct",
    form: Annotated[
        str, typer.Option(help="Of the properties of layers: triangle or exact.")
    ] = "triangle",
    tolerance: Annotated[
        str, typer.Option(help="How near outputs must stay: inf, l2, or paper (as published).")
    ] = "inf",
    bits: Annotated[int, typer.Option(help="Of a number, in the rigorous bound: 2..16.")] = 8,
    tried: Annotated[
        int, typer.Option(min=1, help="Settings tried on these samples, this one included.")
    ] = 1,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Only the first N training samples.")
    ] = None,
    jacobians: Annotated[
        int, typer.Option(min=0, help="Samples for the bound of Arora et al.; 0 leaves it out.")
    ] = 16,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write generalization.json and .svg into this folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Bound a classifier's error by how far it can be compressed on its training samples.

    Samples are the training part of a data set. Bounds named "order" leave out constants and show
    trends; the one named "rigorous" holds as it stands, for the compressed, quantized network.
    """
    from rankscope.generalize.analysis import Options
    from rankscope.generalize.finite_class import Quantization
    from rankscope.generalize.properties import Exact, Form, Triangle
    from rankscope.generalize.rank_search import CushionLimits, Direct, Mode, Search
    from rankscope.generalize.sample import AsPublished, Euclidean, LargestEntry, Tolerance
    from rankscope.models import open_model
    from rankscope.verbs import bound_generalization

    require_within("generalization", "--tried", tried, LARGEST_SIZE)
    if output is not None:
        require_writable(output, is_folder=True)
    # "measured" compares outputs instead of bounding them, so that the mode does not matter.
    modes: dict[str, Mode] = {"direct": Direct(), "paper": CushionLimits(), "measured": Direct()}
    forms: dict[str, Form] = {"triangle": Triangle(), "exact": Exact()}
    tolerances: dict[str, Tolerance] = {
        known.name: known for known in (LargestEntry(), Euclidean(), AsPublished())
    }
    options = Options(
        search=Search(
            choose("--search", search, modes),
            choose("--form", form, forms),
            choose("--tolerance", tolerance, tolerances),
        ),
        is_measured=search == "measured",
        quantization=Quantization(bits),
        num_settings=tried,
        num_jacobians=jacobians,
    )
    folder = Path(data) if is_folder(data) else None
    with console.reporting("generalization") as report:
        bounded = bound_generalization(
            open_model(model, weights=weights, data=folder),
            data,
            margin,
            options=options,
            samples=samples,
            report=report,
        )
    document = {"model": model, "data": data, **bounded.to_dict()}
    if output is not None:
        _write(output, document, bounded)
    if as_json:
        console.print_json(document)
    else:
        _print(document)
        if output is not None:
            print(output)


def _write(folder: Path, document: dict[str, Any], bounded: Any) -> None:
    from rankscope.generalize.analysis import draw_properties

    with ResumableFolder(folder, {}, what="generalization", waits=True):
        draw_properties(bounded, folder / "generalization.svg")
        write_atomically(folder / "generalization.json", f"{console.to_json(document)}\n".encode())


def _print(document: dict[str, Any]) -> None:
    rows = [("layer", "rank", "kept", "t", "xi", "cushion")]
    rows += [
        (
            layer["name"],
            f"{layer['rank']:,}",
            f"{layer['kept_rank']:,}",
            *(_number(layer[name]) for name in ("t", "xi", "cushion")),
        )
        for layer in document["layers"]
    ]
    console.print_columns(rows, numbers=(1, 2, 3, 4, 5))
    check = document["deviation_check"]
    print()
    console.print_text(
        f"g is within {document['deviation']:.4g} of f on {document['samples']:,} samples "
        f"(proved: {_number(check['bound'])}); {check['num_changed']} classes changed"
    )
    print()
    bounds = [("bound", "value", "", "source")]
    bounds += [
        (
            bound["name"],
            _number(bound["value"]),
            "vacuous" if bound["vacuous"] else "",
            f"{bound['theorem']['citation']}, {bound['theorem']['label']}",
        )
        for bound in document["bounds"]
    ]
    console.print_columns(bounds, numbers=(1,))
    for refused in document["refused"]:
        console.print_text(f"{refused['name']}: left out. {refused['reason']}")


def _number(value: float | None) -> str:
    return "infinite" if value is None else f"{value:.4g}"
