"""Softmax-free attention: its definition, its degrees, its bounds, and what it refuses."""

import itertools
import math

import numpy
import pytest
import torch
from torch import Tensor

from rankscope.diagrams import to_module
from rankscope.errors import PartitionError, SizeError
from rankscope.rank import (
    AttentionLayer,
    AttentionSizes,
    Partition,
    Residues,
    SelfAttention,
    Setting,
    counting_upper_bound,
    draw_residues,
    zeros_upper_bound,
)

PRIME = 2**31 - 1

KINDS: list[dict[str, Setting]] = [
    {"depth": 1, "width": 3},
    {"depth": 2, "width": 4, "heads": 2},
    {"depth": 2, "width": 2, "heads": 3, "head_size": 1, "num_tokens": 3, "output_position": 2},
    {"depth": 2, "width": 3, "embedding_rank": 2},
    {"depth": 2, "width": 2, "has_positions": True},
    {"depth": 2, "width": 2, "embedding_rank": 3, "has_positions": True, "output_position": 1},
    {"depth": 1, "width": 2, "degree": 7},
    {"depth": 2, "width": 2, "degree": 5, "num_tokens": 3},
]


def build(settings: dict[str, Setting]) -> SelfAttention:
    return SelfAttention(**settings)  # type: ignore[arg-type]


def degree_of(values: list[int]) -> int:
    """The degree of a polynomial from its values at 0, 1, 2, …: differences vanish beyond it."""
    numbers = [value % PRIME for value in values]
    order, found = 0, -1
    while numbers:
        found = order if numbers[0] else found
        numbers = [(b - a) % PRIME for a, b in itertools.pairwise(numbers)]
        order += 1
    return found


def drawn_inputs(network: SelfAttention, count: int = 1) -> Residues:
    shape = (count, network.num_positions, network.input_size)
    return draw_residues(5, "inputs", shape, PRIME)


@pytest.mark.parametrize("settings", KINDS)
def test_settings_build_the_same_network_again(settings: dict[str, Setting]) -> None:
    network = build(settings)
    again = build(network.settings)
    assert again.settings == network.settings
    assert settings.items() <= network.settings.items()
    shapes = [(name, weight.shape) for name, weight in network.named_parameters()]
    assert shapes == [(name, weight.shape) for name, weight in again.named_parameters()]


def test_parameters_have_plain_names() -> None:
    network = SelfAttention(depth=1, width=6, heads=2, embedding_rank=4, has_positions=True)
    shapes = {name: tuple(weight.shape) for name, weight in network.named_parameters()}
    assert shapes == {
        "embedding": (6, 4),
        "positions": (12, 6),
        "layers.0.query": (2, 3, 6),
        "layers.0.key": (2, 3, 6),
        "layers.0.value": (2, 3, 6),
        "layers.0.output": (6, 2, 3),
    }


@pytest.mark.parametrize("settings", KINDS)
def test_the_output_is_coordinate_0_of_the_output_token(
    settings: dict[str, Setting], generator: torch.Generator
) -> None:
    network = build(settings).double()
    shape = (3, network.num_positions, network.input_size)
    inputs = torch.randn(shape, generator=generator, dtype=torch.float64)
    tokens = network.tokens(inputs)
    assert tokens.shape == (3, network.num_positions, network.width)
    torch.testing.assert_close(network(inputs), tokens[:, network.output_position, 0])


@pytest.mark.parametrize("settings", KINDS)
def test_the_diagram_computes_the_network(
    settings: dict[str, Setting], generator: torch.Generator
) -> None:
    network = build(settings).double()
    shape = (network.num_positions, network.input_size)
    inputs = torch.randn(shape, generator=generator, dtype=torch.float64)
    module = to_module(network.diagram(), dict(network.named_parameters()))
    torch.testing.assert_close(module(inputs), network(inputs[None])[0])


@pytest.mark.parametrize(("depth", "heads", "head_size"), [(1, 1, 3), (2, 3, 1), (3, 2, 2)])
def test_the_output_is_a_polynomial_in_the_gram_matrix_times_the_tokens(
    depth: int, heads: int, head_size: int, generator: torch.Generator
) -> None:
    network = SelfAttention(
        depth=depth, width=3, heads=heads, head_size=head_size, num_tokens=5, generator=generator
    ).double()
    inputs = torch.randn(1, 5, 3, generator=generator, dtype=torch.float64)
    gram = inputs[0].T @ inputs[0]
    closed = torch.eye(3, dtype=torch.float64)
    for layer in network.layers:
        assert isinstance(layer, AttentionLayer)
        pairs = [
            (layer.output[:, head] @ layer.value[head], layer.key[head].T @ layer.query[head])
            for head in range(heads)
        ]
        moved = closed @ gram @ closed.T
        closed = torch.stack([first @ moved @ second for first, second in pairs]).sum(0) @ closed
    torch.testing.assert_close(network.tokens(inputs)[0].T, closed @ inputs[0].T)


@pytest.mark.parametrize("settings", KINDS)
def test_the_output_has_exactly_the_degrees_it_states(settings: dict[str, Setting]) -> None:
    network = build(settings)
    weights, inputs = network.draw_weights(0, PRIME), drawn_inputs(network)

    by_weights = [
        int(network.evaluate_modulo(
            {name: weight * scale % PRIME for name, weight in weights.items()}, inputs, PRIME
        )[0])
        for scale in range(network.weight_degree + 3)
    ]  # fmt: skip
    assert degree_of(by_weights) == network.weight_degree

    scales = numpy.arange(network.input_degree + 3)[:, None, None]
    by_inputs = network.evaluate_modulo(weights, inputs * scales % PRIME, PRIME)
    assert degree_of([int(value) for value in by_inputs]) == network.input_degree


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_output_mixes_one_vector_more_than_the_gram_factors(depth: int) -> None:
    # Equation 7.7. Summed over all subsets of the tokens with alternating signs, only the terms
    # that involve every token remain. Each token but the output's enters an even number of times
    # and the degree is 2 C + 1, so that C + 1 tokens can all meet in one term, and C + 2 cannot.
    factors = (3**depth - 1) // 2
    for num_tokens, is_mixed in ((factors + 1, True), (factors + 2, False)):
        network = SelfAttention(depth=depth, width=1, num_tokens=num_tokens)
        weights, inputs = network.draw_weights(0, PRIME), drawn_inputs(network)
        kept = numpy.array([
            (1, *chosen) for chosen in itertools.product((0, 1), repeat=num_tokens - 1)
        ])  # fmt: skip
        values = network.evaluate_modulo(weights, inputs * kept[:, :, None], PRIME)
        signs = (-1) ** (num_tokens - kept.sum(1))
        assert (int((values * signs).sum()) % PRIME != 0) is is_mixed


def test_without_its_own_token_there_is_no_output() -> None:
    network = SelfAttention(depth=2, width=3, num_tokens=4, output_position=1)
    inputs = drawn_inputs(network)
    inputs[:, 1] = 0
    weights = network.draw_weights(0, PRIME)
    assert network.evaluate_modulo(weights, inputs, PRIME).tolist() == [0]


@pytest.mark.parametrize("settings", KINDS)
def test_initial_outputs_neither_vanish_nor_explode(settings: dict[str, Setting]) -> None:
    medians, spreads = [], []
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        network = SelfAttention(**settings, generator=generator)  # type: ignore[arg-type]
        shape = (200, network.num_positions, network.input_size)
        outputs = network(torch.randn(shape, generator=generator)).detach()
        medians.append(math.log10(float(outputs.abs().median())))
        spreads.append(math.log10(float(outputs.std())))
    # High powers of Gaussian inputs are mostly small and rarely large: 1 lies between the two.
    assert -5 < sum(medians) / len(medians) < sum(spreads) / len(spreads) < 5


def test_a_generator_repeats_the_weights() -> None:
    def first_weight(seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        network = SelfAttention(depth=1, width=2, embedding_rank=2, generator=generator)
        return torch.cat([weight.detach().flatten() for weight in network.parameters()])

    assert torch.equal(first_weight(3), first_weight(3))
    assert not torch.equal(first_weight(3), first_weight(4))


# Bounds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 2])
def test_the_side_of_the_output_counts_as_its_own(position: int) -> None:
    network = SelfAttention(depth=2, width=3, num_tokens=3, output_position=position)
    partition = Partition((0, 1), (2,))
    own, other = (2, 1) if position == 0 else (1, 2)
    sizes = AttentionSizes(2, 3, own_tokens=own, other_tokens=other)
    bounds = counting_upper_bound(sizes), zeros_upper_bound(sizes)
    assert network.upper_bound(partition) == min(bounds, key=lambda bound: bound.log3)


@pytest.mark.parametrize("position", [0, 1])
def test_bounds_of_grades_follow_the_degree_in_the_right_side(position: int) -> None:
    network = SelfAttention(depth=2, width=2, num_tokens=4, output_position=position)
    partition = Partition.interleaved(4)
    terms, degrees = network.grade_upper_bounds(partition), network.grade_degrees(partition)
    # In the other side's Gram matrix alone the degree k has ms(3, k) monomials, of which a
    # multiple of a token's coordinates can use no more than the own side offers.
    assert terms == ((1, 3, 6, 6, 2) if position == 0 else (2, 6, 6, 3, 1))
    assert degrees == ((0, 2, 4, 6, 8) if position == 0 else (1, 3, 5, 7, 9))
    assert sum(terms) == network.upper_bound(partition).value == 18


def test_chains_and_very_deep_networks_use_the_plain_count() -> None:
    chain = SelfAttention(depth=1, width=2, degree=9)
    partition = Partition.interleaved(4)
    sizes = AttentionSizes(1, 2, degree=9)
    assert chain.upper_bound(partition) == counting_upper_bound(sizes)
    assert chain.grade_upper_bounds(partition) == (1, 3, 6, 6, 2)
    deep = SelfAttention(depth=7, width=2)
    assert deep.upper_bound(partition) == counting_upper_bound(AttentionSizes(7, 2))
    assert deep.grade_upper_bounds(partition) is None


def test_an_embedding_caps_the_bound_unless_positions_leave_its_image() -> None:
    partition = Partition.interleaved(4)
    narrow = SelfAttention(depth=2, width=4, num_tokens=4, embedding_rank=2)
    assert narrow.upper_bound(partition).value == 18
    shifted = SelfAttention(depth=2, width=4, num_tokens=4, embedding_rank=2, has_positions=True)
    free = SelfAttention(depth=2, width=4, num_tokens=4)
    assert shifted.upper_bound(partition) == free.upper_bound(partition)
    assert shifted.grade_degrees(partition) == (0,)
    assert shifted.grade_upper_bounds(partition) is None
    assert shifted.lower_bound(partition) == narrow.lower_bound(partition) is not None


@pytest.mark.parametrize(("settings", "theorem"), [
    ({"depth": 1, "width": 3}, "monomials of the Gram matrix"),
    ({"depth": 2, "width": 3, "num_tokens": 2}, "monomials of the Gram matrix"),
    ({"depth": 2, "width": 3}, "powers of a quadric"),
    ({"depth": 2, "width": 2, "degree": 5}, None),
])  # fmt: skip
def test_the_larger_lower_bound_is_taken_where_a_theorem_applies(
    settings: dict[str, Setting], theorem: str | None
) -> None:
    network = build(settings)
    bound = network.lower_bound(Partition.interleaved(network.num_positions))
    assert (bound is None) == (theorem is None)
    assert str(theorem) in ("None" if bound is None else bound.theorem.citation)


# Refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("settings", "message"), [
    ({"depth": 0, "width": 2}, "SelfAttention: depth must be at least 1, got 0"),
    ({"depth": 1, "width": 0}, "SelfAttention: width must be at least 1, got 0"),
    ({"depth": 1, "width": 2, "heads": 0}, "heads must be at least 1, got 0"),
    ({"depth": 1, "width": 2, "head_size": 0}, "head_size must be at least 1, got 0"),
    ({"depth": 1, "width": 2, "num_tokens": 0}, "num_tokens must be at least 1, got 0"),
    ({"depth": 1, "width": 2, "embedding_rank": 0}, "embedding_rank must be at least 1, got 0"),
    ({"depth": 1, "width": 5, "heads": 2}, "2 heads do not divide width 5; give head_size"),
    ({"depth": 1, "width": 2, "degree": 4}, "degree must be odd and at least 3, got 4"),
    ({"depth": 1, "width": 2, "degree": 1}, "degree must be odd and at least 3, got 1"),
    ({"depth": 1, "width": 2, "degree": 5, "heads": 2},
     "degree 5 is a chain of square matrices without heads, got heads=2 and head_size=None"),
    ({"depth": 1, "width": 2, "degree": 7, "head_size": 1},
     "degree 7 is a chain of square matrices without heads, got heads=1 and head_size=1"),
    ({"depth": 1, "width": 2, "output_position": 4}, r"must lie in 0\.\.3, got 4"),
    ({"depth": 1, "width": 2, "output_position": -1}, r"must lie in 0\.\.3, got -1"),
])  # fmt: skip
def test_sizes_that_do_not_fit_are_refused(settings: dict[str, Setting], message: str) -> None:
    with pytest.raises(SizeError, match=message):
        build(settings)


def test_inputs_of_another_shape_are_refused() -> None:
    network = SelfAttention(depth=1, width=2, num_tokens=3)
    for call in (network, network.tokens):
        with pytest.raises(SizeError, match=r"shape \(batch, 3, 2\), got \(1, 4, 2\)"):
            call(torch.zeros(1, 4, 2))


def test_a_partition_must_cover_all_tokens() -> None:
    network = SelfAttention(depth=1, width=2)
    partition = Partition((0,), (1,))
    for call in (network.upper_bound, network.grade_upper_bounds, network.lower_bound):
        with pytest.raises(
            PartitionError, match=r"positions 0\.\.3, the partition covers \(0, 1\)"
        ):
            call(partition)
    with pytest.raises(PartitionError, match=r"covers \(0, 1\)"):
        network.split(partition, seed=0, prime=101)
