from rankscope.diagrams import Merge, Problem
from rankscope.diagrams.search import mask_of


def merge(problem: Problem, first: int = 0, second: int = 1) -> Merge | None:
    others = problem.output_mask
    for place, mask in enumerate(problem.masks):
        others |= 0 if place in (first, second) else mask
    pair = problem.masks[first], problem.masks[second]
    return problem.merge(pair, others, problem.all_convolutions)


def test_an_outer_product_costs_one_operation_per_entry_and_a_sum_two() -> None:
    assert merge(Problem(((0,), (1,)), (0, 1), (3, 4))) == Merge(0b11, 0, 12)
    assert merge(Problem(((0, 1), (1, 2)), (0, 2), (3, 4, 5))) == Merge(0b101, 0, 120)


def test_an_index_that_a_third_operand_needs_is_kept() -> None:
    assert merge(Problem(((0,), (0,), (0,)), (), (7,))) == Merge(0b1, 0, 7)


def test_legs_of_a_convolution_to_come_are_kept() -> None:
    # A(h, c) meets B(c) while the kernel is elsewhere.
    problem = Problem(((0, 3), (3,), (1,)), (2,), (9, 3, 7, 2), ((0, 1, 2),))
    assert merge(problem) == Merge(0b1, 0, 2 * 9 * 2)


def test_four_convolutions_at_once_are_too_many() -> None:
    for count, is_possible in ((3, True), (4, False)):
        legs = [(3 * c, 3 * c + 1, 3 * c + 2) for c in range(count)]
        problem = Problem(
            (tuple(leg[0] for leg in legs), tuple(leg[1] for leg in legs)),
            tuple(leg[2] for leg in legs),
            (5, 2, 4) * count,
            tuple(legs),
        )
        found = merge(problem)
        assert (found is not None) == is_possible
        if found is not None:
            assert found.flops == 2 * (4 * 2) ** 3


def test_an_output_that_one_side_already_holds_is_refused() -> None:
    assert merge(Problem(((0, 2), (1,)), (2,), (9, 3, 7), ((0, 1, 2),))) is None


def test_two_outputs_of_one_name_cannot_be_made_at_once() -> None:
    problem = Problem(((0, 2), (1, 3)), (4,), (9, 3, 9, 3, 7), ((0, 1, 4), (2, 3, 4)))
    assert merge(problem) is None


def test_inputs_of_two_convolutions_must_be_on_the_same_side() -> None:
    legs = ((0, 1, 4), (2, 3, 5))
    together = Problem(((0, 2), (1, 3)), (4, 5), (9, 3, 9, 3, 7, 7), legs)
    opposite = Problem(((0, 3), (1, 2)), (4, 5), (9, 3, 9, 3, 7, 7), legs)
    assert merge(together) == Merge(0b110000, 0b11, 2 * (7 * 3) ** 2)
    assert merge(opposite) is None


def test_two_convolutions_that_feed_each_other_can_never_happen() -> None:
    # 0 * 1 -> 2 and 2 * 3 -> 0: neither input is held by an operand.
    problem = Problem(((1,), (3,)), (), (5, 2, 4, 2), ((0, 1, 2), (2, 3, 0)))
    assert merge(problem) is None
    assert problem.clash(mask_of((1, 3)), problem.all_convolutions) == 0
