"""What every polynomial network can do, shown on the shortest ones."""

import numpy
import pytest
import torch

from rankscope.errors import PartitionError, SizeError
from rankscope.rank import PairwiseFunction, Partition, PolynomialNetwork, Shallow, TensorTrain

PRIME = 1073741789
NETWORKS = [
    TensorTrain(order=4, size=2, bond=3, has_equal_cores=True),
    Shallow(order=4, size=2, channels=3),
]


@pytest.mark.parametrize("network", NETWORKS)
def test_weights_are_the_same_for_everyone_with_the_same_seed(network: PolynomialNetwork) -> None:
    first, again = network.draw_weights(5, PRIME), network.draw_weights(5, PRIME)
    other = network.draw_weights(6, PRIME)
    parameters = dict(network.named_parameters())
    assert list(first) == list(parameters)
    for name, drawn in first.items():
        assert drawn.shape == tuple(parameters[name].shape)
        assert (drawn == again[name]).all()
        assert (drawn != other[name]).any()


@pytest.mark.parametrize("network", NETWORKS)
def test_floats_and_residues_follow_the_same_equations(network: PolynomialNetwork) -> None:
    prime = 7
    weights = network.draw_weights(0, prime)
    inputs = numpy.random.default_rng(0).integers(0, prime, (5, 4, 2))
    exact = type(network)(**network.settings).double()
    exact.load_state_dict({name: torch.from_numpy(drawn) for name, drawn in weights.items()})
    # All sums stay far below 2^53, so that the floats are exact integers.
    outputs = exact(torch.from_numpy(inputs).double()).long() % prime
    assert outputs.tolist() == network.evaluate_modulo(weights, inputs, prime).tolist()


@pytest.mark.parametrize("network", NETWORKS)
def test_settings_build_the_network_again(network: PolynomialNetwork) -> None:
    again = type(network)(**network.settings)
    assert again.settings == network.settings
    shapes = [
        {name: parameter.shape for name, parameter in one.named_parameters()}
        for one in (network, again)
    ]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("network", NETWORKS)
def test_a_split_takes_given_weights_or_draws_them(network: PolynomialNetwork) -> None:
    partition, rows = Partition.interleaved(4), numpy.arange(4)
    drawn = network.draw_weights(0, PRIME)
    other = network.draw_weights(1, PRIME)
    for make in (network.split, network.reference_split):
        values = make(partition, seed=0, prime=PRIME).values(rows, rows)
        given = make(partition, seed=0, prime=PRIME, weights=drawn).values(rows, rows)
        assert (values == given).all()
        changed = make(partition, seed=0, prime=PRIME, weights=other).values(rows, rows)
        assert (values != changed).any()


def test_a_network_without_theorems_promises_nothing() -> None:
    network, partition = Shallow(order=4, size=2, channels=3), Partition.interleaved(4)
    assert PolynomialNetwork.upper_bound(network, partition) is None
    assert PolynomialNetwork.lower_bound(network, partition) is None
    assert PolynomialNetwork.grade_degrees(network, partition) == (0,)
    assert PolynomialNetwork.grade_upper_bounds(network, partition) is None
    assert PolynomialNetwork.split_class(network) is PairwiseFunction


@pytest.mark.parametrize("network", NETWORKS)
def test_a_partition_that_leaves_a_position_out_is_refused(network: PolynomialNetwork) -> None:
    for partition in (Partition((0,), (1, 2)), Partition((0, 4), (1, 2, 3))):
        for ask in (network.split, network.reference_split):
            with pytest.raises(PartitionError, match=r"positions 0\.\.3, the partition covers \(0"):
                ask(partition, seed=0, prime=PRIME)
        for bound in (network.upper_bound, network.lower_bound):
            with pytest.raises(PartitionError, match=r"positions 0\.\.3, the partition covers \(0"):
                bound(partition)


@pytest.mark.parametrize("network", NETWORKS)
def test_inputs_of_another_shape_are_refused(network: PolynomialNetwork) -> None:
    for shape in ((7, 5, 2), (7, 4, 3), (4, 2)):
        message = rf"shape \(batch, 4, 2\), got \({', '.join(map(str, shape))}\)"
        with pytest.raises(SizeError, match=message):
            network(torch.ones(shape))
        with pytest.raises(SizeError, match=message):
            network.evaluate_modulo({}, numpy.ones(shape, dtype=numpy.int64), PRIME)
