"""Convolutional circuits: the tree cut and the published bounds."""

import random

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams import Diagram, Index, Node, minimal_cut
from rankscope.errors import BoundError
from rankscope.rank import (
    Circuit,
    Pooling,
    convolutional_cp_lower_bound,
    convolutional_upper_bound,
    pooling_lower_bound,
    pooling_upper_bound,
    rank_modulo,
)


@pytest.mark.parametrize(("window", "tokens", "templates", "channels", "mixed", "halves"), [
    (2, 4, 2, (2, 2), 4, 2), (2, 4, 3, (3, 2), 9, 2), (2, 8, 2, (2, 2, 2), 16, 2),
    (2, 8, 3, (3, 2, 2), 81, 2), (4, 4, 2, (5,), 4, 4),
])  # fmt: skip
def test_circuits_have_the_reference_values(
    window: int, tokens: int, templates: int, channels: tuple[int, ...], mixed: int, halves: int
) -> None:
    circuit = Circuit(Pooling.uniform(window=window, num_tokens=tokens), templates, channels)
    assert convolutional_upper_bound(circuit, tuple(range(0, tokens, 2))).value == mixed
    assert convolutional_upper_bound(circuit, tuple(range(tokens // 2))).value == halves


def as_diagram(circuit: Circuit) -> Diagram:
    indices = [Index(f"t{j}", circuit.num_templates) for j in range(circuit.pooling.num_tokens)]
    below = [f"t{j}" for j in range(circuit.pooling.num_tokens)]
    nodes, names = [], [f"a0_{j}" for j in range(len(below))]
    for level, windows in enumerate(circuit.pooling.levels):
        joined = [f"e{level}_{k}" for k in range(len(windows))]
        indices += [Index(name, circuit.channels[level]) for name in joined]
        for k, window in enumerate(windows):
            nodes += [Node(names[member], (below[member], joined[k])) for member in window]
        below, names = joined, [f"a{level + 1}_{k}" for k in range(len(windows))]
    nodes.append(Node(names[0], (below[0],)))
    tokens = tuple(f"t{j}" for j in range(circuit.pooling.num_tokens))
    return Diagram("circuit", tuple(indices), tuple(nodes), output=tokens)


@settings(deadline=None, max_examples=40)
@given(
    pooling=st.sampled_from([
        Pooling.uniform(window=2, num_tokens=4),
        Pooling.uniform(window=3, num_tokens=3),
        Pooling((((0, 3), (1, 4), (2,)), ((2, 0, 1),))),
        Pooling((((0, 1, 2), (3, 4, 5)), ((0, 1),))),
    ]),
    sizes=st.tuples(*[st.integers(1, 5)] * 3),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_the_tree_cut_is_the_minimal_cut_of_the_diagram(
    pooling: Pooling, sizes: tuple[int, ...], seed: int
) -> None:
    circuit = Circuit(pooling, sizes[0], sizes[1 : 1 + len(pooling.levels)])
    tokens, draw = range(pooling.num_tokens), random.Random(seed)
    left = tuple(sorted(draw.sample(tokens, draw.randint(1, len(tokens) - 1))))
    right = tuple(token for token in tokens if token not in left)
    cut = minimal_cut(
        as_diagram(circuit), tuple(f"t{j}" for j in left), tuple(f"t{j}" for j in right)
    )
    upper = convolutional_upper_bound(circuit, left)
    assert upper.value == cut.value
    lower, recursion = pooling_lower_bound(circuit, left), pooling_upper_bound(circuit, left)
    assert upper.value is not None
    assert recursion.value is not None
    assert upper.value <= recursion.value
    assert lower.value is not None
    split = [w for w in pooling.levels[0] if 0 < len([t for t in w if t in left]) < len(w)]
    assert lower.value == min(sizes[:2]) ** len(split)


@settings(deadline=None, max_examples=30)
@given(
    templates=st.integers(1, 3), channels=st.integers(1, 4), window=st.sampled_from((2, 4)),
    left=st.sets(st.integers(0, 3), min_size=1, max_size=3),
)  # fmt: skip
def test_the_shared_example_has_the_rank_of_the_lower_bound(
    templates: int, channels: int, window: int, left: set[int]
) -> None:
    pooling = Pooling.uniform(window=window, num_tokens=4)
    circuit = Circuit(pooling, templates, (channels, *[2] * (len(pooling.levels) - 1)))
    first = numpy.eye(channels, templates, dtype=numpy.int64)  # one unit vector for each channel
    letters = "abcd"[:window]
    pooled = numpy.einsum(f"{','.join('z' + letter for letter in letters)}->{letters}",
                          *[first] * window)  # fmt: skip
    whole = pooled if window == 4 else numpy.multiply.outer(pooled, pooled)
    right = tuple(token for token in range(4) if token not in left)
    matrix = whole.transpose(*sorted(left), *right).reshape(templates ** len(left), -1)
    bound = pooling_lower_bound(circuit, tuple(sorted(left)))
    assert rank_modulo(matrix, 16_777_213) == bound.value


@settings(deadline=None)
@given(templates=st.integers(1, 6), channels=st.tuples(*[st.integers(1, 6)] * 3))
def test_windows_of_two_have_closed_forms(templates: int, channels: tuple[int, int, int]) -> None:
    circuit = Circuit(Pooling.uniform(window=2, num_tokens=8), templates, channels)
    first, second, third = channels
    halves = min(third, second, first**2, templates**4)
    assert convolutional_upper_bound(circuit, (0, 1, 2, 3)).value == halves
    mixed = min(first, templates) ** 4
    assert convolutional_upper_bound(circuit, (0, 2, 4, 6)).value == mixed
    assert convolutional_cp_lower_bound(circuit).value == mixed


def test_circuits_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BoundError, match="6 tokens are no power of the window 2"):
        Pooling.uniform(window=2, num_tokens=6)
    with pytest.raises(BoundError, match=r"level 1 must share out 0\.\.2"):
        Pooling((((0, 1), (1,)), ((0, 1),)))
    with pytest.raises(BoundError, match="one window, got 2"):
        Pooling((((0, 1), (2, 3)),))
    with pytest.raises(BoundError, match="one window, got 0"):
        Pooling(())
    with pytest.raises(BoundError, match="2 pooling levels need as many channel sizes, got 1"):
        Circuit(Pooling.uniform(window=2, num_tokens=4), 2, (2,))
    with pytest.raises(BoundError, match="fewest_channels must be at least 1, got 0"):
        Circuit(Pooling.uniform(window=2, num_tokens=4), 2, (2, 0))
    with pytest.raises(BoundError, match="windows of 2, got one of 3"):
        convolutional_cp_lower_bound(Circuit(Pooling.uniform(window=3, num_tokens=3), 2, (2,)))
