import pytest

from rankscope.diagrams import Diagram, Index, Node, Role
from rankscope.diagrams.families import matrix_product
from rankscope.drawing import ShapeKind, lay_out, lint
from rankscope.drawing.layout import diameter


def canonical() -> Diagram:
    """A train of two isometries that point at a core."""
    return Diagram(
        "canonical",
        tuple(Index(name) for name in "ijkrs"),
        (
            Node("P", ("i", "r"), narrow_side="r"),
            Node("C", ("r", "j", "s"), Role.CORE),
            Node("Q", ("s", "k"), narrow_side="s"),
        ),
        ("i", "j", "k"),
    )


@pytest.mark.parametrize(
    ("role", "kind"),
    [
        (Role.DATA, ShapeKind.SQUARE),
        (Role.PARAMETER, ShapeKind.CIRCLE),
        (Role.CORE, ShapeKind.CIRCLE),
        (Role.RESULT, ShapeKind.CIRCLE),
        (Role.CONSTANT, ShapeKind.PILL),
    ],
)
def test_the_role_decides_shape_and_style(role: Role, kind: ShapeKind) -> None:
    diagram = Diagram("one", (Index("i"),), (Node("A", ("i",), role),), ("i",))
    scene = lay_out(diagram)
    assert (scene.shapes[0].kind, scene.shapes[0].style) == (kind, role.value)
    assert scene.labels[0].style == f"on-{role.value}"
    assert scene.shapes[0].description == f"tensor A [i], {role.value}"
    assert lint(scene) == ()


def test_the_tip_of_an_isometry_points_along_its_narrow_side() -> None:
    scene = lay_out(canonical())
    by_name = {shape.name: shape for shape in scene.shapes}
    assert by_name["P"].kind is by_name["Q"].kind is ShapeKind.TRIANGLE
    assert by_name["P"].angle == 0.0
    assert abs(by_name["Q"].angle) == 180.0
    assert lint(scene) == ()


def test_all_tensors_grow_together_until_the_longest_name_fits() -> None:
    assert diameter(matrix_product()) == 54.0
    diagram = Diagram(
        "long",
        tuple(Index(name) for name in "ijk"),
        (Node("query_projection", ("i", "j")), Node("W", ("j", "k"))),
        ("i", "k"),
    )
    scene = lay_out(diagram)
    assert {shape.width for shape in scene.shapes} == {diameter(diagram)}
    assert diameter(diagram) > 54.0
    assert lint(scene) == ()
