"""Carrying out a plan against the definition: every region as one dense sum over all indices."""

import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import opt_einsum
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.diagrams import (
    Automatic,
    Convolution,
    Diagram,
    DiagramModule,
    Exhaustive,
    Function,
    Greedy,
    Index,
    Node,
    Region,
    Role,
    class_name,
    peak_memory,
    resolved_sizes,
    to_module,
    to_source,
)
from rankscope.errors import ContractionError

METHODS = (Automatic(), Exhaustive(), Greedy())


def from_source(source: str, name: str) -> torch.nn.Module:
    """Run a generated file and make its module."""
    names: dict[str, type[torch.nn.Module]] = {}
    exec(compile(source, "generated.py", "exec"), names)
    return names[class_name(name)]()


def dense_convolution(part: Convolution, sizes: Mapping[str, int]) -> Tensor:
    """The 0/1 tensor a convolution stands for: h = stride * h' + dilation * k - padding."""
    length, kernel, out = (sizes[leg] for leg in part.indices)
    dense = torch.zeros(length, kernel, out, dtype=torch.float64)
    for place in range(out):
        for tap in range(kernel):
            position = part.stride * place + part.dilation * tap - part.padding[0]
            match part.padding_mode:
                case "circular":
                    position %= length
                case "replicate":
                    position = min(max(position, 0), length - 1)
                case "reflect":
                    position = abs(position)
                    position = length - 1 - abs(length - 1 - position)
            if 0 <= position < length:
                dense[position, tap, place] = 1
    return dense


def defined_value(diagram: Diagram, arrays: Mapping[str, Tensor]) -> Tensor:
    """Region by region, one einsum over everything inside; only tanh and the identity."""
    sizes = resolved_sizes(diagram)
    values: dict[str, Tensor] = {}
    for node in diagram.nodes:
        shape = [sizes[index] for index in node.indices]
        if node.role is Role.CONSTANT:
            values[node.name] = torch.full(shape, node.fill, dtype=torch.float64)
        elif node.is_one_hot:
            picked = torch.nn.functional.one_hot(arrays[node.source], shape[-1])
            values[node.name] = picked.double()
        else:
            values[node.name] = arrays[node.source].reshape(shape)
    structure = diagram.structure
    for region in structure.evaluation_order:
        operands: list[object] = []
        for operand in structure.operands[region]:
            operands += [values[operand.name], operand.indices]
        for name in structure.convolutions[region]:
            part = diagram.convolution_by_name[name]
            operands += [dense_convolution(part, sizes), part.indices]
        value = opt_einsum.contract(*operands, structure.legs[region])
        if region is not None:
            function = diagram.region_by_name[region].function.name
            value = torch.tanh(value) if function == "tanh" else value
            values[region] = value
    return torch.as_tensor(value, dtype=torch.float64)


def most_entries(module: DiagramModule, inputs: Sequence[Tensor]) -> int:
    """The most entries that inputs, parameters and the local names of a run ever hold at once."""
    most = 0
    before: list[Tensor] = list(module.parameters())

    def look(frame: FrameType, event: str, _: object) -> Any:
        nonlocal most, before
        code = frame.f_code
        if code.co_name != "forward" or not code.co_filename.startswith("<rankscope"):
            return None
        now = [value for value in frame.f_locals.values() if isinstance(value, Tensor)]
        # While a line runs, what it replaces is still there beside what it makes.
        stores = [value.untyped_storage() for value in (*before, *now, *module.parameters())]
        held = {store.data_ptr(): store.nbytes() // 8 for store in stores}
        most, before = max(most, sum(held.values())), now
        return look

    previous = sys.gettrace()
    sys.settrace(look)
    try:
        with torch.no_grad():
            module(*inputs)
    finally:
        sys.settrace(previous)
    return most


@st.composite
def plain_indices(draw: st.DrawFn, count: int) -> list[tuple[int, list[int], bool]]:
    """Size, holders (any number, also twice the same) and openness of ordinary indices."""
    holders = st.lists(st.integers(0, count - 1), min_size=1, max_size=3)
    return draw(st.lists(st.tuples(st.integers(1, 3), holders, st.booleans()), max_size=4))


@st.composite
def convolutions(draw: st.DrawFn, count: int) -> list[dict[str, Any]]:
    """Two different holders, sizes, options, and what becomes of the output."""
    places = st.integers(0, count - 1)
    options = st.fixed_dictionaries(
        {
            "holders": st.permutations(range(count)),
            "length": st.integers(3, 6),
            "kernel": st.integers(1, 3),
            "padding": st.tuples(st.integers(0, 2), st.integers(0, 2)),
            "stride": st.integers(1, 3),
            "dilation": st.integers(1, 2),
            "padding_mode": st.sampled_from(["zeros", "circular", "reflect", "replicate"]),
            "output": st.sampled_from(["open", "summed", "held"]),
            "third": places,
        }
    )
    return draw(st.lists(options, max_size=3)) if count > 1 else []


@st.composite
def recipes(draw: st.DrawFn) -> dict[str, Any]:
    """Random parts of a diagram as plain data: the type checker must not run in a strategy."""
    count = draw(st.integers(1, 4))
    roles = st.sampled_from(["data", "parameter", "constant"])
    return {
        "count": count,
        "plain": draw(plain_indices(count)),
        "convolutions": draw(convolutions(count)),
        "roles": draw(st.lists(roles, min_size=count, max_size=count)),
        "inside": draw(st.integers(0, count)),
        "function": draw(st.sampled_from(["tanh", "identity"])),
        "seed": draw(st.integers(0, 2**16)),
    }


def built(recipe: dict[str, Any]) -> Diagram:
    held: list[list[str]] = [[] for _ in range(recipe["count"])]
    indices: list[Index] = []
    output: list[str] = []
    for number, (size, holders, is_open) in enumerate(recipe["plain"]):
        indices.append(Index(f"i{number}", size))
        output += [f"i{number}"] if is_open else []
        for place in holders:
            held[place].append(f"i{number}")
    parts: list[Convolution] = []
    members = [f"T{place}" for place in range(recipe["inside"])]
    for number, drawn in enumerate(recipe["convolutions"]):
        first, second = drawn["holders"][:2]
        legs = (f"h{number}", f"k{number}", f"x{number}")
        options = {key: drawn[key] for key in ("stride", "padding", "dilation", "padding_mode")}
        part = Convolution(f"c{number}", *legs, **options)
        out = part.output_size(drawn["length"], drawn["kernel"])
        assume(out > 0)
        for leg, size in zip(legs, (drawn["length"], drawn["kernel"], out), strict=True):
            indices.append(Index(leg, size))
        held[first].append(legs[0])
        held[second].append(legs[1])
        output += [legs[2]] if drawn["output"] == "open" else []
        if drawn["output"] == "held":
            held[drawn["third"]].append(legs[2])
        parts.append(part)
        members += [part.name] if max(first, second) < recipe["inside"] else []
    nodes = tuple(
        Node(f"T{place}", tuple(own), Role(role), fill=0.5)
        for place, (own, role) in enumerate(zip(held, recipe["roles"], strict=True))
    )
    regions = (Region("R", tuple(members), Function(recipe["function"])),) if members else ()
    output.sort(key=lambda name: zlib.crc32(f"{name} {recipe['seed']}".encode()))
    return Diagram("random", tuple(indices), nodes, tuple(output), tuple(parts), regions)


@settings(deadline=None, max_examples=80)
@given(recipe=recipes())
def test_a_module_and_its_source_compute_the_defining_sum(recipe: dict[str, Any]) -> None:
    diagram = built(recipe)
    draw = torch.Generator().manual_seed(recipe["seed"])
    sizes = resolved_sizes(diagram)
    arrays = {
        node.name: torch.randn(
            [sizes[index] for index in node.indices], generator=draw, dtype=torch.float64
        )
        for node in diagram.nodes
    }
    try:
        modules = [to_module(diagram, arrays, method=method) for method in METHODS]
    except ContractionError:
        assume(False)
    inputs = [arrays[name] for name in modules[0].input_names]
    expected = defined_value(diagram, arrays)
    for module in modules:
        torch.testing.assert_close(module.double()(*inputs), expected)
        most, planned = most_entries(module, inputs), peak_memory(module.schedule)
        # Constants may be left to broadcasting for longer than planned.
        assert most <= planned if "constant" in recipe["roles"] else most == planned
    # In double precision before it loads anything, so that nothing is rounded on the way.
    twin = from_source(to_source(diagram), "random").double()
    twin.load_state_dict(modules[0].state_dict())
    torch.testing.assert_close(twin(*inputs).double(), expected)


@pytest.mark.parametrize(
    ("indices", "output", "expected"),
    [
        (("i", "i"), ("i",), lambda value: value.diagonal()),
        (("i", "i"), (), lambda value: value.trace()),
        (("i", "j"), ("i",), lambda value: value.sum(1)),
        (("i", "j"), (), lambda value: value.sum()),
        (("i", "j"), ("j", "i"), lambda value: value.T),
        (("i", "j"), ("i", "j"), lambda value: value),
    ],
)
def test_one_tensor_alone_gives_diagonals_traces_and_sums(
    indices: tuple[str, ...], output: tuple[str, ...], expected: Callable[[Tensor], Tensor]
) -> None:
    sizes = {"i": 3, "j": 4}
    diagram = Diagram(
        "alone",
        tuple(Index(name, sizes[name]) for name in dict.fromkeys(indices)),
        (Node("A", indices, Role.DATA),),
        output,
    )
    value = torch.randn([sizes[index] for index in indices])
    torch.testing.assert_close(to_module(diagram)(value), expected(value))
