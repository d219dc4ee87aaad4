"""Generated files: what they say, and that names never become code."""

import ast
import re
import traceback

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams import (
    Convolution,
    Diagram,
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
    identifiers,
    to_module,
    to_source,
)
from rankscope.diagrams.source import TAKEN

HOSTILE = [
    'x"); import os; os.system("touch /tmp/broken"); ("""\\',
    "'''\nimport os\n'''",
    "self.__class__",
    "__import__('os')",
    "{over}",
    "value",
    "class",
    "constant(0.5, X)",
    "\N{RIGHT-TO-LEFT OVERRIDE}",
]
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
        R = X @ self.W  # (2, 4)
        R = F.relu(R, inplace=True)  # (2, 4)
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


@settings(deadline=None, max_examples=60)
@given(
    names=st.lists(
        st.text(min_size=1) | st.sampled_from(HOSTILE), min_size=6, max_size=6, unique=True
    )
)
def test_code_is_made_of_our_own_words_and_numbers(names: list[str]) -> None:
    title, data, weight, region, step, index = names
    body = Diagram(
        title,
        (Index(index, 2), Index(f"{index} in", 3), Index(f"{index} out", 4)),
        (
            Node(data, (index, f"{index} in"), Role.DATA, array=f"{data} array", label=title),
            Node(weight, (f"{index} in", f"{index} out"), array=f"{weight} array"),
            Node(f"{weight} half", (f"{index} out",), Role.CONSTANT, fill=0.5),
        ),
        (index,),
        regions=(Region(region, (data, weight), Function("gelu", (("approximate", "tanh"),))),),
        title=title,
    )
    network = Network(title, (Step(step, body, label=title),))
    source = to_source(network)
    tree = ast.parse(source)
    named = {part.id for part in ast.walk(tree) if isinstance(part, ast.Name)}
    named |= {part.attr for part in ast.walk(tree) if isinstance(part, ast.Attribute)}
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*|__init__", name) for name in named)
    called = {ast.unparse(part.func) for part in ast.walk(tree) if isinstance(part, ast.Call)}
    ours = {"super", "super().__init__", "nn.Parameter", "torch.randn", "F.gelu"}
    assert called <= ours | {f"{name}.sum" for name in named}
    given_name = identifiers([f"{data} array"], TAKEN)[f"{data} array"]
    texts = {part.value for part in ast.walk(tree) if isinstance(part, ast.Constant)}
    assert {text for text in texts if isinstance(text, str)} <= {
        f"{class_name(title)}, as rankscope contracts it.",
        f"Takes {given_name} (2, 3); returns (2,).",
        "tanh",
    }
    module, twin = to_module(network), from_source(source, title)
    twin.load_state_dict(module.state_dict())
    inputs = torch.randn(2, 3)
    torch.testing.assert_close(twin(inputs), module(inputs))


def test_a_module_runs_the_file_that_is_printed() -> None:
    diagram = layer("two layers", "X", "W")
    assert to_module(diagram).source == to_source(diagram)


def test_a_module_writes_down_the_shapes_of_its_own_arrays() -> None:
    diagram = layer("two layers", "X", "W")
    arrays = {"W": torch.randn(12), "V": torch.randn(2, 10)}
    module = to_module(diagram, arrays)
    twin = from_source(module.source, "two layers")
    twin.load_state_dict(module.state_dict())
    data = torch.randn(2, 3)
    torch.testing.assert_close(twin(data), module(data))
    expected = torch.relu(data @ arrays["W"].reshape(3, 4)) @ arrays["V"].reshape(4, 5)
    torch.testing.assert_close(module(data), expected.T)


def test_a_traceback_shows_the_line_that_failed() -> None:
    module = to_module(layer("two layers", "X", "W"))
    with pytest.raises(RuntimeError) as caught:
        module(torch.randn(2, 3, dtype=torch.float64))
    assert "R = X @ self.W" in "".join(traceback.format_exception(caught.value))


def tanh_of(array: str) -> Diagram:
    return Diagram(
        "next",
        (Index("p", 5), Index("b", 2)),
        (Node("Y", ("p", "b"), Role.DATA, array=array),),
        ("p", "b"),
        regions=(Region("T", ("Y",), Function("tanh")),),
    )


def test_values_are_deleted_when_nothing_needs_them() -> None:
    steps = (
        Step("first", layer("two layers", "X", "W")),
        Step("second", tanh_of("first")),
        Step("third", tanh_of("second")),
    )
    source = to_source(Network("net", steps))
    assert source.index("del first") < source.index("return T")
    assert "del T" not in source


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
        'F.pad(S.reshape(1, 1, 6), (0, 1), mode="replicate")',
        "self.K.mT.reshape(3, 1, 3), stride=(2,))",
        "R = R * 1.5",
        "F.layer_norm(R, (3, 3), eps=0.5)",
        "causal_mask(self.A, 0, 1)",
        "result = -0.5 * R + M",
    ):
        assert text in source
