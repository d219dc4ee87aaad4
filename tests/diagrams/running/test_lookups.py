import pytest

from rankscope.diagrams import Diagram, Function, Index, Node, Region, Role, plan_contraction
from rankscope.diagrams.running.schedule import schedule
from rankscope.errors import ContractionError, DiagramError

IDS = Node("ids", ("n", "v"), Role.DATA, is_one_hot=True)


def diagram(*nodes: Node, output: tuple[str, ...], region: tuple[str, ...] = ()) -> Diagram:
    sizes = {"n": 3, "v": 10, "f": 4, "g": 5}
    held = {index for node in nodes for index in node.indices}
    return Diagram(
        "table",
        tuple(Index(name, size) for name, size in sizes.items() if name in held),
        nodes,
        output,
        regions=(Region("R", region, Function("relu")),) if region else (),
    )


def test_a_look_up_is_the_first_move_and_costs_nothing() -> None:
    table = diagram(Node("W", ("f", "g")), IDS, Node("E", ("v", "f")), output=("n", "g"))
    first, second = plan_contraction(table).contractions
    assert (first.is_lookup, first.positions, first.operands) == (True, (1, 2), ("ids", "E"))
    assert (first.output, first.flops, first.size) == (("n", "f"), 0, 12)
    assert (second.is_lookup, second.positions, second.flops) == (False, (0, 1), 2 * 3 * 4 * 5)


@pytest.mark.parametrize(
    ("nodes", "output", "region", "held"),
    [
        ((IDS, Node("E", ("v", "f"))), ("n", "v"), (), r"\['E'\] and open"),
        ((IDS, Node("E", ("v", "f")), Node("D", ("v",))), ("n",), (), r"\['E', 'D'\]"),
        ((IDS,), ("n",), (), "none"),
        ((IDS, Node("E", ("v", "f"))), ("n",), ("ids",), r"\['E'\]"),
    ],
)
def test_a_one_hot_index_without_exactly_one_table_beside_it_is_refused(
    nodes: tuple[Node, ...], output: tuple[str, ...], region: tuple[str, ...], held: str
) -> None:
    with pytest.raises(ContractionError, match=rf"'ids' picks along .*'v'.* held by {held}\."):
        plan_contraction(diagram(*nodes, output=output, region=region))


def test_one_hot_nodes_that_pick_from_each_other_are_refused() -> None:
    other = Node("other", ("f", "v"), Role.DATA, is_one_hot=True)
    with pytest.raises(ContractionError, match="One-hot nodes ids, other pick from each other"):
        plan_contraction(diagram(IDS, other, output=("n", "f")))


def test_a_constant_one_hot_node_must_pick_an_entry_that_exists() -> None:
    for wrong in (10.0, -1.0, 0.5):
        node = Node("pick", ("v",), Role.CONSTANT, is_one_hot=True, fill=wrong)
        with pytest.raises(DiagramError, match=rf"picks entry {wrong} .*'v'.* 0, …, 9"):
            schedule(diagram(node, Node("E", ("v", "f")), output=("f",)))
