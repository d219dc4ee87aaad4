from rankscope.diagrams import IndexKind
from rankscope.diagrams.families.settings import bonds, names, sites


def test_sites_and_bonds_are_counted_from_one() -> None:
    legs = (*sites((4, None)), *sites((5,), letter="j"), *bonds((2, 3)))
    assert names(legs) == ("i1", "i2", "j1", "r1", "r2")
    assert [leg.size for leg in legs] == [4, None, 5, 2, 3]
    assert [leg.tex for leg in legs] == ["I_{1}", "I_{2}", "J_{1}", "R_{1}", "R_{2}"]
    assert [leg.kind for leg in legs[2:4]] == [IndexKind.GENERIC, IndexKind.RANK]
