import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opt_einsum.parser import alpha_canonicalize

from rankscope.diagrams import (
    Convolution,
    Diagram,
    Function,
    Index,
    IndexKind,
    Node,
    Region,
    Role,
    from_einsum,
    to_einsum,
)
from rankscope.errors import DiagramError, EinsumError, SizeError


@st.composite
def equations(draw: st.DrawFn) -> str:
    """Any equation: traces, hyperedges, scalars, sums, empty outputs."""
    letters = "abcdijRÄπЖ"
    operands = draw(st.lists(st.text(letters, max_size=5), min_size=1, max_size=7))
    used = sorted({letter for operand in operands for letter in operand})
    output = draw(st.permutations(used))[: draw(st.integers(0, len(used)))]
    return f"{','.join(operands)}->{''.join(output)}"


@settings(deadline=None, max_examples=1000)
@given(equation=equations())
def test_from_einsum_to_einsum_is_the_identity(equation: str) -> None:
    """Acceptance case 14: letters that PyTorch cannot read are the only ones that may change."""
    written = to_einsum(from_einsum(equation))
    assert alpha_canonicalize(written) == alpha_canonicalize(equation)
    assert written.isascii()
    if equation.isascii():
        assert written == equation


@settings(deadline=None)
@given(equation=equations())
def test_long_index_names_change_only_the_letters(equation: str) -> None:
    diagram = from_einsum(equation)
    longer = Diagram(
        "longer",
        tuple(Index(f"long_{index.name}") for index in diagram.indices),
        tuple(
            Node(node.name, tuple(f"long_{index}" for index in node.indices))
            for node in diagram.nodes
        ),
        tuple(f"long_{index}" for index in diagram.output),
    )
    assert alpha_canonicalize(to_einsum(longer)) == alpha_canonicalize(equation)


def test_names_of_one_letter_are_kept_and_their_letters_not_given_away() -> None:
    diagram = Diagram(
        "mixed",
        (Index("i1"), Index("a"), Index("×"), Index("c")),
        (Node("A", ("i1", "a", "×", "c")),),
        output=("c", "i1"),
    )
    assert to_einsum(diagram) == "iabc->ci"


def test_more_than_52_indices_get_letters_that_can_be_read_back() -> None:
    names = [f"i{place}" for place in range(400)]
    chain = Diagram(
        "chain",
        tuple(Index(name) for name in names),
        tuple(Node(f"A{place}", tuple(names[place : place + 2])) for place in range(399)),
        output=(names[0], names[-1]),
    )
    read = from_einsum(to_einsum(chain))
    assert len(read.indices) == 400
    assert [node.name for node in read.nodes][25:28] == ["Z", "A1", "B1"]
    assert all(
        left.indices[1] == right.indices[0]
        for left, right in zip(read.nodes, read.nodes[1:], strict=False)
    )


def test_operands_are_data_unless_marked_and_carry_their_names() -> None:
    diagram = from_einsum("ij,jk->ik", parameters=(1,), names=("inputs", "W_q"), name="layer")
    assert [node.role for node in diagram.nodes] == [Role.DATA, Role.PARAMETER]
    assert [node.tex for node in diagram.nodes] == [r"\mathbf{inputs}", r"\mathbf{W\_q}"]
    assert (diagram.name, diagram.title) == ("layer", "ij,jk->ik")
    assert [index.tex for index in diagram.indices] == ["i", "j", "k"]


def test_the_27th_operand_has_a_numbered_label() -> None:
    assert from_einsum("," * 26).nodes[26].tex == r"\mathbf{A}_{1}"


def test_a_scalar_operand_holds_no_index() -> None:
    diagram = from_einsum(",i->i")
    assert [node.indices for node in diagram.nodes] == [(), ("i",)]


def test_sizes_come_from_shapes_and_letters_together() -> None:
    diagram = from_einsum("ij,jk->ik", shapes=[(2, 3), (3, 4)], sizes={"k": 4})
    assert diagram.sizes == {"i": 2, "j": 3, "k": 4}
    assert from_einsum("ij,jk", sizes={"j": 3}).sizes == {"i": None, "j": 3, "k": None}


@st.composite
def ellipses(draw: st.DrawFn) -> tuple[str, list[tuple[int, ...]]]:
    """An equation with ellipses that stand for 0 to 2 indices, some of them of size 1."""
    sizes = {"i": 2, "j": 3, "k": 4}
    batch = draw(st.lists(st.integers(1, 5), max_size=2))
    operands: list[str] = []
    shapes: list[tuple[int, ...]] = []
    for letters in draw(st.lists(st.permutations("ijk"), min_size=1, max_size=3)):
        kept = "".join(letters[: draw(st.integers(0, 3))])
        place = draw(st.integers(0, len(kept)))
        covered = [
            draw(st.sampled_from((1, size))) for size in batch[draw(st.integers(0, len(batch))) :]
        ]
        operands.append(f"{kept[:place]}...{kept[place:]}")
        shapes.append(
            (*(sizes[x] for x in kept[:place]), *covered, *(sizes[x] for x in kept[place:]))
        )
    arrow = draw(st.sampled_from(("", "->...", "->...i")))
    has_letter = any("i" in operand for operand in operands)
    return ",".join(operands) + (arrow if has_letter or "i" not in arrow else "->..."), shapes


@settings(deadline=None)
@given(case=ellipses(), seed=st.integers(0, 2**16))
def test_an_ellipsis_means_what_it_means_to_numpy(
    case: tuple[str, list[tuple[int, ...]]], seed: int
) -> None:
    equation, shapes = case
    draw = np.random.default_rng(seed)
    arrays = [draw.integers(-3, 4, shape) for shape in shapes]
    diagram = from_einsum(equation, shapes=shapes)
    expected = np.einsum(equation, *arrays)
    np.testing.assert_array_equal(np.einsum(to_einsum(diagram), *arrays), expected)
    assert tuple(diagram.sizes[index] for index in diagram.output) == expected.shape


def test_an_ellipsis_becomes_batch_indices() -> None:
    diagram = from_einsum("...ij,...jk->...ik", shapes=[(7, 8, 2, 3), (8, 3, 4)])
    assert diagram.output == ("batch1", "batch2", "i", "k")
    assert diagram.node_by_name["B"].indices == ("batch2", "j", "k")
    batch = diagram.index_by_name["batch2"]
    assert (batch.size, batch.kind, batch.tex) == (8, IndexKind.BATCH, "B_{2}")


def test_a_repeated_operand_has_an_index_of_size_one_to_itself() -> None:
    diagram = from_einsum("...i,...i->...i", shapes=[(1, 3), (5, 3)])
    own = diagram.index_by_name["batch1_A"]
    assert (own.size, own.tex, diagram.node_by_name["A"].indices) == (1, "1", ("batch1_A", "i"))


def test_an_ellipsis_missing_from_the_output_is_summed_as_in_pytorch() -> None:
    diagram = from_einsum("...i->i", shapes=[(2, 4, 3)])
    assert (diagram.output, len(diagram.indices)) == (("i",), 3)


@pytest.mark.parametrize(
    ("equation", "arguments", "message"),
    [
        ("i...->i", {}, "the ellipsis at position 1 stands for as many indices as the shapes say"),
        ("ij,jk", {"names": ("A",)}, "2 operands but 1 names, ['A']."),
        ("ij,jk", {"parameters": (2,)}, "no operand 2 to mark as a parameter; they are counted "),
        ("ij,jk", {"parameters": (-1,)}, "no operand -1 to mark as a parameter"),
        ("ij,jk", {"shapes": [(2, 3)]}, "2 operands but 1 shapes."),
        (
            "ij,jk",
            {"shapes": [(2, 3), (3, 4, 5)]},
            "operand 1 (B) is 'jk', 2 letters, but its shape (3, 4, 5) has order 3.",
        ),
        ("ij", {"shapes": [(2,)]}, "operand 0 (A) is 'ij', 2 letters, but its shape (2,) has"),
        ("i...j", {"shapes": [(2,)]}, "operand 0 (A) is 'i...j', 2 letters, but its shape (2,)"),
    ],
)
def test_arguments_that_do_not_fit_the_equation_are_refused(
    equation: str, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(EinsumError, match=re.escape(f"Einsum {equation!r}: {message}")):
        from_einsum(equation, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("equation", "arguments", "message"),
    [
        (
            "ij,jk",
            {"shapes": [(2, 3), (4, 5)]},
            "two sizes: 3 on operand 0 (A), position 1, and 4 on operand 1 (B), position 0.",
        ),
        (
            "ij",
            {"shapes": [(2, 3)], "sizes": {"i": 4}},
            "letter 'i' has two sizes: 4 in sizes, and 2 on operand 0 (A), position 0.",
        ),
        (
            "...i,...i",
            {"shapes": [(2, 3), (4, 3)]},
            "letter 'batch1' has two sizes: 2 on operand 0 (A), position 0, and 4 on operand 1",
        ),
        ("ij", {"sizes": {"z": 4}}, "a size for 'z', which is on no operand; the operands have: i"),
        (",", {"sizes": {"z": 4}}, "which is on no operand; the operands have: none."),
        ("ij", {"sizes": {"j": 0}}, "letter 'j' must be a positive integer, got 0."),
        (
            "ij",
            {"shapes": [(2, -3)]},
            "letter 'j' on operand 0 (A), position 1 must be a positive integer, got -3.",
        ),
    ],
)
def test_sizes_that_contradict_are_refused_with_both_numbers(
    equation: str, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(SizeError, match=re.escape(message)):
        from_einsum(equation, **arguments)  # type: ignore[arg-type]


def test_two_operands_of_one_name_are_refused() -> None:
    with pytest.raises(DiagramError, match="2 times the node, convolution or region 'A'"):
        from_einsum("ij,jk", names=("A", "A"))


def test_a_region_cannot_be_written_as_one_einsum() -> None:
    plain = from_einsum("ij,jk->ik", name="layer")
    barred = replace(plain, regions=(Region("R", ("A", "B"), Function("relu")),))
    with pytest.raises(EinsumError, match=r"'layer' has the region 'R' \(relu\).*einsum_program"):
        to_einsum(barred)


def test_a_convolution_cannot_be_written_as_an_einsum() -> None:
    diagram = Diagram(
        "filter",
        (Index("h"), Index("u"), Index("y")),
        (Node("X", ("h",), Role.DATA), Node("K", ("u",))),
        output=("y",),
        convolutions=(Convolution("rows", "h", "u", "y"),),
    )
    with pytest.raises(EinsumError, match=r"'filter' has the convolution 'rows'.*to_source"):
        to_einsum(diagram)


def test_a_diagram_without_nodes_cannot_be_written() -> None:
    with pytest.raises(EinsumError, match="'empty' has no nodes, an einsum needs at least one"):
        to_einsum(Diagram("empty", (), (), ()))
