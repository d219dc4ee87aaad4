"""Product networks: their equations, the fast split, the grades, and their ranks."""

import math

import numpy
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rankscope.diagrams import to_module
from rankscope.errors import PartitionError, SizeError
from rankscope.rank import Partition, ProductNetwork, Residues, rank_modulo

PRIME = 1073741789
Case = tuple[int, int, int, int | None, set[int]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Inputs, degree, depth, width and one side, of at most degree 9 in all."""
    num_inputs = draw(st.integers(2, 5))
    depth = draw(st.integers(1, 3))
    degree = draw(st.integers(1, {1: 5, 2: 3, 3: 2}[depth]))
    width = draw(st.none() | st.integers(1, 4))
    side = draw(st.sets(st.integers(0, num_inputs - 1), min_size=1, max_size=num_inputs - 1))
    return num_inputs, degree, depth, width, side


def built(case: Case) -> tuple[ProductNetwork, Partition]:
    num_inputs, degree, depth, width, side = case
    network = ProductNetwork(
        num_inputs=num_inputs,
        degree=degree,
        depth=depth,
        width=width,
        generator=torch.Generator().manual_seed(0),
    )
    return network, Partition.of(side, order=num_inputs)


def bound(network: ProductNetwork, partition: Partition) -> int:
    value = network.upper_bound(partition).value
    assert value is not None
    return value


def measured(network: ProductNetwork, partition: Partition) -> int:
    numbers = numpy.arange(bound(network, partition) + 3)
    return rank_modulo(
        network.split(partition, seed=0, prime=PRIME).values(numbers, numbers), PRIME
    )


@pytest.mark.parametrize(("num_inputs", "degree", "depth", "rank"), [
    (2, 3, 3, 28), (4, 2, 1, 4), (4, 3, 1, 6), (4, 2, 2, 9), (4, 3, 2, 30), (6, 2, 1, 4),
    (6, 3, 1, 8), (8, 3, 1, 8),
])  # fmt: skip
def test_product_networks_have_the_reference_ranks(
    num_inputs: int, degree: int, depth: int, rank: int
) -> None:
    network = ProductNetwork(num_inputs=num_inputs, degree=degree, depth=depth)
    for partition in (Partition.interleaved(num_inputs), Partition.left_right(num_inputs)):
        assert measured(network, partition) == rank == bound(network, partition)


@settings(deadline=None, max_examples=30)
@given(case=cases())
def test_full_width_attains_the_bound_and_no_width_exceeds_it(case: Case) -> None:
    network, partition = built(case)
    assume(bound(network, partition) <= 60)
    rank = measured(network, partition)
    assert rank <= bound(network, partition)
    assert network.width < network.num_positions or rank == bound(network, partition)


@settings(deadline=None, max_examples=30)
@given(case=cases(), prime=st.sampled_from([101, 65521, 16777213, 2**31 - 1]))
def test_the_fast_split_is_the_definition_entry_by_entry(case: Case, prime: int) -> None:
    network, partition = built(case)
    fast = network.split(partition, seed=3, prime=prime)
    slow = network.reference_split(partition, seed=3, prime=prime)
    rows, columns = numpy.array([0, 7, 2]), numpy.array([1, 0, 5, 4])
    assert (fast.values(rows, columns) == slow.values(rows, columns)).all()
    assert (fast.graded_values(rows, columns) == slow.graded_values(rows, columns)).all()
    assert fast.num_grades == slow.num_grades == network.input_degree + 1


def test_the_fast_split_takes_given_weights_and_any_number_of_points() -> None:
    network = ProductNetwork(num_inputs=3, degree=2, depth=2)
    weights = network.draw_weights(8, 101)
    partition = Partition.of([1], order=3)
    fast = network.split(partition, seed=0, prime=101, weights=weights)
    slow = network.reference_split(partition, seed=0, prime=101, weights=weights)
    rows, columns = numpy.arange(1), numpy.arange(700)
    assert (fast.values(rows, columns) == slow.values(rows, columns)).all()
    assert fast.values(rows, columns[:0]).shape == (1, 0)
    assert fast.values(columns[:0], rows).shape == (0, 1)


@settings(deadline=None, max_examples=25)
@given(case=cases())
def test_graded_ranks_add_up_and_keep_their_bounds(case: Case) -> None:
    network, partition = built(case)
    upper, numbers = bound(network, partition), numpy.arange(bound(network, partition) + 2)
    assume(upper <= 60)
    parts = network.split(partition, seed=0, prime=PRIME).graded_values(numbers, numbers)
    ranks = [rank_modulo(part, PRIME) for part in parts]
    bounds = network.grade_upper_bounds(partition)
    assert sum(ranks) == rank_modulo(parts.sum(0) % PRIME, PRIME)
    assert all(rank <= most for rank, most in zip(ranks, bounds, strict=True))
    assert sum(bounds) == upper


@settings(deadline=None, max_examples=25)
@given(case=cases())
def test_degrees_are_those_of_scaling(case: Case) -> None:
    network, partition = built(case)
    weights = network.draw_weights(0, PRIME)
    inputs = numpy.random.default_rng(0).integers(0, PRIME, (2, network.num_positions, 1))
    outputs = network.evaluate_modulo(weights, inputs, PRIME)
    assert outputs.any()
    doubled = {name: 2 * array % PRIME for name, array in weights.items()}
    by_weights = network.evaluate_modulo(doubled, inputs, PRIME)
    by_inputs = network.evaluate_modulo(weights, 2 * inputs % PRIME, PRIME)
    assert numpy.array_equal(by_weights, outputs * pow(2, network.weight_degree, PRIME) % PRIME)
    assert numpy.array_equal(by_inputs, outputs * pow(2, network.input_degree, PRIME) % PRIME)
    assert network.grade_degrees(partition)[-1] == network.input_degree


def direct_value(network: ProductNetwork, weights: dict[str, Residues], inputs: list[int]) -> int:
    """Layer by layer, factor by factor, in Python integers."""
    values = inputs
    for layer in range(network.depth):
        maps = weights[f"layers.{layer}"].tolist()
        values = [
            math.prod(sum(w * x for w, x in zip(rows[entry], values, strict=True)) for rows in maps)
            for entry in range(len(maps[0]))
        ]
    return values[0]


@settings(deadline=None, max_examples=25)
@given(case=cases(), seed=st.integers(0, 999))
def test_a_network_is_its_formula_in_both_arithmetics(case: Case, seed: int) -> None:
    network = built(case)[0].double()
    generator = numpy.random.default_rng(seed)
    weights = {
        name: generator.integers(-1, 3, tuple(parameter.shape))
        for name, parameter in network.named_parameters()
    }
    inputs = generator.integers(0, 3, (3, network.num_positions, 1))
    expected = [direct_value(network, weights, sample[:, 0].tolist()) for sample in inputs]
    residues = {name: array % 101 for name, array in weights.items()}
    assert network.evaluate_modulo(residues, inputs, 101).tolist() == [y % 101 for y in expected]
    network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    outputs = network(torch.from_numpy(inputs).double())
    torch.testing.assert_close(outputs, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(("degree", "depth", "width"), [(3, 1, None), (2, 3, 5), (1, 2, 2)])
def test_the_diagram_computes_the_network(degree: int, depth: int, width: int | None) -> None:
    network = built((4, degree, depth, width, {0}))[0].double()
    arrays = dict(network.named_parameters())
    run = to_module(network.diagram(), arrays=arrays, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(3, 4, 1, generator=generator, dtype=torch.float64)
    outputs = torch.stack([run(sample) for sample in inputs[:, :, 0]])
    torch.testing.assert_close(outputs, network(inputs))


@pytest.mark.parametrize("width", [None, 2])
def test_settings_build_the_network_again(width: int | None) -> None:
    network = ProductNetwork(num_inputs=3, degree=2, depth=2, width=width)
    again = ProductNetwork(**network.settings)  # type: ignore[arg-type]
    assert again.settings == network.settings
    shapes = [[parameter.shape for parameter in each.parameters()] for each in (network, again)]
    assert shapes[0] == shapes[1]


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SizeError, match="num_inputs must be at least 2, got 1"):
        ProductNetwork(num_inputs=1, degree=2, depth=1)
    with pytest.raises(SizeError, match="width must be at least 1, got 0"):
        ProductNetwork(num_inputs=2, degree=2, depth=1, width=0)
    network = ProductNetwork(num_inputs=4, degree=2, depth=1)
    for refuse in (network.upper_bound, network.grade_upper_bounds):
        with pytest.raises(PartitionError, match=r"0\.\.3, the partition covers \(0, 1\)"):
            refuse(Partition((0,), (1,)))
    with pytest.raises(PartitionError, match=r"0\.\.3, the partition covers \(0, 1\)"):
        network.split(Partition((0,), (1,)), seed=0, prime=101)
