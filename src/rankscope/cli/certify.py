"""`rankscope certify`: the accuracy that is proved, and the accuracy that an attack leaves."""

import math
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from rankscope.budget import require_within
from rankscope.cli import console
from rankscope.cli.options import Json, as_command, choose
from rankscope.errors import RequestError, printable
from rankscope.files import is_folder, require_writable, write_atomically
from rankscope.resumable import ResumableFolder

LARGEST_RADIUS = 1e18  # its square is still a number of single precision
MOST_STEPS = 100_000


def run(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            help="package.module:factory, a folder as Hugging Face writes it, or a built-in "
            "network (lipschitz-digits, resnet20, …).",
            show_default=False,
        ),
    ],
    data: Annotated[
        str,
        typer.Option(
            help="Test images with labels: digits, mnist, fashion-mnist, cifar10, a folder with "
            "the model's data set, or a .safetensors or .npz file of inputs and labels.",
            show_default=False,
        ),
    ],
    weights: Annotated[
        Path | None,
        typer.Option(help="A .safetensors file, or a state dict saved by torch (weights only)."),
    ] = None,
    radius: Annotated[
        list[str] | None,
        typer.Option(metavar="36/255", help="Of perturbations; may be given several times."),
    ] = None,
    norm: Annotated[str, typer.Option(help="That radii are measured in: l2 or linf.")] = "l2",
    method: Annotated[
        str,
        typer.Option(
            help="Of the proof: lipschitz, intervals, linear-bounds, or linear-bounds-fast "
            "(inner layers by intervals)."
        ),
    ] = "lipschitz",
    samples: Annotated[
        int | None, typer.Option(min=1, help="Only the first N samples of the test set.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Of the attack (APGD).")] = 50,
    restarts: Annotated[int, typer.Option(min=1, help="Of the attack, from random points.")] = 1,
    pixels: Annotated[
        str, typer.Option(metavar="0,1", help="Smallest and largest entry of inputs, or any.")
    ] = "0,1",
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="float64",
            help="Certify and attack the model as it is run in float64, float32, bfloat16 or "
            "float16; without it, in the floats that it was saved in.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write certification.json, .svg and .html into this folder."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Prove which labels no small perturbation changes, and attack the others.

    Radii are in the units of the data: for images, pixels in 0..1. A built-in network that was
    trained on scaled pixels gets the scaling as a part of it, so that its constant counts.
    """
    radii = [read_radius(text) for text in radius or ("36/255", "72/255", "108/255")]
    limits = _read_pixels(pixels)
    require_within("certify", "--steps", steps, MOST_STEPS)
    require_within("certify", "--restarts", restarts, MOST_STEPS)
    if output is not None:
        require_writable(output, is_folder=True)
    from rankscope.models import open_model
    from rankscope.robust.attacks import AutoProjectedDescent
    from rankscope.robust.methods import Intervals, LinearBounds, Lipschitz, Method
    from rankscope.robust.norms import L2, Linf, Norm
    from rankscope.robust.running_floats import DTYPES
    from rankscope.verbs import certify_robustness

    norms: dict[str, Norm] = {"l2": L2(), "linf": Linf()}
    methods: dict[str, Method] = {
        "lipschitz": Lipschitz(),
        "intervals": Intervals(),
        "linear-bounds": LinearBounds(),
        "linear-bounds-fast": LinearBounds(inner_intervals=True),
    }
    floats = None if dtype is None else choose("--dtype", dtype, DTYPES)
    folder = Path(data) if is_folder(data) else None
    with console.reporting("certify") as report:
        opened = open_model(model, weights=weights, data=folder)
        certification = certify_robustness(
            opened,
            data,
            radii,
            norm=choose("--norm", norm, norms),
            method=choose("--method", method, methods),
            attack=AutoProjectedDescent(steps=steps, restarts=restarts),
            pixels=limits,
            dtype=floats,
            samples=samples,
            report=report,
        )
    document = {"model": model, "data": data, **certification.to_dict()}
    if output is not None:
        _write(output, document, certification, opened)
    if as_json:
        console.print_json(document)
    else:
        # A model that names shorter floats itself keeps them, whatever it is converted to.
        again = None if dtype == "float64" else as_command(context, dtype="float64")
        _print(certification, again)
        if output is not None:
            print(output)


def read_radius(text: str) -> float:
    """A number, or a quotient as papers write it.

    Example:
        >>> read_radius("36/255") == 36 / 255
        True

    Raises:
        RequestError: if it is neither, or negative.
    """
    try:
        radius = float(Fraction(text))
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise RequestError(f"--radius takes a number or a quotient, got {text!r}.") from error
    if not 0 <= radius <= LARGEST_RADIUS:
        raise RequestError(f"--radius takes 0 to {LARGEST_RADIUS:g}, got '{printable(text)}'.")
    return radius


def _read_pixels(text: str) -> tuple[float, float] | None:
    if text == "any":
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError as error:
        raise RequestError(f"--pixels takes two numbers like 0,1, or any; got {text!r}.") from error
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise RequestError(f"--pixels takes a smaller and a larger number, got {text!r}.")
    return low, high


def _write(folder: Path, document: dict[str, Any], certification: Any, opened: Any) -> None:
    from rankscope.page.single_file import audit_to_html
    from rankscope.robust.certification import draw_certification
    from rankscope.verbs import audit

    page = audit_to_html(audit(opened), certification=certification)
    with ResumableFolder(folder, {}, what="certify", waits=True):
        draw_certification(certification, folder / "certification.svg")
        write_atomically(folder / "certification.html", page.encode())
        write_atomically(folder / "certification.json", f"{console.to_json(document)}\n".encode())


def _print(proved: Any, in_float64: str | None) -> None:
    rows = [("radius", "certified", "in exact arithmetic", "attacked")]
    rows += [
        (
            f"{row.radius:.4g}",
            f"{row.certified:.2%}",
            f"{row.certified_exact_arithmetic:.2%}",
            f"{row.attacked:.2%}",
        )
        for row in proved.radii
    ]
    constant = "" if proved.lipschitz is None else f", Lipschitz constant <= {proved.lipschitz:.6g}"
    console.print_text(
        f"clean {proved.clean:.2%} of {proved.num_samples:,} samples; {proved.norm}, "
        f"{proved.method}{constant}"
    )
    print()
    console.print_columns(rows, numbers=(0, 1, 2, 3))
    print("\nThe true robust accuracy is between certified and attacked.")
    console.print_text(
        f"Certified holds for the model as it runs in {proved.arithmetic or 'its own floats'}, "
        "sums in any order; the third column only if it computed exactly."
    )
    worst = max(proved.radii, key=lambda row: row.lost_to_rounding)
    if worst.lost_to_rounding > 0 and proved.arithmetic != "float64" and in_float64 is not None:
        print()
        console.print_severity(
            "advice",
            f"Rounding alone keeps {worst.lost_to_rounding:.2%} of the samples from a certificate "
            f"at radius {worst.radius:.4g}; in float64 it is at least 500 million times smaller.",
        )
        console.print_command(in_float64, indent="  ")
