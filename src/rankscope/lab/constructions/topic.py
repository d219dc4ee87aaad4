"""Topics of `rankscope explain`: a statement, its source, and a run that shows it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rankscope.files import make_folder
from rankscope.theorem import Status, Theorem

Value = bool | int | float | str | list[int] | list[float]
# Writes a picture to the path it is given; the ending chooses the format.
Picture = Callable[[Path], object]


def format_value(value: Value) -> str:
    """A value in words and four digits, the same on every machine.

    Example:
        >>> format_value(True), format_value(31460), format_value(0.123456), format_value([1, 2.5])
        ('yes', '31,460', '0.1235', '1, 2.5')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        # No minus before a zero, whose sign is rounding.
        return f"{value:.4g}" if value else "0"
    return value if isinstance(value, str) else ", ".join(map(format_value, value))


@dataclass(frozen=True)
class TopicResult:
    """Numbers and pictures of one run of a topic.

    Args:
        numbers: the same on every machine, but for rounding.
        measured: numbers that depend on the machine: times, and what training ended with.
        pictures: by file name, without ending.
    """

    numbers: Mapping[str, Value]
    measured: Mapping[str, Value] = field(default_factory=dict)
    pictures: Mapping[str, Picture] = field(default_factory=dict)


@dataclass(frozen=True)
class Topic:
    """One thing to explain.

    Args:
        name: what is typed after `rankscope explain`.
        title: a few words.
        statement: what is true, in plain words; paragraphs are apart by an empty line.
        reference: where it is from.
        run: a small run that shows it, in seconds.
    """

    name: str
    title: str
    statement: str
    reference: Theorem
    run: Callable[[], TopicResult]

    def draw(self, result: TopicResult, folder: Path, *, ending: str = ".svg") -> dict[str, Path]:
        """Write the pictures of a run into a folder, under the topic's name and their own.

        The folder is made if it is not there.

        Raises:
            OutputError: if the folder or a file cannot be written, or the ending is unknown.
        """
        make_folder(folder)
        paths = {name: folder / f"{self.name}-{name}{ending}" for name in result.pictures}
        for name, path in paths.items():
            result.pictures[name](path)
        return paths


# The lecture that most topics come from.


LECTURE = "Diehl (2023), Building blocks of modern machine learning"


def lecture_theorem(label: str, *assumptions: str) -> Theorem:
    """A statement of the lecture whose proof is there, or is one line."""
    return Theorem(LECTURE, label, None, assumptions)


def recalled_theorem(citation: str, label: str, arxiv: str | None, *assumptions: str) -> Theorem:
    """A statement of a paper, as recalled."""
    return Theorem(citation, label, arxiv, assumptions, Status.RECALLED)
