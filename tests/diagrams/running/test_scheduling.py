import pytest

from rankscope.diagrams import Diagram, Function, Index, Node, Region, Role, Sum, Term, peak_memory
from rankscope.diagrams.running import Add, Apply, Fill, Mask, Multiply, Read, Scale, Spread
from rankscope.diagrams.running.schedule import schedule

SIZES = {"a": 2, "b": 3, "c": 4}


def diagram(*nodes: Node, output: str, region: Region | None = None) -> Diagram:
    held = dict.fromkeys(index for node in nodes for index in node.indices)
    indices = tuple(Index(name, SIZES[name]) for name in held)
    return Diagram("d", indices, nodes, tuple(output), regions=(region,) if region else ())


def test_a_view_that_was_made_before_is_used_again() -> None:
    planned = schedule(
        diagram(
            Node("X", ("a", "b"), Role.DATA, array="x"),
            Node("Y", ("c", "b"), array="w"),
            Node("Z", ("a", "c")),
            Node("again", ("a", "b"), Role.DATA, array="x"),
            output="",
        )
    )
    reads = [operation for operation in planned.operations if isinstance(operation, Read)]
    assert [read.sources for read in reads] == [(0,), (1,), (2,)]


def test_constants_fold_into_one_factor() -> None:
    planned = schedule(
        diagram(
            Node("half", ("a",), Role.CONSTANT, fill=0.5),
            Node("third", ("b",), Role.CONSTANT, fill=3.0),
            output="a",
        )
    )
    # Half of three, summed over the three entries of b.
    (fill,) = planned.operations
    assert isinstance(fill, Fill)
    assert (fill.value, fill.shape, fill.sources) == (4.5, (2,), ())


def test_a_product_with_a_constant_is_a_sum_and_a_factor() -> None:
    planned = schedule(
        diagram(
            Node("X", ("a", "b"), Role.DATA),
            Node("two", ("b", "c"), Role.CONSTANT, fill=2.0),
            output="a",
        )
    )
    spread = planned.operations[-1]
    assert isinstance(spread, Spread)
    assert (spread.inputs, spread.output, spread.factor) == ((("a", "b"),), ("a",), 8.0)


def test_a_region_scales_then_masks_then_applies() -> None:
    region = Region("R", ("X",), Function("softmax"), over=("b",), scale="2", causal=("a", "b"))
    planned = schedule(diagram(Node("X", ("a", "b"), Role.DATA), output="ab", region=region))
    kinds = [type(operation) for operation in planned.operations]
    assert kinds == [Read, Scale, Mask, Apply]
    assert planned.results == (planned.operations[-1].target,)


def test_a_group_without_function_leaves_no_trace() -> None:
    region = Region("R", ("X", "W"), Function("identity"))
    planned = schedule(
        diagram(Node("X", ("a", "b"), Role.DATA), Node("W", ("b",)), output="a", region=region)
    )
    assert [type(operation) for operation in planned.operations] == [Read, Read, Multiply]


@pytest.mark.parametrize("coefficient", [1.0, 2.0])
def test_a_sum_of_one_term_is_the_term(coefficient: float) -> None:
    term = diagram(Node("X", ("a",), Role.DATA), output="a")
    planned = schedule(Sum("s", (Term(term, coefficient),)))
    kinds = [type(operation) for operation in planned.operations]
    assert kinds == ([Read] if coefficient == 1.0 else [Read, Add])


def test_a_sum_keeps_no_more_than_one_total_and_one_term() -> None:
    terms = [diagram(Node(name, ("a",)), Node("W", ("a",)), output="a") for name in "XYZ"]
    coefficients = (2.0, 3.0, 5.0)
    planned = schedule(Sum("s", tuple(map(Term, terms, coefficients))))
    adds = [operation for operation in planned.operations if isinstance(operation, Add)]
    assert [add.coefficients for add in adds] == [(2.0, 3.0), (1.0, 5.0)]
    assert adds[1].sources[0] == adds[0].target
    # Four arrays of two entries, a total, a term, and the next total.
    assert peak_memory(planned) == 4 * 2 + 3 * 2
