"""Plans: barriers are never crossed, and operations are opt_einsum's, region by region."""

import math
from collections.abc import Iterator

import opt_einsum
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams import (
    Automatic,
    Convolution,
    Cotengra,
    Diagram,
    Exhaustive,
    Function,
    Greedy,
    Index,
    Method,
    Node,
    Region,
    plan_contraction,
)
from rankscope.errors import ContractionError

METHODS = (Automatic(), Exhaustive(), Greedy(), Cotengra(repeats=4))


@st.composite
def operands(draw: st.DrawFn) -> tuple[list[list[int]], list[int], list[int], int]:
    """Letters of each operand, sizes, output, and how many operands are behind a barrier."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    letters = st.integers(0, len(sizes) - 1)
    held = draw(st.lists(st.lists(letters, max_size=4), min_size=1, max_size=6))
    used = sorted({letter for word in held for letter in word})
    output = draw(st.lists(st.sampled_from(used), unique=True)) if used else []
    return held, sizes, output, draw(st.integers(0, len(held)))


def built(held: list[list[int]], sizes: list[int], output: list[int], inside: int) -> Diagram:
    nodes = tuple(
        Node(f"T{place}", tuple(f"i{letter}" for letter in word)) for place, word in enumerate(held)
    )
    members = tuple(node.name for node in nodes[:inside])
    return Diagram(
        "random",
        tuple(Index(f"i{letter}", size) for letter, size in enumerate(sizes)),
        nodes,
        tuple(f"i{letter}" for letter in output),
        regions=(Region("R", members, Function("relu")),) if members else (),
    )


@settings(deadline=None, max_examples=100)
@given(drawn=operands(), method=st.sampled_from(METHODS))
def test_operations_of_every_region_are_those_opt_einsum_counts(
    drawn: tuple[list[list[int]], list[int], list[int], int], method: Method
) -> None:
    diagram = built(*drawn)
    sizes = dict(enumerate(drawn[1]))
    plan = plan_contraction(diagram, method)
    for region in plan.regions:
        words = [
            [int(index[1:]) for index in operand.indices]
            for operand in diagram.structure.operands[region.region]
        ]
        kept = [int(index[1:]) for index in diagram.structure.legs[region.region]]
        if words == [kept]:
            assert region.contractions == ()
            continue
        flops, largest = counted(words, kept, sizes, region.path)
        assert sum(move.flops for move in region.contractions) == flops
        assert max(move.size for move in region.contractions) == largest
        assert region.contractions[-1].output == diagram.structure.legs[region.region]


def counted(
    words: list[list[int]],
    kept: list[int],
    sizes: dict[int, int],
    path: tuple[tuple[int, ...], ...],
) -> tuple[int, int]:
    """What opt_einsum says about a path: operations and largest intermediate."""
    text = ["".join(opt_einsum.get_symbol(letter) for letter in word) for word in (*words, kept)]
    equation = f"{','.join(text[:-1])}->{text[-1]}"
    shapes = [[sizes[letter] for letter in word] for word in words]
    _, info = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize=path)
    return int(info.opt_cost), int(info.largest_intermediate)


def test_the_default_finds_the_order_of_opt_einsum_itself() -> None:
    train = tensor_train(order=4)
    word = ["ai", "aibj", "bjck", "ckd"]
    shapes = [(3, 5), (3, 5, 3, 5), (3, 5, 3, 5), (3, 5, 7)]
    _, info = opt_einsum.contract_path(f"{','.join(word)}->d", *shapes, shapes=True)
    diagram = Diagram(
        "equation",
        tuple(Index(letter, dict(zip("abcijkd", (3, 3, 3, 5, 5, 5, 7), strict=True))[letter])
              for letter in "abcijkd"),
        tuple(Node(f"T{place}", tuple(letters)) for place, letters in enumerate(word)),
        ("d",),
    )  # fmt: skip
    assert plan_contraction(diagram).flops == int(info.opt_cost)
    assert plan_contraction(train).flops < 10**6


def tensor_train(order: int) -> Diagram:
    """Cores G1(a, r1), G2(r1, b, r2), …, closed by vectors so that the result is a number."""
    indices = [Index(f"r{bond}", 4) for bond in range(order - 1)]
    indices += [Index(f"s{site}", 3) for site in range(order)]
    nodes = []
    for site in range(order):
        bonds = [f"r{bond}" for bond in (site - 1, site) if 0 <= bond < order - 1]
        nodes += [Node(f"G{site}", (*bonds, f"s{site}")), Node(f"v{site}", (f"s{site}",))]
    return Diagram("train", tuple(indices), tuple(nodes), ())


def moves_of(diagram: Diagram, method: Method) -> Iterator[tuple[str | None, tuple[str, ...]]]:
    for region in plan_contraction(diagram, method).regions:
        for move in region.contractions:
            yield region.region, move.operands


@pytest.mark.parametrize("method", METHODS)
def test_no_move_crosses_a_barrier(method: Method) -> None:
    names = {"n": 5, "m": 7, "f": 6, "g": 6, "e": 6, "o": 6, "h": 2, "d": 3, "c": 3}
    attention = Diagram(
        "attention",
        tuple(Index(name, size) for name, size in names.items()),
        (
            Node("X", ("n", "f")),
            Node("WQ", ("f", "d", "h")),
            Node("WK", ("g", "d", "h")),
            Node("Y", ("m", "g")),
            Node("WV", ("e", "c", "h")),
            Node("Z", ("m", "e")),
            Node("WO", ("o", "c", "h")),
        ),
        ("n", "o"),
        regions=(Region("A", ("X", "WQ", "WK", "Y"), Function("softmax"), over=("m",)),),
    )
    inner, outer = {"X", "WQ", "WK", "Y"}, {"A", "WV", "Z", "WO"}
    plan = plan_contraction(attention, method)
    assert [region.region for region in plan.regions] == ["A", None]
    for region, operands_of_move in moves_of(attention, method):
        allowed = inner if region == "A" else outer
        prefix = "A#" if region == "A" else "result#"
        assert all(name in allowed or name.startswith(prefix) for name in operands_of_move)


def test_a_train_of_two_hundred_cores_is_planned_site_by_site() -> None:
    order = 200
    plan = plan_contraction(tensor_train(order))
    # Closing a site costs 2 * 3 * 4 * 4, multiplying two bond matrices 2 * 4 * 4 * 4.
    assert plan.flops <= order * (2 * 3 * 16 + 2 * 64)
    assert plan.largest_intermediate == 16


def test_equal_regions_under_other_names_get_the_same_path() -> None:
    def renamed(prefix: str) -> Diagram:
        indices = tuple(
            Index(prefix + name, size) for name, size in zip("ijkl", (9, 2, 8, 3), strict=True)
        )
        words = ("ij", "jk", "kl", "li")
        nodes = tuple(Node(w, tuple(prefix + letter for letter in w)) for w in words)
        return Diagram(prefix, indices, nodes, ())

    first, second = (plan_contraction(renamed(prefix)) for prefix in ("a", "zz"))
    assert first.regions[0].path == second.regions[0].path
    assert [move.flops for move in first.contractions] == [m.flops for m in second.contractions]


def test_a_diagram_without_tensors_is_refused() -> None:
    with pytest.raises(ContractionError, match="Diagram 'empty' holds no tensor"):
        plan_contraction(Diagram("empty", (), (), ()))


def convolution(**holders: tuple[str, ...]) -> Diagram:
    sizes = {"h": 9, "k": 3, "x": 7, "c": 2}
    return Diagram(
        "conv",
        tuple(Index(name, size) for name, size in sizes.items()),
        tuple(Node(name, indices) for name, indices in holders.items()),
        ("x",),
        (Convolution("star", "h", "k", "x"),),
    )


def test_a_convolution_costs_two_operations_for_each_output_and_tap() -> None:
    (move,) = plan_contraction(convolution(X=("c", "h"), K=("c", "k"))).contractions
    assert (move.convolutions, move.output) == (("star",), ("x",))
    assert (move.flops, move.size) == (2 * 2 * 7 * 3, 7)


def test_a_tensor_that_holds_two_legs_of_a_convolution_is_refused() -> None:
    for holders in ({"X": ("h", "k")}, {"X": ("c", "h"), "K": ("c", "k", "x")}):
        with pytest.raises(
            ContractionError, match=r"'star' needs .* different tensors, but '.' with"
        ):
            plan_contraction(convolution(**holders))


def test_a_convolution_whose_leg_is_in_another_region_is_refused() -> None:
    outside = convolution(X=("c", "h"), K=("c", "k"))
    inside = Diagram(
        "conv",
        outside.indices,
        outside.nodes,
        ("x",),
        outside.convolutions,
        (Region("R", ("K", "star"), Function("relu")),),
    )
    with pytest.raises(ContractionError, match=r"region 'R': leg 'h' of convolution 'star'"):
        plan_contraction(inside)


def test_opposite_convolutions_between_two_tensors_are_refused_with_their_numbers() -> None:
    sizes = {"a": 9, "b": 3, "x": 7, "c": 9, "d": 3, "y": 7}
    diagram = Diagram(
        "opposite",
        tuple(Index(name, size) for name, size in sizes.items()),
        (Node("A", ("a", "d")), Node("B", ("b", "c"))),
        ("x", "y"),
        (Convolution("one", "a", "b", "x"), Convolution("two", "c", "d", "y")),
    )
    message = r"Diagram 'opposite': No order of these 2 operands and 2 convolutions"
    for method in (Automatic(), Exhaustive()):
        with pytest.raises(ContractionError, match=message):
            plan_contraction(diagram, method)
    with pytest.raises(ContractionError, match=r"Greedy\(\) found no order of 2 operands and 2"):
        plan_contraction(diagram, Greedy())
    with pytest.raises(ContractionError, match=r"Cotengra\(\) knows no convolutions.* has 2"):
        plan_contraction(diagram, Cotengra())


def test_a_large_region_with_convolutions_is_planned_greedily() -> None:
    links = 14
    indices = [Index("h0", 40), *(Index(f"k{link}", 3) for link in range(links))]
    indices += [Index(f"h{link + 1}", 40 - 2 * (link + 1)) for link in range(links)]
    chain = Diagram(
        "chain",
        tuple(indices),
        (Node("X", ("h0",)), *(Node(f"K{link}", (f"k{link}",)) for link in range(links))),
        (f"h{links}",),
        tuple(
            Convolution(f"c{link}", f"h{link}", f"k{link}", f"h{link + 1}") for link in range(links)
        ),
    )
    expected = sum(2 * 3 * (40 - 2 * (link + 1)) for link in range(links))
    assert plan_contraction(chain).flops == expected
    with pytest.raises(ContractionError, match=r"up to 12 operands, but this region has 15"):
        plan_contraction(chain, Exhaustive())
    assert math.prod(len(move.convolutions) for move in plan_contraction(chain).contractions) == 1
