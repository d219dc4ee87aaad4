"""Tensor-train networks."""

import copy
import itertools
import math
from dataclasses import dataclass

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.diagrams import to_module
from rankscope.errors import SizeError, TooLargeError
from rankscope.rank import (
    Partition,
    TensorTrain,
    different_cores_lower_bound,
    equal_cores_lower_bound,
    matricize,
    rank_modulo,
)

PRIME = 1073741789


def sample_rank(train: TensorTrain, partition: Partition, samples: int) -> int:
    numbers = numpy.arange(samples)
    values = train.split(partition, seed=0, prime=PRIME).values(numbers, numbers)
    return rank_modulo(values, PRIME)


@dataclass(frozen=True)
class Case:
    """A train and a split, built in the test: strategies may not use randomness."""

    order: int
    size: int
    bond: int | tuple[int, ...]
    left: tuple[int, ...]

    @property
    def partition(self) -> Partition:
        return Partition.of(self.left, order=self.order)

    @property
    def train(self) -> TensorTrain:
        has_equal_cores = isinstance(self.bond, int)
        return TensorTrain(
            order=self.order, size=self.size, bond=self.bond, has_equal_cores=has_equal_cores
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    order, size, bond = draw(st.integers(2, 5)), draw(st.integers(1, 3)), st.integers(1, 4)
    bonds = st.lists(bond, min_size=order - 1, max_size=order - 1).map(tuple)
    left = draw(st.sets(st.integers(0, order - 1), min_size=1, max_size=order - 1))
    return Case(order, size, draw(bond | bonds), tuple(left))


def cores_in_order(train: TensorTrain) -> list[Tensor]:
    named = dict(train.named_parameters())
    return [named[train.core_name(position)] for position in range(train.order)]


@pytest.mark.parametrize(("bond", "has_equal_cores"), [((2, 4, 3), False), (3, True)])
def test_the_output_is_the_sum_over_all_letters_of_products_of_core_slices(
    bond: int | tuple[int, ...], has_equal_cores: bool, generator: torch.Generator
) -> None:
    train = TensorTrain(
        order=4, size=2, bond=bond, has_equal_cores=has_equal_cores, generator=generator
    ).double()
    inputs = torch.randn(3, 4, 2, dtype=torch.float64, generator=generator)
    cores = cores_in_order(train)
    expected = torch.zeros(3, dtype=torch.float64)
    for word in itertools.product(range(2), repeat=4):
        product = torch.ones(1, 1, dtype=torch.float64)
        for core, letter in zip(cores, word, strict=True):
            product = product @ core[:, letter]
        features = torch.stack([inputs[:, t, letter] for t, letter in enumerate(word)]).prod(0)
        expected += product[0, 0].detach() * features
    torch.testing.assert_close(train(inputs), expected)


def test_equal_cores_are_one_parameter() -> None:
    different = TensorTrain(order=6, size=2, bond=3)
    equal = TensorTrain(order=6, size=2, bond=3, has_equal_cores=True)
    assert [tuple(core.shape) for core in different.cores] == [(1, 2, 3), *[(3, 2, 3)] * 4,
                                                               (3, 2, 1)]  # fmt: skip
    assert [tuple(core.shape) for core in equal.cores] == [(1, 2, 3), (3, 2, 3), (3, 2, 1)]
    named = [equal.core_name(position) for position in range(6)]
    assert named == ["cores.0", *["cores.1"] * 4, "cores.2"]
    shortest = TensorTrain(order=2, size=2, bond=3, has_equal_cores=True)
    assert [shortest.core_name(position) for position in range(2)] == ["cores.0", "cores.1"]
    assert len(shortest.cores) == 2


@settings(deadline=None, max_examples=40)
@given(case=cases(), prime=st.sampled_from((101, PRIME)))
def test_coefficients_weigh_the_products_of_features(case: Case, prime: int) -> None:
    train = case.train
    weights = train.draw_weights(0, prime)
    tensor = train.coefficients(weights, prime).astype(object)
    inputs = numpy.random.default_rng(0).integers(0, prime, (2, train.order, train.size))
    for point, output in zip(inputs, train.evaluate_modulo(weights, inputs, prime), strict=True):
        rest = tensor
        for features in point.astype(object):
            rest = numpy.tensordot(features, rest, axes=(0, 0))
        assert rest % prime == output


@settings(deadline=None, max_examples=40)
@given(case=cases())
def test_the_rank_of_samples_is_that_of_the_matricization(
    case: Case,
) -> None:
    train, partition = case.train, case.partition
    coefficients = train.coefficients(train.draw_weights(0, PRIME), PRIME)
    expected = rank_modulo(matricize(coefficients, partition), PRIME)
    assert sample_rank(train, partition, expected + 2) == expected


@settings(deadline=None, max_examples=40)
@given(case=cases(), prime=st.sampled_from((101, 16777213, 2147483647)))
def test_contracting_each_side_first_changes_no_value(case: Case, prime: int) -> None:
    train, partition = case.train, case.partition
    rows, columns = numpy.array([4, 0, 7]), numpy.arange(5)
    fast = train.split(partition, seed=1, prime=prime)
    slow = train.reference_split(partition, seed=1, prime=prime)
    assert (fast.values(rows, columns) == slow.values(rows, columns)).all()
    assert fast.num_grades == slow.num_grades == 1


@settings(deadline=None, max_examples=60)
@given(case=cases())
def test_measured_ranks_lie_between_the_bounds(case: Case) -> None:
    train, partition = case.train, case.partition
    upper, lower = train.upper_bound(partition), train.lower_bound(partition)
    assert upper.value is not None
    measured = sample_rank(train, partition, upper.value + 1)
    assert upper.holds_for(measured)
    assert lower is None or lower.holds_for(measured)


@settings(deadline=None, max_examples=30)
@given(
    half=st.integers(1, 3),
    size=st.integers(1, 3),
    bond=st.integers(1, 4),
    has_equal_cores=st.booleans(),
)
def test_odd_against_even_positions_reach_the_lower_bound_and_the_cut(
    half: int, size: int, bond: int, has_equal_cores: bool
) -> None:
    train = TensorTrain(order=2 * half, size=size, bond=bond, has_equal_cores=has_equal_cores)
    partition = Partition.interleaved(2 * half)
    upper, lower = train.upper_bound(partition), train.lower_bound(partition)
    assert upper.value is not None
    assert lower is not None
    measured = sample_rank(train, partition, upper.value + 1)
    assert lower.holds_for(measured)
    assert measured == upper.value


@pytest.mark.parametrize("has_equal_cores", [False, True])
@pytest.mark.parametrize(("size", "bond", "order", "odd_even", "left_right"), [
    (2, 2, 8, 16, 2), (2, 3, 8, 16, 3), (3, 2, 4, 6, 2), (3, 2, 6, 18, 2), (3, 3, 8, 81, 3),
    (5, 1, 6, 1, 1),
])  # fmt: skip
def test_trains_have_the_reference_ranks_with_equal_and_different_cores(
    size: int, bond: int, order: int, odd_even: int, left_right: int, has_equal_cores: bool
) -> None:
    train = TensorTrain(order=order, size=size, bond=bond, has_equal_cores=has_equal_cores)
    assert sample_rank(train, Partition.interleaved(order), odd_even + 4) == odd_even
    assert sample_rank(train, Partition.left_right(order), left_right + 4) == left_right


def test_the_lower_bounds_hold_for_odd_against_even_positions_only() -> None:
    equal = TensorTrain(order=6, size=3, bond=2, has_equal_cores=True)
    different = TensorTrain(order=6, size=3, bond=(4, 2, 5, 2, 4))
    for partition in (Partition.interleaved(6), Partition.interleaved(6).swapped):
        sizes = {"order": 6, "size": 3, "bond": 2}
        assert equal.lower_bound(partition) == equal_cores_lower_bound(**sizes)
        assert different.lower_bound(partition) == different_cores_lower_bound(**sizes)
    assert equal.lower_bound(Partition.left_right(6)) is None
    odd = TensorTrain(order=5, size=3, bond=2)
    assert odd.lower_bound(Partition.interleaved(5)) is None


@settings(deadline=None, max_examples=25)
@given(case=cases(), scale=st.integers(2, PRIME - 1))
def test_outputs_are_homogeneous_of_the_stated_degrees(case: Case, scale: int) -> None:
    train, partition = case.train, case.partition
    weights = train.draw_weights(0, PRIME)
    inputs = numpy.random.default_rng(0).integers(0, PRIME, (3, train.order, train.size))
    outputs = train.evaluate_modulo(weights, inputs, PRIME)

    def scaled(degree: int) -> list[int]:
        return [int(output) * pow(scale, degree, PRIME) % PRIME for output in outputs]

    larger = {name: core * scale % PRIME for name, core in weights.items()}
    assert train.evaluate_modulo(larger, inputs, PRIME).tolist() == scaled(train.weight_degree)
    everywhere = inputs * scale % PRIME
    assert train.evaluate_modulo(weights, everywhere, PRIME).tolist() == scaled(train.input_degree)
    right = inputs.copy()
    right[:, list(partition.right)] = everywhere[:, list(partition.right)]
    (degree,) = train.grade_degrees(partition)
    assert train.evaluate_modulo(weights, right, PRIME).tolist() == scaled(degree)


@settings(deadline=None, max_examples=15)
@given(case=cases())
def test_the_diagram_computes_the_network(case: Case) -> None:
    train = case.train.double()
    inputs = torch.randn(2, train.order, train.size, dtype=torch.float64)
    module = to_module(train.diagram(), dict(train.named_parameters()))
    assert sum(parameter.numel() for parameter in module.parameters()) == sum(
        parameter.numel() for parameter in train.parameters()
    )
    torch.testing.assert_close(torch.stack([module(point) for point in inputs]), train(inputs))


@pytest.mark.parametrize("has_equal_cores", [False, True])
def test_long_trains_neither_vanish_nor_explode(
    has_equal_cores: bool, generator: torch.Generator
) -> None:
    train = TensorTrain(
        order=400, size=3, bond=5, has_equal_cores=has_equal_cores, generator=generator
    )
    letters = torch.randint(3, (64, 400), generator=generator)
    outputs = train(torch.nn.functional.one_hot(letters, 3).float())
    # Every core is the identity up to a matrix of spectral norm about 2/400.
    assert math.exp(-4) < float(outputs.detach().abs().min())
    assert float(outputs.detach().abs().max()) < math.exp(4)
    outputs.sum().backward()
    assert all(bool(core.grad.isfinite().all()) for core in train.cores if core.grad is not None)


def test_trains_can_be_copied_and_saved() -> None:
    train = TensorTrain(order=4, size=2, bond=(2, 3, 2))
    inputs = torch.randn(2, 4, 2)
    again = TensorTrain(order=4, size=2, bond=(2, 3, 2))
    again.load_state_dict(train.state_dict())
    for other in (again, copy.deepcopy(train)):
        torch.testing.assert_close(other(inputs), train(inputs))


def test_a_coefficient_tensor_that_is_too_large_is_refused() -> None:
    train = TensorTrain(order=25, size=2, bond=1)
    message = "order 25 needs 33,554,432 entries, over the limit of 16,777,216"
    with pytest.raises(TooLargeError, match=message):
        train.coefficients(train.draw_weights(0, 7), 7)


def test_sizes_that_make_no_train_are_refused() -> None:
    with pytest.raises(SizeError, match="order must be at least 2, got 1"):
        TensorTrain(order=1, size=2, bond=2)
    with pytest.raises(SizeError, match="size must be at least 1, got 0"):
        TensorTrain(order=2, size=0, bond=2)
    with pytest.raises(SizeError, match="bond must be at least 1, got -1"):
        TensorTrain(order=4, size=2, bond=(2, -1, 3))
    with pytest.raises(SizeError, match=r"order 4 has 3 bonds, got 2: \(2, 2\)"):
        TensorTrain(order=4, size=2, bond=(2, 2))
    with pytest.raises(SizeError, match=r"one bond dimension for all, got \(2, 3, 2\)"):
        TensorTrain(order=4, size=2, bond=(2, 3, 2), has_equal_cores=True)
