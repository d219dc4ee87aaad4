"""Rewriting keeps the value; the reference evaluates a diagram region by region with numpy."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams import (
    Convolution,
    Diagram,
    Function,
    Index,
    Node,
    Region,
    Role,
    collapse_region,
    contract_nodes,
    evaluate_scale,
)
from rankscope.errors import ContractionError, DiagramError

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def dense(convolution: Convolution, sizes: Mapping[str, int]) -> Array:
    """The 0/1 tensor that a convolution with zero padding stands for."""
    found = np.zeros([sizes[leg] for leg in convolution.indices])
    for out in range(found.shape[2]):
        for tap in range(found.shape[1]):
            place = convolution.stride * out + convolution.dilation * tap - convolution.padding[0]
            if 0 <= place < found.shape[0]:
                found[place, tap, out] = 1.0
    return found


def apply(diagram: Diagram, region: Region, value: Array) -> Array:
    if region.scale:
        value = value * evaluate_scale(region.scale, diagram.symbols)
    if region.function.name == "softmax":
        legs = diagram.structure.legs[region.name]
        over = tuple(legs.index(index) for index in region.over)
        exponential = np.exp(value)
        normalized: Array = exponential / exponential.sum(axis=over, keepdims=True)
        return normalized
    bent: Array = {"tanh": np.tanh, "exp": np.exp}[region.function.name](value)
    return bent


def evaluate(diagram: Diagram, arrays: Mapping[str, Array]) -> Array:
    """Finish regions from the inside out, each by one einsum over named axes."""
    letter = {index.name: chr(97 + place) for place, index in enumerate(diagram.indices)}
    sizes = {index.name: index.size or 0 for index in diagram.indices}
    values: dict[str, Array] = dict(arrays)
    for region in diagram.structure.evaluation_order:
        operands = [(o.indices, values[o.name]) for o in diagram.structure.operands[region]]
        for name in diagram.structure.convolutions[region]:
            part = diagram.convolution_by_name[name]
            operands.append((part.indices, dense(part, sizes)))
        held = ",".join("".join(letter[index] for index in indices) for indices, _ in operands)
        legs = "".join(letter[leg] for leg in diagram.structure.legs[region])
        value: Array = np.asarray(np.einsum(f"{held}->{legs}", *[array for _, array in operands]))
        if region is None:
            return value
        values[region] = apply(diagram, diagram.region_by_name[region], value)
    raise AssertionError("the outermost region comes last")


def random_arrays(diagram: Diagram, seed: int) -> dict[str, Array]:
    draw = np.random.default_rng(seed)
    sizes = {index.name: index.size or 0 for index in diagram.indices}
    return {
        node.name: draw.standard_normal([sizes[index] for index in node.indices])
        for node in diagram.nodes
    }


def merged_value(
    diagram: Diagram, names: tuple[str, ...], rewritten: Diagram, arrays: Mapping[str, Array]
) -> Array:
    """The first new node's entries by definition: everything merged, in one einsum."""
    new = next(node for node in rewritten.nodes if node.name not in diagram.node_by_name)
    part = Diagram(
        "part",
        diagram.indices,
        tuple(diagram.node_by_name[name] for name in names),
        new.indices,
        tuple(c for c in diagram.convolutions if c not in rewritten.convolutions),
    )
    return evaluate(part, arrays)


@dataclass(frozen=True)
class Recipe:
    """Plain data for a random diagram (building one inside a strategy would use up randomness)."""

    sizes: tuple[int, ...]
    nodes: tuple[str, ...]
    is_open: tuple[bool, ...]
    depth: tuple[int, ...]
    is_nested: bool

    def diagram(self) -> Diagram:
        """Hyperedges, traces, summed legs, scalars, and up to two barriers, one in the other."""
        nodes = tuple(Node(f"T{number}", tuple(word)) for number, word in enumerate(self.nodes))
        used = sorted({index for word in self.nodes for index in word})
        depth = {node.name: depth for node, depth in zip(nodes, self.depth, strict=False)}
        inner = tuple(name for name, found in depth.items() if found == 2)
        outer = tuple(name for name, found in depth.items() if found == 1)
        regions: tuple[Region, ...] = ()
        if inner:
            regions = (Region("R", inner, Function("tanh")),)
        if inner and self.is_nested:
            regions += (Region("S", ("R", *outer), Function("exp")),)
        return Diagram(
            "random",
            tuple(Index(name, self.sizes["abcdef".index(name)]) for name in used),
            nodes,
            tuple(name for name in used if self.is_open["abcdef".index(name)]),
            regions=regions,
        )


RECIPES = st.builds(
    Recipe,
    sizes=st.tuples(*[st.integers(1, 3)] * 6),
    nodes=st.lists(st.text("abcdef", max_size=3), min_size=1, max_size=5).map(tuple),
    is_open=st.tuples(*[st.booleans()] * 6),
    depth=st.tuples(*[st.integers(0, 2)] * 5),
    is_nested=st.booleans(),
)


@settings(deadline=None, max_examples=150)
@given(RECIPES, st.randoms(use_true_random=False), st.integers(0, 1000))
def test_every_rewriting_keeps_the_value(recipe: Recipe, chance: Random, seed: int) -> None:
    diagram = recipe.diagram()
    arrays = random_arrays(diagram, seed)
    expected = evaluate(diagram, arrays)
    for region in diagram.structure.evaluation_order:
        is_finished = False
        while not is_finished:
            members = diagram.structure.members[region]
            # Down to one member, then that one by itself: legs that only it holds are summed.
            is_finished = len(members) == 1
            names = tuple(chance.sample(members, min(2, len(members))))
            rewritten = contract_nodes(diagram, names, f"V{len(arrays)}")
            arrays[f"V{len(arrays)}"] = merged_value(diagram, names, rewritten, arrays)
            diagram = rewritten
            np.testing.assert_allclose(evaluate(diagram, arrays), expected)
        if region is not None:
            (last,) = diagram.structure.members[region]
            held = diagram.node_by_name[last].indices
            # tanh and exp work entry by entry, whatever the order of the axes.
            arrays[region] = apply(diagram, diagram.region_by_name[region], arrays[last])
            diagram = collapse_region(diagram, region, region)
            assert diagram.node_by_name[region].indices == held
            np.testing.assert_allclose(evaluate(diagram, arrays), expected)
    (node,) = diagram.nodes
    assert sorted(node.indices) == sorted(diagram.output)
    assert node.role is Role.RESULT


def attention() -> Diagram:
    sizes = {"n": 3, "m": 4, "f": 2, "d": 5, "h": 2}
    indices = tuple(Index(name, size, symbol=name.upper()) for name, size in sizes.items())
    return Diagram(
        "attention",
        indices,
        (
            Node("Q", ("n", "d", "h"), Role.DATA),
            Node("K", ("m", "d", "h"), Role.DATA),
            Node("V", ("m", "f", "h"), Role.DATA),
        ),
        output=("n", "f"),
        regions=(Region("A", ("Q", "K"), Function("softmax"), ("m",), scale="D**-0.5"),),
    )


def test_a_scale_survives_the_index_it_is_made_of() -> None:
    diagram = attention()
    arrays = random_arrays(diagram, 0)
    rewritten = contract_nodes(diagram, ("Q", "K"), "S")
    assert rewritten.node_by_name["S"].indices == ("n", "h", "m")
    assert "d" not in rewritten.structure.owners
    assert rewritten.symbols["D"] == 5
    arrays["S"] = merged_value(diagram, ("Q", "K"), rewritten, arrays)
    np.testing.assert_allclose(evaluate(rewritten, arrays), evaluate(diagram, arrays))
    # Once the barrier is gone, nothing needs the size any more.
    assert "D" not in collapse_region(rewritten, "A", "A").symbols


def test_a_finished_softmax_is_one_tensor() -> None:
    diagram = contract_nodes(attention(), ("Q", "K"), "S", label=r"\mathbf{S}")
    collapsed = collapse_region(diagram, "A", "P", label=r"\mathbf{A}")
    assert collapsed.regions == ()
    assert [node.name for node in collapsed.nodes] == ["P", "V"]
    assert collapsed.node_by_name["P"].label == r"\mathbf{A}"


@settings(deadline=None, max_examples=40)
@given(
    stride=st.integers(1, 2),
    dilation=st.integers(1, 2),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    seed=st.integers(0, 1000),
)
def test_a_chain_of_convolutions_is_carried_out_where_both_legs_meet(
    stride: int, dilation: int, padding: tuple[int, int], seed: int
) -> None:
    first = Convolution("c1", "h", "u", "y", stride, padding, dilation)
    middle = first.output_size(9, 2)
    second = Convolution("c2", "y", "v", "z")
    sizes = {"h": 9, "u": 2, "y": middle, "v": 2, "z": middle - 1, "s": 3, "t": 2}
    diagram = Diagram(
        "chain",
        tuple(Index(name, size) for name, size in sizes.items()),
        (
            Node("X", ("s", "h"), Role.DATA),
            Node("G", ("s", "t", "u")),
            Node("F", ("t", "v")),
        ),
        output=("z",),
        convolutions=(first, second),
    )
    arrays = random_arrays(diagram, seed)
    expected = evaluate(diagram, arrays)
    both = contract_nodes(diagram, ("X", "G"), "XG")
    assert both.convolutions == (second,)
    assert both.node_by_name["XG"].indices == ("t", "y")
    kernels = contract_nodes(diagram, ("G", "F"), "GF")
    assert kernels.convolutions == (first, second)
    everything = contract_nodes(diagram, ("X", "G", "F"), "XGF")
    assert everything.convolutions == ()
    for names, rewritten in ((("X", "G"), both), (("G", "F"), kernels), ("XGF", everything)):
        known = arrays | {"".join(names): merged_value(diagram, tuple(names), rewritten, arrays)}
        np.testing.assert_allclose(evaluate(rewritten, known), expected)


def layer() -> Diagram:
    indices = tuple(Index(name, 2) for name in "bfho")
    return Diagram(
        "layer",
        indices,
        (Node("X", ("b", "f")), Node("V", ("f", "h")), Node("W", ("h", "o"))),
        output=("b", "o"),
        regions=(Region("R", ("X", "V"), Function("relu")),),
    )


def test_a_contraction_across_a_barrier_is_refused() -> None:
    message = r"'V' is in region 'R' and 'W' in the outermost region: .* cannot cross a barrier"
    with pytest.raises(ContractionError, match=message):
        contract_nodes(layer(), ("V", "W"), "VW")


def test_an_unfinished_barrier_is_not_contracted() -> None:
    with pytest.raises(ContractionError, match=r"'R' is a barrier \(relu\): finish it"):
        contract_nodes(layer(), ("R", "W"), "RW")


@pytest.mark.parametrize("names", [(), ("X", "X")])
def test_no_node_or_one_node_twice_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ContractionError, match=r"one or more different nodes of 'layer', got"):
        contract_nodes(layer(), names, "T")


def test_an_unknown_node_is_refused() -> None:
    with pytest.raises(ContractionError, match=r"no node 'Z'; it has: X, V, W\."):
        contract_nodes(layer(), ("X", "Z"), "T")


def test_a_result_needs_a_name_of_its_own() -> None:
    with pytest.raises(DiagramError, match="2 times the node, convolution or region 'W'"):
        contract_nodes(layer(), ("X", "V"), "W")


def test_an_unknown_region_is_refused() -> None:
    with pytest.raises(ContractionError, match=r"no region 'Q'; it has: R\."):
        collapse_region(layer(), "Q", "T")


def test_a_region_with_two_tensors_is_not_finished() -> None:
    with pytest.raises(ContractionError, match="must hold one tensor, but holds 2: X, V"):
        collapse_region(layer(), "R", "T")


def test_a_region_whose_tensor_has_a_leg_too_many_is_not_finished() -> None:
    diagram = Diagram(
        "sum",
        (Index("i", 2), Index("j", 3)),
        (Node("X", ("i", "j")),),
        output=("i",),
        regions=(Region("R", ("X",), Function("relu")),),
    )
    with pytest.raises(ContractionError, match=r"'X' has the indices \('i', 'j'\), but \('i',\)"):
        collapse_region(diagram, "R", "T")
