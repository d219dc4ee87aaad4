"""What the rows of an experiment support: statements that carry their data.

A `Pair` is a comparison that is declared with the experiment, whatever its rows turn out to be. Its
statement has the difference, paired seed by seed, the 95 % interval over seeds, and the verdict
that follows: decided if the interval excludes 0, and all seeds that were asked for are there, so
that nobody stops at a seed that pleases. A pair of which not even the better setting beats
the baseline that ignores the property in question decides nothing, and neither do single runs. The
pages show these statements as `docs/make_experiment_tables.py` renders them, and no others.
"""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from rankscope.lab.experiments.claims import (
    Claims,
    Pair,
    Row,
    Score,
    Statement,
    Verdict,
)
from rankscope.lab.experiments.table import Interval
from rankscope.lab.experiments.wording import capitalized


def statements_of(claims: Claims, rows: Sequence[Row], *, seeds: int = 1) -> tuple[Statement, ...]:
    """Everything that the rows support: the pairs, the best of all rows, the facts.

    Args:
        claims: what is to be decided.
        rows: that are finished.
        seeds: how many were asked for.
    """
    return (
        *(judge(pair, rows, seeds=seeds) for pair in claims.pairs),
        *(best for score in claims.scores for best in best_rows(score, rows)),
        *(() if claims.facts is None else claims.facts(rows)),
    )


def headline(claims: Claims, rows: Sequence[Row], *, seeds: int = 1) -> str:
    """The answer, or the first comparison that is decided, and how many are.

    What the hypothesis speaks of comes first, be it decided or not.
    """
    everything = statements_of(claims, rows, seeds=seeds)
    statements = [one for one in everything if one.verdict is not Verdict.FACT]
    answers = [one for one in everything if one.subject == claims.answer]
    if not statements:
        return capitalized(str(next(iter(answers or everything), "not computed yet")))
    decided = [one for one in statements if one.verdict is Verdict.DECIDED]
    spoken = [one for one in decided if one.is_as_claimed is not None]
    as_claimed = f" ({count_as_claimed(decided)} as claimed)" if spoken else ""
    asked = [
        statement
        for pair, statement in zip(claims.pairs, everything, strict=False)
        if pair.is_claimed_better is not None
    ]
    is_answered = bool(decided) or not claims.pairs
    shown = ((answers if is_answered else []) or spoken or asked or decided or statements)[0]
    counts = [
        f"{sum(one.verdict is verdict for one in statements)} {verdict}"
        f"{as_claimed if verdict is Verdict.DECIDED else ''}"
        for verdict in Verdict
        if any(one.verdict is verdict for one in statements)
    ]
    return f"{capitalized(str(shown))} In all: {', '.join(counts)}."


def count_as_claimed(statements: Sequence[Statement]) -> str:
    """How many of the decided pairs that the hypothesis speaks of go its way: "3 of 4"."""
    spoken = [one.is_as_claimed for one in statements if one.is_as_claimed is not None]
    return f"{sum(spoken)} of {len(spoken)}"


def judge(pair: Pair, rows: Sequence[Row], *, seeds: int = 1) -> Statement:
    """The statement of a pair, of which so many seeds were asked for."""
    score = pair.score
    first = _values(rows, pair.first, score.column)
    if pair.second.startswith(":"):
        second = _values(rows, pair.first, pair.second[1:])
    else:
        second = _values(rows, pair.second, score.column)
    common = [seed for seed in first if seed in second]
    differences = [first[seed] - second[seed] for seed in common]
    if len(common) < max(2, seeds):
        return _too_few(pair, differences, seeds)
    best = (min if score.is_lower_better else max)(
        statistics.fmean(one[seed] for seed in common) for one in (first, second)
    )
    return _beside(_decide(pair, differences), score, best, _baseline(score, rows))


def _too_few(pair: Pair, differences: Sequence[float], seeds: int) -> Statement:
    """What is known before the seeds are there that a decision needs."""
    if not differences:
        return Statement(pair.subject, Verdict.MISSING, "")
    mean, count = statistics.fmean(differences), len(differences)
    detail, verdict = f"{mean:+.3g} {pair.score.unit}", Verdict.SINGLE
    if seeds > 1:
        detail, verdict = f"{detail} with {count} of {seeds} seeds", Verdict.UNFINISHED
    return Statement(pair.subject, verdict, detail, mean, None, count)


def _beside(
    statement: Statement, score: Score, best: float, reached: tuple[str, float | None] | None
) -> Statement:
    """The same beside the baseline, without which and below which nothing is decided."""
    if reached is None:
        return statement
    name, number = reached
    if number is None:
        return Statement(f"{statement.subject} (beside {name})", Verdict.MISSING, "")
    if score.is_better(best, number):
        return statement
    detail = f"{statement.detail}; the better one has {best:.4g}, {name} {number:.4g}"
    return replace(statement, verdict=Verdict.BELOW, detail=detail, is_as_claimed=None)


def _decide(pair: Pair, differences: Sequence[float]) -> Statement:
    """What the differences of at least two seeds say, baselines aside."""
    score, count = pair.score, len(differences)
    interval = Interval.of(differences, seeds=count)
    mean = round(interval.mean, 12) + 0.0  # without what is left of equal numbers
    detail = f"{mean:+.3g} ± {interval.half_width:.2g} {score.unit} over {count} seeds"
    numbers = (interval.mean, interval.half_width, count)
    if abs(interval.mean) <= interval.half_width:
        return Statement(pair.subject, Verdict.UNDECIDED, detail, *numbers)
    is_better = score.is_better(interval.mean, 0.0)
    detail += ", better" if is_better else ", worse"
    claimed = pair.is_claimed_better
    is_as_claimed = None if claimed is None else claimed == is_better
    return Statement(pair.subject, Verdict.DECIDED, detail, *numbers, is_as_claimed)


def best_rows(score: Score, rows: Sequence[Row]) -> tuple[Statement, ...]:
    """The best setting of all rows by a score, and how far it is from the best baseline."""
    means = {
        setting: statistics.fmean(values.values())
        for setting in dict.fromkeys(str(row["setting"]) for row in rows)
        if (values := _values(rows, setting, score.column))
    }
    is_baseline = {str(row["setting"]) for row in rows if row.get("baseline") is not None}
    chosen = min if score.is_lower_better else max
    models = [
        setting
        for setting in means
        if setting not in is_baseline and setting.startswith(score.prefix)
    ]
    if not models:
        return ()
    best = chosen(models, key=lambda setting: means[setting])
    among = f", best of {len(models)} settings" if len(models) > 1 else ""
    detail = f"{means[best]:.4g} {score.own_unit} ({best}{among})"
    baselines = [setting for setting in means if setting in is_baseline]
    if baselines:
        other = chosen(baselines, key=lambda setting: means[setting])
        ahead = score.is_better(means[best], means[other])
        detail += (
            f"; the best baseline has {means[other]:.4g} ({other}), "
            f"{abs(means[best] - means[other]):.3g} {'behind' if ahead else 'ahead'}"
        )
    return (Statement(f"Best {score.column}", Verdict.FACT, detail),)


def _baseline(score: Score, rows: Sequence[Row]) -> tuple[str, float | None] | None:
    """Its name and its number, which is None before it is computed; None if there is none."""
    if score.baseline is None:
        return None
    if isinstance(score.baseline, float):
        return score.why or "the threshold", score.baseline
    values = _values(rows, score.baseline, score.column)
    return score.baseline, statistics.fmean(values.values()) if values else None


def _values(rows: Sequence[Row], setting: str, column: str) -> dict[int, float]:
    """The numbers of a setting by seed; rows without a seed have the seed 0."""
    results: dict[int, float] = {}
    for row in rows:
        value = row.get(column)
        if row["setting"] == setting and isinstance(value, int | float):
            seed = row.get("seed")
            results[seed if isinstance(seed, int) else 0] = float(value)
    return results


def correlation_statement(
    subject: str,
    found: Sequence[float],
    beside: Sequence[float],
    what: str,
    *,
    is_claimed: bool = False,
) -> Statement:
    """Whether a correlation is above 0, and above that of what anyone has anyway.

    Args:
        subject: whose correlation it is.
        found: one for each seed.
        beside: the correlation that is there anyway, of the same seeds.
        what: that one is of.
        is_claimed: whether the hypothesis has the correlation above 0.
    """
    if len(found) < 2:
        return Statement(subject, Verdict.SINGLE if found else Verdict.MISSING, "")
    count = len(found)
    own = Interval.of(found, seeds=count)
    ahead = Interval.of(
        [one - other for one, other in zip(found, beside, strict=True)], seeds=count
    )
    detail = (
        f"{own.mean:+.2f} ± {own.half_width:.2g} over {count} seeds; minus {what} "
        f"({statistics.fmean(beside):+.2f}): {ahead.mean:+.2f} ± {ahead.half_width:.2g}"
    )
    is_above = own.mean > own.half_width and ahead.mean > ahead.half_width
    is_opposite = own.mean < -own.half_width  # which needs no baseline to be seen
    verdict = Verdict.UNDECIDED if ahead.mean > 0 else Verdict.BELOW
    if is_above or is_opposite:
        verdict = Verdict.DECIDED
    is_as_claimed = own.mean > 0 if is_claimed and verdict is Verdict.DECIDED else None
    return Statement(subject, verdict, detail, own.mean, own.half_width, count, is_as_claimed)
