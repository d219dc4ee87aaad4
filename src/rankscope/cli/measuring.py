"""What `rankscope rank` does once its options are read."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.cli import console
from rankscope.cli.networks import NetworkRequest, chosen_partition
from rankscope.errors import RequestError
from rankscope.separation.partition import Partition

METHODS = ("exact", "numeric", "epsilon")
DEFAULT_SAMPLES = 256
MAX_SAMPLES = 1024  # unless asked for: a spectrum of this size takes a second


@dataclass(frozen=True)
class Asked:
    """Which network, split and method."""

    family: str
    options: Mapping[str, object]
    partition: str | None
    left: str | None
    seed: int
    method: str

    @property
    def is_own_function(self) -> bool:
        """Whether the user named a function by its import path."""
        return ":" in self.family


@dataclass(frozen=True)
class ExactSettings:
    """Options of the exact method."""

    primes: tuple[int, ...] | None
    is_graded: bool | None
    checkpoint: Path | None
    certificate: Path | None
    backend: str
    jobs: int | None


@dataclass(frozen=True)
class SampledSettings:
    """Options of the numeric and epsilon methods."""

    epsilon: float | None
    metric: str | None
    samples: int | None
    data: Path | None
    output: int | None


def method_of(family: str, method: str | None, exact: bool, epsilon: float | None) -> str:
    """The method that was asked for, or the one that fits.

    Raises:
        RequestError: if options contradict each other.
    """
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


def answer(
    asked: Asked, exactly: ExactSettings, sampled: SampledSettings, *, as_json: bool
) -> None:
    """Measure and print."""
    if asked.method == "exact":
        _refuse_sampled_options(sampled)
        _exact(asked, exactly, as_json=as_json)
        return
    if exactly.certificate is not None or exactly.primes or exactly.checkpoint is not None:
        raise RequestError(
            "--certificate, --prime and --checkpoint belong to the exact method: floating point "
            "certifies nothing."
        )
    _sampled(asked, sampled, as_json=as_json)


def _exact(asked: Asked, settings: ExactSettings, *, as_json: bool) -> None:
    from rankscope.architectures.certification import certify
    from rankscope.architectures.measuring import measure_rank
    from rankscope.separation.certificates.file import write_certificate
    from rankscope.separation.measuring.options import MeasureOptions
    from rankscope.workers import Workers

    request = NetworkRequest.of(asked.family, asked.options)
    split = request.partition(asked.partition, asked.left, asked.seed)
    network = request.build()
    with console.reporting(f"measuring {asked.family}") as report:
        options = MeasureOptions(
            seed=asked.seed,
            primes=settings.primes,
            is_graded=settings.is_graded,
            checkpoint=settings.checkpoint,
            workers=Workers(settings.backend, settings.jobs),
            report=report,
        )
        measured = measure_rank(network, split, options)
        if settings.certificate is not None:
            certificate = certify(network, split, measured, report=report)
            write_certificate(settings.certificate, certificate)
    if as_json:
        console.print_json(measured.to_dict())
        return
    print(measured)
    if measured.upper is not None:
        print(f"upper bound: {measured.upper}")
    rows, columns = measured.best.samples
    primes = ", ".join(str(run.prime) for run in measured.runs)
    print(f"{rows:,} x {columns:,} samples modulo {primes}, seed {asked.seed}")
    if settings.certificate is not None:
        print(settings.certificate)


def _sampled(asked: Asked, settings: SampledSettings, *, as_json: bool) -> None:
    from rankscope.separation.function_rank import separation_rank
    from rankscope.separation.pairing import FunctionOptions

    function, split, inputs, upper = (
        _own_function(asked, settings) if asked.is_own_function else _network(asked, settings)
    )
    with console.reporting(f"measuring {asked.family}") as report:
        found = separation_rank(
            function,
            split,
            inputs=inputs,
            epsilon=settings.epsilon,
            metric=_metric(settings.metric),
            options=FunctionOptions(output=settings.output, report=report),
        )
    if as_json:
        document = found.to_dict()
        document["upper"] = found.upper if asked.method == "epsilon" else upper
        no_proof = {"prime": [], "seed": asked.seed, "failure_probability": None}
        console.print_json({**document, **no_proof})
    else:
        print(found)


def _network(asked: Asked, settings: SampledSettings) -> tuple[Any, ...]:
    """A network at random float64 weights, and inputs to sample it at."""
    import torch

    from rankscope.separation.function_rank import normal_inputs

    if settings.data is not None:
        raise RequestError("--data goes with package.module:factory; families draw their inputs.")
    request = NetworkRequest.of(asked.family, asked.options)
    split = request.partition(asked.partition, asked.left, asked.seed)
    network = request.build().double().requires_grad_(False)
    generator = torch.Generator().manual_seed(asked.seed)
    for weight in network.parameters():
        # Starting values for training hide singular values: they are close to special points.
        weight.normal_(generator=generator)
    network.require_covered(split)
    bound = network.upper_bound(split)
    upper = None if bound is None else bound.value
    count = settings.samples or min(MAX_SAMPLES, (upper or DEFAULT_SAMPLES) + 8)
    if network.num_templates is None:
        inputs = normal_inputs(count, network.num_positions, network.input_size, seed=asked.seed)
    else:
        inputs = _template_inputs(network, split, settings.samples)
    return network, split, inputs, upper


def _template_inputs(network: Any, split: Partition, samples: int | None) -> Any:
    """Inputs whose left and right halves run through all combinations of templates."""
    import numpy
    import torch

    from rankscope.architectures.pairs import unit_vector_points

    size = network.num_templates
    sides = (split.left, split.right)
    totals = [size ** len(side) for side in sides]
    count = min(max(totals), samples or MAX_SAMPLES)
    inputs = torch.zeros(count, network.num_positions, size, dtype=torch.float64)
    for side, total in zip(sides, totals, strict=True):
        points = unit_vector_points(numpy.arange(count) % total, len(side), size)
        inputs[:, list(side)] = torch.from_numpy(points).double()
    return inputs


def _own_function(asked: Asked, settings: SampledSettings) -> tuple[Any, ...]:
    from torch import nn

    from rankscope.cli.factories import call_factory
    from rankscope.cli.samples import read_samples

    misplaced = [f"--{name}" for name, value in asked.options.items() if value not in (None, False)]
    if misplaced:
        raise RequestError(f"{misplaced[0]} does not apply to {asked.family}.")
    if settings.data is None:
        raise RequestError(
            f"{asked.family} needs --data FILE with inputs (count, positions, …) to be split."
        )
    inputs = read_samples(settings.data)[: settings.samples or MAX_SAMPLES]
    name = asked.partition or (None if asked.left else "interleaved")
    split = chosen_partition(name, asked.left, asked.seed, inputs.shape[1])
    function = call_factory(asked.family)
    if isinstance(function, nn.Module):
        function = function.eval()
    return function, split, inputs, None


def _metric(name: str | None) -> Any:
    from rankscope.separation.nearby import metrics as known

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


def _refuse_sampled_options(settings: SampledSettings) -> None:
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
