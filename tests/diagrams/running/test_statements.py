"""Single operations as code, and that nothing but our own words becomes code."""

import re

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams import (
    RECIPES,
    Convolution,
    Diagram,
    Function,
    Index,
    Node,
    Role,
    Word,
    to_module,
    to_source,
)
from rankscope.diagrams.running import (
    Apply,
    Expression,
    Invoke,
    Multiply,
    Operation,
    Pick,
    Read,
    Source,
    Spread,
)
from rankscope.diagrams.running.expressions import literal, number, word
from rankscope.diagrams.running.statements import UNKNOWN, arranged, expression
from rankscope.diagrams.source import FUNCTIONS
from rankscope.errors import DiagramError, SizeError

SIZES = {"a": 2, "b": 3, "c": 4, "d": 1}
OVERS = [(0,), (2,), (0, 2), (1, 2), (0, 1, 2)]


def code(operation: Operation, **operands: tuple[int, ...]) -> str:
    given = tuple(Expression(name, shape) for name, shape in operands.items())
    return expression(operation, given).whole.code


@settings(deadline=None, max_examples=60)
@given(
    indices=st.lists(st.sampled_from("abcd"), max_size=5),
    order=st.permutations("abcd"),
    count=st.integers(0, 4),
    split=st.integers(0, 4),
    seed=st.integers(0, 99),
)
def test_arranging_takes_diagonals_sums_moves_and_merges(
    indices: list[str], order: list[str], count: int, split: int, seed: int
) -> None:
    kept = [index for index in order if index in indices][:count]
    groups = (tuple(kept[:split]), tuple(kept[split:]))
    shape = tuple(SIZES[index] for index in indices)
    value = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    made = arranged(Expression("value", shape), tuple(indices), groups, SIZES)
    expected = torch.einsum(f"{''.join(indices)}->{''.join(kept)}", value)
    torch.testing.assert_close(eval(made.code, {"value": value}), expected.reshape(made.shape))
    assert len(made.shape) == 2


def test_nothing_is_written_for_a_tensor_that_is_already_right() -> None:
    value = Expression("x", (2, 3))
    assert arranged(value, ("a", "b"), (("a",), ("b",)), SIZES) is value
    assert value.reshaped((6,)).reshaped((3, 2)).code == "x.reshape(3, 2)"
    assert value.reshaped((6,)).reshaped((2, 3)) is value


@pytest.mark.parametrize(
    ("rows", "stored", "expected"),
    [
        ((4, 6), (8, 3), "w[4:6]"),
        ((4, 6), (24,), "w.reshape(-1, 3)[4:6]"),
        ((4, 6), UNKNOWN, "w.reshape(-1, 3)[4:6]"),
        (None, (6,), "w.reshape(2, 3)"),
        (None, (2, 3), "w"),
    ],
)
def test_an_array_is_read_whole_or_by_rows(
    rows: tuple[int, int] | None, stored: tuple[int, ...], expected: str
) -> None:
    assert code(Read(1, (0,), (2, 3), rows), w=stored) == expected


@pytest.mark.parametrize(
    ("first", "second", "output", "expected"),
    [
        ("ab", "bc", "ac", "x @ y"),
        ("bc", "ab", "ac", "y @ x"),
        ("ab", "cb", "ac", "F.linear(x, y)"),
        ("dab", "cb", "dac", "F.linear(x, y)"),
        ("abc", "bcd", "ad", "x.reshape(2, 12) @ y.reshape(12, 1)"),
        ("ab", "b", "a", "x @ y"),
        ("ab", "ab", "ab", "x * y"),
        ("ab", "b", "ab", "x * y"),
        ("ab", "a", "ab", "x * y.reshape(2, 1)"),
        ("ba", "bc", "ac", 'torch.einsum("ba,bc->ac", x, y)'),
        ("dab", "dbc", "dac", 'torch.einsum("dab,dbc->dac", x, y)'),
    ],
)
def test_a_product_is_the_plainest_call_that_moves_no_axis(
    first: str, second: str, output: str, expected: str
) -> None:
    shapes = {
        name: tuple(SIZES[index] for index in indices)
        for name, indices in (("x", first), ("y", second))
    }
    made = tuple(SIZES[index] for index in output)
    product = Multiply(2, (0, 1), made, (tuple(first), tuple(second)), tuple(output))
    assert code(product, **shapes) == expected
    values = {name: torch.randn(shape) for name, shape in shapes.items()}
    value = eval(expected, {"torch": torch, "F": F, **values})
    wanted = torch.einsum(f"{first},{second}->{output}", *values.values())
    torch.testing.assert_close(value, wanted)


def test_a_product_with_a_constant_sums_scales_and_expands() -> None:
    spread = Spread(1, (0,), (4, 2), (("a", "b"),), ("c", "a"), 0.5)
    assert code(spread, x=(2, 3)) == "(x.sum((1,)) * 0.5).expand(4, 2)"


def test_a_look_up_is_an_embedding() -> None:
    pick = Pick(2, (0, 1), (3, 4), (("n",), ("v", "f")), ("n", "f"), "v")
    assert code(pick, ids=(3,), E=(9, 4)) == "F.embedding(ids, E)"


def test_more_indices_than_letters_become_one_product_of_matrices() -> None:
    rest = tuple(f"index {place}" for place in range(60))
    diagram = Diagram(
        "many",
        (Index("i", 3), Index("j", 4), *(Index(name, 1) for name in rest)),
        (Node("X", ("i", "j", *rest[:30]), Role.DATA), Node("W", (*rest[30:], "j", "i"))),
        ("i",),
    )
    module = to_module(diagram)
    data = torch.randn(3, 4, *[1] * 30)
    expected = (data.reshape(3, 4) * module.get_parameter("W").reshape(4, 3).T).sum(1)
    torch.testing.assert_close(module(data), expected)
    assert "einsum" not in to_source(diagram)


def convolved(*parts: Convolution, **sizes: int) -> Diagram:
    return Diagram(
        "convolved",
        tuple(Index(name, size) for name, size in sizes.items()),
        (
            Node("X", tuple(part.input for part in parts), Role.DATA),
            Node("K", tuple(part.kernel for part in parts)),
        ),
        tuple(part.output for part in parts),
        parts,
    )


def test_equal_padding_with_zeros_is_left_to_the_convolution() -> None:
    rows = Convolution("rows", "h", "k", "x", padding=(1, 1))
    columns = Convolution("columns", "w", "l", "y", padding=(1, 2))
    even = to_source(convolved(rows, h=9, k=3, x=9))
    assert "padding=(1,)" in even
    assert "F.pad" not in even
    uneven = to_source(convolved(rows, columns, h=9, k=3, x=9, w=9, l=3, y=10))
    assert "padding=" not in uneven
    for amounts in ("(0, 0, 1, 1)", "(1, 2, 0, 0)"):
        assert f'{amounts}, mode="constant")' in uneven


@pytest.mark.parametrize(
    ("mode", "padding", "limit"),
    [("circular", (0, 5), "0 to 4"), ("reflect", (4, 0), "0 to 3"), ("replicate", (-1, 0), "0")],
)
def test_padding_further_than_its_mode_reaches_is_refused(
    mode: str, padding: tuple[int, int], limit: str
) -> None:
    part = Convolution("star", "h", "k", "x", padding=padding, padding_mode=mode)
    message = (
        rf"'star': {mode} padding of an input of size 4 must be from {limit}, got \({padding[0]}"
    )
    with pytest.raises(SizeError, match=message):
        to_module(convolved(part, h=4, k=1, x=4 + sum(padding)))


@pytest.fixture
def value() -> torch.Tensor:
    return 3 * torch.randn(2, 3, 4, dtype=torch.float64)


def applied(
    name: str, value: torch.Tensor, over: tuple[int, ...], **options: float
) -> torch.Tensor:
    """A function as a generated file computes it."""
    names: dict[str, object] = {"torch": torch, "Tensor": torch.Tensor, "F": F, "x": value}
    for text in FUNCTIONS.values():
        exec(text, names)
    function = Function(name, tuple(options.items()))
    apply = Apply(1, (0,), tuple(value.shape), function, over if function.normalizes else ())
    made = eval(code(apply, x=tuple(value.shape)), names)
    assert isinstance(made, torch.Tensor)
    return made


@pytest.mark.parametrize("over", OVERS)
def test_a_softmax_over_several_positions_adds_to_one_and_keeps_ratios(
    over: tuple[int, ...], value: torch.Tensor
) -> None:
    result = applied("softmax", value, over)
    torch.testing.assert_close(result.sum(over), torch.ones_like(result.sum(over)))
    powers = torch.exp(value)
    torch.testing.assert_close(result, powers / powers.sum(over, keepdim=True))
    torch.testing.assert_close(applied("log_softmax", value, over), torch.log(result))


@pytest.mark.parametrize("over", OVERS)
def test_norms_have_the_promised_moments(over: tuple[int, ...], value: torch.Tensor) -> None:
    centred = value - value.mean(over, keepdim=True)
    variance = centred.square().mean(over, keepdim=True)
    expected = centred / torch.sqrt(variance + 0.1)
    torch.testing.assert_close(applied("layer_norm", value, over, eps=0.1), expected)
    root = torch.sqrt(value.square().mean(over, keepdim=True) + 0.1)
    torch.testing.assert_close(applied("rms_norm", value, over, eps=0.1), value / root)


@pytest.mark.parametrize("name", list(RECIPES))
def test_every_function_runs(name: str, value: torch.Tensor) -> None:
    made = applied(name, value.abs() + 0.1, (1,))
    assert made.shape == value.shape
    assert made.isfinite().all()


@pytest.mark.parametrize(("query", "key"), [(0, 2), (2, 0), (1, 2), (2, 1)])
def test_a_causal_mask_hides_exactly_the_later_keys(
    query: int, key: int, value: torch.Tensor
) -> None:
    names: dict[str, object] = {"torch": torch, "Tensor": torch.Tensor, "value": value}
    exec(FUNCTIONS["causal_mask"], names)
    masked = eval(f"causal_mask(value, {query}, {key})", names)
    for place in torch.cartesian_prod(*(torch.arange(size) for size in value.shape)).tolist():
        expected = float("-inf") if place[key] > place[query] else value[tuple(place)]
        assert masked[tuple(place)] == expected


def test_generated_functions_are_plain_python() -> None:
    for name, text in FUNCTIONS.items():
        assert re.match(rf"\ndef {name}\(", text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda parts: st.lists(parts, max_size=3).map(tuple),
        max_leaves=6,
    )
)
def test_plain_values_are_read_back_exactly(value: object) -> None:
    assert eval(literal(value)) == value


def test_numbers_are_read_back_exactly() -> None:
    assert eval(number(0.1)) == 0.1
    assert eval(number(float("inf"))) == float("inf")


class Disguised(str):
    """Text that says it is written like a call."""

    def __repr__(self) -> str:
        return "__import__('os').getcwd()"


@pytest.mark.parametrize("value", [Disguised("x"), {"a": 1}, object(), (1, Disguised("x"))])
def test_values_of_other_classes_never_say_how_they_are_written(value: object) -> None:
    with pytest.raises(DiagramError, match=r"must be text, a number, .* got .* of type"):
        literal(value)


@pytest.mark.parametrize(
    "function",
    [
        "os.system",
        "torch.load",
        "torch.ops.aten.save.default",
        "torch.ops.aten.from_file",
        "torch.ops.load_library.__call__",
        "torch.ops.aten.add.__class__",
        "torch.ops.aten.__and__.__class__",
        "torch.ops.aten.__and__Tensor",
        "torch.ops.aten.add.default(x); import os; os.system",
    ],
)
def test_only_operators_are_called(function: str) -> None:
    with pytest.raises(DiagramError, match=r"operators torch\.ops\.NAMESPACE.* that open no files"):
        Invoke(1, (0,), (2,), function, (("self", Source(0)),))


def test_operators_of_bits_have_the_names_of_python() -> None:
    call = Invoke(
        2,
        (0, 1),
        (4,),
        "torch.ops.aten.__and__.Tensor",
        (("self", Source(0)), ("other", Source(1))),
    )
    made = "torch.ops.aten.__and__.Tensor(self=x, other=y)"
    assert code(call, x=(4,), y=(4,)) == made


def test_an_operator_is_given_tensors_words_and_plain_values_by_name() -> None:
    call = Invoke(
        2,
        (0, 1),
        (4,),
        "torch.ops.aten.cat.default",
        (("tensors", (Source(0), Source(1))), ("dim", 0), ("dtype", Word("dtype", "float32"))),
    )
    made = "torch.ops.aten.cat.default(tensors=[x, y], dim=0, dtype=torch.float32)"
    assert code(call, x=(2,), y=(2,)) == made
    with pytest.raises(DiagramError, match=r"named by words, got 'dim=0\) or \(x'"):
        Invoke(1, (0,), (2,), "torch.ops.aten.relu", (("dim=0) or (x", 1),))
    with pytest.raises(DiagramError, match=r"one word such as float32, got 'float32\(\)'"):
        word("float32()")


def test_an_operation_without_code_is_refused_by_name() -> None:
    with pytest.raises(NotImplementedError, match="Operation"):
        expression(Operation(0, (), ()), ())
