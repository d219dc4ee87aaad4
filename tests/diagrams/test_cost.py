"""Counts against formulas worked out by hand."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams import (
    IN_ORDER,
    Convolution,
    Diagram,
    Exhaustive,
    Function,
    Index,
    InOrder,
    Network,
    Node,
    Polynomial,
    Problem,
    Region,
    Role,
    Step,
    Sum,
    Term,
    cost_formula,
)
from rankscope.diagrams.cost import cost
from rankscope.errors import ContractionError, SizeError


def indices(**sizes: int) -> tuple[Index, ...]:
    return tuple(Index(name, size) for name, size in sizes.items())


def attention(heads: int, width: int) -> Diagram:
    """N = M = 512, F = 768."""
    sizes = {"n": 512, "m": 512, "f": 768, "g": 768, "e": 768, "o": 768}
    return Diagram(
        "attention",
        indices(**sizes, h=heads, d=width, c=width),
        (
            Node("X", ("n", "f"), Role.DATA, array="x"),
            Node("WQ", ("f", "d", "h")),
            Node("WK", ("g", "d", "h")),
            Node("Y", ("m", "g"), Role.DATA, array="x"),
            Node("WV", ("e", "c", "h")),
            Node("Z", ("m", "e"), Role.DATA, array="x"),
            Node("WO", ("o", "c", "h")),
        ),
        ("n", "o"),
        regions=(Region("A", ("X", "WQ", "WK", "Y"), Function("softmax"), over=("m",)),),
    )


def test_multi_head_attention_costs_four_projections_and_two_products() -> None:
    found = cost(attention(12, 64))
    assert found.parameters == 4 * 768 * 768 == 2_359_296
    assert found.flops == 4 * 2 * 512 * 768 * 768 + 2 * 2 * 512 * 512 * 768
    assert found.largest_intermediate == 512 * 12 * 512 == 3_145_728


def test_the_cp_form_has_the_same_parameters_and_a_map_for_every_rank() -> None:
    sizes = {"n": 512, "m": 512, "f": 768, "g": 768, "e": 768, "o": 768, "r": 768}
    diagram = Diagram(
        "cp",
        indices(**sizes),
        (
            Node("X", ("n", "f"), Role.DATA, array="x"),
            Node("Q", ("f", "r")),
            Node("K", ("g", "r")),
            Node("Y", ("m", "g"), Role.DATA, array="x"),
            Node("V", ("e", "r")),
            Node("Z", ("m", "e"), Role.DATA, array="x"),
            Node("O", ("o", "r")),
        ),
        ("n", "o"),
        regions=(Region("A", ("X", "Q", "K", "Y"), Function("softmax"), over=("m",)),),
    )
    found = cost(diagram)
    assert found.parameters == cost(attention(12, 64)).parameters
    # 805 MB in single precision.
    assert 4 * found.largest_intermediate == 4 * 512 * 768 * 512 == 805_306_368


def test_a_convolution_layer_costs_outputs_times_kernel_times_channels() -> None:
    diagram = Diagram(
        "conv",
        indices(b=2, s=3, h=32, w=32, u=5, v=5, t=8, x=16, y=16),
        (Node("X", ("b", "s", "h", "w"), Role.DATA), Node("K", ("t", "s", "u", "v"))),
        ("b", "t", "x", "y"),
        (
            Convolution("rows", "h", "u", "x", 2, (2, 2)),
            Convolution("columns", "w", "v", "y", 2, (2, 2)),
        ),
    )
    found = cost(diagram)
    assert found.parameters == 8 * 3 * 25
    assert found.flops == 2 * (2 * 8 * 16 * 16) * (3 * 25)
    assert found.largest_intermediate == 2 * 8 * 16 * 16
    assert found.peak_memory == 2 * 3 * 32 * 32 + 8 * 3 * 25 + 2 * 8 * 16 * 16


def test_tucker_2_costs_three_small_convolutions() -> None:
    diagram = Diagram(
        "tucker2",
        indices(s=64, h=30, w=30, u=3, v=3, p=8, q=8, t=64, x=28, y=28),
        (
            Node("X", ("s", "h", "w"), Role.DATA),
            Node("U", ("s", "p")),
            Node("K", ("u", "v", "p", "q"), Role.CORE),
            Node("V", ("q", "t")),
        ),
        ("t", "x", "y"),
        (Convolution("rows", "h", "u", "x"), Convolution("columns", "w", "v", "y")),
    )
    found = cost(diagram, Exhaustive())
    project, core, expand = 30 * 30 * 64 * 8, 28 * 28 * 9 * 64, 28 * 28 * 8 * 64
    assert found.flops == 2 * (project + core + expand)
    assert found.parameters == 64 * 8 + 9 * 64 + 8 * 64


def linear(name: str, source: str, into: int, out: int) -> Sum:
    product = Diagram(
        "product",
        indices(b=10, i=into, o=out),
        (Node("X", ("b", "i"), Role.DATA, array=source), Node("W", ("o", "i"), array=f"{name}.w")),
        ("b", "o"),
    )
    bias = Diagram(
        "bias",
        indices(b=10, o=out),
        (Node("1", ("b",), Role.CONSTANT), Node("B", ("o",), array=f"{name}.b")),
        ("b", "o"),
    )
    return Sum(name, (Term(product), Term(bias)))


def test_a_network_adds_its_steps_and_frees_what_is_done() -> None:
    activation = Diagram(
        "relu",
        indices(b=10, o=256),
        (Node("Z", ("b", "o"), Role.DATA, array="hidden"),),
        ("b", "o"),
        regions=(Region("R", ("Z",), Function("relu")),),
    )
    network = Network(
        "mlp",
        (
            Step("hidden", linear("1", "x", 784, 256)),
            Step("active", activation),
            Step("out", linear("2", "active", 256, 10)),
        ),
    )
    found = cost(network)
    assert found.parameters == 784 * 256 + 256 + 256 * 10 + 10
    # A bias is a product with ones: one operation for each entry, as opt_einsum counts it.
    assert found.flops == 10 * (2 * 784 * 256 + 256 + 2 * 256 * 10 + 10)
    assert found.largest_intermediate == 2560
    # Worst is the first sum: the product and the sum, beside all arrays; the bias is not copied.
    assert found.peak_memory == 10 * 784 + found.parameters + 2 * 2560
    steps = [(region.step, region.diagram, region.region) for region in found.regions]
    assert steps == [
        ("hidden", "product", None),
        ("hidden", "bias", None),
        ("active", "relu", "R"),
        ("active", "relu", None),
        ("out", "product", None),
        ("out", "bias", None),
    ]
    assert sum(region.flops for region in found.regions) == found.flops


def test_a_view_keeps_alive_what_it_looks_at() -> None:
    double = Diagram(
        "double",
        indices(a=10, b=10),
        (Node("X", ("a",), Role.DATA), Node("Y", ("b",), Role.DATA)),
        ("a", "b"),
    )
    reshaped = Diagram(
        "reshaped",
        indices(c=100, d=2),
        (Node("S", ("c",), Role.DATA, array="s"), Node("Z", ("d",), Role.DATA)),
        ("c", "d"),
    )
    found = cost(Network("view", (Step("s", double), Step("t", reshaped))))
    # While t is made, s is still alive behind the view that reads it with one index.
    assert found.peak_memory == (10 + 10 + 2) + 100 + 200


@pytest.mark.parametrize(
    ("words", "output", "flops", "largest"),
    [
        (("ii",), "i", 3, 3),
        (("ii",), "", 6, 1),
        (("ij",), "i", 24, 3),
        (("i", "j"), "ij", 12, 12),
        (("i", "i"), "", 6, 1),
        (("ij",), "ij", 0, 12),
        (("ij", "jk"), "ik", 2 * 3 * 4 * 5, 15),
    ],
)
def test_small_equations_have_the_right_numbers(
    words: tuple[str, ...], output: str, flops: int, largest: int
) -> None:
    sizes = {"i": 3, "j": 4, "k": 5}
    held = dict.fromkeys("".join(words))
    diagram = Diagram(
        "small",
        indices(**{name: sizes[name] for name in held}),
        tuple(Node(f"T{place}", tuple(word)) for place, word in enumerate(words)),
        tuple(output),
    )
    found = cost(diagram)
    assert (found.flops, found.largest_intermediate) == (flops, largest)


def test_a_cost_prints_one_line_and_is_plain_json() -> None:
    found = cost(attention(12, 64))
    assert "\n" not in str(found)
    assert "2,359,296 parameters" in str(found)
    assert "[Automatic()]" in str(found)
    read = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert read["path"] == [[[0, 1], [0, 1], [0, 1]], [[1, 2], [0, 2], [0, 1]]]
    assert all(
        isinstance(read[key], int)
        for key in ("parameters", "flops", "largest_intermediate", "peak_memory")
    )


def _tucker(channels: int, rank: int) -> Diagram:
    return Diagram(
        "tucker",
        indices(n=2, s=channels, h=9, u=3, p=rank, q=rank + 1, t=5, x=4),
        (
            Node("X", ("n", "s", "h"), Role.DATA),
            Node("A", ("p", "s")),
            Node("B", ("q", "p", "u"), Role.CORE),
            Node("C", ("t", "q")),
        ),
        ("n", "t", "x"),
        (Convolution("rows", "h", "u", "x", 2),),
    )


def _value(polynomial: Polynomial, *sizes: int) -> int:
    return sum(factor * math.prod(sizes[place] for place in at) for factor, at in polynomial)


@settings(deadline=None)
@given(channels=st.integers(1, 9), rank=st.integers(1, 9))
def test_a_formula_of_one_plan_is_the_cost_at_all_sizes(channels: int, rank: int) -> None:
    formula = cost_formula(_tucker(3, 2), ("s", "p", "q"), IN_ORDER)
    sizes = (channels, rank, rank + 1)
    counted = cost(_tucker(channels, rank), IN_ORDER)
    assert _value(formula.flops, *sizes) == counted.flops
    assert _value(formula.parameters, *sizes) == counted.parameters
    assert _value(formula.intermediates, *sizes) == 2 * (rank * 9 + (rank + 1) * 4)


def test_a_formula_looks_up_for_nothing_and_counts_a_shared_array_once() -> None:
    diagram = Diagram(
        "rows",
        indices(n=4, v=10, r=3, o=5, m=10),
        (
            Node("x", ("n", "v"), Role.DATA, is_one_hot=True),
            Node("E", ("v", "r")),
            Node("again", ("m", "r"), array="E"),
            Node("y", ("m", "o"), Role.DATA),
        ),
        ("n", "o"),
    )
    formula, counted = cost_formula(diagram), cost(diagram)
    assert _value(formula.flops) == counted.flops
    assert _value(formula.parameters) == counted.parameters


@pytest.mark.parametrize("name", ["h", "missing"])
def test_a_formula_refuses_sizes_that_are_not_free(name: str) -> None:
    message = rf"no index '{name}' has a free size; choose among n, s, p, q, t"
    with pytest.raises(SizeError, match=message):
        cost_formula(_tucker(3, 2), (name,), IN_ORDER)


def test_an_order_that_no_convolution_can_follow_is_refused() -> None:
    diagram = Diagram(
        "turned",
        indices(h=9, u=3, x=7, o=5),
        (Node("K", ("u",)), Node("M", ("x", "o")), Node("X", ("h",), Role.DATA)),
        ("o",),
        (Convolution("rows", "h", "u", "x"),),
    )
    assert cost(diagram).flops > 0
    with pytest.raises(ContractionError, match=r"joins 'K' and 'M', operands \(0, 1\) of 3; use"):
        cost(diagram, IN_ORDER)


def test_in_order_is_one_after_the_other_from_either_end() -> None:
    problem = Problem(((0, 1), (1, 2), (2, 3), (3, 4)), (0, 4), (2, 2, 2, 2, 2))
    assert InOrder().path(problem) == ((0, 1), (0, 2), (0, 1))
    assert InOrder(is_backward=True).path(problem) == ((2, 3), (1, 2), (0, 1))
