from dataclasses import replace

from rankscope.diagrams import (
    Diagram,
    Index,
    Network,
    Node,
    Role,
    Step,
    Sum,
    Term,
    collapse,
    nodes_of,
)
from rankscope.drawing.page import step_tex, with_step_labels


def layer(number: int) -> Step:
    nodes = (
        Node("X", ("i",), Role.DATA, array=f"x{number}"),
        Node("W", ("i", "j"), array=f"w{number}"),
    )
    body = Diagram("layer", (Index("i", 4), Index("j", 4)), nodes, ("j",))
    return Step(f"x{number + 1}", body, rf"\mathbf{{X}}_{{{number + 1}}}")


def read_labels(step: Step) -> list[str | None]:
    return [node.label for node in nodes_of(step.body) if node.role is Role.DATA]


def test_a_step_without_a_label_has_its_name() -> None:
    assert step_tex(layer(0)) == r"\mathbf{X}_{1}"
    assert step_tex(replace(layer(0), label=None)) == r"\mathbf{x}_{1}"


def test_nodes_carry_the_symbol_of_the_step_they_read() -> None:
    head = Step("head", Sum("s", (Term(layer(1).body), Term(layer(0).body))))  # type: ignore[arg-type]
    network = Network("net", (layer(0), head))
    first, second = with_step_labels(collapse(network))
    assert read_labels(first.steps[0]) == [None]
    assert read_labels(second.steps[0]) == [r"\mathbf{X}_{1}", None]


def test_what_follows_a_repeated_block_shows_the_symbol_of_the_block_that_is_drawn() -> None:
    end = replace(layer(3), name="end", label="E")
    network = Network("net", (*map(layer, range(3)), end))
    block, last = with_step_labels(collapse(network))
    assert block.count == 3
    assert read_labels(block.steps[0]) == [None]
    assert block.repetitions[1:] == collapse(network)[0].repetitions[1:]
    assert read_labels(last.steps[0]) == [r"\mathbf{X}_{1}"]
