import pytest

from rankscope.diagrams import Diagram, Index, Network, Node, Role, Step, Sum, Term, describe
from rankscope.drawing import Hints, Scene, Side, View, compose, lay_out, lint
from rankscope.drawing.page import WIDEST_LINE, sign_text
from rankscope.errors import LayoutError


def matrix(name: str, *, role: Role = Role.PARAMETER) -> Diagram:
    indices = (Index("i", 2, "I"), Index("k", 3, "K"))
    return Diagram(name, indices, (Node(name, ("i", "k"), role),), ("i", "k"))


def product() -> Diagram:
    indices = (Index("i", 2, "I"), Index("j", 4, "J"), Index("k", 3, "K"))
    nodes = (Node("A", ("i", "j")), Node("B", ("j", "k")))
    return Diagram("product", indices, nodes, ("i", "k"), title="Matrix product")


def low_rank(*coefficients: float) -> Sum:
    terms = [Term(product() if k % 2 else matrix("W"), c) for k, c in enumerate(coefficients)]
    return Sum("update", tuple(terms), "Low-rank update")


def texts(scene: Scene, style: str) -> list[str]:
    return [label.text for label in scene.labels if label.style == style]


def test_a_diagram_is_laid_out_as_it_is_and_describes_itself() -> None:
    scene, plain = compose(product()), lay_out(product())
    assert (scene.shapes, scene.wires, scene.labels) == (plain.shapes, plain.wires, plain.labels)
    assert scene.name == "product"
    assert scene.title == "Matrix product"
    assert scene.description == describe(product())


def test_hints_and_view_reach_the_diagram() -> None:
    hinted = compose(product(), Hints(legs={"k": Side.DOWN}), View(show_sizes=True))
    assert (
        hinted.wires
        == lay_out(product(), Hints(legs={"k": Side.DOWN}), View(show_sizes=True)).wires
    )
    assert any("4" in label.text for label in hinted.labels)


def test_terms_stand_on_one_line_with_their_signs_between_them() -> None:
    scene = compose(low_rank(1.0, -0.5, 1.0))
    assert texts(scene, "caption") == [r"$-\,0.5$", "$+$"]
    assert {shape.y for shape in scene.shapes} == {0.0}
    assert [shape.name for shape in scene.shapes] == [
        "term 1:W",
        "term 2:A",
        "term 2:B",
        "term 3:W",
    ]
    assert lint(scene) == ()
    assert scene.description == describe(low_rank(1.0, -0.5, 1.0))


def test_signs_stand_between_the_terms_they_join() -> None:
    scene = compose(low_rank(1.0, 1.0))
    (plus,) = [label for label in scene.labels if label.style == "caption"]
    first, *others = scene.shapes
    assert first.box[2] < plus.box[0]
    assert all(plus.box[2] < shape.box[0] for shape in others)


def test_a_first_term_with_a_coefficient_shows_it() -> None:
    assert texts(compose(low_rank(-1.0, 1.0)), "caption") == ["$-$", "$+$"]


def test_a_wide_sum_is_broken_into_lines() -> None:
    scene = compose(low_rank(*[1.0] * 12))
    assert scene.box[2] - scene.box[0] <= WIDEST_LINE
    assert len({shape.y for shape in scene.shapes}) > 1
    assert lint(scene) == ()


def test_numbers_before_terms_are_written_as_mathematics() -> None:
    assert sign_text(2.0, is_first=True) == "2"
    assert sign_text(2.0, is_first=False) == r"+\,2"
    assert sign_text(-2.5e-7, is_first=False) == r"-\,2.5\times 10^{-7}"
    assert sign_text(0.0, is_first=False) == r"+\,0"


@pytest.mark.parametrize(
    ("hints", "view"),
    [
        (Hints(positions={"A": (0.0, 0.0)}), View()),
        (Hints(legs={"A": Side.UP}), View()),
        (Hints(label_sides={"A": Side.UP}), View()),
        (Hints(), View(cut=("A",))),
    ],
)
def test_hints_for_several_diagrams_are_refused(hints: Hints, view: View) -> None:
    network = Network("net", (Step("y", product()),))
    for drawable in (low_rank(1.0, 1.0), network):
        with pytest.raises(LayoutError, match=rf"'{drawable.name}' holds several, so 'A'"):
            compose(drawable, hints, view)


def test_a_network_is_composed_with_its_own_description() -> None:
    network = Network("net", (Step("y", product()), Step("z", low_rank(1.0, 1.0))), "Model")
    scene = compose(network)
    assert (scene.name, scene.title) == ("net", "Model")
    assert scene.description == describe(network)
    assert texts(scene, "caption") == [r"$\mathbf{y}$", "$=$", r"$\mathbf{z}$", "$=$", "$+$"]
    assert lint(scene) == ()
