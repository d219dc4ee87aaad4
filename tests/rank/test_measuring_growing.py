from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.progress import Progress, ignore
from rankscope.rank import (
    GrowingMatrices,
    Numbers,
    Residues,
    SplitFunction,
    TilesInMemory,
    draw_residues,
    pivots_modulo,
)
from rankscope.workers import Workers

PRIME = 101
TABLE = draw_residues(0, "table", (3, 40, 40), PRIME)
shapes = st.tuples(st.integers(0, 40), st.integers(0, 40))


class Table(SplitFunction):
    """Three tables of residues; counts the pairs it was asked for."""

    prime = PRIME
    num_grades = 3

    def __init__(self) -> None:
        self.num_pairs = 0

    def values(self, rows: Numbers, columns: Numbers) -> Residues:
        whole: Residues = self.graded_values(rows, columns).sum(0) % self.prime
        return whole

    def graded_values(self, rows: Numbers, columns: Numbers) -> Residues:
        self.num_pairs += len(rows) * len(columns)
        return TABLE[:, rows][:, :, columns]


def growing(function: SplitFunction, *, is_graded: bool) -> GrowingMatrices:
    return GrowingMatrices(
        function,
        is_graded=is_graded,
        store=TilesInMemory(),
        workers=Workers("sequential"),
        report=ignore,
    )


@settings(deadline=None, max_examples=50)
@given(steps=st.lists(st.tuples(shapes, shapes, shapes), min_size=1, max_size=3))
def test_each_graded_matrix_is_the_corner_of_its_table_however_it_grew(
    steps: list[tuple[tuple[int, int], ...]],
) -> None:
    matrices = growing(Table(), is_graded=True)
    for step in steps:
        wanted = [
            (max(old[0], new[0]), max(old[1], new[1]))
            for old, new in zip(matrices.shapes, step, strict=True)
        ]
        matrices.grow(wanted)
        for grade, (rows, columns) in enumerate(wanted):
            expected = pivots_modulo(TABLE[grade, :rows, :columns], PRIME)
            assert matrices.pivots(grade) == expected


def test_nothing_is_computed_twice() -> None:
    function = Table()
    matrices = growing(function, is_graded=False)
    for size in (5, 10, 40):
        matrices.grow([(size, size)])
    assert function.num_pairs == 40 * 40
    assert matrices.pivots(0) == pivots_modulo(TABLE.sum(0), PRIME)


def test_every_tile_is_reported_and_known_ones_at_once() -> None:
    reports: list[Progress] = []
    store = TilesInMemory()
    for _ in range(2):
        GrowingMatrices(
            Table(),
            is_graded=False,
            store=store,
            workers=Workers("sequential"),
            report=reports.append,
        ).grow([(20, 40)])
    assert reports == [Progress("values modulo 101", 1, 1)] * 2
