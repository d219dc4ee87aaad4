from rankscope.diagrams import Contraction, Plan, RegionPlan


def move(positions: tuple[int, ...], flops: int, size: int) -> Contraction:
    return Contraction(positions, (), (), "r#0", (), (), flops, size)


def test_a_plan_adds_operations_and_keeps_the_largest_product_or_value() -> None:
    inner = RegionPlan("R", ("A", "B", "C"), (move((0, 2), 10, 7), move((0, 1), 5, 3)), 3)
    outer = RegionPlan(None, ("R",), (), 3)
    plan = Plan((inner, outer), "Automatic()")
    assert inner.path == ((0, 2), (0, 1))
    assert plan.flops == 15
    assert plan.largest_intermediate == 7
    assert [part.flops for part in plan.contractions] == [10, 5]


def test_a_lone_value_counts_as_an_output() -> None:
    assert Plan((RegionPlan(None, ("A",), (), 12),), "Automatic()").largest_intermediate == 12
