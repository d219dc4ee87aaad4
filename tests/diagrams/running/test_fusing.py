"""Operations that are joined: the right ones, and with the same value as one by one."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.module import to_module
from rankscope.diagrams.network import Drawable, Network, Step, Sum, Term
from rankscope.diagrams.parts import Convolution, Function, Index, Node, Region, Role
from rankscope.diagrams.source import class_name, to_source

SIZES = {"b": 2, "n": 5, "m": 7, "h": 3, "d": 4, "c": 4, "i": 6, "o": 8, "x": 6}


def diagram(*nodes: Node, output: str, **options: object) -> Diagram:
    held = dict.fromkeys([*(i for node in nodes for i in node.indices), *output])
    made = Diagram("d", tuple(Index(i, SIZES[i]) for i in held), nodes, tuple(output))
    return replace(made, **options)


def values_of(drawable: Drawable) -> tuple[Tensor, Tensor]:
    """By a module, and by its operations one by one in a file of their own."""
    module = to_module(drawable, dtype=torch.float64)
    draw = torch.Generator().manual_seed(0)
    inputs = [
        torch.randn(array.shape, generator=draw, dtype=torch.float64)
        for array in module.schedule.inputs
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rankscope.diagrams.source.fused", lambda planned: planned)
        plain = to_source(drawable)
    assert plain != to_source(drawable)
    names: dict[str, type[nn.Module]] = {}
    exec(compile(plain, "plain.py", "exec"), names)
    twin = names[class_name(drawable.name)]().double()
    twin.load_state_dict(module.state_dict())
    return module(*inputs), twin(*inputs)


def bias(indices: str, output: str) -> Diagram:
    rest = tuple(index for index in output if index not in indices)
    return diagram(Node("one", rest, Role.CONSTANT), Node("bias", tuple(indices)), output=output)


@pytest.mark.parametrize(
    ("value", "weight", "own", "output"),
    [
        ("bni", "oi", "o", "bno"),
        ("bni", "io", "o", "bno"),
        ("bin", "oi", "o", "bno"),
        ("bni", "hdi", "hd", "bnhd"),
        ("bni", "hdi", "hd", "bhnd"),
        ("bnhd", "ohd", "o", "bno"),
    ],
)
def test_a_bias_joins_its_linear_map(value: str, weight: str, own: str, output: str) -> None:
    product = diagram(Node("X", tuple(value), Role.DATA), Node("W", tuple(weight)), output=output)
    skip = diagram(Node("S", tuple(output), Role.DATA), output=output)
    for terms in ((product, bias(own, output)), (skip, product, bias(own, output))):
        total = Sum("total", tuple(map(Term, terms)))
        assert "self.bias" in next(
            line for line in to_source(total).splitlines() if "F.linear(" in line
        )
        fused, plain = values_of(total)
        torch.testing.assert_close(fused, plain)


@pytest.mark.parametrize(
    ("coefficient", "own", "output"), [(2.0, "o", "bno"), (1.0, "n", "bno"), (1.0, "bo", "bno")]
)
def test_other_terms_are_added_by_themselves(coefficient: float, own: str, output: str) -> None:
    product = diagram(Node("X", ("b", "n", "i"), Role.DATA), Node("W", ("o", "i")), output=output)
    total = Sum("total", (Term(product), Term(bias(own, output), coefficient)))
    assert "F.linear(X, self.W)  #" in to_source(total)


def test_a_product_that_is_needed_twice_keeps_its_own_value() -> None:
    product = diagram(Node("X", ("n", "i"), Role.DATA), Node("W", ("o", "i")), output="no")
    again = diagram(Node("Y", ("n", "o"), Role.DATA, array="y"), output="no")
    total = Sum("sum", (Term(again), Term(bias("o", "no"))))
    both = Sum("both", (Term(again), Term(replace(again, nodes=(
        Node("Z", ("n", "o"), Role.DATA, array="z"),
    )))))  # fmt: skip
    network = Network("net", (Step("y", product), Step("z", total), Step("w", both)))
    module = to_module(network)
    data = torch.randn(5, 6)
    made = data @ module.get_parameter("W").T
    torch.testing.assert_close(module(data), made + made + module.get_parameter("bias"))


def test_a_bias_joins_its_convolution() -> None:
    indices = (Index("b", 2), Index("i", 6), Index("o", 8), Index("s", 9), Index("k", 3))
    conv = Diagram(
        "conv",
        (*indices, Index("t", 7)),
        (Node("X", ("b", "i", "s"), Role.DATA), Node("K", ("o", "i", "k"))),
        ("b", "o", "t"),
        (Convolution("c", "s", "k", "t"),),
    )
    shift = Diagram(
        "shift",
        (indices[0], indices[2], Index("t", 7)),
        (Node("one", ("b", "t"), Role.CONSTANT), Node("bias", ("o",))),
        ("b", "o", "t"),
    )
    total = Sum("total", (Term(conv), Term(shift)))
    assert "F.conv1d(X, self.K, self.bias)" in to_source(total)
    fused, plain = values_of(total)
    torch.testing.assert_close(fused, plain)


@pytest.mark.parametrize("function", ["layer_norm", "rms_norm"])
def test_scales_join_their_normalization(function: str) -> None:
    region = Region("N", ("X",), Function(function), over=("i",))
    scaled = diagram(
        Node("X", ("b", "i"), Role.DATA), Node("g", ("i",)), output="bi", regions=(region,)
    )
    total = Sum("total", (Term(scaled), Term(bias("i", "bi"))))
    assert f"F.{function}(X, (6,), self.g" in to_source(total)
    fused, plain = values_of(total)
    torch.testing.assert_close(fused, plain)


def attention(query: str, key: str, value: str, output: str, **options: object) -> Diagram:
    nodes = [
        Node(name, tuple(indices), Role.DATA)
        for name, indices in (("Q", query), ("K", key), ("V", value))
    ]
    region = Region("A", ("Q", "K"), Function("softmax"), over=("m",))
    return diagram(*nodes, output=output, regions=(replace(region, **options),))


@pytest.mark.parametrize(
    ("query", "key", "value", "output"),
    [
        ("bnhd", "bmhd", "bmhc", "bnhc"),
        ("bhnd", "dbhm", "bhmc", "cbhn"),
        ("hnd", "hmd", "hmc", "hnc"),
        ("nd", "md", "mc", "nc"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"scale": "d**-0.5"}, {"causal": ("n", "m")}])
def test_attention_is_one_call(
    query: str, key: str, value: str, output: str, options: dict[str, object]
) -> None:
    scores = attention(query, key, value, output, **options)
    source = to_source(scores)
    assert source.count("F.scaled_dot_product_attention(") == 1
    assert "softmax" not in source
    fused, plain = values_of(scores)
    torch.testing.assert_close(fused, plain)


@pytest.mark.parametrize(
    ("query", "key", "value", "output", "options"),
    [
        ("bnhd", "bmd", "bmhc", "bnhc", {}),  # keys without heads
        ("bnhd", "bmhd", "bmho", "bnho", {}),  # values wider than keys
        ("bnhd", "bmhd", "bmhc", "bnc", {}),  # heads are summed
        ("bnhd", "bmhd", "bmhc", "bnhc", {"causal": ("m", "n")}),  # the other way round
        ("bnhd", "bmhd", "bmhc", "bnhc", {"over": ("n", "m")}),
    ],
)
def test_what_only_looks_like_attention_is_left_alone(
    query: str, key: str, value: str, output: str, options: dict[str, object]
) -> None:
    assert "scaled_dot_product" not in to_source(attention(query, key, value, output, **options))
