"""`rankscope rank`: the separation rank of a network, measured."""

from pathlib import Path
from typing import Annotated

import typer

from rankscope.cli import networks
from rankscope.cli.options import Json

What = Annotated[
    str,
    typer.Argument(
        metavar="FAMILY",
        help="attention, tensor-train, shallow, convolutional, recurrent, polynomial, or "
        "package.module:factory for a function of your own (with --data).",
        show_default=False,
    ),
]


def run(
    family: What,
    depth: networks.Depth = None,
    width: networks.Width = None,
    heads: networks.Heads = None,
    head_size: networks.HeadSize = None,
    tokens: networks.Tokens = None,
    embedding_rank: networks.EmbeddingRank = None,
    degree: networks.Degree = None,
    output_position: networks.OutputPosition = None,
    order: networks.Order = None,
    size: networks.Size = None,
    bond: networks.Bond = None,
    equal_cores: networks.EqualCores = False,
    channels: networks.Channels = None,
    window: networks.Window = None,
    templates: networks.Templates = None,
    shared: networks.Shared = False,
    inputs: networks.Inputs = None,
    partition: networks.Split = None,
    left: networks.Left = None,
    method: Annotated[
        str | None,
        typer.Option(help="exact, numeric or epsilon (exact; your own function: numeric)."),
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="The same as --method exact.")] = False,
    epsilon: Annotated[
        float | None, typer.Option(help="Radius of the epsilon method.", show_default=False)
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Distance for epsilon: mean-square, supremum, mean-absolute, frobenius, spectral."
        ),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Sample points per side (numeric and epsilon).")
    ] = None,
    seed: networks.Seed = 0,
    prime: Annotated[
        list[int] | None, typer.Option(help="Measure modulo this prime; may be repeated.")
    ] = None,
    graded: Annotated[
        bool | None,
        typer.Option("--graded/--ungraded", help="Measure degree by degree, or as a whole."),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Keep finished tiles here; the same command goes on from there."),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="Write a certificate for `rankscope verify`.")
    ] = None,
    backend: Annotated[
        str, typer.Option(help="threading, loky, sequential, ray or dask.")
    ] = "threading",
    jobs: Annotated[int | None, typer.Option(help="Workers (all cores).")] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Inputs (count, positions, …) of your own function: .npy, .pt or .safetensors."
        ),
    ] = None,
    output: Annotated[
        int | None, typer.Option(help="Which of several outputs of your own function to split.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Exact rank with a certificate; or numeric and epsilon ranks, also of your own function."""
    from rankscope.cli import measuring

    given = {
        "depth": depth,
        "width": width,
        "heads": heads,
        "head-size": head_size,
        "tokens": tokens,
        "embedding-rank": embedding_rank,
        "degree": degree,
        "output-position": output_position,
        "order": order,
        "size": size,
        "bond": bond,
        "equal-cores": equal_cores,
        "channels": channels,
        "window": window,
        "templates": templates,
        "shared": shared,
        "inputs": inputs,
    }
    exactly = measuring.ExactSettings(
        primes=tuple(prime) if prime else None,
        is_graded=graded,
        checkpoint=checkpoint,
        certificate=certificate,
        backend=backend,
        jobs=jobs,
    )
    sampled = measuring.SampledSettings(epsilon, metric, samples, data, output)
    asked = measuring.Asked(
        family, given, partition, left, seed, measuring.method_of(family, method, exact, epsilon)
    )
    measuring.answer(asked, exactly, sampled, as_json=as_json)
