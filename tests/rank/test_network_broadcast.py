"""The broadcast evaluation gives the values of the definition, pair by pair."""

import pickle

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import PartitionError
from rankscope.rank import ConvolutionalCircuit, Partition, PolynomialNetwork, RecurrentCircuit

NETWORKS: list[PolynomialNetwork] = [
    ConvolutionalCircuit(num_tokens=4, num_templates=2, channels=(3, 2)),
    ConvolutionalCircuit(num_tokens=4, num_templates=2, channels=(3, 2), is_shared=True),
    ConvolutionalCircuit(num_tokens=4, num_templates=2, channels=(2,), window=4),
    RecurrentCircuit(num_tokens=4, num_templates=2, channels=3, depth=2),
    RecurrentCircuit(num_tokens=4, num_templates=3, channels=2, depth=3, on_templates=False),
]


@settings(deadline=None, max_examples=40)
@given(
    network=st.sampled_from(NETWORKS),
    side=st.sets(st.integers(0, 3), min_size=1, max_size=3),
    prime=st.sampled_from([101, 65521, 16777213, 2**31 - 1]),
    seed=st.integers(0, 99),
)
def test_broadcast_values_are_those_of_the_definition(
    network: PolynomialNetwork, side: set[int], prime: int, seed: int
) -> None:
    partition = Partition.of(side, order=4)
    fast = network.split(partition, seed=seed, prime=prime)
    slow = network.reference_split(partition, seed=seed, prime=prime)
    rows, columns = numpy.array([1, 0]), numpy.array([0, 1, 1])
    assert fast.num_points == slow.num_points
    assert numpy.array_equal(fast.values(rows, columns), slow.values(rows, columns))


@pytest.mark.parametrize("network", NETWORKS)
def test_many_points_no_points_and_given_weights(network: PolynomialNetwork) -> None:
    partition, weights = Partition.interleaved(4), network.draw_weights(7, 101)
    fast = network.split(partition, seed=0, prime=101, weights=weights)
    slow = network.reference_split(partition, seed=0, prime=101, weights=weights)
    # More pairs than are taken at once.
    rows, columns = numpy.arange(260) % 4, numpy.arange(300) % 4
    assert numpy.array_equal(fast.values(rows, columns), slow.values(rows, columns))
    assert fast.values(rows[:0], columns).shape == (0, 300)
    assert fast.values(rows, columns[:0]).shape == (260, 0)


@pytest.mark.parametrize("network", NETWORKS)
def test_another_process_can_compute_the_same_tile(network: PolynomialNetwork) -> None:
    function = network.split(Partition.left_right(4), seed=0, prime=101)
    copy = pickle.loads(pickle.dumps(function))
    numbers = numpy.arange(3)
    assert numpy.array_equal(copy.values(numbers, numbers), function.values(numbers, numbers))


@pytest.mark.parametrize("network", NETWORKS)
def test_partitions_that_leave_a_position_out_are_refused(network: PolynomialNetwork) -> None:
    with pytest.raises(PartitionError, match=r"0\.\.3, the partition covers \(0, 1\)"):
        network.split(Partition((0,), (1,)), seed=0, prime=101)
