"""What cannot be read, and how a user is told."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """A part of a module that cannot be read, and why."""

    path: str
    kind: str
    reason: str


def told(name: str, problems: Sequence[Problem]) -> str:
    """One line that names all problems; parts of one class with one reason share a place."""
    groups: dict[tuple[str, str], list[str]] = {}
    for problem in dict.fromkeys(problems):
        groups.setdefault((problem.kind, problem.reason), []).append(problem.path)
    texts = []
    for (kind, reason), paths in groups.items():
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        texts.append(f"{', '.join(paths[:3])}{more} ({kind}): {reason}")
    return f"from_module cannot read {name}: {'; '.join(texts)}."
