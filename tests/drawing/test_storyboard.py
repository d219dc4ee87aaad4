import pytest

from rankscope.diagrams import (
    Diagram,
    Greedy,
    Index,
    Network,
    Node,
    Plan,
    Role,
    Step,
    Sum,
    Term,
    plan_contraction,
)
from rankscope.drawing import (
    Scene,
    Shape,
    ShapeKind,
    describe_steps,
    frame_sequences,
    lint,
    plain_caption,
    storyboard,
)
from rankscope.drawing.animation import of_one_size, totals
from rankscope.errors import SizeError


def chain(*sizes: int) -> Diagram:
    letters = "abcdefghij"[: len(sizes)]
    nodes = tuple(
        Node(f"M{k}", tuple(letters[k : k + 2]), label=rf"\mathbf{{M}}_{{{k}}}")
        for k in range(len(sizes) - 1)
    )
    indices = tuple(Index(name, size) for name, size in zip(letters, sizes, strict=True))
    return Diagram("chain", indices, nodes, (letters[0], letters[-1]), title="Chain")


def captions(scene: Scene, style: str) -> list[str]:
    return [label.text for label in scene.labels if label.style == style]


def test_every_frame_has_its_number_formula_and_cost_in_order() -> None:
    board = storyboard(chain(2, 3, 4, 5))
    assert captions(board, "caption") == [
        "start",
        r"$\mathbf{T}_{1} = \sum_{b}\,\mathbf{M}_{0}\,\mathbf{M}_{1}$",
        r"$\mathbf{Y} = \sum_{c}\,\mathbf{T}_{1}\,\mathbf{M}_{2}$",
    ]
    assert captions(board, "muted") == [
        "$0$",
        r"$a=2,\ \ b=3,\ \ c=4,\ \ d=5$",
        "$1$",
        f"{2 * 2 * 3 * 4} FLOP,  8 values",
        "$2$",
        f"{2 * 2 * 4 * 5} FLOP,  10 values",
    ]
    heights = [label.y for label in board.labels if label.style == "caption"]
    assert heights == sorted(heights)
    assert lint(board) == ()


def test_formulas_start_on_the_left_and_costs_end_on_the_right_of_all_frames() -> None:
    board = storyboard(chain(2, 3, 4, 5))
    formulas = [label for label in board.labels if label.style == "caption"]
    costs = [label for label in board.labels if label.style == "muted"][1::2]
    assert len({round(label.box[0], 6) for label in formulas}) == 1
    assert len({round(label.box[2], 6) for label in costs}) == 1
    assert all(formula.box[2] < costs[0].box[0] for formula in formulas)


def test_names_of_all_frames_differ() -> None:
    board = storyboard(chain(2, 3, 4))
    assert [shape.name for shape in board.shapes] == ["1.0:M0", "1.0:M1", "1.1:T1"]


def test_the_story_is_told_in_words_with_its_total() -> None:
    board = storyboard(chain(2, 3, 4))
    assert board.title == "Contraction of Chain"
    assert "Tensor diagram Chain: 2 tensors." in board.description
    assert board.description.endswith(
        "; 48 FLOP, 8 values. In total 48 FLOP, largest intermediate 8 values."
    )
    (sequence,) = frame_sequences(chain(2, 3, 4), plan_contraction)
    assert describe_steps([sequence]) in board.description
    assert plain_caption(sequence.frames[1]).endswith("; 48 FLOP, 8 values.")
    assert totals([sequence]) == "48 FLOP, largest intermediate 8 values"


def test_the_planner_decides_the_order() -> None:
    asked: list[Diagram] = []

    def planner(diagram: Diagram) -> Plan:
        asked.append(diagram)
        return plan_contraction(diagram, Greedy())

    storyboard(chain(2, 3, 4), planner=planner)
    assert asked == [chain(2, 3, 4)]


def layer(number: int) -> Step:
    nodes = (
        Node("X", ("i",), Role.DATA, array=f"x{number}"),
        Node("W", ("i", "j"), array=f"w{number}"),
    )
    body = Diagram("layer", (Index("i", 4), Index("j", 4)), nodes, ("j",))
    return Step(f"x{number + 1}", body, rf"\mathbf{{X}}_{{{number + 1}}}")


def test_a_network_has_one_heading_for_every_chapter() -> None:
    terms = (Term(chain(2, 3, 4)), Term(chain(2, 5, 4)))
    board = storyboard(Network("net", (layer(0), layer(1), Step("sum", Sum("sum", terms)))))
    headings = [label.text for label in board.labels if label.size == 25 and ",  " in label.text]
    assert headings == [
        r"$\mathbf{X}_{1}$,  $\times\,2$",
        r"$\mathbf{sum}$,  term 1 of 2",
        r"$\mathbf{sum}$,  term 2 of 2",
    ]
    assert lint(board) == ()
    # Two layers of 2·4·4 operations, and two products.
    flops = 2 * 2 * 4 * 4 + 2 * 2 * 3 * 4 + 2 * 2 * 5 * 4
    assert f"In total {flops} FLOP" in board.description


def test_many_frames_are_set_in_columns() -> None:
    board = storyboard(chain(2, 3, 4, 5, 6, 7, 8, 9, 10))
    left, top, right, bottom = board.box
    assert bottom - top < 2.4 * (right - left)
    assert lint(board) == ()


def test_pictures_of_one_size_show_the_same_part_of_the_plane() -> None:
    def box(x: float, width: float, height: float) -> Scene:
        return Scene("s", shapes=(Shape("A", ShapeKind.SQUARE, x, 0.0, width, height, "data"),))

    first, second = of_one_size(
        [[box(0.0, 10.0, 4.0), box(50.0, 10.0, 6.0)], [box(7.0, 2.0, 20.0)]]
    )
    assert first[0].box == first[1].box == (-5.0, -10.0, 55.0, 10.0)
    assert second[0].box == (7.0 - 30.0, -10.0, 7.0 + 30.0, 10.0)


def test_a_canvas_moves_with_its_picture() -> None:
    scene = Scene("s", canvas=(-1.0, -2.0, 3.0, 4.0))
    assert scene.box == (-1.0, -2.0, 3.0, 4.0)
    assert scene.shifted(10.0, 20.0).box == (9.0, 18.0, 13.0, 24.0)


def test_a_diagram_without_sizes_has_no_best_order() -> None:
    unsized = Diagram("unsized", (Index("i"),), (Node("A", ("i",)), Node("B", ("i",))), ())
    with pytest.raises(SizeError, match="i"):
        storyboard(unsized)
