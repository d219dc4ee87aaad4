"""Families of diagrams and their settings, with how the settings' text is read."""

from collections.abc import Callable
from dataclasses import dataclass

from rankscope.budget import require_within
from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Sum
from rankscope.diagrams.parts import Index, IndexKind
from rankscope.errors import FamilyError

Value = int | tuple[int, ...]
Sizes = Value | None


@dataclass(frozen=True)
class Setting:
    """One word before an equals sign, such as `rank` in `rank=8`.

    Args:
        name: the word.
        keyword: the builder's parameter that it feeds.
        description: what it is, in a few words.
        smallest: the smallest integer it may be.
        is_list: whether it may be several integers with commas between them.
        alias: another word for the same, which the exact network of that name uses.
        largest: the largest integer it may be, if so many tensors are made; None for any.
    """

    name: str
    keyword: str
    description: str
    smallest: int = 1
    is_list: bool = False
    alias: str | None = None
    largest: int | None = None

    @property
    def wanted(self) -> str:
        """The values it takes, in words."""
        one = {0: "an integer from 0", 1: "a positive integer"}[self.smallest]
        return f"{one} or several with commas between them" if self.is_list else one

    def read(self, value: str | Value) -> Value:
        """The integer, or the integers, that a value stands for.

        Example:
            >>> Setting("rank", "bond_dimensions", "bonds", is_list=True).read("2,3,4")
            (2, 3, 4)

        Raises:
            FamilyError: if it is something else.
        """
        parts = value.split(",") if isinstance(value, str) else value
        if isinstance(parts, int):
            return self._integer(parts, value)
        integers = tuple(self._integer(part, value) for part in parts)
        if len(integers) == 1 and isinstance(value, str):
            return integers[0]
        if not self.is_list or not integers:
            raise self._refusal(value)
        return integers

    def _integer(self, part: str | int, value: str | Value) -> int:
        try:
            number = int(part)
        except ValueError as error:
            raise self._refusal(value) from error
        if isinstance(part, bool) or number < self.smallest:
            raise self._refusal(value)
        if self.largest is not None:
            require_within("A family of diagrams", self.name, number, self.largest)
        return number

    def _refusal(self, value: str | Value) -> FamilyError:
        return FamilyError(
            f"{self.name} ({self.description}) must be {self.wanted}, got {value!r}."
        )


@dataclass(frozen=True)
class Family:
    """A kind of diagram with a name; `build` takes the keywords of the settings."""

    name: str
    title: str
    summary: str
    settings: tuple[Setting, ...]
    build: Callable[..., Diagram | Sum]


def spread(values: Sizes, count: int, *, what: str, each: str) -> tuple[int | None, ...]:
    """One size for each of `count` legs: the same one, one each, or none that is known.

    Example:
        >>> spread(4, 3, what="cp: size", each="leg")
        (4, 4, 4)

    Raises:
        FamilyError: if there are several, but not `count`.
    """
    if values is None or isinstance(values, int):
        return (values,) * count
    if len(values) != count:
        raise FamilyError(
            f"{what} must be one integer or {count} of them, one for each {each}, "
            f"got {len(values)}: {values}."
        )
    return values


def resolve_order(order: int | None, sizes: Sizes, *, default: int, family: str) -> int:
    """The order asked for, or else the number of sizes given, or else the default.

    Raises:
        FamilyError: if it is not positive.
    """
    if order is None:
        return len(sizes) if isinstance(sizes, tuple) and sizes else default
    if order < 1:
        raise FamilyError(f"{family}: order must be a positive integer, got {order}.")
    return order


# --- The numbered legs that decompositions share: sites I_1, I_2, … and bonds R_1, R_2, … ---------


def numbered(letter: str, place: int | str, size: int | None, kind: IndexKind) -> Index:
    """A leg such as i1, of size I_1.

    Example:
        >>> numbered("r", 12, 8, IndexKind.RANK)  # doctest: +NORMALIZE_WHITESPACE
        Index(name='r12', size=8, symbol='R_12', kind=<IndexKind.RANK: 'rank'>,
              label='R_{12}')
    """
    capital = letter.upper()
    return Index(f"{letter}{place}", size, f"{capital}_{place}", kind, f"{capital}_{{{place}}}")


def sites(sizes: tuple[int | None, ...], letter: str = "i") -> tuple[Index, ...]:
    """One open leg per size, counted from 1."""
    return tuple(
        numbered(letter, place, size, IndexKind.GENERIC) for place, size in enumerate(sizes, 1)
    )


def bonds(sizes: tuple[int | None, ...]) -> tuple[Index, ...]:
    """One bond per size, counted from 1."""
    return tuple(numbered("r", place, size, IndexKind.RANK) for place, size in enumerate(sizes, 1))


def names(indices: tuple[Index, ...]) -> tuple[str, ...]:
    """The names of indices."""
    return tuple(index.name for index in indices)
