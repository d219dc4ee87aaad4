import pytest

from rankscope.diagrams import Diagram, Index, Network, Node, Role, Step
from rankscope.diagrams.running import arrays_of
from rankscope.errors import DiagramError, SizeError

SIZES = {"a": 2, "b": 3, "c": 4, "d": 6}


def diagram(*nodes: Node) -> Diagram:
    held = dict.fromkeys(index for node in nodes for index in node.indices)
    return Diagram("d", tuple(Index(name, SIZES[name]) for name in held), nodes, ())


def test_inputs_come_first_and_an_array_is_counted_once() -> None:
    found = arrays_of(
        diagram(
            Node("W", ("a", "b"), array="w"),
            Node("X", ("b", "c"), Role.DATA),
            Node("V", ("b", "a"), array="w"),
            Node("one", ("a",), Role.CONSTANT),
        )
    )
    assert [(array.name, array.is_input, array.entries) for array in found] == [
        ("X", True, 12),
        ("w", False, 6),
    ]
    assert found[1].shape == (2, 3)
    assert found[1].fan == 6


def test_rows_that_two_nodes_share_are_counted_once() -> None:
    (array,) = arrays_of(
        diagram(
            Node("A", ("a", "b"), array="w", rows=(0, 2)),
            Node("B", ("b", "d"), array="w", rows=(1, 7)),
            Node("C", ("b",), array="w", rows=(9, 10)),
        )
    )
    assert (array.shape, array.num_rows, array.entries) == ((10, 3), 10, 8 * 3)


def test_values_of_earlier_steps_are_not_arrays() -> None:
    first = Diagram("first", (Index("a", 2),), (Node("X", ("a",), Role.DATA),), ("a",))
    second = Diagram("second", (Index("a", 2),), (Node("Y", ("a",), Role.DATA, array="s"),), ())
    network = Network("n", (Step("s", first), Step("t", second)))
    assert [array.name for array in arrays_of(network)] == ["X"]


def test_an_array_of_integers_leaves_out_the_one_hot_index() -> None:
    (array,) = arrays_of(diagram(Node("ids", ("a", "b", "d"), Role.DATA, is_one_hot=True)))
    assert (array.is_integer, array.shape) == (True, (2, 3))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            (Node("A", ("a", "b"), array="w"), Node("B", ("c",), array="w")),
            r"'A' and 'B' share array 'w', but the first has 6 entries and the second 4",
        ),
        (
            (
                Node("A", ("a", "b"), array="w", rows=(0, 2)),
                Node("B", ("c",), array="w", rows=(2, 4)),
            ),
            r"'A' and 'B' read rows of array 'w', the first of 3 entries and the second of 2",
        ),
        (
            (Node("A", ("a", "b"), array="w"), Node("B", ("d", "c"), array="w", rows=(0, 4))),
            r"'w' has 6 entries for node 'A', but others read 4 rows of 6",
        ),
        (
            (Node("A", ("a", "b"), rows=(1, 5)),),
            r"'A' reads rows \(1, 5\) of array 'A' into 6 entries",
        ),
        ((Node("A", ("a", "b"), rows=(2, 2)),), r"'A' reads rows \(2, 2\)"),
    ],
)
def test_readers_that_contradict_each_other_are_refused(
    nodes: tuple[Node, ...], message: str
) -> None:
    with pytest.raises(SizeError, match=message):
        arrays_of(diagram(*nodes))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((Node("R", ("a",), Role.RESULT),), r"'R' of diagram 'd' is a result, which has no array"),
        ((Node("P", ("a", "b"), is_one_hot=True),), r"'P' .* is a one-hot parameter"),
        (
            (Node("A", ("a",), Role.DATA, array="w"), Node("B", ("a",), array="w")),
            r"'w' is read as data by only one of the nodes 'A' and 'B'",
        ),
        (
            (
                Node("A", ("a",), Role.DATA, array="w"),
                Node("B", ("a", "b"), Role.DATA, array="w", is_one_hot=True),
            ),
            r"'w' is read as integers of a one-hot node by only one of the nodes 'A' and 'B'",
        ),
    ],
)
def test_nodes_without_values_of_their_kind_are_refused(
    nodes: tuple[Node, ...], message: str
) -> None:
    with pytest.raises(DiagramError, match=message):
        arrays_of(diagram(*nodes))
