"""Pairs of sentences: two files line by line (Multi30k), or a table with scores (STS-B)."""

import csv
import io
from pathlib import Path

from rankscope.errors import DataError
from rankscope.training.readers.text import read_text


def read_sentence_pairs(first: Path, second: Path) -> list[tuple[str, str]]:
    """Line by line, a sentence and its translation.

    Raises:
        DataError: if a file is not readable, or the numbers of lines differ.
    """
    # Only a newline ends a line: sentences may hold other separators.
    left, right = (read_text(path).removesuffix("\n").split("\n") for path in (first, second))
    if len(left) != len(right):
        raise DataError(f"{first} has {len(left):,} lines, but {second} has {len(right):,}.")
    return list(zip(left, right, strict=True))


def read_scored_pairs(path: Path) -> list[tuple[str, str, float]]:
    """Two sentences and how alike they are, from rows of a CSV file without a header.

    Raises:
        DataError: if the file is not readable, or a row has other fields.
    """
    found = []
    for number, row in enumerate(csv.reader(io.StringIO(read_text(path), newline="")), start=1):
        try:
            one, other, score = row
            found.append((one, other, float(score)))
        except ValueError as error:
            raise DataError(
                f"{path}, row {number:,}: wanted two sentences and a score, got {len(row)} fields "
                f"ending in {row[-1:]}."
            ) from error
    return found
