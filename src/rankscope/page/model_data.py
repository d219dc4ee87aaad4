"""An audit as plain data for the page, with a server and without: whole, or while it comes in."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath

from rankscope.auditing.auditor import Audit
from rankscope.auditing.configuration import Configuration, Parameters
from rankscope.auditing.depth_width_law import parameters_in_blocks
from rankscope.auditing.findings import Finding
from rankscope.auditing.plane import place_model, to_svg
from rankscope.auditing.tensors import MatrixRow, TensorRow
from rankscope.page.words import PART_NAMES, count_in_words, model_sentence, percent

PLANE_SIZE = (520.0, 320.0)
NUM_SPARK = 33
DECADES = 2  # of a spectrum the size of a word; the same for every row, so that rows compare
DIGITS = re.compile(r"(\d+)")
CACHED_TOKENS = 2048  # for which the key-value cache is said


def overview(audit: Audit, *, is_complete: bool) -> dict[str, object]:
    """Everything the first screen shows, without the spectra of single layers."""
    rows = in_natural_order(audit.tensors)
    return {
        "name": PurePath(audit.source).name or audit.source,
        "source": audit.source,
        "sentence": model_sentence(audit),
        "total": f"{count_in_words(audit.parameters.total)} parameters",
        "verdict": verdict(audit, is_complete=is_complete),
        "findings": [_finding(finding) for finding in audit.findings],
        "parameters": _parameters(audit.parameters),
        "plane": _plane(audit.configuration),
        "tensors": [tensor_data(row) for row in rows],
        "is_complete": is_complete,
        "cache": None if audit.configuration is None else cache_data(audit.configuration),
    }


def in_natural_order(rows: Sequence[TensorRow]) -> list[TensorRow]:
    """As a reader counts, where the file was sorted by letters; otherwise as they stand.

    Example:
        >>> names = ("h.0.w", "h.1.w", "h.10.w", "h.2.w")
        >>> rows = [TensorRow(name, "other", (2, 2), "float32") for name in names]
        >>> [row.name for row in in_natural_order(rows)]
        ['h.0.w', 'h.1.w', 'h.2.w', 'h.10.w']
    """
    names = [row.name for row in rows]
    if names != sorted(names):
        return list(rows)
    # Embeddings first and what follows the blocks last, as data flow.
    last = {"head": 2}
    return sorted(
        rows,
        key=lambda row: (
            0 if row.part == "embedding" and row.layer is None else 1,
            1 if row.layer is not None else last.get(row.part, 1.5),
            [(int(part), "") if part.isdigit() else (-1, part) for part in DIGITS.split(row.name)],
        ),
    )


# --- The verdict: what to do, what it saves, the command ------------------------------------------


@dataclass(frozen=True)
class _Verdict:
    headline: str
    saving: str
    command: str
    is_final: bool = True


def verdict(audit: Audit, *, is_complete: bool) -> dict[str, object]:
    """The one finding to act on; before the weights are read, that of the shape."""
    by_id = {finding.id: finding for finding in audit.findings}
    chosen = by_id.get("low-rank") or next(iter(audit.findings), None)
    if not audit.tensors:
        chosen = next(iter(audit.findings), None)
    if is_complete and audit.tensors and "low-rank" not in by_id:
        text = "No matrix gets smaller by two factors that keep 99 % of its squares."
        made = _Verdict(text, "A smaller model costs accuracy: the slider says how much.", "")
    elif chosen is None:
        made = _Verdict("Nothing stands out.", "", "", is_complete)
    else:
        saving = ""
        if chosen.saving is not None:
            saving = f"Saves {percent(chosen.saving)} of all parameters."
        made = _Verdict(chosen.title, saving, chosen.command, is_complete)
    return asdict(made)


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "id": finding.id,
        "severity": finding.severity.name.lower(),
        "title": finding.title,
        "value": _rounded(finding.value),
        "threshold": _rounded(finding.threshold),
        "saving": None if finding.saving is None else percent(finding.saving),
        "reason": finding.reason,
        "reference": finding.reference,
        "command": finding.command,
    }


def _parameters(parameters: Parameters) -> list[dict[str, object]]:
    total = max(1, parameters.total)
    return [
        {"part": part, "name": PART_NAMES[part], "count": count, "share": count / total}
        for part, count in asdict(parameters).items()
        if count
    ]


def _plane(configuration: Configuration | None) -> dict[str, str] | None:
    placed = None if configuration is None else place_model(configuration)
    if configuration is None or placed is None:
        return None
    size = count_in_words(parameters_in_blocks(configuration))
    return {
        "svg": to_svg(placed.plane, PLANE_SIZE, placed.description),
        "caption": f"With {size} parameters in blocks {placed.caption}",
    }


def cache_data(configuration: Configuration) -> dict[str, int]:
    """Numbers that the key-value cache holds for one token, in all blocks, as it is."""
    width = configuration.key_value_heads * configuration.head_size
    return {
        "numbers_per_token": 2 * configuration.depth * width,
        "width": width,
        "depth": configuration.depth,
        "tokens": CACHED_TOKENS,
    }


# --- Tensors: a few numbers for each matrix, and its spectrum the size of a word ------------------


def tensor_data(row: TensorRow) -> dict[str, object]:
    """One tensor: what the heat map and the table show of it."""
    first = row.matrices[0] if row.matrices else None
    return {
        "name": row.name,
        "part": PART_NAMES.get(row.part, row.part),
        "layer": row.layer,
        "shape": list(row.shape),
        "reason": row.reason,
        "same_as": row.same_as,
        "matrices": [_numbers(matrix) for matrix in row.matrices],
        "spark": None if first is None else _spark(first.singular_values),
    }


def _numbers(matrix: MatrixRow) -> list[object]:
    """Numbers that scripts of the page read by their place."""
    return [
        matrix.name,
        *matrix.shape,
        matrix.num_values,
        _rounded(matrix.effective_rank),
        _rounded(matrix.stable_rank),
        matrix.rank_at.get("90"),
        matrix.outliers,
        _rounded(matrix.largest),
        _rounded(matrix.random_distance),
    ]


def _spark(values: Sequence[float]) -> list[int] | None:
    """Values over the largest on a logarithmic scale, as percents of the height from the top."""
    if not values or not 0 < values[0] < math.inf:
        return None
    last = len(values) - 1
    count = min(NUM_SPARK, last + 1)
    depths = []
    for point in range(count):
        value = values[round(point / max(count - 1, 1) * last)] / values[0]
        depths.append(min(-math.log10(value), DECADES) if value > 0 else DECADES)
    return [round(100 * depth / DECADES) for depth in depths]


def spectrum_data(row: TensorRow) -> dict[str, object]:
    """One tensor with all its spectra, and those that chance gives matrices of these shapes."""
    # Imported here, because it needs numpy: the first screen must be quick.
    from rankscope.auditing.spectra import random_quantiles, random_sizes

    matrices = []
    for matrix in row.matrices:
        quantiles = random_quantiles(random_sizes(matrix), 64)
        matrices.append(
            {
                **matrix.to_dict(),
                "singular_values": _shortened(matrix.singular_values),
                "random": _shortened(quantiles),
            }
        )
    return {"name": row.name, "dtype": row.dtype, "shape": list(row.shape), "matrices": matrices}


def _shortened(values: Iterable[float]) -> list[float | None]:
    return [_rounded(value) for value in values]


def _rounded(value: float | int) -> float | int | None:
    """Four digits that count; None where JSON has no number."""
    if isinstance(value, int):
        return value
    return float(f"{value:.4g}") if math.isfinite(value) else None
