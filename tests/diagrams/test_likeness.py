from dataclasses import replace

import pytest

from rankscope.diagrams import (
    Convolution,
    Diagram,
    Function,
    Index,
    Node,
    Region,
    Role,
    Step,
    Sum,
    Term,
)
from rankscope.diagrams.repeats import step_key

INDICES = (Index("i", 5, "I"), Index("k", 3), Index("o", 3), Index("j", 4))
DATA, KERNEL = Node("X", ("i", "j"), Role.DATA, array="x"), Node("K", ("k", "j"), array="w1")
BASE = Diagram(
    "base",
    INDICES,
    (DATA, KERNEL),
    output=("o",),
    convolutions=(Convolution("c", "i", "k", "o"),),
    regions=(Region("R", ("X", "K", "c"), Function("relu")),),
)


def with_kernel(kernel: Node) -> Diagram:
    return replace(BASE, nodes=(DATA, kernel))


def with_region(region: Region) -> Diagram:
    return replace(BASE, regions=(region,))


DIFFERENT = [
    replace(BASE, indices=(Index("i", 5, "Z"), *INDICES[1:])),
    replace(BASE, indices=(*INDICES[:3], Index("j", 6))),
    replace(BASE, indices=(*INDICES[:3], Index("j", 4, label="J"))),
    with_kernel(replace(KERNEL, role=Role.CORE)),
    with_kernel(replace(KERNEL, array="v1")),
    with_kernel(replace(KERNEL, label="L")),
    with_kernel(replace(KERNEL, indices=("j", "k"))),
    with_kernel(replace(KERNEL, narrow_side="k")),
    with_kernel(replace(KERNEL, rows=(0, 3))),
    replace(BASE, nodes=(replace(DATA, is_one_hot=True), KERNEL)),
    replace(BASE, convolutions=(Convolution("c", "i", "k", "o", padding_mode="circular"),)),
    replace(BASE, convolutions=(Convolution("c", "k", "i", "o", 1, (2, 2)),)),
    with_region(Region("R", ("X", "K", "c"), Function("tanh"))),
    with_region(Region("R", ("X", "K", "c"), Function("relu"), scale="I")),
    with_region(Region("R", ("X", "K", "c"), Function("relu"), label="L")),
    replace(BASE, regions=()),
]


@pytest.mark.parametrize("other", DIFFERENT)
def test_any_difference_in_the_picture_makes_steps_different(other: Diagram) -> None:
    assert step_key(Step("s", other)) != step_key(Step("s", BASE))


def test_names_of_indices_nodes_and_regions_do_not_count_but_their_places_do() -> None:
    renamed = Diagram(
        "other",
        (Index("a", 5, "I"), Index("b", 3), Index("c", 3), Index("d", 4)),
        (
            Node("X2", ("a", "d"), Role.DATA, label="X", array="y"),
            Node("K", ("b", "d"), array="w7"),
        ),
        output=("c",),
        convolutions=(Convolution("star", "a", "b", "c"),),
        regions=(Region("R9", ("X2", "K", "star"), Function("relu")),),
    )
    base = replace(BASE, nodes=(replace(DATA, label="X"), KERNEL))
    assert step_key(Step("layer3", renamed)) == step_key(Step("layer0", base))


def test_coefficients_and_labels_of_steps_count() -> None:
    def total(coefficient: float, label: str) -> Step:
        return Step("s", Sum("sum", (Term(BASE, coefficient),)), label)

    assert step_key(total(1.0, "Y_1")) == step_key(total(1.0, "Y_2"))
    assert step_key(total(1.0, "Y_1")) != step_key(total(2.0, "Y_1"))
    assert step_key(total(1.0, "Y_1")) != step_key(total(1.0, "Z_1"))
    assert step_key(total(1.0, "Y_1")) != step_key(Step("s", BASE, "Y_1"))
