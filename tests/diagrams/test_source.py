"""Generated files: what they say, and that names never become code."""

import ast

import pytest
import torch

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.functions import Function
from rankscope.diagrams.module import to_module
from rankscope.diagrams.network import Sum, Term
from rankscope.diagrams.parts import Convolution, Index, Node, Region, Role
from rankscope.diagrams.source import class_name, to_source

NASTY = 'x"); import os; os.system("touch /tmp/broken"); ("""\\'


def from_source(source: str, name: str) -> torch.nn.Module:
    """Run a generated file and make its module."""
    names: dict[str, type[torch.nn.Module]] = {}
    exec(compile(source, "generated.py", "exec"), names)
    return names[class_name(name)]()


def layer(name: str, data: str, weight: str, *, region: str = "R") -> Diagram:
    return Diagram(
        name,
        (Index("b", 2), Index("i", 3), Index("o", 4), Index("p", 5)),
        (Node(data, ("b", "i"), Role.DATA), Node(weight, ("i", "o")), Node("V", ("o", "p"))),
        ("p", "b"),
        regions=(Region(region, (data, weight), Function("relu")),),
    )


def test_a_file_is_one_class_with_one_line_per_move_and_shapes_beside_them() -> None:
    assert (
        to_source(layer("two layers", "X", "W"))
        == '''"""TwoLayers, as rankscope contracts it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TwoLayers(nn.Module):
    """Takes X (2, 3); returns (5, 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.W = nn.Parameter(torch.randn(3, 4) * 3**-0.5)
        self.V = nn.Parameter(torch.randn(4, 5) * 4**-0.5)

    def forward(self, X: Tensor) -> Tensor:
        R = torch.einsum("bi,io->bo", X, self.W)  # (2, 4)
        R = F.relu(R)  # (2, 4)
        result = torch.einsum("bo,op->pb", R, self.V)  # (5, 2)
        return result
'''
    )


def test_no_name_can_become_code() -> None:
    diagram = layer(NASTY, f"data {NASTY}", f"weight {NASTY}", region=f"region {NASTY}")
    source = to_source(diagram)
    calls = [part for part in ast.walk(ast.parse(source)) if isinstance(part, ast.Import)]
    assert [alias.name for part in calls for alias in part.names] == [
        "torch",
        "torch.nn.functional",
    ]
    assert "system(" not in source
    module = to_module(diagram)
    twin = from_source(source, NASTY)
    twin.load_state_dict(module.state_dict())
    data = torch.randn(2, 3)
    torch.testing.assert_close(twin(data), module(data))


@pytest.mark.parametrize(
    "name", ["self", "torch", "F", "image", "softmax", "class", "forward", "1"]
)
def test_names_that_mean_something_in_the_file_are_replaced(name: str) -> None:
    diagram = layer(name, f"{name} ", name, region=f" {name}")
    twin, module = from_source(to_source(diagram), name), to_module(diagram)
    twin.load_state_dict(module.state_dict())
    data = torch.randn(2, 3)
    torch.testing.assert_close(twin(data), module(data))


def test_inputs_that_are_needed_again_keep_their_name() -> None:
    again = Diagram(
        "again",
        (Index("b", 2), Index("i", 3), Index("j", 3)),
        (
            Node("first", ("b", "i"), Role.DATA, array="X"),
            Node("W", ("i", "j")),
            Node("second", ("b", "j"), Role.DATA, array="X"),
        ),
        ("b",),
        regions=(Region("X'", ("first", "W"), Function("tanh")),),
    )
    module, twin = to_module(again), from_source(to_source(again), "again")
    twin.load_state_dict(module.state_dict())
    data = torch.randn(2, 3)
    torch.testing.assert_close(twin(data), module(data))
    assert "X_2 = torch.tanh(X_2)" in to_source(again)


def test_sums_masks_convolutions_and_scales_are_written() -> None:
    conv = Diagram(
        "conv",
        (Index("h", 6), Index("k", 3), Index("x", 3), Index("n", 3)),
        (Node("S", ("h",), Role.DATA), Node("K", ("k", "n"))),
        ("n", "x"),
        (Convolution("c", "h", "k", "x", 2, (0, 1), padding_mode="replicate"),),
        (
            Region(
                "R",
                ("S", "K", "c"),
                Function("layer_norm", (("eps", 0.5),)),
                over=("n", "x"),
                scale="n / 2",
            ),
        ),
    )
    masked = Diagram(
        "masked",
        (Index("n", 3), Index("x", 3)),
        (Node("A", ("n", "x")),),
        ("n", "x"),
        regions=(Region("M", ("A",), Function("softmax"), over=("x",), causal=("n", "x")),),
    )
    total = Sum("total", (Term(conv, -0.5), Term(masked)))
    module, twin = to_module(total), from_source(to_source(total), "total")
    twin.load_state_dict(module.state_dict())
    signal = torch.randn(6)
    torch.testing.assert_close(twin(signal), module(signal))
    source = to_source(total)
    for text in (
        'image = F.pad(image, (0, 1), mode="replicate")',
        "F.conv1d(image, kernel, stride=(2,))",
        "R = R * 1.5",
        "layer_norm(R, (0, 1), 0.5)",
        "causal_mask(self.A, 0, 1)",
        "result = -0.5 * R + M",
    ):
        assert text in source
