"""Transformers as polynomials: index by index, against attention, and by two roads."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.diagrams import Role, input_arrays, nodes_of, to_module
from rankscope.errors import PrimeError, SizeError
from rankscope.rank import Modulo, Partition, PolynomialTransformer, Reals, SelfAttention
from rankscope.rank.networks.polynomial_transformer import (
    rational_rotation,
    rotation_entries,
    rotations,
)

PRIMES = (16777213, 1073741789, 2147483647)


@st.composite
def transformers(draw: st.DrawFn) -> PolynomialTransformer:
    """Small transformers with any of the options."""
    heads = draw(st.sampled_from((1, 2)))
    head_size = draw(st.sampled_from((1, 2)))
    width = draw(st.integers(1, 3))
    tokens = draw(st.integers(2, 4))
    narrow = st.none() | st.integers(1, width)
    return PolynomialTransformer(
        depth=draw(st.integers(1, 2)),
        width=width,
        heads=heads,
        head_size=head_size,
        num_kv_heads=draw(st.sampled_from((1, heads))),
        latent=draw(narrow),
        query_latent=draw(narrow),
        is_causal=draw(st.booleans()),
        has_rotary=head_size == 2 and draw(st.booleans()),
        has_positions=draw(st.booleans()),
        has_residual=draw(st.booleans()),
        gated=draw(st.none() | st.integers(1, 3)),
        num_tokens=tokens,
        output_position=draw(st.none() | st.integers(0, tokens - 1)),
        generator=torch.Generator().manual_seed(draw(st.integers(0, 99))),
    )


def splits(order: int) -> st.SearchStrategy[Partition]:
    sides = st.sets(st.integers(0, order - 1), min_size=1, max_size=order - 1)
    return sides.map(lambda left: Partition.of(sorted(left), order=order))


def by_indices(network: PolynomialTransformer, inputs: Tensor) -> Tensor:
    """The definition, one number at a time, for one input (tokens, width)."""
    shape = network.shape
    weights = {name: weight.detach() for name, weight in network.named_parameters()}
    tokens = [row + weights["positions"][i] if shape.has_positions else row
              for i, row in enumerate(inputs)]  # fmt: skip
    turns = rotations(shape, Reals(), inputs)
    for number in range(shape.depth):
        own = {
            n.split(".", 2)[2]: w for n, w in weights.items() if n.startswith(f"layers.{number}")
        }
        made = []
        for i, token in enumerate(tokens):
            total = torch.zeros(shape.width, dtype=inputs.dtype)
            for head in range(shape.heads):
                group = head // (shape.heads // shape.num_kv_heads)
                asked = own["query_latent"] @ token if shape.query_latent else token
                query = own["query"][head] @ asked
                for j in range(i + 1 if shape.is_causal else shape.num_tokens):
                    read = own["latent"] @ tokens[j] if shape.latent else tokens[j]
                    key, value = own["key"][group] @ read, own["value"][group] @ read
                    score = (
                        (turns[i] @ query) @ (turns[j] @ key) if shape.has_rotary else query @ key
                    )
                    total = total + score * (own["output"][:, head] @ value)
            made.append(total + token if shape.has_residual else total)
        tokens = made
        if shape.gated:
            products = [(own["gate_left"] @ y) * (own["gate_right"] @ y) for y in tokens]
            gated = [own["gate_output"] @ product for product in products]
            tokens = [
                y + z if shape.has_residual else z for y, z in zip(tokens, gated, strict=True)
            ]
    output: Tensor = tokens[shape.output_position][0]
    return output


@settings(deadline=None, max_examples=25)
@given(network=transformers())
def test_the_network_computes_what_is_defined(network: PolynomialTransformer) -> None:
    network = network.double()
    generator = torch.Generator().manual_seed(1)
    shape = (2, network.num_positions, network.input_size)
    inputs = torch.randn(shape, generator=generator, dtype=torch.float64)
    expected = torch.stack([by_indices(network, one) for one in inputs])
    torch.testing.assert_close(network(inputs), expected)


@settings(deadline=None, max_examples=20)
@given(network=transformers(), data=st.data())
def test_programs_give_the_values_of_the_defining_equations(
    network: PolynomialTransformer, data: st.DataObject
) -> None:
    partition = data.draw(splits(network.num_positions))
    prime = data.draw(st.sampled_from(PRIMES))
    fast = network.split(partition, seed=3, prime=prime)
    defined = network.reference_split(partition, seed=3, prime=prime)
    rows, columns = numpy.array([0, 5, 2]), numpy.array([7, 1])
    assert numpy.array_equal(fast.values(rows, columns), defined.values(rows, columns))
    graded = fast.graded_values(rows, columns)
    assert numpy.array_equal(graded, defined.graded_values(rows, columns))
    assert numpy.array_equal(graded.sum(0) % prime, fast.values(rows, columns))


@settings(deadline=None, max_examples=15)
@given(
    depth=st.integers(1, 3),
    width=st.integers(1, 3),
    heads=st.integers(1, 3),
    has_positions=st.booleans(),
    seed=st.integers(0, 5),
)
def test_attention_is_the_case_without_options(
    depth: int, width: int, heads: int, has_positions: bool, seed: int
) -> None:
    sizes: dict[str, Any] = {"depth": depth, "width": width, "heads": heads, "head_size": 2}
    sizes |= {"num_tokens": 4, "has_positions": has_positions}
    mine, theirs = PolynomialTransformer(**sizes), SelfAttention(**sizes)
    partition, points = Partition.interleaved(4), numpy.arange(6)
    for split in ("split", "reference_split"):
        ours = getattr(mine, split)(partition, seed=seed, prime=PRIMES[0])
        known = getattr(theirs, split)(partition, seed=seed, prime=PRIMES[0])
        assert numpy.array_equal(
            ours.graded_values(points, points), known.graded_values(points, points)
        )
    assert mine.input_degree == theirs.input_degree
    assert mine.weight_degree == theirs.weight_degree
    assert mine.grade_degrees(partition) == theirs.grade_degrees(partition)


def test_a_causal_output_does_not_see_what_follows() -> None:
    network = PolynomialTransformer(depth=2, width=2, is_causal=True, output_position=1).double()
    inputs = torch.ones(1, 4, 2, dtype=torch.float64)
    changed = inputs.clone()
    changed[:, 2:] = 7
    assert torch.equal(network(inputs), network(changed))
    last = PolynomialTransformer(depth=1, width=2, is_causal=True)
    assert last.output_position == 3
    assert PolynomialTransformer(depth=1, width=2).output_position == 0


@settings(deadline=None, max_examples=20)
@given(pair=st.integers(0, 5), first=st.integers(0, 6), second=st.integers(0, 6))
def test_rotations_are_rational_and_add_up(pair: int, first: int, second: int) -> None:
    cosine, sine = rational_rotation(pair)
    assert cosine**2 + sine**2 == 1
    size = 2 * pair + 2
    matrices = [
        numpy.array(rotation_entries(size, place), dtype=object).reshape(size, size)
        for place in (first, second, first + second)
    ]
    assert (matrices[0] @ matrices[1] == matrices[2]).all()
    assert (matrices[0] @ matrices[0].T == numpy.eye(size, dtype=object)).all()


def test_angles_of_different_pairs_have_different_primes_and_no_common_multiple() -> None:
    denominators = [rational_rotation(pair)[0].denominator for pair in range(6)]
    assert denominators == [5, 13, 17, 29, 37, 41]
    angles = [math.atan2(*map(float, reversed(rational_rotation(pair)))) for pair in range(6)]
    assert len({round(angle, 9) for angle in angles}) == 6


def test_a_prime_that_divides_a_rotation_is_refused() -> None:
    with pytest.raises(PrimeError, match="4/5 has no residue modulo 5, which divides 5"):
        Modulo(5).constants([Fraction(4, 5)], torch.zeros(1, dtype=torch.int64))


@pytest.mark.parametrize("options", [
    {"is_causal": True},
    {"num_kv_heads": 1, "is_causal": True, "has_rotary": True, "has_residual": True, "gated": 3},
    {"has_residual": True},
    {"latent": 3, "query_latent": 2, "has_positions": True, "output_position": 2},
])  # fmt: skip
def test_the_diagram_computes_the_network(options: dict[str, Any]) -> None:
    network = PolynomialTransformer(depth=2, width=4, heads=2, num_tokens=4, **options).double()
    drawn = network.diagram()
    parameters = {node.source for node in nodes_of(drawn) if node.role is Role.PARAMETER}
    assert parameters == {name for name, _ in network.named_parameters()}
    inputs = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    known = {
        "mask": torch.ones(4, 4, dtype=torch.float64).tril(),
        "rotation": rotations(network.shape, Reals(), inputs),
        "unit": torch.eye(4, dtype=torch.float64)[0],
    }
    run = to_module(drawn, arrays=dict(network.named_parameters()), dtype=torch.float64)
    names = input_arrays(drawn)
    outputs = [run(*(one if n == "x" else known[n] for n in names)) for one in inputs]
    torch.testing.assert_close(torch.stack(outputs), network(inputs))


@pytest.mark.slow
@settings(deadline=None, max_examples=8)
@given(network=transformers())
def test_degrees_are_those_of_the_output(network: PolynomialTransformer) -> None:
    """Along a line through the origin, and in the weights, the output is a polynomial in t."""
    prime = PRIMES[1]
    weights = network.draw_weights(0, prime)
    points = numpy.random.default_rng(0).integers(0, prime, (1, network.num_positions, 1))
    points = numpy.repeat(points, network.input_size, axis=2)
    for degree, by_weights in ((network.input_degree, False), (network.weight_degree, True)):
        values = []
        for t in range(degree + 2):
            scaled = {n: w * t % prime for n, w in weights.items()} if by_weights else weights
            inputs = points if by_weights else points * t % prime
            values.append(int(network.evaluate_modulo(scaled, inputs, prime)[0]))
        while len(values) > 1:
            values = [(b - a) % prime for a, b in itertools.pairwise(values)]
        assert values == [0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"heads": 4, "num_kv_heads": 3}, "3 key-value heads do not divide 4 heads"),
        ({"latent": 5}, "latent 5 is wider than the tokens it is read from, which have 4 entries"),
        ({"query_latent": 9}, "query_latent 9 is wider than the tokens"),
        ({"output_position": 8}, r"output position must lie in 0\.\.7, got 8"),
        ({"head_size": 3, "has_rotary": True}, "the head size must be even, got 3"),
        ({"heads": 3}, "3 heads do not divide width 4; give head_size"),
        ({"gated": 0}, "gated must be at least 1, got 0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(SizeError, match=message):
        PolynomialTransformer(depth=1, width=4, **wrong)


def test_only_plain_layers_are_attention() -> None:
    with pytest.raises(SizeError, match="only layers without mask, rotary positions, residual"):
        PolynomialTransformer(depth=1, width=2, is_causal=True).as_attention()
