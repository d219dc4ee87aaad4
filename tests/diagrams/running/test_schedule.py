import pytest

from rankscope.diagrams.running import (
    Array,
    Fill,
    Multiply,
    Operation,
    Read,
    Reader,
    Schedule,
    Spread,
)


@pytest.mark.parametrize(
    ("operation", "stored"),
    [
        (Read(1, (0,), (2, 3), None), None),
        (Fill(1, (), (2, 3), 0.5), 1),
        (Multiply(1, (0,), (3, 2), (("a", "b"),), ("b", "a")), None),
        (Multiply(1, (0,), (2,), (("a", "a"),), ("a",)), None),
        (Multiply(1, (0,), (2,), (("a", "b"),), ("a",)), 2),
        (Multiply(2, (0, 1), (2, 3), (("a", "b"), ("a",)), ("a", "b")), 6),
        (Spread(1, (0,), (2, 5), (("a",),), ("a", "c"), 1.0), None),
        (Spread(1, (0,), (2, 5), (("a",),), ("a", "c"), 2.0), 2),
        (Spread(1, (0,), (2, 5), (("a", "b"),), ("a", "c"), 1.0), 2),
    ],
)
def test_views_and_copies_that_take_no_memory_are_known(
    operation: Operation, stored: int | None
) -> None:
    assert operation.stored_entries == stored


def test_values_are_arrays_and_then_results() -> None:
    data = Array("x", True, False, (Reader("X", None, (2, 3)),), 1)
    weight = Array("w", False, False, (Reader("W", None, (4,)),), 1)
    read = Read(2, (0,), (6,), None)
    schedule = Schedule("s", (data, weight), (read,), ("x", "w", "X"), (2,))
    assert (schedule.inputs, schedule.stored) == ((data,), (weight,))
    assert schedule.shapes == ((2, 3), (4,), (6,))
