"""What an experiment is to decide, as plain data: rows, scores, pairs of settings, statements."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

Value = str | int | float | None | list[float]
Row = dict[str, Value]


class Verdict(StrEnum):
    """What follows from a difference and its interval."""

    DECIDED = "decided"
    UNDECIDED = "undecided"
    BELOW = "not decided: below the baseline"
    SINGLE = "not decided: one run each"
    UNFINISHED = "not decided yet: rows are missing"
    MISSING = "not computed yet"
    FACT = "computed"


@dataclass(frozen=True)
class Score:
    """A column that settings are compared by.

    Args:
        column: its name in the rows.
        unit: of its differences, "points" for those of percentages.
        is_lower_better: as losses are, and accuracies are not.
        baseline: the setting of a baseline that ignores the property in question, or a number; None
            if there is none.
        why: what the number stands for.
        prefix: of the settings whose best one is named, where others have the same column with
            another meaning; empty for all.
    """

    column: str
    unit: str
    is_lower_better: bool = True
    baseline: str | float | None = None
    why: str = ""
    prefix: str = ""

    @property
    def own_unit(self) -> str:
        """The unit of its numbers."""
        return "percent" if self.unit == "points" else self.unit

    def is_better(self, one: float, other: float) -> bool:
        """Whether the first number is strictly better."""
        return one < other if self.is_lower_better else one > other


@dataclass(frozen=True)
class Pair:
    """Two settings that differ in the property in question alone.

    Args:
        subject: what is compared, as a sentence begins: "four layers against two".
        first: setting.
        second: setting, or the name of a column of the first one's rows with a number to compare
            with, written as ":column".
        score: what is compared.
        is_claimed_better: whether the hypothesis has the first one better, or worse; None if it
            says neither.
    """

    subject: str
    first: str
    second: str
    score: Score
    is_claimed_better: bool | None = None


@dataclass(frozen=True)
class Statement:
    """A sentence with its data.

    Args:
        subject: what it is about.
        verdict: what follows.
        detail: the numbers, as text.
        difference: first minus second, mean over seeds; None if there is none.
        half_width: of its 95 % interval; None for single runs.
        seeds: how many pairs.
        is_as_claimed: whether a decided difference is what the hypothesis says; None if nothing is
            decided, or it says nothing.
    """

    subject: str
    verdict: Verdict
    detail: str
    difference: float | None = None
    half_width: float | None = None
    seeds: int = 0
    is_as_claimed: bool | None = None

    def __str__(self) -> str:
        if self.verdict is Verdict.FACT:
            return f"{self.subject}: {self.detail}."
        if self.verdict is Verdict.MISSING:
            return f"{self.subject}: not computed yet."
        return f"{self.subject}: {self.detail}: {self.judgement}."

    @property
    def is_comparison(self) -> bool:
        """Whether it is about two settings of which there are rows."""
        return self.verdict not in (Verdict.FACT, Verdict.MISSING)

    @property
    def judgement(self) -> str:
        """The verdict, and whether a decided one goes the way of the hypothesis."""
        if self.is_as_claimed is None:
            return str(self.verdict)
        return f"{self.verdict}, {'as' if self.is_as_claimed else 'not as'} claimed"

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "subject": self.subject,
            "verdict": str(self.verdict),
            "detail": self.detail,
            "difference": self.difference,
            "half_width": self.half_width,
            "seeds": self.seeds,
            "as claimed": self.is_as_claimed,
        }


Facts = Callable[[Sequence[Row]], Sequence[Statement]]


@dataclass(frozen=True)
class Claims:
    """What an experiment is to decide, declared with it.

    Args:
        question: that a researcher would ask, and that the pairs answer.
        pairs: in the order of their weight; the first one is the headline.
        scores: whose best rows are named.
        facts: further statements that follow from the rows.
        stopping: when no more rows are computed, as it was written down before; empty for all rows
            with all seeds, see `Experiment.stopping`.
        answer: the subject of the fact that answers the question; empty for the first decided pair.
        hypothesis: what the source says, in one sentence that the rows could refute; empty if it
            only asks.
    """

    question: str
    pairs: tuple[Pair, ...] = ()
    scores: tuple[Score, ...] = ()
    facts: Facts | None = None
    stopping: str = ""
    answer: str = ""
    hypothesis: str = ""
