"""Shallow networks."""

import itertools
import math
from dataclasses import dataclass

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams import to_module
from rankscope.errors import SizeError
from rankscope.rank import Partition, Residues, Shallow, rank_modulo

PRIME = 1073741789


@dataclass(frozen=True)
class Case:
    """A network and a split, built in the test: strategies may not use randomness."""

    order: int
    size: int
    channels: int
    left: tuple[int, ...]

    @property
    def partition(self) -> Partition:
        return Partition.of(self.left, order=self.order)

    @property
    def network(self) -> Shallow:
        return Shallow(order=self.order, size=self.size, channels=self.channels)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    order = draw(st.integers(2, 5))
    left = draw(st.sets(st.integers(0, order - 1), min_size=1, max_size=order - 1))
    return Case(order, draw(st.integers(1, 3)), draw(st.integers(1, 12)), tuple(left))


def test_the_output_is_a_weighted_sum_of_products(generator: torch.Generator) -> None:
    network = Shallow(order=3, size=2, channels=4, generator=generator).double()
    inputs = torch.randn(5, 3, 2, dtype=torch.float64, generator=generator)
    factors, mixing = network.factors.detach(), network.mixing.detach()
    for point, output in zip(inputs, network(inputs).detach(), strict=True):
        expected = sum(
            float(mixing[z]) * math.prod(float(factors[i, z] @ point[i]) for i in range(3))
            for z in range(4)
        )
        assert float(output) == pytest.approx(expected, rel=1e-12)


@settings(deadline=None, max_examples=40)
@given(case=cases())
def test_almost_all_weights_attain_both_bounds(case: Case) -> None:
    network, partition = case.network, case.partition
    upper, lower = network.upper_bound(partition), network.lower_bound(partition)
    assert upper.value is not None
    numbers = numpy.arange(upper.value + 2)
    values = network.split(partition, seed=0, prime=PRIME).values(numbers, numbers)
    assert rank_modulo(values, PRIME) == upper.value == lower.value


def words_as_weights(network: Shallow, partition: Partition) -> dict[str, Residues]:
    """The weights of the proof: the same word on both sides, another for each channel."""
    length = min(len(partition.left), len(partition.right))
    factors = numpy.zeros((network.order, network.channels, network.size), dtype=numpy.int64)
    mixing = numpy.zeros(network.channels, dtype=numpy.int64)
    words = itertools.product(range(network.size), repeat=length)
    for channel, word in zip(range(network.channels), words, strict=False):
        mixing[channel] = 1
        for side in (partition.left, partition.right):
            letters = (*word, *(0,) * (len(side) - length))
            factors[list(side), channel, list(letters)] = 1
    return {"factors": factors, "mixing": mixing}


@settings(deadline=None, max_examples=40)
@given(case=cases())
def test_one_word_for_each_channel_proves_the_lower_bound(case: Case) -> None:
    network, partition = case.network, case.partition
    bound = network.lower_bound(partition)
    assert bound.value is not None
    numbers = numpy.arange(bound.value + 2)
    weights = words_as_weights(network, partition)
    function = network.split(partition, seed=0, prime=PRIME, weights=weights)
    assert rank_modulo(function.values(numbers, numbers), PRIME) == bound.value


@settings(deadline=None, max_examples=40)
@given(case=cases(), prime=st.sampled_from((101, 16777213, 2147483647)))
def test_meeting_in_the_channels_changes_no_value(case: Case, prime: int) -> None:
    network, partition = case.network, case.partition
    rows, columns = numpy.array([4, 0, 7]), numpy.arange(5)
    fast = network.split(partition, seed=1, prime=prime)
    slow = network.reference_split(partition, seed=1, prime=prime)
    assert (fast.values(rows, columns) == slow.values(rows, columns)).all()


@settings(deadline=None, max_examples=25)
@given(case=cases(), scale=st.integers(2, PRIME - 1))
def test_outputs_are_homogeneous_of_the_stated_degrees(case: Case, scale: int) -> None:
    network, partition = case.network, case.partition
    weights = network.draw_weights(0, PRIME)
    inputs = numpy.random.default_rng(0).integers(0, PRIME, (3, network.order, network.size))
    outputs = network.evaluate_modulo(weights, inputs, PRIME)

    def scaled(degree: int) -> list[int]:
        return [int(output) * pow(scale, degree, PRIME) % PRIME for output in outputs]

    larger = {name: array * scale % PRIME for name, array in weights.items()}
    assert network.evaluate_modulo(larger, inputs, PRIME).tolist() == scaled(network.weight_degree)
    everywhere = inputs * scale % PRIME
    found = network.evaluate_modulo(weights, everywhere, PRIME).tolist()
    assert found == scaled(network.input_degree)
    right = inputs.copy()
    right[:, list(partition.right)] = everywhere[:, list(partition.right)]
    (degree,) = network.grade_degrees(partition)
    assert network.evaluate_modulo(weights, right, PRIME).tolist() == scaled(degree)


@settings(deadline=None, max_examples=15)
@given(case=cases())
def test_the_diagram_computes_the_network(case: Case) -> None:
    network = case.network.double()
    inputs = torch.randn(2, network.order, network.size, dtype=torch.float64)
    module = to_module(network.diagram(), dict(network.named_parameters()))
    torch.testing.assert_close(torch.stack([module(point) for point in inputs]), network(inputs))


def test_long_products_neither_vanish_nor_explode(generator: torch.Generator) -> None:
    network = Shallow(order=400, size=3, channels=50, generator=generator)
    letters = torch.randint(3, (64, 400), generator=generator)
    outputs = network(torch.nn.functional.one_hot(letters, 3).float())
    # Over the weights the mean square is (1 + 1/400)^400.
    assert 0.01 < float(outputs.detach().square().mean()) < 100


def test_sizes_that_make_no_network_are_refused() -> None:
    with pytest.raises(SizeError, match="Shallow: order must be at least 2, got 1"):
        Shallow(order=1, size=2, channels=2)
    with pytest.raises(SizeError, match="Shallow: size must be at least 1, got 0"):
        Shallow(order=2, size=0, channels=2)
    with pytest.raises(SizeError, match="Shallow: channels must be at least 1, got 0"):
        Shallow(order=2, size=2, channels=0)
