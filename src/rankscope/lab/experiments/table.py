"""Finished rows in statistics: a table with means and intervals, and partial correlations."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray
from scipy.stats import norm, rankdata
from scipy.stats import t as student

from rankscope.errors import ExperimentError
from rankscope.lab.experiments.experiment import Row, Value

# Finished rows as a table for readers: a line for each setting, its seeds as mean and interval.


_PLACES = ("entry", "setting", "seed")


@dataclass(frozen=True)
class Interval:
    """The mean of several seeds, and a 95 % interval for it.

    Args:
        mean: of the values.
        half_width: Student's t, which takes the values for draws of one normal distribution.
        count: how many seeds had a value.
        seeds: how many there were.

    Example:
        >>> print(Interval.of([97.0, 98.0, 99.0], seeds=3))
        98 ± 2.5
        >>> print(Interval.of([97.0, 98.0, 99.0], seeds=4))
        98 ± 2.5 (3 of 4)
    """

    mean: float
    half_width: float
    count: int
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float], *, seeds: int) -> "Interval":
        """The interval of at least two values."""
        count = len(values)
        scale = statistics.stdev(values) / math.sqrt(count)
        half_width = float(student.ppf(0.975, count - 1)) * scale
        return cls(statistics.fmean(values), half_width, count, seeds)

    def __str__(self) -> str:
        where = "" if self.count == self.seeds else f" ({self.count} of {self.seeds})"
        return f"{in_digits(self.mean, 4)} ± {in_digits(self.half_width, 2)}{where}"


_LARGEST_IN_DIGITS = 1e9


def in_digits(value: float, digits: int) -> str:
    """A number with so many significant digits, and no exponent between a hundred and a billion.

    Example:
        >>> in_digits(2.50001, 4), in_digits(1_981.6, 2), in_digits(2.5e12, 2)
        ('2.5', '2,000', '2.5e+12')
    """
    text = f"{value:.{digits}g}"
    rounded = float(text)
    is_plain = rounded.is_integer() and 100 <= abs(rounded) < _LARGEST_IN_DIGITS
    return f"{rounded:,.0f}" if is_plain else text


DisplayedRow = dict[str, Value | Interval]


@dataclass(frozen=True)
class Table:
    """Lines under the names of their columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[DisplayedRow, ...]

    def cells(self) -> list[list[str]]:
        """The lines as text, a hyphen where one has no value."""
        return [[_text(row.get(column)) for column in self.columns] for row in self.rows]

    def narrowed(self, columns: Sequence[str]) -> "Table":
        """The same for readers: whose a line is, its seeds, and these columns in their order.

        Without columns, all. The name of a baseline is that of its setting already.

        Example:
            >>> wide = table_of("", [{"entry": "two", "width": 2, "loss": 0.5, "heads": 1}])
            >>> wide.narrowed(("loss", "bits", "width")).columns
            ('entry', 'loss', 'width')
        """
        whose = [column for column in self.columns if column in (*_PLACES, "seeds")]
        rest = columns or [column for column in self.columns if column != "baseline"]
        chosen = dict.fromkeys([*whose, *(column for column in rest if column in self.columns)])
        return Table(self.title, tuple(chosen), self.rows)

    def numeric_columns(self) -> tuple[int, ...]:
        """The places of the columns that hold numbers."""
        return tuple(
            place
            for place, column in enumerate(self.columns)
            if any(isinstance(row.get(column), int | float | Interval) for row in self.rows)
        )

    def to_markdown(self) -> str:
        """Render as a Markdown table."""
        lines = [self.columns, ["---"] * len(self.columns), *self.cells()]
        body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"# {self.title}\n\n{body}\n"


def table_of(title: str, rows: Sequence[Row]) -> Table:
    """The table of finished rows, each with its "entry", "setting" and "seed".

    Without seeds, it has a line for each row; else one for each setting.
    """
    if all(row.get("seed") is None for row in rows):
        lines: list[DisplayedRow] = [_without(row, "setting", "seed") for row in rows]
    else:
        settings = dict.fromkeys(str(row["setting"]) for row in rows)
        lines = [
            _summarize([row for row in rows if row["setting"] == setting]) for setting in settings
        ]
    # Columns that no line has a value for say nothing.
    columns = dict.fromkeys(
        column for line in lines for column, value in line.items() if value is not None
    )
    ordered = dict.fromkeys(column for line in lines for column in line if column in columns)
    return Table(title, tuple(ordered), tuple(lines))


def _without(row: Row, *columns: str) -> DisplayedRow:
    return {
        column: value
        for column, value in row.items()
        if column not in columns and not isinstance(value, list)
    }


def _summarize(rows: Sequence[Row]) -> DisplayedRow:
    columns = dict.fromkeys(column for row in rows for column in _without(row, *_PLACES))
    seeded = [row for row in rows if row["seed"] is not None]
    return {
        "setting": rows[0]["setting"],
        "seeds": len(seeded) or None,
        **{column: _summary([row.get(column) for row in rows]) for column in columns},
    }


def _summary(values: Sequence[Value]) -> Value | Interval:
    """What the seeds agree on, the interval of numbers, or the different texts."""
    if all(value == values[0] for value in values):
        return values[0]
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    present = [value for value in values if value is not None]
    if len(numbers) < len(present) or len(numbers) < 2:
        return ", ".join(dict.fromkeys(_text(value) for value in values))
    return Interval.of(numbers, seeds=len(values))


def _text(value: Value | Interval) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return in_digits(value, 4)
    return f"{value:,}" if isinstance(value, int) else str(value)


# Whether two quantities go together once others are accounted for.


Column = Sequence[float]


@dataclass(frozen=True)
class Correlation:
    """A correlation with a 95 % interval, which takes the points for independent draws.

    Args:
        value: in -1..1.
        low: end of the interval.
        high: other end.
        count: how many points there are.
    """

    value: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.value:+.2f} ({self.low:+.2f} to {self.high:+.2f}, {self.count} points)"


def partial_correlation(first: Column, second: Column, controls: Sequence[Column]) -> Correlation:
    r"""Spearman's correlation of two columns, with what the controls explain taken out of both.

    Every column is replaced by its ranks; the ranks of the controls are fitted to those of the two
    by least squares, and what is left of both is correlated. The interval is Fisher's,

    .. math:: \tanh\bigl(\operatorname{artanh} r \pm 1.96 / \sqrt{n - k - 3}\bigr)

    with n points and k controls.

    Example:
        >>> hidden = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
        >>> noise = [0.3, -0.3, 0.3, -0.3, 0.3, -0.3, 0.3, -0.3]
        >>> both = [a + b for a, b in zip(hidden, noise)]
        >>> partial_correlation(both, hidden, [])
        Correlation(value=1.0, low=1.0, high=1.0, count=8)

    Raises:
        ExperimentError: if columns have different lengths, or there are too few points.
    """
    lengths = {len(first), len(second), *map(len, controls)}
    if len(lengths) > 1:
        raise ExperimentError(
            f"partial_correlation: columns must be of one length, got {sorted(lengths)}."
        )
    freedom = len(first) - len(controls) - 3
    if freedom < 1:
        raise ExperimentError(
            f"partial_correlation: {len(controls)} controls need at least {len(controls) + 4} "
            f"points, got {len(first)}."
        )
    basis = numpy.stack([numpy.ones(len(first)), *map(rankdata, controls)], axis=1)
    left, right = (_residual(basis, rankdata(column)) for column in (first, second))
    scale = math.sqrt(float(left @ left) * float(right @ right))
    # Nothing is left of a column that the controls explain: it goes with nothing.
    value = float(left @ right) / scale if scale > 1e-9 else 0.0
    value = max(-1.0, min(1.0, round(value, 12)))
    if abs(value) == 1.0:
        return Correlation(value, value, value, len(first))
    half = float(norm.ppf(0.975)) / math.sqrt(freedom)
    centre = math.atanh(value)
    return Correlation(value, math.tanh(centre - half), math.tanh(centre + half), len(first))


def _residual(
    basis: NDArray[numpy.float64], column: NDArray[numpy.float64]
) -> NDArray[numpy.float64]:
    fitted, *_ = numpy.linalg.lstsq(basis, column, rcond=None)
    left: NDArray[numpy.float64] = column - basis @ fitted
    return left
