"""Recurrent circuits: their equations, their diagram, and their ranks by measurement."""

import itertools
import math

import numpy
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rankscope.diagrams import to_module
from rankscope.errors import PartitionError, SizeError
from rankscope.rank import (
    Partition,
    RecurrentCircuit,
    Residues,
    rank_modulo,
    solve_modulo,
    start_end_lower_bound,
)

PRIME = 1073741789
REFERENCES = [
    (8, 2, 2, 1, 2, 16), (8, 2, 2, 2, 10, 16), (6, 3, 2, 2, 8, 18), (8, 3, 3, 1, 3, 81),
]  # fmt: skip
Sizes = tuple[int, int, int, int]
sizes_of_circuits = st.tuples(
    st.integers(2, 6), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)
)


def circuit_of(sizes: Sizes, on_templates: bool = True) -> RecurrentCircuit:
    tokens, templates, channels, depth = sizes
    return RecurrentCircuit(
        num_tokens=tokens,
        num_templates=templates,
        channels=channels,
        depth=depth,
        on_templates=on_templates,
        generator=torch.Generator().manual_seed(0),
    )


def measured(
    circuit: RecurrentCircuit, partition: Partition, weights: dict[str, Residues] | None = None
) -> int:
    """On all combinations of templates, or on a few more vectors than the bound."""
    function = circuit.split(partition, seed=0, prime=PRIME, weights=weights)
    count = (circuit.upper_bound(partition).value or 0) + 3
    rows, columns = (numpy.arange(count if n is None else n) for n in function.num_points)
    return rank_modulo(function.values(rows, columns), PRIME)


@pytest.mark.parametrize(
    ("tokens", "templates", "channels", "depth", "halves", "mixed"), REFERENCES
)
def test_circuits_have_the_reference_ranks(
    tokens: int, templates: int, channels: int, depth: int, halves: int, mixed: int
) -> None:
    circuit = circuit_of((tokens, templates, channels, depth))
    assert measured(circuit, Partition.start_end(tokens)) == halves
    assert measured(circuit, Partition.interleaved(tokens)) == mixed
    assert circuit.upper_bound(Partition.start_end(tokens)).value == halves
    assert circuit.upper_bound(Partition.interleaved(tokens)).value == mixed


@pytest.mark.parametrize(("sizes", "halves"), [((8, 2, 2, 2), 10), ((6, 3, 2, 2), 8)])
def test_the_initial_state_of_the_source_gives_the_same_ranks(sizes: Sizes, halves: int) -> None:
    """Levine et al. (2017) multiply by ones first: W h = 1 for the initial state h."""
    circuit = circuit_of(sizes)
    weights = circuit.draw_weights(0, PRIME)
    ones = numpy.ones((circuit.channels, 1), dtype=numpy.int64)
    for layer in range(circuit.depth):
        solution = solve_modulo(weights[f"hidden_maps.{layer}"], ones, PRIME)
        weights[f"initial_states.{layer}"] = solution[:, 0]
    assert measured(circuit, Partition.start_end(circuit.num_positions), weights) == halves


@settings(deadline=None, max_examples=40)
@given(sizes=sizes_of_circuits, side=st.sets(st.integers(0, 5), min_size=1))
def test_on_templates_circuits_attain_the_cut_over_time(sizes: Sizes, side: set[int]) -> None:
    left = [position for position in side if position < sizes[0]]
    assume(0 < len(left) < sizes[0])
    assume(sizes[1] ** max(len(left), sizes[0] - len(left)) <= 81)
    circuit, partition = circuit_of(sizes), Partition.of(left, order=sizes[0])
    rank = measured(circuit, partition)
    lower = circuit.lower_bound(partition)
    assert rank == circuit.upper_bound(partition).value
    assert lower is None or lower.holds_for(rank)


@settings(deadline=None, max_examples=30)
@given(sizes=sizes_of_circuits, side=st.sets(st.integers(0, 5), min_size=1))
def test_on_all_vectors_the_rank_lies_between_the_grid_and_the_bound(
    sizes: Sizes, side: set[int]
) -> None:
    left = [position for position in side if position < sizes[0]]
    assume(0 < len(left) < sizes[0])
    partition = Partition.of(left, order=sizes[0])
    grid, whole = circuit_of(sizes), circuit_of(sizes, on_templates=False)
    assume((whole.upper_bound(partition).value or 0) <= 60)
    rank, lower = measured(whole, partition), whole.lower_bound(partition)
    assert whole.upper_bound(partition).holds_for(rank)
    assert rank >= (grid.upper_bound(partition).value or 0)
    assert lower is None or lower.holds_for(rank)


def test_two_layers_are_not_multilinear_so_vectors_give_more_than_templates() -> None:
    partition = Partition.start_end(4)
    assert measured(circuit_of((4, 2, 2, 2)), partition) == 4
    assert measured(circuit_of((4, 2, 2, 2), on_templates=False), partition) == 6


def test_one_layer_is_multilinear_so_templates_are_enough() -> None:
    for left in itertools.combinations(range(4), 2):
        partition = Partition.of(left, order=4)
        grid, whole = (
            measured(circuit_of((4, 2, 2, 1), each), partition) for each in (True, False)
        )
        assert grid == whole


def test_the_rank_of_a_recurrent_circuit_depends_on_the_partition() -> None:
    circuit = circuit_of((6, 2, 2, 1))
    assert measured(circuit, Partition.start_end(6)) == 2
    assert measured(circuit, Partition.interleaved(6)) == 8


def test_the_lower_bound_is_for_start_against_end_of_one_or_two_layers() -> None:
    start_end = Partition.start_end(4)
    expected = start_end_lower_bound(num_tokens=4, num_templates=2, num_channels=3, depth=2)
    for partition in (start_end, start_end.swapped):
        assert circuit_of((4, 2, 3, 2)).lower_bound(partition) == expected
    assert circuit_of((4, 2, 3, 2)).lower_bound(Partition.interleaved(4)) is None
    assert circuit_of((4, 2, 3, 3)).lower_bound(start_end) is None
    assert circuit_of((5, 2, 3, 1)).lower_bound(Partition.start_end(5)) is None


def direct_value(
    circuit: RecurrentCircuit, weights: dict[str, Residues], inputs: numpy.ndarray
) -> int:
    """The recursion over time and layers, in Python integers."""

    def mapped(name: str, vector: list[int]) -> list[int]:
        return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in lists[name]]

    lists = {name: array.tolist() for name, array in weights.items()}
    states = {(0, layer): lists[f"initial_states.{layer - 1}"] for layer in layers_of(circuit)}
    for time in range(1, circuit.num_positions + 1):
        states[time, 0] = inputs[time - 1].tolist()
        for layer in layers_of(circuit):
            hidden = mapped(f"hidden_maps.{layer - 1}", states[time - 1, layer])
            below = mapped(f"input_maps.{layer - 1}", states[time, layer - 1])
            states[time, layer] = [a * b for a, b in zip(hidden, below, strict=True)]
    last = states[circuit.num_positions, circuit.depth]
    return sum(int(a * b) for a, b in zip(lists["output"], last, strict=True))


def layers_of(circuit: RecurrentCircuit) -> range:
    return range(1, circuit.depth + 1)


@settings(deadline=None, max_examples=25)
@given(sizes=sizes_of_circuits, seed=st.integers(0, 999))
def test_a_circuit_is_its_recursion_in_both_arithmetics(sizes: Sizes, seed: int) -> None:
    circuit = circuit_of(sizes).double()
    generator = numpy.random.default_rng(seed)
    weights = {
        name: generator.integers(-1, 3, tuple(parameter.shape))
        for name, parameter in circuit.named_parameters()
    }
    inputs = generator.integers(0, 2, (3, circuit.num_positions, circuit.input_size))
    expected = [direct_value(circuit, weights, sample) for sample in inputs]
    residues = {name: array % 101 for name, array in weights.items()}
    assert circuit.evaluate_modulo(residues, inputs, 101).tolist() == [y % 101 for y in expected]
    circuit.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    outputs = circuit(torch.from_numpy(inputs).double())
    torch.testing.assert_close(outputs, torch.tensor(expected, dtype=torch.float64))


@settings(deadline=None, max_examples=25)
@given(sizes=sizes_of_circuits, position=st.integers(0, 5))
def test_degrees_are_numbers_of_lattice_paths(sizes: Sizes, position: int) -> None:
    circuit = circuit_of(sizes)
    assume(position < circuit.num_positions)
    weights = circuit.draw_weights(0, PRIME)
    inputs = numpy.random.default_rng(0).integers(
        0, PRIME, (2, circuit.num_positions, circuit.input_size)
    )
    outputs = circuit.evaluate_modulo(weights, inputs, PRIME)
    assert outputs.any()

    def is_scaled(values: Residues, degree: int) -> bool:
        return numpy.array_equal(values, outputs * pow(2, degree, PRIME) % PRIME)

    doubled = {name: 2 * array % PRIME for name, array in weights.items()}
    assert is_scaled(circuit.evaluate_modulo(doubled, inputs, PRIME), circuit.weight_degree)
    everywhere = circuit.evaluate_modulo(weights, 2 * inputs % PRIME, PRIME)
    assert is_scaled(everywhere, circuit.input_degree)
    inputs[:, position] = 2 * inputs[:, position] % PRIME
    steps = circuit.num_positions - 1 - position
    paths = math.comb(steps + circuit.depth - 1, circuit.depth - 1)
    assert is_scaled(circuit.evaluate_modulo(weights, inputs, PRIME), paths)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_diagram_computes_the_circuit(depth: int) -> None:
    circuit = circuit_of((4, 3, 2, depth)).double()
    arrays = dict(circuit.named_parameters())
    run = to_module(circuit.diagram(), arrays=arrays, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(3, 4, 3, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(torch.stack([run(sample) for sample in inputs]), circuit(inputs))


@pytest.mark.parametrize("on_templates", [True, False])
def test_settings_build_the_circuit_again(on_templates: bool) -> None:
    circuit = circuit_of((4, 2, 3, 2), on_templates)
    again = RecurrentCircuit(**circuit.settings)  # type: ignore[arg-type]
    assert again.settings == circuit.settings
    assert again.num_templates == (2 if on_templates else None)
    assert measured(again, Partition.start_end(4)) == measured(circuit, Partition.start_end(4))


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SizeError, match="num_tokens must be at least 2, got 1"):
        circuit_of((1, 2, 2, 1))
    with pytest.raises(SizeError, match="depth must be at least 1, got 0"):
        circuit_of((4, 2, 2, 0))
    with pytest.raises(PartitionError, match=r"positions 0\.\.3, the partition covers \(0, 1\)"):
        circuit_of((4, 2, 2, 1)).lower_bound(Partition((0,), (1,)))
