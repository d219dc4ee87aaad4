"""Networks of mixed degree: their ranks, their diagram, and the product networks inside of them."""

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.diagrams import to_module
from rankscope.errors import PartitionError, SizeError
from rankscope.rank import (
    DegreePolynomial,
    Partition,
    ProductNetwork,
    certify_rank,
    measure_rank,
    rank_modulo,
    verify,
)

HALVES = Partition.left_right(4)


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


Sizes = tuple[int, int, tuple[int, ...], tuple[int, ...]]


@st.composite
def sizes(draw: st.DrawFn) -> Sizes:
    """Of two layers at most, and of degree 9 at most."""
    num_inputs, width = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    degrees = draw(st.lists(st.integers(1, 2), min_size=1, max_size=2).map(tuple))
    return num_inputs, width, degrees, tuple(draw(st.integers(0, width - 1)) for _ in degrees)


def built(case: Sizes) -> DegreePolynomial:
    num_inputs, width, degrees, raised = case
    return DegreePolynomial(
        num_inputs=num_inputs, width=width, degrees=degrees, raised=raised, generator=drawn()
    ).double()


def embedded(products: ProductNetwork) -> dict[str, Tensor]:
    """The weights of a mixed network that is a product network: no biases, one coordinate read."""
    state = {"readout": torch.zeros(products.width), "constant": torch.zeros(1)}
    state["readout"][0] = 1
    for number, maps in enumerate(products.layers):
        for place, matrix in enumerate(maps.detach()):
            rows = torch.zeros(matrix.shape[1], products.width)
            rows[:, : len(matrix)] = matrix.T
            state[f"layers.{number}.weights.{place}"] = rows
            state[f"layers.{number}.biases.{place}"] = torch.zeros(products.width)
    return {name: value.to(products.layers[0].dtype) for name, value in state.items()}


@pytest.mark.parametrize(("degree", "depth", "rank"), [(2, 2, 9), (3, 2, 30), (3, 1, 6)])
def test_it_has_the_numbers_of_a_product_network_at_the_same_weights(
    degree: int, depth: int, rank: int
) -> None:
    products = ProductNetwork(num_inputs=4, degree=degree, depth=depth, generator=drawn()).double()
    network = DegreePolynomial(num_inputs=4, width=4, degrees=(degree,) * depth).double()
    network.load_state_dict(embedded(products))
    inputs = torch.randn(5, 4, 1, generator=drawn(), dtype=torch.float64)
    torch.testing.assert_close(network(inputs), products(inputs))
    found = measure_rank(network, HALVES, weights=dict(network.named_parameters()))
    wanted = measure_rank(products, HALVES, weights=dict(products.named_parameters()))
    assert found.lower == wanted.lower == rank


@pytest.mark.parametrize(("degrees", "raised"), [
    ((2, 2), (0, 0)), ((2, 2), (1, 0)), ((3, 2), (0, 0)), ((2, 3), (0, 0)), ((2,), (3,)),
])  # fmt: skip
def test_random_weights_attain_the_bound_of_the_largest_degree(
    degrees: tuple[int, ...], raised: tuple[int, ...]
) -> None:
    network = DegreePolynomial(num_inputs=4, width=6, degrees=degrees, raised=raised)
    measured = measure_rank(network, HALVES)
    assert measured.is_exact
    certificate = certify_rank(network, HALVES, measured)
    assert verify(certificate).is_proved


@settings(deadline=None, max_examples=20)
@given(case=sizes(), seed=st.integers(0, 99))
def test_no_rank_exceeds_the_bound(case: Sizes, seed: int) -> None:
    network = built(case)
    partition = Partition.of([0], order=network.num_positions)
    bound = network.upper_bound(partition)
    count = (bound.value or 0) + 2
    split = network.split(partition, seed=seed, prime=101)
    values = split.values(numpy.arange(count), numpy.arange(count))
    assert bound.holds_for(rank_modulo(values, 101))


@settings(deadline=None, max_examples=20)
@given(case=sizes())
def test_the_output_has_the_degrees_it_says(case: Sizes) -> None:
    """Interpolation at one node more than the degree gives the value everywhere."""
    network = built(case)
    inputs = numpy.random.default_rng(0).integers(1, 10**6, (1, network.num_positions, 1))
    weights = network.draw_weights(0, 1073741789)
    for degree, vary in ((network.input_degree, False), (network.weight_degree, True)):
        values = []
        for scale in range(degree + 2):
            scaled = {name: array * scale % 1073741789 for name, array in weights.items()}
            chosen = (scaled, inputs) if vary else (weights, inputs * scale)
            values.append(int(network.evaluate_modulo(*chosen, 1073741789)[0]))
        differences = numpy.array(values, dtype=object)
        for _ in range(degree + 1):
            differences = numpy.diff(differences)
        assert differences[0] % 1073741789 == 0


@settings(deadline=None, max_examples=20)
@given(case=sizes())
def test_the_diagram_computes_the_network(case: Sizes) -> None:
    network = built(case)
    arrays = dict(network.named_parameters())
    run = to_module(network.diagram(), arrays=arrays, dtype=torch.float64)
    inputs = torch.randn(3, network.num_positions, 1, generator=drawn(), dtype=torch.float64)
    outputs = torch.stack([run(sample) for sample in inputs[:, :, 0]])
    torch.testing.assert_close(outputs.flatten(), network(inputs))


def test_fixing_inputs_gives_the_same_function_of_the_others() -> None:
    network = DegreePolynomial(
        num_inputs=5, width=3, degrees=(2, 2), raised=(1, 2), generator=drawn()
    ).double()
    free = (3, 1)
    values = torch.randn(5, generator=drawn(), dtype=torch.float64)
    inputs = values.repeat(4, 1)
    inputs[:, free] = torch.randn(4, 2, generator=drawn(1), dtype=torch.float64)
    found = network.with_fixed_inputs(values, free)
    torch.testing.assert_close(found(inputs[:, free, None]), network(inputs[..., None]))
    with pytest.raises(SizeError, match=r"values of 5 inputs .* got shape \(4,\) and \(3, 1\)"):
        network.with_fixed_inputs(values[:4], free)
    with pytest.raises(SizeError, match=r"got shape \(5,\) and \(3, 7\)"):
        network.with_fixed_inputs(values, (3, 7))


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SizeError, match="num_inputs must be at least 2, got 1"):
        DegreePolynomial(num_inputs=1, width=2, degrees=(2,))
    with pytest.raises(SizeError, match="number_of_layers must be at least 1, got 0"):
        DegreePolynomial(num_inputs=2, width=2, degrees=())
    with pytest.raises(SizeError, match=r"2 layers need as many .* coordinates, got 1"):
        DegreePolynomial(num_inputs=2, width=2, degrees=(2, 2), raised=(1,))
    with pytest.raises(PartitionError, match=r"0\.\.3, the partition covers \(0, 1\)"):
        DegreePolynomial(num_inputs=4, width=2, degrees=(2,)).upper_bound(Partition((0,), (1,)))
