"""The lecture that most topics come from."""

from rankscope.theorem import Status, Theorem

LECTURE = "Diehl (2023), Building blocks of modern machine learning"


def in_lecture(label: str, *assumptions: str) -> Theorem:
    """A statement of the lecture whose proof is there, or is one line."""
    return Theorem(LECTURE, label, None, assumptions)


def recalled(citation: str, label: str, arxiv: str | None, *assumptions: str) -> Theorem:
    """A statement of a paper, as recalled."""
    return Theorem(citation, label, arxiv, assumptions, Status.RECALLED)
