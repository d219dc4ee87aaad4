"""`rankscope rank`: the separation rank of a network, measured."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from rankscope.budget import require_within
from rankscope.cli import console
from rankscope.cli.options import (
    MOST_SAMPLES,
    Json,
    Left,
    Seed,
    Split,
    chosen_partition,
    with_network_options,
)
from rankscope.errors import RequestError
from rankscope.files import require_writable
from rankscope.models import open_model
from rankscope.rank.networks.catalogue import CATALOGUE, read_settings, require_buildable
from rankscope.rank.partition import Partition

METHODS = ("exact", "numeric", "epsilon")
DEFAULT_SAMPLES = 256
LARGEST_SEED = 2**63 - 1  # of torch's generators
MOST_WEIGHTS = 2**28  # two gigabytes of residues
MAX_SAMPLES = 1024  # unless asked for: a spectrum of this size takes a second

Network = Annotated[
    str,
    typer.Argument(
        metavar="FAMILY",
        help=f"{', '.join(CATALOGUE)}, or package.module:factory for a function of your own "
        "(with --data).",
        show_default=False,
    ),
]


@with_network_options
def run(
    family: Network,
    given: Mapping[str, Any],
    partition: Split = None,
    left: Left = None,
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
        int | None, typer.Option(min=1, help="Sample points per side (numeric and epsilon).")
    ] = None,
    seed: Seed = 0,
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
    max_seconds: Annotated[
        float | None,
        typer.Option(help="Refuse if a first sample would take longer than this (exact)."),
    ] = None,
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
    question = _Question(family, given, partition, left, seed)
    chosen = _method(family, method, exact, epsilon)
    sampled = _Sampled(epsilon, metric, samples, data, output)
    require_within("rank", "--samples", samples or 0, MOST_SAMPLES)
    if chosen != "exact":
        require_within("rank", "--seed, for samples,", abs(seed), LARGEST_SEED)
        if certificate is not None or prime or checkpoint is not None:
            raise RequestError(
                "--certificate, --prime and --checkpoint belong to the exact method: floating "
                "point certifies nothing."
            )
        _print_sampled(question, sampled, as_json=as_json)
        return
    _refuse_sampled_options(sampled)
    from rankscope.rank.measured import MeasureOptions
    from rankscope.workers import Workers

    options = MeasureOptions(
        seed=seed,
        primes=tuple(prime) if prime else None,
        is_graded=graded,
        checkpoint=checkpoint,
        workers=Workers(backend, jobs),
        max_seconds=max_seconds,
    )
    if certificate is not None:
        require_writable(certificate)
    _print_exact(question, options, certificate, as_json=as_json)


def exact_network(command: str, family: str, given: Mapping[str, Any]) -> Any:
    """The network that the options of a command describe, a `PolynomialNetwork`.

    Raises:
        RequestError: if the model has no exact network, or an option is missing or not its own.
        BudgetError: if it would be too large to be built.
    """
    open_model(family).require_for(command)
    arguments = read_settings(family, given, mark="--")
    require_buildable(command, family, arguments, mark="--")
    return CATALOGUE[family].network_class()(**arguments)


def _measurable_network(question: "_Question") -> Any:
    """The network with its weights, which must fit into memory.

    Raises:
        BudgetError: if they do not.
    """
    import torch

    with torch.device("meta"):
        sizes = exact_network("rank", question.family, question.given)
    count = sum(parameter.numel() for parameter in sizes.parameters())
    require_within(f"rank {question.family}", "the number of weights", count, MOST_WEIGHTS)
    return exact_network("rank", question.family, question.given)


def split_of(network: Any, partition: str | None, left: str | None, seed: int) -> Partition:
    """The split that was asked for, or the one that theorems about the network speak of."""
    name = partition or (None if left else network.default_partition)
    return chosen_partition(name, left, seed, network.num_positions)


@dataclass(frozen=True)
class _Question:
    """The network and the split that a command asks about."""

    family: str
    given: Mapping[str, Any]
    partition: str | None
    left: str | None
    seed: int


@dataclass(frozen=True)
class _Sampled:
    """Options of the numeric and epsilon methods."""

    epsilon: float | None
    metric: str | None
    samples: int | None
    data: Path | None
    output: int | None


def _method(family: str, method: str | None, exact: bool, epsilon: float | None) -> str:
    if exact and method not in (None, "exact"):
        raise RequestError(f"--exact contradicts --method {method}; leave one out.")
    fitting = "numeric" if ":" in family else "exact"
    chosen = "exact" if exact else method or ("epsilon" if epsilon is not None else fitting)
    if chosen not in METHODS:
        raise RequestError(f"--method takes {', '.join(METHODS)}, got {chosen!r}.")
    if (chosen == "epsilon") != (epsilon is not None):
        raise RequestError("--method epsilon and --epsilon RADIUS go together.")
    if chosen == "exact" and ":" in family:
        raise RequestError(
            f"{family} cannot be measured exactly: only the families' polynomials can. "
            "Use --method numeric or epsilon."
        )
    return chosen


def _print_exact(
    question: _Question, options: Any, certificate: Path | None, *, as_json: bool
) -> None:
    from rankscope.rank.certificate_file import write_certificate
    from rankscope.rank.measuring import measure_rank
    from rankscope.rank.verification import certify_rank

    network = _measurable_network(question)
    split = split_of(network, question.partition, question.left, question.seed)
    with console.reporting(f"measuring {question.family}") as report:
        measured = measure_rank(network, split, replace(options, report=report))
        if certificate is not None:
            proof = certify_rank(network, split, measured, report=report)
            write_certificate(certificate, proof)
    if as_json:
        console.print_json(measured.to_dict())
        return
    console.print_text(str(measured))
    if measured.upper is not None:
        console.print_text(f"upper bound: {measured.upper}")
    rows, columns = measured.best.samples
    primes = ", ".join(str(run.prime) for run in measured.runs)
    print(f"{rows:,} x {columns:,} samples modulo {primes}, seed {question.seed}")
    if certificate is not None:
        print(certificate)


def _print_sampled(question: _Question, options: _Sampled, *, as_json: bool) -> None:
    from rankscope.rank.numeric import FunctionOptions, separation_rank

    sample = _own_function if ":" in question.family else _random_network
    function, split, inputs, upper = sample(question, options)
    with console.reporting(f"measuring {question.family}") as report:
        measured = separation_rank(
            function,
            split,
            inputs=inputs,
            epsilon=options.epsilon,
            metric=_metric(options.metric),
            options=FunctionOptions(output=options.output, report=report),
        )
    if as_json:
        document = measured.to_dict()
        document["upper"] = upper if options.epsilon is None else measured.upper
        no_proof = {"prime": [], "seed": question.seed, "failure_probability": None}
        console.print_json({**document, **no_proof})
    else:
        console.print_text(str(measured))


def _random_network(question: _Question, options: _Sampled) -> tuple[Any, ...]:
    """A network at random float64 weights, and inputs to sample it at."""
    import torch

    from rankscope.rank.numeric import normal_inputs

    if options.data is not None:
        raise RequestError("--data goes with package.module:factory; families draw their inputs.")
    network = _measurable_network(question)
    network = network.double().requires_grad_(False)
    split = split_of(network, question.partition, question.left, question.seed)
    generator = torch.Generator().manual_seed(question.seed)
    for weight in network.parameters():
        # Starting values for training hide singular values: they are close to special points.
        weight.normal_(generator=generator)
    network.require_covered(split)
    bound = network.upper_bound(split)
    upper = None if bound is None else bound.value
    count = options.samples or min(MAX_SAMPLES, (upper or DEFAULT_SAMPLES) + 8)
    if network.num_templates is None:
        inputs = normal_inputs(count, network.num_positions, network.input_size, seed=question.seed)
    else:
        inputs = _template_inputs(network, split, options.samples)
    return network, split, inputs, upper


def _template_inputs(network: Any, split: Partition, samples: int | None) -> Any:
    """Inputs whose left and right halves run through all combinations of templates."""
    import numpy
    import torch

    from rankscope.rank.networks.network import unit_vector_points

    size = network.num_templates
    sides = (split.left, split.right)
    totals = [size ** len(side) for side in sides]
    count = min(max(totals), samples or MAX_SAMPLES)
    inputs = torch.zeros(count, network.num_positions, size, dtype=torch.float64)
    for side, total in zip(sides, totals, strict=True):
        points = unit_vector_points(numpy.arange(count) % total, len(side), size)
        inputs[:, list(side)] = torch.from_numpy(points).double()
    return inputs


def _own_function(question: _Question, options: _Sampled) -> tuple[Any, ...]:
    from rankscope.networks.samples import read_tensor

    if question.given:
        raise RequestError(f"--{next(iter(question.given))} does not apply to {question.family}.")
    if options.data is None:
        raise RequestError(
            f"{question.family} needs --data FILE with inputs (count, positions, …) to be split."
        )
    inputs = read_tensor(options.data)[: options.samples or MAX_SAMPLES]
    name = question.partition or (None if question.left else "interleaved")
    split = chosen_partition(name, question.left, question.seed, inputs.shape[1])
    model = open_model(question.family)
    model.require_for("rank")
    return model.function, split, inputs, None


def _metric(name: str | None) -> Any:
    from rankscope.rank import epsilon as known

    metrics = {
        "mean-square": known.MeanSquare,
        "supremum": known.Supremum,
        "mean-absolute": known.MeanAbsolute,
        "frobenius": known.Frobenius,
        "spectral": known.Spectral,
    }
    chosen = name or "mean-square"
    if chosen not in metrics:
        raise RequestError(f"--metric takes {', '.join(metrics)}, got {chosen!r}.")
    return metrics[chosen]()


def _refuse_sampled_options(settings: _Sampled) -> None:
    for option, value in (
        ("--data", settings.data),
        ("--samples", settings.samples),
        ("--metric", settings.metric),
        ("--output", settings.output),
    ):
        if value is not None:
            raise RequestError(
                f"{option} belongs to --method numeric and epsilon; the exact method grows its "
                "own sample."
            )
