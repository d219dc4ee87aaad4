"""What the spectra of the weights give away."""

import math
import shlex
from collections.abc import Iterator, Sequence

from rankscope.auditing.configuration import Parameters
from rankscope.auditing.findings import Finding, Severity
from rankscope.auditing.tensors import MatrixRow, TensorRow

ENERGY = "99"  # percent of the squares of the singular values that a smaller factor shall keep
NEAR_RANDOM = 0.05  # Kolmogorov-Smirnov distance below which a spectrum looks random
_DERIVED = ("head ", "operator")  # products of heads, convolutions as operators
SPIKE = 10.0  # largest singular value over the random edge, from which it is worth a word


def weight_findings(
    rows: Sequence[TensorRow], parameters: Parameters, source: str
) -> tuple[Finding, ...]:
    """Findings about the weights, the weightiest first; `source` is named in their commands."""
    found = [
        *_low_rank(rows, parameters, source),
        *_copies(rows, parameters, source),
        *_spikes(rows, source),
        *_near_random(rows, source),
    ]
    return tuple(sorted(found, key=lambda finding: -finding.severity))


def _again(source: str) -> str:
    """The command that shows all rows; without a source it is the embedded model."""
    return f"rankscope audit {shlex.quote(source)} --json" if source else "rankscope audit --json"


def _smaller(source: str, matrix: MatrixRow, saving: float) -> str:
    """The command that makes use of low ranks: on files alone only their price is known."""
    keep = math.ceil(100 * (1 - saving)) / 100
    if not source:
        return f"rankscope compress transformer --keep {keep} --dry-run"
    if ":" in source:
        return f"rankscope compress {shlex.quote(source)} --keep {keep} --dry-run"
    rows, columns = matrix.shape
    return (
        f'rankscope cost "bi,ri,or->bo" --size b=1 --size i={columns} '
        f"--size r={matrix.rank_at[ENERGY]} --size o={rows}"
    )


def _counted(number: int) -> str:
    return "1 matrix" if number == 1 else f"{number:,} matrices"


def factored_saving(matrix: MatrixRow) -> int:
    """Parameters that two factors save which keep 99 % of the squares; 0 if they save none."""
    rows, columns = matrix.shape
    return max(0, rows * columns - matrix.rank_at[ENERGY] * (rows + columns))


def _own(rows: Sequence[TensorRow]) -> Iterator[tuple[TensorRow, MatrixRow]]:
    """The matrices that hold a tensor's numbers: itself, or what is packed in it."""
    for row in rows:
        for matrix in row.matrices:
            if row.same_as is None and not matrix.name.startswith(_DERIVED):
                yield row, matrix


def _low_rank(rows: Sequence[TensorRow], parameters: Parameters, source: str) -> Iterator[Finding]:
    savings = [(factored_saving(matrix), row, matrix) for row, matrix in _own(rows)]
    savings = [entry for entry in savings if entry[0] > 0]
    if not savings:
        return
    saving = sum(saved for saved, _, _ in savings) / max(1, parameters.total)
    _, row, matrix = max(savings, key=lambda entry: entry[0])
    share, full = matrix.rank_at[ENERGY], min(matrix.shape)
    yield Finding(
        id="low-rank",
        severity=Severity.ADVICE,
        title=f"Two factors that keep {ENERGY} % of the squares would be smaller for "
        f"{_counted(len(savings))}; most in {row.name}, rank {share:,} of {full:,}.",
        value=share,
        threshold=full,
        saving=round(saving, 4),
        reason="Truncating the singular values is the best approximation of a given rank in the "
        "mean square; what it does to the loss has to be measured.",
        reference="Eckart & Young (1936); measured spectra",
        command=_smaller(source, matrix, saving),
    )


def _copies(rows: Sequence[TensorRow], parameters: Parameters, source: str) -> Iterator[Finding]:
    copies = [row for row in rows if row.same_as is not None]
    if not copies:
        return
    size = sum(math.prod(row.shape) for row in copies)
    stored = parameters.total + size
    yield Finding(
        id="copies",
        severity=Severity.NOTE,
        title=f"{len(copies)} tensors hold the same numbers as another one, "
        f"such as {copies[0].name} and {copies[0].same_as}.",
        value=len(copies),
        threshold=0,
        saving=round(size / max(1, stored), 4),
        reason="Tied weights need to be stored once; copies that are not tied train apart.",
        reference="equal bytes",
        command=_again(source),
    )


def _spikes(rows: Sequence[TensorRow], source: str) -> Iterator[Finding]:
    ratios = [
        (matrix.largest / matrix.random_edge, row, matrix)
        for row, matrix in _own(rows)
        if matrix.random_edge > 0
    ]
    high = [entry for entry in ratios if entry[0] > SPIKE]
    if not high:
        return
    ratio, row, matrix = max(high, key=lambda entry: entry[0])
    yield Finding(
        id="spikes",
        severity=Severity.NOTE,
        title=f"{len(high)} matrices have a singular value more than {SPIKE:.0f} times the edge "
        f"of a random matrix; the largest is {ratio:.3g} times, in {row.name}.",
        value=round(ratio, 3),
        threshold=SPIKE,
        saving=None,
        reason=f"Its largest singular value is {matrix.largest:.4g}: so far can a perturbation "
        "be carried by this matrix alone, and low precision loses the rest first.",
        reference="Marchenko & Pastur (1967); measured spectra",
        command=_again(source),
    )


def _near_random(rows: Sequence[TensorRow], source: str) -> Iterator[Finding]:
    own = list(_own(rows))
    near = [row for row, matrix in own if matrix.random_distance < NEAR_RANDOM]
    if not near:
        return
    yield Finding(
        id="near-random",
        severity=Severity.NOTE,
        title=f"{len(near)} of {len(own)} matrices have the spectrum of a random matrix, "
        f"such as {near[0].name}.",
        value=len(near),
        threshold=0,
        saving=None,
        reason=f"Their singular values are within {NEAR_RANDOM} (Kolmogorov-Smirnov) of those of "
        "independent entries: they may be untrained, or trained far from any low rank.",
        reference="Marchenko & Pastur (1967); measured spectra",
        command=_again(source),
    )
