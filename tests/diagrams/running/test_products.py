"""Convolutions and look-ups against PyTorch's own."""

import pytest
import torch

from rankscope.diagrams import (
    Convolution,
    Diagram,
    Index,
    Node,
    Role,
    class_name,
    to_module,
    to_source,
)
from rankscope.errors import DiagramError


def from_source(source: str, name: str) -> torch.nn.Module:
    """Run a generated file and make its module."""
    names: dict[str, type[torch.nn.Module]] = {}
    exec(compile(source, "generated.py", "exec"), names)
    return names[class_name(name)]()


@pytest.mark.parametrize(
    ("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (2, 1, 2), (3, 2, 1)]
)
def test_tucker_2_convolution_equals_conv2d_with_the_merged_kernel(
    stride: int, padding: int, dilation: int
) -> None:
    sizes = {"b": 2, "s": 3, "h": 9, "w": 8, "u": 3, "v": 3, "p": 2, "q": 4, "t": 5}
    for name, length in (("x", 9), ("y", 8)):
        sizes[name] = (length + 2 * padding - dilation * 2 - 1) // stride + 1
    options = (stride, (padding, padding), dilation)
    diagram = Diagram(
        "tucker2",
        tuple(Index(name, size) for name, size in sizes.items()),
        (
            Node("X", ("b", "s", "h", "w"), Role.DATA),
            Node("U", ("s", "p")),
            Node("K", ("u", "v", "p", "q"), Role.CORE),
            Node("V", ("q", "t")),
        ),
        ("b", "t", "x", "y"),
        (
            Convolution("rows", "h", "u", "x", *options),
            Convolution("cols", "w", "v", "y", *options),
        ),
    )
    module = to_module(diagram, dtype=torch.float64)
    image = torch.randn(2, 3, 9, 8).double()
    first, core, last = (module.get_parameter(name) for name in "UKV")
    kernel = torch.einsum("sp,uvpq,qt->tsuv", first, core, last)
    expected = torch.nn.functional.conv2d(image, kernel, None, stride, padding, dilation)
    torch.testing.assert_close(module(image), expected)
    assert module.schedule.shapes[module.schedule.results[0]] == tuple(expected.shape)


def test_an_index_that_input_kernel_and_output_share_makes_a_grouped_convolution() -> None:
    sizes = {"g": 3, "c": 2, "o": 4, "l": 9, "k": 3, "x": 4}
    diagram = Diagram(
        "grouped",
        tuple(Index(name, size) for name, size in sizes.items()),
        (Node("X", ("g", "c", "l"), Role.DATA), Node("K", ("g", "o", "c", "k"))),
        ("g", "o", "x"),
        (Convolution("c", "l", "k", "x", 2, (0, 0), 1),),
    )
    module = to_module(diagram, dtype=torch.float64)
    signal = torch.randn(3, 2, 9).double()
    kernel = module.get_parameter("K").reshape(12, 2, 3)
    expected = torch.nn.functional.conv1d(signal.reshape(1, 6, 9), kernel, stride=2, groups=3)
    torch.testing.assert_close(module(signal), expected.reshape(3, 4, 4))
    twin = from_source(to_source(diagram), "grouped").double()
    twin.load_state_dict(module.state_dict())
    torch.testing.assert_close(twin(signal), expected.reshape(3, 4, 4))


def picking(*extra: Node, output: tuple[str, ...], **sizes: int) -> Diagram:
    """Integers (b, n) pick along v."""
    return Diagram(
        "picking",
        tuple(Index(name, size) for name, size in sizes.items()),
        (Node("ids", ("b", "n", "v"), Role.DATA, is_one_hot=True), *extra),
        output,
    )


def test_a_one_hot_node_looks_up_rows_of_a_table() -> None:
    diagram = picking(Node("E", ("v", "f")), output=("b", "n", "f"), b=2, n=3, v=10, f=4)
    module = to_module(diagram)
    ids = torch.randint(10, (2, 3))
    torch.testing.assert_close(module(ids), module.get_parameter("E")[ids])
    torch.testing.assert_close(module(ids.int()), module.get_parameter("E")[ids])
    for wrong in (10, -1):
        with pytest.raises(IndexError):
            module(torch.full((2, 3), wrong))


def test_a_look_up_may_share_indices_with_its_table_and_sum_afterwards() -> None:
    diagram = picking(
        Node("E", ("f", "v", "b")), Node("W", ("f",)), output=("b",), b=2, n=3, v=5, f=4
    )
    module = to_module(diagram, dtype=torch.float64)
    ids = torch.randint(5, (2, 3))
    table, weights = module.get_parameter("E"), module.get_parameter("W")
    expected = torch.stack([weights @ table[:, ids[b], b].sum(1) for b in range(2)])
    torch.testing.assert_close(module(ids), expected)
    twin = from_source(to_source(diagram), "picking").double()
    twin.load_state_dict(module.state_dict())
    torch.testing.assert_close(twin(ids), expected)


def test_look_ups_follow_one_another_from_table_to_table() -> None:
    diagram = picking(
        Node("next", ("v", "w"), Role.DATA, is_one_hot=True),
        Node("E", ("w", "f")),
        output=("f", "n", "b"),
        b=2, n=3, v=5, w=7, f=4,
    )  # fmt: skip
    module = to_module(diagram)
    ids, following = torch.randint(5, (2, 3)), torch.randint(7, (5,))
    expected = module.get_parameter("E")[following[ids]].permute(2, 1, 0)
    torch.testing.assert_close(module(ids, following), expected)


def test_a_constant_one_hot_node_takes_one_slice() -> None:
    diagram = Diagram(
        "first token",
        (Index("b", 2), Index("n", 3), Index("f", 4)),
        (
            Node("X", ("b", "n", "f"), Role.DATA),
            Node("first", ("n",), Role.CONSTANT, is_one_hot=True, fill=2.0),
        ),
        ("b", "f"),
    )
    data = torch.randn(2, 3, 4)
    torch.testing.assert_close(to_module(diagram)(data), data[:, 2])
    torch.testing.assert_close(from_source(to_source(diagram), "first token")(data), data[:, 2])


def test_numbers_in_place_of_integers_are_refused() -> None:
    module = to_module(picking(Node("E", ("v", "f")), output=("b", "n", "f"), b=2, n=3, v=5, f=4))
    with pytest.raises(DiagramError, match=r"'ids' must hold integers.* got torch.float32"):
        module(torch.zeros(2, 3))
