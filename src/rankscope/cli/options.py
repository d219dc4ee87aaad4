"""Options that several commands share, and how their text is read."""

from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar

import typer

from rankscope.errors import RequestError

T = TypeVar("T")

What = Annotated[
    str,
    typer.Argument(
        help="A family (multi-head, tensor-train, … see `rankscope families`), an einsum "
        '("ij,jk->ik"), package.module:factory, or a diagram saved as .json.',
        show_default=False,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of a family, or a size."),
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
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]


def read_assignments(*groups: Sequence[str] | None) -> dict[str, str]:
    """Turn "H=12" texts into a dictionary.

    Example:
        >>> read_assignments(["H=12"], None, ["D=64"])
        {'H': '12', 'D': '64'}

    Raises:
        RequestError: if a text has no "=", or a name is given two values.
    """
    found: dict[str, str] = {}
    for text in (text for group in groups for text in group or ()):
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise RequestError(f"--set and --size take NAME=VALUE, got {text!r}.")
        name, value = name.strip(), value.strip()
        if found.setdefault(name, value) != value:
            raise RequestError(f"{name} is given two values: {found[name]} and {value}.")
    return found


def choose(option: str, text: str, known: Mapping[str, T]) -> T:
    """What an option names.

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
    return shape
