"""Recurrences as polynomials: step by step, against attention, and by two roads."""

import itertools
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.diagrams import input_arrays, to_module
from rankscope.errors import SizeError
from rankscope.rank import Kind, Partition, PolynomialTransformer, Recurrence

PRIMES = (16777213, 1073741789)


@st.composite
def recurrences(draw: st.DrawFn) -> Recurrence:
    kind = draw(st.sampled_from(list(Kind)))
    heads = draw(st.sampled_from((1, 2)))
    tokens = draw(st.integers(2, 4))
    return Recurrence(
        kind=kind,
        depth=draw(st.integers(1, 2)),
        width=heads * draw(st.integers(1, 2)),
        state=draw(st.none() | st.integers(1, 3)),
        heads=heads,
        has_input_rate=kind is Kind.DELTA and draw(st.booleans()),
        num_tokens=tokens,
        output_position=draw(st.none() | st.integers(0, tokens - 1)),
        generator=torch.Generator().manual_seed(draw(st.integers(0, 99))),
    )


def by_steps(network: Recurrence, inputs: Tensor) -> Tensor:
    """The definition with matrices, head by head, for one input (tokens, width)."""
    shape = network.shape
    tokens = list(inputs)
    for number in range(shape.depth):
        layer = dict(network.layers[number].named_parameters())
        parts = [
            {name: w[:, head] if name == "output" else w[head] for name, w in layer.items()}
            for head in range(shape.heads)
        ]
        answers = [_head_answers(network, own, tokens) for own in parts]
        # Heads with a matrix write all coordinates, the others one after the other.
        join = sum if shape.kind.has_matrix_state else torch.cat
        tokens = [join(list(heads)) for heads in zip(*answers, strict=True)]
    output: Tensor = tokens[shape.output_position][0]
    return output


def _head_answers(
    network: Recurrence, own: dict[str, Tensor], tokens: list[Tensor]
) -> list[Tensor]:
    shape, answers = network.shape, []
    rows = (shape.head_size,) if shape.kind.has_matrix_state else ()
    state = torch.zeros(*rows, shape.state, dtype=tokens[0].dtype)
    for x in tokens:
        if shape.kind.has_matrix_state:
            q, k, v = (own[name] @ x for name in ("query", "key", "value"))
            if shape.kind is Kind.DECAY:
                state = own["decay"] * state + torch.outer(v, k)
            else:
                rate = own["rate"] @ x if shape.has_input_rate else own["rate"]
                identity = torch.eye(shape.state, dtype=x.dtype)
                state = state @ (identity - rate * torch.outer(k, k)) + rate * torch.outer(v, k)
            answers.append(own["output"] @ (state @ q))
            continue
        transition = own["transition"]
        if shape.kind is Kind.DIAGONAL:
            transition = torch.diag(transition)
        if shape.kind is Kind.SELECTIVE:
            transition = transition + torch.einsum("i,ist->st", x, own["selection"])
        state = transition @ state + own["write"] @ x
        answers.append((own["read"] @ state) * (own["gate"] @ x))
    return answers


@settings(deadline=None, max_examples=40)
@given(network=recurrences())
def test_the_network_computes_what_is_defined(network: Recurrence) -> None:
    network = network.double()
    shape = (2, network.num_positions, network.input_size)
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = torch.stack([by_steps(network, one) for one in inputs])
    torch.testing.assert_close(network(inputs), expected)


@settings(deadline=None, max_examples=25)
@given(network=recurrences(), prime=st.sampled_from(PRIMES), data=st.data())
def test_programs_give_the_values_of_the_defining_equations(
    network: Recurrence, prime: int, data: st.DataObject
) -> None:
    order = network.num_positions
    left = data.draw(st.sets(st.integers(0, order - 1), min_size=1, max_size=order - 1))
    partition = Partition.of(sorted(left), order=order)
    fast = network.split(partition, seed=3, prime=prime)
    defined = network.reference_split(partition, seed=3, prime=prime)
    rows, columns = numpy.array([0, 5, 2]), numpy.array([7, 1])
    assert numpy.array_equal(fast.values(rows, columns), defined.values(rows, columns))
    graded = fast.graded_values(rows, columns)
    assert numpy.array_equal(graded, defined.graded_values(rows, columns))


@pytest.mark.parametrize(("tokens", "state"), [(12, 1), (4, 3)])
def test_both_roads_of_the_delta_rule_give_its_values(tokens: int, state: int) -> None:
    """States are cheaper for many tokens and small keys, scores for few tokens."""
    network = Recurrence(kind="delta", depth=2, width=2, state=state, num_tokens=tokens)
    partition, few = Partition.interleaved(tokens), numpy.arange(3)
    ours, defined = (
        make(partition, seed=0, prime=PRIMES[0]).values(few, few)
        for make in (network.split, network.reference_split)
    )
    numpy.testing.assert_array_equal(ours, defined)


@settings(deadline=None, max_examples=10)
@given(depth=st.integers(1, 2), heads=st.sampled_from((1, 2)), seed=st.integers(0, 9))
def test_without_decay_linear_attention_is_causal_attention(
    depth: int, heads: int, seed: int
) -> None:
    recurrence = Recurrence(kind="decay", depth=depth, width=2, heads=heads)
    attention = PolynomialTransformer(depth=depth, width=2, heads=heads, is_causal=True)
    weights = attention.draw_weights(seed, PRIMES[0])
    ones = {f"layers.{n}.decay": numpy.ones(heads, dtype=numpy.int64) for n in range(depth)}
    partition, points = Partition.interleaved(4), numpy.arange(5)
    options = {"seed": seed, "prime": PRIMES[0]}
    ours = recurrence.split(partition, weights={**weights, **ones}, **options)
    theirs = attention.split(partition, weights=weights, **options)
    assert numpy.array_equal(ours.values(points, points), theirs.values(points, points))


def test_mixers_are_split_alike_unless_a_split_is_named() -> None:
    """So that numbers of `rankscope rank` compare between attention and recurrences."""
    assert Recurrence.default_partition == PolynomialTransformer.default_partition == "interleaved"


@pytest.mark.slow
@settings(deadline=None, max_examples=8)
@given(network=recurrences())
def test_degrees_are_those_of_the_output(network: Recurrence) -> None:
    prime = PRIMES[1]
    weights = network.draw_weights(0, prime)
    drawn = numpy.random.default_rng(0)
    points = drawn.integers(0, prime, (1, network.num_positions, network.input_size))
    for degree, by_weights in ((network.input_degree, False), (network.weight_degree, True)):
        values = []
        for t in range(degree + 2):
            scaled = {n: w * t % prime for n, w in weights.items()} if by_weights else weights
            inputs = points if by_weights else points * t % prime
            values.append(int(network.evaluate_modulo(scaled, inputs, prime)[0]))
        while len(values) > 2:
            values = [(b - a) % prime for a, b in itertools.pairwise(values)]
        assert values[1] == values[0]
        if not by_weights:
            assert values[0] != 0  # the degree itself is reached


@pytest.mark.parametrize("kind", Kind)
def test_the_diagram_computes_the_network(kind: Kind) -> None:
    network = Recurrence(
        kind=kind,
        depth=2,
        width=4,
        heads=2,
        state=3,
        num_tokens=4,
        has_input_rate=kind is Kind.DELTA,
        output_position=2,
    ).double()
    drawn = network.diagram()
    run = to_module(drawn, arrays=dict(network.named_parameters()), dtype=torch.float64)
    inputs = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    unit = torch.eye(4, dtype=torch.float64)[0]
    names = input_arrays(drawn)
    outputs = [run(*(one if n == "x" else unit for n in names)) for one in inputs]
    torch.testing.assert_close(torch.stack(outputs), network(inputs))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"kind": "linear"},
            "kind must be one of decay, diagonal, dense, selective, delta, got 'l",
        ),
        ({"heads": 3}, "3 heads do not divide width 4"),
        ({"has_input_rate": True}, "only the delta rule has a rate, got kind decay"),
        ({"output_position": 8}, r"output position must lie in 0\.\.7, got 8"),
        ({"state": 0}, "state must be at least 1, got 0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(SizeError, match=message):
        Recurrence(**{"kind": "decay", "depth": 1, "width": 4, **wrong})
