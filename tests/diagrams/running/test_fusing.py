"""Operations that are joined: the right ones, and with the same value as one by one."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rankscope.diagrams import (
    Convolution,
    Diagram,
    Drawable,
    Function,
    Index,
    Network,
    Node,
    Region,
    Role,
    Step,
    Sum,
    Term,
    class_name,
    module_arrays,
    to_module,
    to_source,
)
from rankscope.reading import from_module

SIZES = {"b": 2, "n": 5, "m": 7, "h": 3, "d": 4, "c": 4, "i": 6, "o": 8, "x": 6}


def diagram(*nodes: Node, output: str, **options: Any) -> Diagram:
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


def attention(query: str, key: str, value: str, output: str, **options: Any) -> Diagram:
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


def normalized(value: Diagram, own: str, output: str, *, has_scale: bool = True) -> list[Term]:
    """x r γ - μ r γ + β, the terms of a batch normalization along some legs."""
    factors = [Node("variance", tuple(own), Role.BUFFER)]
    factors += [Node("scale", tuple(own))] if has_scale else []
    root = Region("root", ("variance",), Function("rsqrt", (("eps", 0.25),)))
    rest = tuple(index for index in output if index not in own)
    mean = diagram(
        Node("mean", tuple(own), Role.BUFFER),
        *factors,
        Node("one", rest, Role.CONSTANT),
        output=output,
        regions=(root,),
    )
    inner = replace(value, nodes=(*value.nodes, *factors), regions=(*value.regions, root))
    return [Term(inner), Term(mean, -1.0), Term(bias(own, output))]


@pytest.mark.parametrize("has_scale", [True, False])
@pytest.mark.parametrize(
    ("own", "output"), [("o", "bon"), ("o", "bno"), ("hd", "bhdn"), ("b", "bn")]
)
def test_a_batch_normalization_is_one_call(own: str, output: str, *, has_scale: bool) -> None:
    value = diagram(Node("X", tuple(output), Role.DATA), output=output)
    skip = diagram(Node("S", tuple(output), Role.DATA), output=output)
    for more in ([], [Term(skip)]):
        total = Sum("total", (*normalized(value, own, output, has_scale=has_scale), *more))
        assert to_source(total).count("F.batch_norm(") == 1
        module = to_module(total, dtype=torch.float64)
        arrays = module_arrays(module)
        arrays.setdefault("scale", torch.ones_like(arrays["bias"]))
        arrays["variance"].square_()
        draw = torch.Generator().manual_seed(0)
        inputs = [
            torch.randn([SIZES[i] for i in output], generator=draw, dtype=torch.float64)
            for _ in range(1 + len(more))
        ]
        shape = [SIZES[i] if i in own else 1 for i in output]
        mean, variance, scale, shift = (
            arrays[name].reshape(shape) for name in ("mean", "variance", "scale", "bias")
        )
        wanted = (inputs[0] - mean) * scale / (variance + 0.25).sqrt() + shift
        torch.testing.assert_close(module(*inputs), wanted + sum(inputs[1:]))


def test_terms_with_other_factors_are_no_batch_normalization() -> None:
    value = diagram(Node("X", ("b", "o"), Role.DATA), output="bo")
    scaled, mean, shift = normalized(value, "o", "bo")
    root = replace(mean.diagram.regions[0], function=Function("rsqrt", (("eps", 0.5),)))
    other = replace(mean.diagram, regions=(root,))
    for terms in (
        (scaled, Term(other, -1.0), shift),
        (scaled, Term(mean.diagram, -2.0), shift),
        (Term(scaled.diagram, 2.0), mean, shift),
    ):
        assert "F.batch_norm(" not in to_source(Sum("total", terms))


@pytest.mark.parametrize("function", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("output", ["bni", "bin", "inb"])
def test_a_normalization_of_inner_axes_is_one_call(function: str, output: str) -> None:
    region = Region("N", ("X",), Function(function), over=("i",))
    scaled = diagram(
        Node("X", ("b", "i", "n"), Role.DATA), Node("g", ("i",)), output=output, regions=(region,)
    )
    terms = (Term(scaled), *([Term(bias("i", output))] if function == "layer_norm" else []))
    total = Sum("total", terms)
    (line,) = (line for line in to_source(total).splitlines() if "_norm(" in line)
    assert "self.g" in line
    assert ("self.bias" in line) == (function == "layer_norm")
    fused, plain = values_of(total)
    torch.testing.assert_close(fused, plain)


@pytest.mark.parametrize("over", ["nm", "bn", "bm"])
def test_softmax_over_several_legs(over: str) -> None:
    region = Region("S", ("X",), Function("softmax"), over=tuple(over))
    drawn = diagram(Node("X", ("b", "n", "m"), Role.DATA), output="bnm", regions=(region,))
    data = torch.randn(2, 5, 7, dtype=torch.float64)
    axes = ["bnm".index(leg) for leg in over]
    wanted = data.exp() / data.exp().sum(axes, keepdim=True)
    torch.testing.assert_close(to_module(drawn)(data), wanted)


def test_a_function_overwrites_only_what_was_made_for_it() -> None:
    product = diagram(
        Node("X", ("n", "i"), Role.DATA),
        Node("W", ("i", "o")),
        output="no",
        regions=(Region("R", ("X", "W"), Function("relu")),),
    )
    assert "inplace=True" in to_source(product)
    alone = diagram(
        Node("X", ("n", "i"), Role.DATA),
        output="ni",
        regions=(Region("R", ("X",), Function("relu")),),
    )
    assert "inplace" not in to_source(alone)
    data = torch.randn(5, 6, requires_grad=True)
    module = to_module(product)
    module(data).sum().backward()
    weight = module.get_parameter("W")
    kept = (data @ weight > 0).float()
    torch.testing.assert_close(data.grad, kept @ weight.T)
    torch.testing.assert_close(weight.grad, data.T @ kept)


def test_a_depthwise_convolution_takes_its_bias() -> None:
    module = nn.Conv2d(4, 4, 3, groups=4)
    network = from_module(module, (2, 4, 6, 6))
    data = torch.randn(2, 4, 6, 6)
    made = to_module(network, module_arrays(module))
    assert "self.weight, self.bias, groups=4" in made.source
    torch.testing.assert_close(made(data), module(data))
