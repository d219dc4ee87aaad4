"""Networks on pairs of sample points."""

import pickle
from collections.abc import Mapping

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.diagrams import Diagram
from rankscope.errors import PrimeError
from rankscope.rank import (
    Arithmetic,
    PairwiseFunction,
    Partition,
    PolynomialNetwork,
    Setting,
    interpolation_modulo,
    unit_vector_points,
)
from rankscope.rank.networks import network as network_module

PRIME = 2147483647


class SquareOfSum(PolynomialNetwork):
    """The square of the sum of <w_t, x_t>, whose parts in one side are known."""

    family = "square-of-sum"
    num_positions = 3
    input_size = 2

    def __init__(self, *, num_templates: int | None = None) -> None:
        super().__init__()
        self.num_templates = num_templates
        self.slopes = nn.Parameter(torch.ones(3, 2))

    @property
    def settings(self) -> dict[str, Setting]:
        return {"num_templates": self.num_templates}

    @property
    def weight_degree(self) -> int:
        return 2

    @property
    def input_degree(self) -> int:
        return 2

    def compute(self, numbers: Arithmetic, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        total = numbers.contract("bti,ti->b", inputs, weights["slopes"])
        return numbers.multiply(total, total)

    def grade_degrees(self, partition: Partition) -> tuple[int, ...]:
        del partition
        return (0, 1, 2)

    def diagram(self) -> Diagram:
        raise NotImplementedError


class UngradedSquare(SquareOfSum):
    """The same function, which does not say how it is graded."""

    def grade_degrees(self, partition: Partition) -> tuple[int, ...]:
        return PolynomialNetwork.grade_degrees(self, partition)


def split(network: PolynomialNetwork, partition: Partition, prime: int = PRIME) -> PairwiseFunction:
    weights = network.draw_weights(3, prime)
    return PairwiseFunction(network, partition, seed=3, prime=prime, weights=weights)


NUMBERS = st.lists(st.integers(0, 50), max_size=5).map(lambda found: numpy.array(found, dtype=int))
SIDES = st.sampled_from([(0,), (1,), (0, 2), (1, 2), (2,)])


@settings(deadline=None, max_examples=40)
@given(rows=NUMBERS, columns=NUMBERS, left=SIDES, prime=st.sampled_from((101, 65537, PRIME)))
def test_every_value_is_the_network_at_that_pair_of_points(
    rows: numpy.typing.NDArray[numpy.int64],
    columns: numpy.typing.NDArray[numpy.int64],
    left: tuple[int, ...],
    prime: int,
) -> None:
    partition = Partition.of(left, order=3)
    function = split(SquareOfSum(), partition, prime)
    values = function.values(rows, columns)
    assert values.shape == (len(rows), len(columns))
    for p, row in enumerate(rows):
        for q, column in enumerate(columns):
            inputs = numpy.zeros((1, 3, 2), dtype=numpy.int64)
            inputs[0, list(partition.left)] = function.points("left", numpy.array([row]))[0]
            inputs[0, list(partition.right)] = function.points("right", numpy.array([column]))[0]
            (expected,) = function.network.evaluate_modulo(function.weights, inputs, prime)
            assert values[p, q] == expected


@settings(deadline=None)
@given(left=SIDES, prime=st.sampled_from((101, 16777213, PRIME)))
def test_graded_parts_are_homogeneous_in_the_right_side_and_add_up(
    left: tuple[int, ...], prime: int
) -> None:
    partition = Partition.of(left, order=3)
    function = split(SquareOfSum(), partition, prime)
    rows, columns = numpy.arange(4), numpy.arange(5)
    slopes = function.weights["slopes"].astype(object)
    own = (function.points("left", rows) * slopes[list(partition.left)]).sum((1, 2))[:, None]
    other = (function.points("right", columns) * slopes[list(partition.right)]).sum((1, 2))[None]
    parts = function.graded_values(rows, columns)
    assert function.num_grades == 3
    for part, expected in zip(parts, (own**2 + 0 * other, 2 * own * other, other**2 + 0 * own),
                              strict=True):  # fmt: skip
        assert (part == expected % prime).all()
    assert (parts.sum(0) % prime == function.values(rows, columns)).all()


def test_an_ungraded_network_has_one_part() -> None:
    function = split(UngradedSquare(), Partition.left_right(3))
    rows = numpy.arange(3)
    assert function.num_grades == 1
    assert (function.graded_values(rows, rows) == function.values(rows, rows)[None]).all()


def test_points_depend_on_their_number_only() -> None:
    function = split(SquareOfSum(), Partition.left_right(3))
    assert function.num_points == (None, None)
    together = function.points("right", numpy.array([5, 0, 5]))
    assert together.shape == (3, 2, 2)
    assert (together[0] == together[2]).all()
    assert (together[1] == function.points("right", numpy.array([0]))[0]).all()
    assert (together[0, 0] != function.points("left", numpy.array([5]))[0, 0]).any()


def test_many_pairs_are_computed_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    function = split(SquareOfSum(), Partition.left_right(3))
    rows, columns = numpy.arange(7), numpy.arange(5)
    expected = function.values(rows, columns)
    for at_once in (1, 11, 35):
        monkeypatch.setattr(network_module, "_PAIRS_AT_ONCE", at_once)
        assert (function.values(rows, columns) == expected).all()


def test_a_split_function_survives_pickling() -> None:
    function = split(SquareOfSum(), Partition.interleaved(3))
    again = pickle.loads(pickle.dumps(function))
    rows = numpy.arange(3)
    assert (again.values(rows, rows) == function.values(rows, rows)).all()


def test_with_templates_the_points_are_all_combinations_of_unit_vectors() -> None:
    function = split(SquareOfSum(num_templates=2), Partition((0, 2), (1,)))
    assert function.num_points == (4, 2)
    points = function.points("left", numpy.arange(4))
    assert (points.sum(2) == 1).all()
    assert len({tuple(point.ravel()) for point in points}) == 4


@settings(deadline=None)
@given(count=st.integers(1, 4), num_templates=st.integers(1, 5))
def test_numbers_run_through_every_combination_once(count: int, num_templates: int) -> None:
    total = num_templates**count
    points = unit_vector_points(numpy.arange(total), count, num_templates)
    assert points.shape == (total, count, num_templates)
    assert (points.sum(2) == 1).all()
    assert (points.max(2) == 1).all()
    assert len({tuple(point) for point in points.argmax(2)}) == total


def test_few_of_very_many_combinations_use_every_letter() -> None:
    points = unit_vector_points(numpy.arange(64), 1200, 3).argmax(2)
    # Neighbouring numbers differ at the most significant places already.
    assert len({tuple(point) for point in points[:, -4:]}) > 32


@settings(deadline=None)
@given(
    degrees=st.sets(st.integers(0, 40), min_size=1, max_size=8).map(lambda d: tuple(sorted(d))),
    prime=st.sampled_from((16777213, 1073741789, PRIME)),
)
def test_interpolation_inverts_the_powers_of_the_scales(
    degrees: tuple[int, ...], prime: int
) -> None:
    scales, matrix = interpolation_modulo(degrees, prime)
    powers = [[pow(scale, degree, prime) for degree in degrees] for scale in scales]
    product = matrix.astype(object) @ numpy.array(powers, dtype=object) % prime
    assert (product == numpy.eye(len(degrees), dtype=int)).all()


def test_degrees_that_a_prime_cannot_tell_apart_are_refused() -> None:
    with pytest.raises(PrimeError, match="degrees up to 6 needs a larger prime, got 7"):
        interpolation_modulo((0, 6), 7)
    # 2^3 = 1 modulo 7, so that both scales see the same sum.
    with pytest.raises(PrimeError, match="Separating 2 degrees needs a larger prime, got 7"):
        interpolation_modulo((0, 3), 7)
