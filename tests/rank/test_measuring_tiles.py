from itertools import product

import numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.rank import (
    Numbers,
    Residues,
    SplitFunction,
    Tile,
    TilesInMemory,
    evaluate_tile,
    plan_tiles,
)

sides = st.integers(0, 30)
shapes = st.tuples(sides, sides)


class Numbered(SplitFunction):
    """Every entry says where it stands, and in which part."""

    prime = 2**31 - 1
    num_grades = 3

    def values(self, rows: Numbers, columns: Numbers) -> Residues:
        return 1000 * rows[:, None] + columns[None]

    def graded_values(self, rows: Numbers, columns: Numbers) -> Residues:
        return numpy.stack([self.values(rows, columns) + 10**6 * grade for grade in range(3)])


@settings(deadline=None)
@given(
    pairs=st.lists(st.tuples(shapes, shapes), min_size=1, max_size=4),
    side=st.integers(1, 12),
)
def test_tiles_cover_all_that_is_new_once_and_little_else(
    pairs: list[tuple[tuple[int, int], tuple[int, int]]], side: int
) -> None:
    known = [(min(a[0], b[0]), min(a[1], b[1])) for a, b in pairs]
    wanted = [(max(a[0], b[0]), max(a[1], b[1])) for a, b in pairs]
    tiles = plan_tiles(known, wanted, side)
    names = [tile.name for tile in tiles]
    assert len(set(names)) == len(names)
    for matrix, (old, new) in enumerate(zip(known, wanted, strict=True)):
        covered: set[tuple[int, int]] = set()
        for tile in tiles:
            assert max(tile.shape[1:]) <= side
            if matrix in tile.matrices:
                places = set(product(range(*tile.rows), range(*tile.columns)))
                assert not covered & places
                covered |= places
        inside = set(product(range(old[0]), range(old[1])))
        whole = set(product(range(new[0]), range(new[1])))
        assert not covered & inside
        assert covered >= whole - inside


def test_each_tile_is_trimmed_to_the_matrices_that_need_it() -> None:
    tiles = plan_tiles([(0, 0), (0, 0)], [(3, 3), (10, 5)], 4)
    assert Tile((4, 8), (0, 4), (1,)) in tiles
    assert Tile((8, 10), (4, 5), (1,)) in tiles
    assert sum(tile.shape[1] * tile.shape[2] for tile in tiles) == 50


def test_a_tile_holds_the_parts_of_its_matrices_only() -> None:
    tile = Tile((2, 4), (5, 8), (0, 2))
    parts = evaluate_tile(Numbered(), tile, is_graded=True)
    assert parts.shape == tile.shape == (2, 2, 3)
    assert parts.dtype == numpy.int32
    assert parts[:, 1, 2].tolist() == [3007, 2_003_007]
    whole = evaluate_tile(Numbered(), Tile((2, 4), (5, 8), (0,)), is_graded=False)
    assert whole[:, 1, 2].tolist() == [3007]


def test_the_largest_residue_fits_a_tile() -> None:
    class Largest(SplitFunction):
        prime = 2**31 - 1

        def values(self, rows: Numbers, columns: Numbers) -> Residues:
            return numpy.full((len(rows), len(columns)), self.prime - 1)

    parts = evaluate_tile(Largest(), Tile((0, 1), (0, 1), (0,)), is_graded=False)
    assert parts.tolist() == [[[2**31 - 2]]]


def test_memory_keeps_what_it_is_given() -> None:
    store, tile = TilesInMemory(), Tile((0, 1), (0, 2), (0,))
    assert not store.has(tile)
    store.put(tile, numpy.array([[[1, 2]]], dtype=numpy.int32))
    assert store.has(tile)
    assert store.get(tile).tolist() == [[[1, 2]]]
