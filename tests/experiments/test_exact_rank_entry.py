from pathlib import Path

import pytest

from rankscope.experiments.bottlenecks import ExactRankEntry
from rankscope.experiments.experiment import RunContext


@pytest.mark.parametrize(
    ("entry", "rank"),
    [
        (ExactRankEntry(2, 2), 18),
        (ExactRankEntry(2, 4, embedding_rank=2), 18),
        (ExactRankEntry(2, 6, embedding_rank=2), 18),
        (ExactRankEntry(2, 4, 2, 2), 107),
        (ExactRankEntry(2, 4, 8, 1), 107),
        (ExactRankEntry(1, 4, 1, 2), 3),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_ranks_are_those_of_the_specification(
    entry: ExactRankEntry, rank: int, tmp_path: Path
) -> None:
    row = entry.run(RunContext(tmp_path, None, 60.0))
    assert row["exact rank"] == rank
    assert isinstance(row["rank at most"], int)
    assert row["rank at most"] >= rank
