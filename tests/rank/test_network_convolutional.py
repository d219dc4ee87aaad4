"""Convolutional circuits: their equations, their diagram, and their ranks by measurement."""

import itertools
import math
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams import to_module
from rankscope.errors import BoundError, PartitionError
from rankscope.rank import ConvolutionalCircuit, Levels, Partition, rank_modulo

PRIME = 1073741789
Case = tuple[dict[str, Any], set[int]]
# Five tokens, out of order, in windows of one, two and three; levels of three, two and one node.
UNEVEN: Levels = (((4,), (0, 3), (1, 2)), ((2, 0), (1,)), ((0, 1),))


def measured(circuit: ConvolutionalCircuit, partition: Partition) -> int:
    bound = circuit.upper_bound(partition).value
    assert bound is not None
    numbers = numpy.arange(bound + 3)
    return rank_modulo(
        circuit.split(partition, seed=0, prime=PRIME).values(numbers, numbers), PRIME
    )


@st.composite
def geometries(draw: st.DrawFn, num_tokens: int) -> Levels:
    """Any nested windows of any sizes, in any order."""
    levels: list[tuple[tuple[int, ...], ...]] = []
    count = num_tokens
    while not levels or count > 1:
        nodes = draw(st.permutations(range(count)))
        most = 1 if len(levels) == 2 else max(1, count - 1)
        places = st.sets(st.integers(1, max(1, count - 1)), max_size=most - 1)
        cuts = [0, *sorted(draw(places)), count]
        levels.append(tuple(tuple(nodes[a:b]) for a, b in itertools.pairwise(cuts)))
        count = len(levels[-1])
    return tuple(levels)


@st.composite
def cases(draw: st.DrawFn, is_shared: bool) -> Case:
    num_tokens = draw(st.integers(2, 7))
    pooling = draw(geometries(num_tokens))
    sizes = {
        "num_tokens": num_tokens,
        "num_templates": draw(st.integers(1, 3)),
        "channels": tuple(draw(st.integers(1, 4)) for _ in pooling),
        "is_shared": is_shared,
        "pooling": pooling,
    }
    side = draw(st.sets(st.integers(0, num_tokens - 1), min_size=1, max_size=num_tokens - 1))
    return sizes, side


def built(case: Case) -> tuple[ConvolutionalCircuit, Partition]:
    # Not inside the strategy: the type checks of a test run draw random numbers.
    circuit = ConvolutionalCircuit(**case[0])
    return circuit, Partition.of(case[1], order=circuit.num_positions)


@pytest.mark.parametrize(("window", "tokens", "templates", "channels", "mixed", "halves"), [
    (2, 4, 2, (2, 2), 4, 2), (2, 4, 3, (3, 2), 9, 2), (2, 8, 2, (2, 2, 2), 16, 2),
    (2, 8, 3, (3, 2, 2), 81, 2), (4, 4, 2, (5,), 4, 4),
])  # fmt: skip
def test_unshared_circuits_have_the_reference_ranks(
    window: int, tokens: int, templates: int, channels: tuple[int, ...], mixed: int, halves: int
) -> None:
    circuit = ConvolutionalCircuit(
        num_tokens=tokens, num_templates=templates, channels=channels, window=window
    )
    assert measured(circuit, Partition.interleaved(tokens)) == mixed
    assert measured(circuit, Partition.left_right(tokens)) == halves


@pytest.mark.parametrize(("window", "tokens", "channels", "mixed", "halves"), [
    (2, 4, (2, 2), 4, 2), (2, 8, (2, 2, 2), 16, 2), (4, 4, (5,), 3, 3),
])  # fmt: skip
def test_shared_circuits_have_the_reference_ranks(
    window: int, tokens: int, channels: tuple[int, ...], mixed: int, halves: int
) -> None:
    """Four leaves of one window with equal weights are a symmetric tensor: 3 = ms(2, 2)."""
    circuit = ConvolutionalCircuit(
        num_tokens=tokens, num_templates=2, channels=channels, window=window, is_shared=True
    )
    assert measured(circuit, Partition.interleaved(tokens)) == mixed
    assert measured(circuit, Partition.left_right(tokens)) == halves


@settings(deadline=None, max_examples=60)
@given(case=cases(is_shared=False))
def test_random_unshared_circuits_of_any_geometry_attain_the_minimal_cut(
    case: Case,
) -> None:
    circuit, partition = built(case)
    lower = circuit.lower_bound(partition)
    rank = measured(circuit, partition)
    assert rank == circuit.upper_bound(partition).value
    assert lower.holds_for(rank)


@settings(deadline=None, max_examples=30)
@given(case=cases(is_shared=True))
def test_shared_circuits_lie_between_the_split_windows_and_the_minimal_cut(
    case: Case,
) -> None:
    circuit, partition = built(case)
    rank = measured(circuit, partition)
    assert circuit.upper_bound(partition).holds_for(rank)
    assert circuit.lower_bound(partition).holds_for(rank)


def test_the_rank_of_a_convolutional_circuit_depends_on_the_partition() -> None:
    """Windows split by the partition count, so that partition invariance fails."""
    circuit = ConvolutionalCircuit(num_tokens=4, num_templates=3, channels=(3, 2))
    ranks = {
        left: measured(circuit, Partition.of(left, order=4))
        for left in itertools.combinations(range(4), 2)
    }
    assert ranks == {left: 2 if left in ((0, 1), (2, 3)) else 9 for left in ranks}


def direct_value(
    circuit: ConvolutionalCircuit, weights: dict[str, numpy.ndarray], inputs: numpy.ndarray
) -> int:
    """The recursion over nodes and channels, in Python integers."""
    nodes = [[int(entry) for entry in token] for token in inputs]
    for level, windows in enumerate(circuit.circuit.pooling.levels):
        maps = weights[f"convolutions.{level}"].tolist()
        convolved = [
            [
                sum(a * b for a, b in zip(row, node, strict=True))
                for row in (maps if circuit.is_shared else maps[place])
            ]
            for place, node in enumerate(nodes)
        ]
        nodes = [
            [math.prod(convolved[member][channel] for member in window)
             for channel in range(circuit.circuit.channels[level])]
            for window in windows
        ]  # fmt: skip
    return sum(a * b for a, b in zip(weights["output"].tolist(), nodes[0], strict=True))


@settings(deadline=None, max_examples=25)
@given(case=st.booleans().flatmap(cases), seed=st.integers(0, 999))
def test_a_circuit_is_its_recursion_in_both_arithmetics(case: Case, seed: int) -> None:
    circuit = built(case)[0].double()
    generator = numpy.random.default_rng(seed)
    weights = {
        name: generator.integers(0, 4, tuple(parameter.shape))
        for name, parameter in circuit.named_parameters()
    }
    inputs = generator.integers(0, 4, (3, circuit.num_positions, circuit.input_size))
    expected = [direct_value(circuit, weights, sample) for sample in inputs]
    assert circuit.evaluate_modulo(weights, inputs, 101).tolist() == [y % 101 for y in expected]
    circuit.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    outputs = circuit(torch.from_numpy(inputs).double())
    torch.testing.assert_close(outputs, torch.tensor(expected, dtype=torch.float64))


@settings(deadline=None, max_examples=25)
@given(case=st.booleans().flatmap(cases))
def test_the_degrees_are_those_of_scaling(case: Case) -> None:
    circuit, _ = built(case)
    weights = circuit.draw_weights(0, PRIME)
    inputs = numpy.random.default_rng(0).integers(
        0, PRIME, (2, circuit.num_positions, circuit.input_size)
    )
    outputs = circuit.evaluate_modulo(weights, inputs, PRIME)
    assert outputs.any()
    doubled = {name: 2 * array % PRIME for name, array in weights.items()}
    by_weights = circuit.evaluate_modulo(doubled, inputs, PRIME)
    by_inputs = circuit.evaluate_modulo(weights, 2 * inputs % PRIME, PRIME)
    assert by_weights.tolist() == (outputs * pow(2, circuit.weight_degree, PRIME) % PRIME).tolist()
    assert by_inputs.tolist() == (outputs * pow(2, circuit.input_degree, PRIME) % PRIME).tolist()


@pytest.mark.parametrize("is_shared", [False, True])
def test_the_diagram_computes_the_circuit(is_shared: bool) -> None:
    circuit = ConvolutionalCircuit(
        num_tokens=5, num_templates=3, channels=(2, 3, 4), is_shared=is_shared, pooling=UNEVEN,
        generator=torch.Generator().manual_seed(0),
    ).double()  # fmt: skip
    run = to_module(circuit.diagram(), arrays=dict(circuit.named_parameters()), dtype=torch.float64)
    inputs = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(torch.stack([run(sample) for sample in inputs]), circuit(inputs))


@settings(deadline=None, max_examples=20)
@given(case=st.booleans().flatmap(cases))
def test_settings_build_the_circuit_again(case: Case) -> None:
    circuit, partition = built(case)
    again = ConvolutionalCircuit(**circuit.settings)  # type: ignore[arg-type]
    assert again.settings == circuit.settings
    numbers = numpy.arange(3)
    first, second = (each.split(partition, seed=5, prime=101) for each in (circuit, again))
    assert (first.values(numbers, numbers) == second.values(numbers, numbers)).all()


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BoundError, match=r"pool 5 tokens, but num_tokens is 6"):
        ConvolutionalCircuit(num_tokens=6, num_templates=2, channels=(2, 2, 2), pooling=UNEVEN)
    with pytest.raises(BoundError, match=r"6 tokens are no power of the window 2"):
        ConvolutionalCircuit(num_tokens=6, num_templates=2, channels=(2, 2, 2))
    with pytest.raises(BoundError, match=r"2 pooling levels need as many channel sizes, got 1"):
        ConvolutionalCircuit(num_tokens=4, num_templates=2, channels=(2,))
    circuit = ConvolutionalCircuit(num_tokens=4, num_templates=2, channels=(2, 2))
    with pytest.raises(PartitionError, match=r"positions 0\.\.3, the partition covers \(0, 1\)"):
        circuit.upper_bound(Partition((0,), (1,)))
