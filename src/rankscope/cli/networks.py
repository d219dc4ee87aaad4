"""The networks that `rank` and `bounds` know, and which options describe each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from rankscope.errors import RequestError
from rankscope.separation.partition import Partition

Family = Annotated[
    str,
    typer.Argument(
        help="attention, tensor-train, shallow, convolutional, recurrent or polynomial.",
        show_default=False,
    ),
]
Depth = Annotated[int | None, typer.Option(help="Layers.", show_default=False)]
Width = Annotated[int | None, typer.Option(help="Size of a token vector.", show_default=False)]
Heads = Annotated[int | None, typer.Option(help="Attention heads per layer (1).")]
HeadSize = Annotated[int | None, typer.Option(help="Size of a head (width / heads).")]
Tokens = Annotated[int | None, typer.Option(help="Input tokens (attention: 2 x width).")]
EmbeddingRank = Annotated[
    int | None, typer.Option(help="Rank of the map that makes token vectors (width).")
]
Degree = Annotated[int | None, typer.Option(help="Degree of a layer (attention: 3).")]
OutputPosition = Annotated[int | None, typer.Option(help="Token whose output is split (0).")]
Order = Annotated[int | None, typer.Option(help="Number of inputs.", show_default=False)]
Size = Annotated[int | None, typer.Option(help="Size of an input vector.", show_default=False)]
Bond = Annotated[int | None, typer.Option(help="Bond dimension.", show_default=False)]
EqualCores = Annotated[bool, typer.Option("--equal-cores", help="All inner cores are one.")]
Channels = Annotated[
    str | None, typer.Option(metavar="3,3,3", help="Channels; one for each pooling level.")
]
Window = Annotated[int | None, typer.Option(help="Tokens pooled together (2).")]
Templates = Annotated[
    int | None, typer.Option(help="Templates, the size of a representation.", show_default=False)
]
Shared = Annotated[bool, typer.Option("--shared", help="Weights are shared across positions.")]
Inputs = Annotated[int | None, typer.Option(help="Number of scalar inputs.", show_default=False)]
Split = Annotated[
    str | None,
    typer.Option(
        "--partition",
        help="interleaved, left-right, start-end or random (interleaved; recurrent: start-end).",
    ),
]
Left = Annotated[
    str | None, typer.Option("--left", metavar="0,2,4", help="Positions of one side, from 0.")
]
Seed = Annotated[int, typer.Option(help="Draws weights, sample points and random partitions.")]


@dataclass(frozen=True)
class Kind:
    """A family of networks: its options and the arguments they become.

    Args:
        required: options without a default.
        optional: options with one.
        positions: counts the inputs from the given options.
    """

    required: dict[str, str]
    optional: dict[str, str]
    positions: Callable[[Mapping[str, Any]], int]


KINDS = {
    "attention": Kind(
        required={"depth": "depth", "width": "width"},
        optional={
            "heads": "heads",
            "head-size": "head_size",
            "tokens": "num_tokens",
            "embedding-rank": "embedding_rank",
            "degree": "degree",
            "output-position": "output_position",
        },
        positions=lambda given: given.get("tokens", 2 * given["width"]),
    ),
    "tensor-train": Kind(
        required={"order": "order", "size": "size", "bond": "bond"},
        optional={"equal-cores": "has_equal_cores"},
        positions=lambda given: given["order"],
    ),
    "shallow": Kind(
        required={"order": "order", "size": "size", "channels": "channels"},
        optional={},
        positions=lambda given: given["order"],
    ),
    "convolutional": Kind(
        required={"tokens": "num_tokens", "templates": "num_templates", "channels": "channels"},
        optional={"window": "window", "shared": "is_shared"},
        positions=lambda given: given["tokens"],
    ),
    "recurrent": Kind(
        required={"tokens": "num_tokens", "templates": "num_templates", "channels": "channels"},
        optional={"depth": "depth"},
        positions=lambda given: given["tokens"],
    ),
    "polynomial": Kind(
        required={"inputs": "num_inputs", "degree": "degree", "depth": "depth"},
        optional={},
        positions=lambda given: given["inputs"],
    ),
}
PARTITIONS: dict[str, Callable[[int], Partition]] = {
    "interleaved": Partition.interleaved,
    "left-right": Partition.left_right,
    "start-end": Partition.start_end,
}


@dataclass(frozen=True)
class NetworkRequest:
    """A family with the options that were given, checked."""

    family: str
    options: dict[str, Any]

    @classmethod
    def of(cls, family: str, options: Mapping[str, object]) -> "NetworkRequest":
        """Keep the options that were given; refuse missing ones and those of other families.

        Raises:
            RequestError: if the family is unknown or the options do not fit it.
        """
        kind = _kind(family)
        given = {
            n: value for n, value in options.items() if value is not None and value is not False
        }
        allowed = {**kind.required, **kind.optional}
        takes = ", ".join(f"--{name}" for name in allowed)
        for name in given:
            if name not in allowed:
                raise RequestError(f"--{name} does not apply to {family}, which takes {takes}.")
        missing = [f"--{name}" for name in kind.required if name not in given]
        if missing:
            raise RequestError(f"{family} needs {' and '.join(missing)}; it takes {takes}.")
        for name, value in given.items():
            if isinstance(value, int) and value < (0 if name == "output-position" else 1):
                raise RequestError(f"--{name} must be a positive number, got {value}.")
        if "channels" in given:
            given["channels"] = _channels(family, str(given["channels"]))
        return cls(family, given)

    @property
    def num_positions(self) -> int:
        """How many inputs the network has."""
        return _kind(self.family).positions(self.options)

    def build(self) -> Any:
        """The network itself, a `PolynomialNetwork`; importing its class imports torch."""
        from rankscope.architectures.catalogue import CATALOGUE

        kind = _kind(self.family)
        names = {**kind.required, **kind.optional}
        arguments = {names[option]: value for option, value in self.options.items()}
        return CATALOGUE[self.family].network_class()(**arguments)

    def partition(self, name: str | None, left: str | None, seed: int) -> Partition:
        """The split that was asked for, or the family's own."""
        default = "start-end" if self.family == "recurrent" else "interleaved"
        return chosen_partition(name or (None if left else default), left, seed, self.num_positions)


def chosen_partition(name: str | None, left: str | None, seed: int, order: int) -> Partition:
    """The split of `order` positions that a name or a side describes.

    Raises:
        RequestError: if the name is unknown, or not exactly one of the two is given.
    """
    if left is not None:
        if name is not None:
            raise RequestError("Give --partition or --left, not both.")
        return Partition.of(_integers("--left", left, "positions like 0,2,4"), order=order)
    if name == "random":
        return Partition.balanced_random(order, seed=seed)
    if name not in PARTITIONS:
        known = ", ".join((*PARTITIONS, "random"))
        raise RequestError(f"--partition takes {known}, got {name!r}.")
    return PARTITIONS[name](order)


def _kind(family: str) -> Kind:
    if family not in KINDS:
        raise RequestError(
            f"There is no family {family!r}; there are {', '.join(KINDS)}, and "
            "package.module:factory for a function of your own (rank only)."
        )
    return KINDS[family]


def _channels(family: str, text: str) -> int | tuple[int, ...]:
    numbers = _integers("--channels", text, "3 or 3,3,3")
    if family == "convolutional":
        return numbers
    if len(numbers) != 1:
        raise RequestError(f"--channels of {family} is one number, got {text!r}.")
    return numbers[0]


def _integers(option: str, text: str, wanted: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise RequestError(f"{option} takes {wanted}, got {text!r}.") from error
