"""What width and what depth gain over a base model at each embedding rank."""

from collections.abc import Sequence

from rankscope.experiments.experiment import Row
from rankscope.experiments.table import Interval

_SCORES = ("test loss", "bits")


def gain_rows(rows: Sequence[Row]) -> list[Row]:
    """For every rank, what the wide and the deep model score less than the base, seed by seed.

    Positive is better. Settings are named KIND-rank-RANK-SHAPE; others are left out.
    """
    scores = _scores(rows)
    found: list[Row] = []
    for setting in dict.fromkeys(name for name, _ in scores):
        family, _, shape = setting.rpartition("-")
        if shape != "base":
            continue
        row: Row = {"family": family}
        for other in ("wide", "deep"):
            gains = _gains(scores, f"{family}-base", f"{family}-{other}")
            row[f"{other} gains"] = _text(gains)
        deeper = _gains(scores, f"{family}-wide", f"{family}-deep")
        row["deep over wide"] = _text(deeper)
        found.append(row)
    return found


def _scores(rows: Sequence[Row]) -> dict[tuple[str, int], float]:
    found = {}
    for row in rows:
        for score in _SCORES:
            value = row.get(score)
            if isinstance(value, float):
                found[str(row["setting"]), int(str(row["seed"] or 0))] = value
    return found


def _gains(scores: dict[tuple[str, int], float], base: str, other: str) -> list[float]:
    return [
        value - scores[other, seed]
        for (name, seed), value in scores.items()
        if name == base and (other, seed) in scores
    ]


def _text(gains: Sequence[float]) -> str | None:
    if len(gains) < 2:
        return f"{gains[0]:.4g}" if gains else None
    return str(Interval.of(gains, seeds=len(gains)))
