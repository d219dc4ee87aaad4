"""Options that several commands share, and how their text is read."""

import functools
import inspect
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from rankscope.budget import require_within
from rankscope.errors import RequestError
from rankscope.models import Model, open_model
from rankscope.rank.networks.catalogue import Option, known_options
from rankscope.rank.partition import Partition

T = TypeVar("T")
MOST_ENTRIES = 2**28  # of an input that is made up, 1 GiB
MOST_SAMPLES = 2**14  # of a spectrum: the matrix of so many has 2 GiB
LARGEST_SIZE = 2**31 - 1

MODELS = (
    "A name (digits, resnet20, attention, multi-head, … see `rankscope models`), an einsum "
    '("ij,jk->ik"), package.module:factory, or a path: a diagram saved as .json, a folder or '
    "config.json (Hugging Face style), .safetensors, .pt, or what `compress` wrote."
)
What = Annotated[str, typer.Argument(metavar="MODEL", help=MODELS, show_default=False)]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="A setting of a family or network, or a size."
    ),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option("--size", metavar="NAME=VALUE", help="The same as --set; reads well for sizes."),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="1,3,32,32", help="Shape of a module's input; once per input."),
]
Parameters = Annotated[
    list[int] | None,
    typer.Option("--parameter", metavar="N", help="Operand N of the einsum (from 0) is learned."),
]
Depth = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Outline of nested modules: 1 for a box per child (the whole network).",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
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

PARTITIONS: dict[str, Callable[[int], Partition]] = {
    "interleaved": Partition.interleaved,
    "left-right": Partition.left_right,
    "start-end": Partition.start_end,
}


class Command(TyperCommand):
    """A command whose help shows flags as flags, not as options with a value."""

    def get_params(self, ctx: Any) -> Any:
        """The parameters, flags without the word for their type."""
        return _plain_flags(super().get_params(ctx))


class Group(TyperGroup):
    """Several commands under one name, whose help shows flags as flags."""

    def get_params(self, ctx: Any) -> Any:
        """The parameters, flags without the word for their type."""
        return _plain_flags(super().get_params(ctx))


def _plain_flags(parameters: Any) -> Any:
    for parameter in parameters:
        if getattr(parameter, "is_bool_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


def as_command(context: typer.Context, **changed: object) -> str:
    """The command that was given, with some options changed or added, to be typed again."""
    words = ["rankscope", context.info_name or ""]
    for parameter in context.command.params:
        name = str(parameter.name)
        value = changed.get(name, context.params.get(name))
        source = context.get_parameter_source(name)
        is_given = source is not None and source.name == "COMMANDLINE"
        if name not in changed and not is_given:
            continue
        if parameter.param_type_name == "argument":
            words.append(str(value))
        elif isinstance(value, bool):
            words += [parameter.opts[0]] if value else []
        else:
            values = value if isinstance(value, list | tuple) else [value]
            words += [word for one in values for word in (parameter.opts[0], str(one))]
    return shlex.join(words)


def with_network_options(run: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of all exact networks, as the catalogue declares them.

    The command has an argument `given`, which holds the options that were given, by their words.
    """
    options = {option.word.replace("-", "_"): option for option in known_options().values()}

    @functools.wraps(run)
    def command(**arguments: Any) -> None:
        values = {option.word: arguments.pop(name) for name, option in options.items()}
        given = {w: v for w, v in values.items() if v is not None and v is not False}
        run(given=given, **arguments)

    generated = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=False if option.is_flag else None,
            annotation=_annotation(option),
        )
        for name, option in options.items()
    ]
    own = list(inspect.signature(run).parameters.values())
    place = [parameter.name for parameter in own].index("given")
    own[place : place + 1] = generated
    command.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    return command


def _annotation(option: Option) -> Any:
    name = f"--{option.word}"
    if option.is_flag:
        return Annotated[bool, typer.Option(name, help=option.description)]
    if option.words:
        return Annotated[str | None, typer.Option(name, metavar="WORD", help=option.description)]
    if option.levels == 0:
        return Annotated[
            int | None, typer.Option(name, help=option.description, show_default=False)
        ]
    example = "3,3,3" if option.levels == 1 else "1,0,2;0,1,1"
    return Annotated[str | None, typer.Option(name, metavar=example, help=option.description)]


def opened_for(
    command: str,
    what: str,
    settings: Sequence[str] | None,
    sizes: Sequence[str] | None,
    inputs: Sequence[str] | None,
    parameters: Sequence[int] | None,
) -> Model:
    """The model that a command was given, with the options of diagrams read.

    Raises:
        RankscopeError: if there is none, an option does not apply, or the command cannot use it.
    """
    model = open_model(
        what,
        settings=read_assignments(settings, sizes),
        inputs=[read_shape(text) for text in inputs or ()],
        parameters=parameters or (),
    )
    model.require_for(command)
    return model


def chosen_partition(name: str | None, left: str | None, seed: int, order: int) -> Partition:
    """The split of `order` positions that a name or a side describes.

    Raises:
        RequestError: if the name is unknown, or not exactly one of the two is given.
    """
    if left is not None:
        if name is not None:
            raise RequestError("Give --partition or --left, not both.")
        try:
            positions = tuple(int(part) for part in left.split(","))
        except ValueError as error:
            raise RequestError(f"--left takes positions like 0,2,4, got {left!r}.") from error
        return Partition.of(positions, order=order)
    if name == "random":
        return Partition.balanced_random(order, seed=seed)
    if name not in PARTITIONS:
        known = ", ".join((*PARTITIONS, "random"))
        raise RequestError(f"--partition takes {known}, got {name!r}.")
    return PARTITIONS[name](order)


def read_assignments(*groups: Sequence[str] | None) -> dict[str, str]:
    """Turn "H=12" texts into a dictionary.

    Example:
        >>> read_assignments(["H=12"], None, ["D=64"])
        {'H': '12', 'D': '64'}

    Raises:
        RequestError: if a text has no "=", or a name is given two values.
    """
    values: dict[str, str] = {}
    for text in (text for group in groups for text in group or ()):
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise RequestError(f"--set and --size take NAME=VALUE, got {text!r}.")
        name, value = name.strip(), value.strip()
        if values.setdefault(name, value) != value:
            raise RequestError(f"{name} is given two values: {values[name]} and {value}.")
    return values


def choose(option: str, text: str, known: Mapping[str, T]) -> T:
    """Resolve the text of an option among known names.

    Example:
        >>> choose("--norm", "l2", {"l1": 1, "l2": 2})
        2

    Raises:
        RequestError: if there is nothing of that name; the message lists what there is.
    """
    if text not in known:
        raise RequestError(f"{option} takes one of {', '.join(known)}, got {text!r}.")
    return known[text]


def read_shape(text: str) -> tuple[int, ...]:
    """Turn "1,3,32,32" into a shape.

    Example:
        >>> read_shape("1,3,32,32")
        (1, 3, 32, 32)

    Raises:
        RequestError: if an entry is not a positive integer.
    """
    try:
        shape = tuple(int(entry) for entry in text.split(","))
    except ValueError:
        shape = (0,)
    if min(shape) < 1:
        raise RequestError(f"--input takes positive integers like 1,3,32,32, got {text!r}.")
    require_within("--input", "the number of entries", math.prod(shape), MOST_ENTRIES)
    return shape
