"""Modules: known networks, state, and what is refused."""

import math

import pytest
import torch

from rankscope.diagrams import Diagram, Function, Index, Node, Region, Role, class_name, to_module
from rankscope.errors import DiagramError, SizeError


def from_source(source: str, name: str) -> torch.nn.Module:
    """Run a generated file and make its module."""
    names: dict[str, type[torch.nn.Module]] = {}
    exec(compile(source, "generated.py", "exec"), names)
    return names[class_name(name)]()


def attention(*, heads: int, size: int = 3, causal: bool = False) -> Diagram:
    """Multi-head attention: N=5 queries, M=7 keys, F=6 features."""
    names = {"n": 5, "m": 7, "f": 6, "g": 6, "e": 6, "o": 6, "h": heads}
    indices = [Index(name, length) for name, length in names.items()]
    indices += [Index("d", size, symbol="D"), Index("c", size, symbol="D")]
    return Diagram(
        "attention",
        tuple(indices),
        (
            Node("Xq", ("n", "f"), Role.DATA),
            Node("WQ", ("h", "d", "f"), array="in", rows=(0, heads * size)),
            Node("WK", ("h", "d", "g"), array="in", rows=(heads * size, 2 * heads * size)),
            Node("Xk", ("m", "g"), Role.DATA, array="Y"),
            Node("WV", ("h", "c", "e"), array="in", rows=(2 * heads * size, 3 * heads * size)),
            Node("Xv", ("m", "e"), Role.DATA, array="Y"),
            Node("WO", ("o", "h", "c"), array="out.weight"),
        ),
        ("n", "o"),
        regions=(
            Region(
                "A",
                ("Xq", "WQ", "WK", "Xk"),
                Function("softmax"),
                over=("m",),
                scale="D**-0.5",
                causal=("n", "m") if causal else None,
            ),
        ),
    )


@pytest.mark.parametrize("causal", [False, True])
def test_multi_head_attention_equals_the_one_of_pytorch(causal: bool) -> None:
    reference = torch.nn.MultiheadAttention(6, 2, bias=False, batch_first=True).double()
    arrays = {"in": reference.in_proj_weight, "out.weight": reference.out_proj.weight}
    module = to_module(attention(heads=2, causal=causal), arrays)
    queries, keys = torch.randn(5, 6).double(), torch.randn(7, 6).double()
    later = torch.arange(7)[None, :] > torch.arange(5)[:, None]
    expected, _ = reference(queries, keys, keys, attn_mask=later if causal else None)
    torch.testing.assert_close(module(queries, keys), expected)
    torch.testing.assert_close(module(queries, Y=keys), expected)


def test_single_head_attention_is_softmax_of_products_over_the_root() -> None:
    module = to_module(attention(heads=1), dtype=torch.float64)
    rows = module.get_parameter("in_").reshape(3, 3, 6)
    queries, keys = torch.randn(5, 6).double(), torch.randn(7, 6).double()
    scores = (queries @ rows[0].T) @ (keys @ rows[1].T).T / math.sqrt(3)
    out = module.get_parameter("out_weight").reshape(6, 3)
    expected = torch.softmax(scores, 1) @ (keys @ rows[2].T) @ out.T
    torch.testing.assert_close(module(queries, keys), expected)


def test_the_same_generator_gives_the_same_entries_of_the_promised_variance() -> None:
    diagram = Diagram(
        "layer",
        (Index("b", 1), Index("i", 400), Index("o", 500)),
        (Node("X", ("b", "i"), Role.DATA), Node("W", ("o", "i"))),
        ("b", "o"),
    )
    first, second = (
        to_module(diagram, generator=torch.Generator().manual_seed(3)).get_parameter("W")
        for _ in range(2)
    )
    assert torch.equal(first, second)
    # The variance of 200,000 entries is within 5 standard deviations, 5 * sqrt(2 / 200000).
    assert abs(float(first.detach().var()) * 400 - 1) < 5 * math.sqrt(2 / 200_000)


def test_wrong_inputs_are_refused_with_both_shapes() -> None:
    module = to_module(attention(heads=2))
    good = torch.zeros(5, 6), torch.zeros(7, 6)
    with pytest.raises(DiagramError, match=r"takes 2 inputs \(Xq, Y\), got 1"):
        module(good[0])
    with pytest.raises(DiagramError, match=r"no free input 'Xq'; after 1 by position .*: Y"):
        module(good[0], Xq=good[0])
    with pytest.raises(SizeError, match=r"Input 'Y' must have shape \(7, 6\), got \(6, 7\)"):
        module(good[0], good[1].T)


def test_wrong_arrays_are_refused_with_both_sizes() -> None:
    diagram = attention(heads=2)
    good = {"in": torch.zeros(18, 6), "out.weight": torch.zeros(6, 6)}
    with pytest.raises(DiagramError, match=r"needs the arrays out.weight.* the 1 given: in"):
        to_module(diagram, {"in": good["in"]})
    with pytest.raises(SizeError, match=r"'out.weight' must have shape \(6, 2, 3\), got \(6, 5\)"):
        to_module(diagram, good | {"out.weight": torch.zeros(6, 5)})
    for wrong in (torch.zeros(17, 6), torch.zeros(18, 5)):
        with pytest.raises(
            SizeError, match=rf"at least 18 rows of 6 entries, got shape \({wrong.shape[0]}"
        ):
            to_module(diagram, good | {"in": wrong})
    with pytest.raises(
        DiagramError, match=r"'in' must hold floating-point numbers, got torch.int64"
    ):
        to_module(diagram, good | {"in": torch.zeros(18, 6, dtype=torch.int64)})


def test_arrays_may_have_more_rows_and_another_shape_than_their_nodes() -> None:
    diagram = attention(heads=2)
    arrays = {"in": torch.randn(20, 6), "out.weight": torch.randn(6, 6)}
    larger = to_module(diagram, arrays)
    exact = to_module(diagram, arrays | {"in": arrays["in"][:18]})
    inputs = torch.randn(5, 6), torch.randn(7, 6)
    torch.testing.assert_close(larger(*inputs), exact(*inputs))
    arrays["in"].zero_()
    assert larger.get_parameter("in_").abs().sum() > 0
