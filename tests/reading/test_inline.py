from collections.abc import Callable

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.diagrams import Function, Network, Role, Sum, diagrams_of, to_module
from rankscope.reading import (
    ArrayView,
    Draft,
    Drafting,
    Operand,
    Piece,
    Slide,
    from_module,
    guess,
    inline,
    permuted,
    scaled,
    whole,
)
from rankscope.reading.drafting import axis_letters
from rankscope.reading.views import FEATURE, SPACES

Move = Callable[[Drafting, ArrayView, ArrayView], ArrayView]


def weight(name: str, *shape: int) -> ArrayView:
    return whole(name, shape, (FEATURE,) * len(shape), Role.PARAMETER)


def times_matrix(book: Drafting, value: ArrayView, _: ArrayView) -> ArrayView:
    letters = axis_letters(value)
    size = value.shape[-1]
    matrix = weight(f"W{len(book.steps)}", 3, size)
    operands = (Operand("X", value, letters), Operand("W", matrix, ("out", letters[-1])))
    return book.compute("linear", Draft(operands, (*letters[:-1], "out")))


def with_bias(book: Drafting, value: ArrayView, _: ArrayView) -> ArrayView:
    return book.add("bias", (value, weight(f"b{len(book.steps)}", value.shape[-1])), (1.0, 2.0))


def softmax(book: Drafting, value: ArrayView, _: ArrayView) -> ArrayView:
    return book.apply("softmax", Function("softmax"), value, (0,))


def relu(book: Drafting, value: ArrayView, _: ArrayView) -> ArrayView:
    return book.apply("relu", Function("relu"), scaled(value, -0.5))


def square(book: Drafting, value: ArrayView, _: ArrayView) -> ArrayView:
    return book.multiply("square", (value, value))


def gated(book: Drafting, value: ArrayView, _: ArrayView) -> ArrayView:
    gate = weight(f"g{len(book.steps)}", value.shape[-1])
    return book.multiply("gate", (value, gate))


def transposed(book: Drafting, value: ArrayView, _: ArrayView) -> ArrayView:
    return book.copied("copy", permuted(value, range(len(value.axes))[::-1]))


def reshaped(book: Drafting, value: ArrayView, _: ArrayView) -> ArrayView:
    return book.reshape("reshape", value, (*value.shape[1:], value.shape[0]))


def summed(book: Drafting, value: ArrayView, _: ArrayView) -> ArrayView:
    letters = axis_letters(value)
    kept = letters if len(letters) == 1 else letters[1:]
    return book.compute("sum", Draft((Operand("X", value, letters),), kept))


def convolved(book: Drafting, value: ArrayView, _: ArrayView) -> ArrayView:
    letters = axis_letters(value)
    kernel = weight(f"k{len(book.steps)}", 2)
    slide = Slide(letters[-1], "kernel", "out", padding=(1, 0))
    operands = (Operand("X", value, letters), Operand("K", kernel, ("kernel",)))
    known = {"out": (Piece(value.shape[-1], SPACES[1][0]),)}
    return book.compute(
        "conv", Draft(operands, (*letters[:-1], "out"), slides=(slide,)), known=known
    )


def residual(book: Drafting, value: ArrayView, start: ArrayView) -> ArrayView:
    if value.shape == start.shape:
        return book.add("residual", (start, value), (1.0, -1.0))
    return value


MOVES: list[Move] = [
    times_matrix,
    with_bias,
    softmax,
    relu,
    square,
    gated,
    transposed,
    reshaped,
    summed,
    convolved,
    residual,
]


@settings(deadline=None, max_examples=40)
@given(moves=st.lists(st.sampled_from(MOVES), min_size=1, max_size=7), max_nodes=st.integers(2, 12))
def test_the_value_of_a_network_does_not_change(moves: list[Move], max_nodes: int) -> None:
    book = Drafting(reserved={"x"})
    start = value = whole("x", (2, 3, 3), guess(3), Role.DATA)
    for move in moves:
        value = move(book, value, start)
    last = book.whole_copy("output", value).array
    network = Network(
        "random", tuple(book.steps), inputs=("x",), input_shapes=((2, 3, 3),), outputs=(last,)
    )
    short = inline(network, max_nodes=max_nodes)
    assert len(short.steps) <= len(network.steps)
    longest = max(len(diagram.nodes) for diagram in diagrams_of(network))
    assert all(len(diagram.nodes) <= max(max_nodes, longest) for diagram in diagrams_of(short))
    draw = torch.Generator().manual_seed(0)
    long = to_module(network, generator=draw, dtype=torch.float64)
    arrays = {name: long.get_parameter(plain) for plain, name in long.array_names.items()}
    x = torch.randn(2, 3, 3, generator=draw, dtype=torch.float64)
    torch.testing.assert_close(to_module(short, arrays)(x), long(x))


def test_layers_without_biases_become_one_picture() -> None:
    layers = nn.Sequential(nn.Linear(8, 6, bias=False), nn.ReLU(), nn.Linear(6, 3, bias=False))
    (step,) = from_module(layers, (5, 8)).steps
    (diagram,) = diagrams_of(step.body)
    assert [node.source for node in diagram.nodes] == ["input", "0.weight", "2.weight"]
    (region,) = diagram.regions
    assert region.members == ("X", "W2")


def test_a_sum_that_is_only_added_to_another_is_one_sum() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sub(x, self.linear(x), alpha=2)

    (step,) = from_module(Residual(), (3, 4)).steps
    assert isinstance(step.body, Sum)
    assert [term.coefficient for term in step.body.terms] == [1.0, -2.0, -2.0]
    assert {term.diagram.output for term in step.body.terms} == {("b", "f")}


def test_a_leg_that_ends_at_the_reader_stays_outside_a_barrier() -> None:
    """relu(x).sum() is not relu(x.sum()): joined into one diagram the sum would come first."""
    book = Drafting()
    value = relu(book, whole("x", (3,), (FEATURE,), Role.DATA), weight("unused", 1))
    book.compute("sum", Draft((Operand("X", value, ("i",)),), ()))
    network = Network("test", tuple(book.steps))
    assert [step.name for step in inline(network).steps] == ["relu", "sum"]


def test_a_convolution_keeps_one_tensor_on_its_input() -> None:
    """An index that two tensors share cannot slide: the product stays a step of its own."""
    book = Drafting()
    value = gated(book, whole("x", (2, 3), guess(2), Role.DATA), weight("unused", 1))
    convolved(book, value, value)
    network = Network("test", tuple(book.steps))
    assert [step.name for step in inline(network).steps] == ["gate", "conv"]


def test_the_output_of_a_convolution_is_not_cut() -> None:
    book = Drafting()
    value = convolved(book, whole("x", (2, 4), guess(2), Role.DATA), weight("unused", 1))
    relu(book, book.reshape("reshape", value, (2, 2, 2)), value)
    network = Network("test", tuple(book.steps))
    assert [step.name for step in inline(network).steps] == ["conv", "relu"]


def test_a_step_that_took_a_name_is_read_as_often_as_before() -> None:
    book = Drafting()
    value = times_matrix(book, whole("x", (2, 3), guess(2), Role.DATA), weight("unused", 1))
    square(book, transposed(book, value, value), value)
    network = Network("test", tuple(book.steps))
    assert [step.name for step in network.steps] == ["linear", "copy", "square"]
    assert [step.name for step in inline(network).steps] == ["linear", "square"]


def test_an_output_that_only_reorders_takes_in_what_it_reorders() -> None:
    network = from_module(nn.Sequential(nn.Linear(6, 6), nn.Unflatten(1, (2, 3))), (4, 6))
    assert [step.name for step in network.steps] == ["output"]


def test_a_value_that_is_read_twice_keeps_its_step() -> None:
    book = Drafting()
    value = times_matrix(book, whole("x", (2, 3), guess(2), Role.DATA), weight("unused", 1))
    square(book, value, value)
    network = Network("test", tuple(book.steps))
    assert inline(network) == network
