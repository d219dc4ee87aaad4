from dataclasses import replace

import pytest

from rankscope.diagrams import (
    Diagram,
    Index,
    Network,
    Node,
    Role,
    Step,
    Sum,
    Term,
    as_network,
    diagrams_of,
    drawable_with_sizes,
    entries,
    input_arrays,
)
from rankscope.errors import DiagramError, SizeError


def linear(name: str, source: str, rows: int | None = 4) -> Diagram:
    return Diagram(
        name,
        (Index("n", rows, "N"), Index("f", 3, "F"), Index("o", 3, "F")),
        (Node("X", ("n", "f"), Role.DATA, array=source), Node("W", ("f", "o"), array=f"{name}.W")),
        output=("n", "o"),
    )


def test_what_no_step_computes_must_be_given() -> None:
    network = Network("two", (Step("a", linear("a", "x")), Step("b", linear("b", "a"))))
    assert input_arrays(network) == ("x",)
    assert [diagram.name for diagram in diagrams_of(network)] == ["a", "b"]


def test_a_diagram_is_a_network_of_one_step() -> None:
    network = as_network(linear("a", "x"))
    assert [step.name for step in network.steps] == ["result"]
    assert as_network(network) is network


def test_a_step_cannot_read_what_is_not_computed_yet() -> None:
    with pytest.raises(DiagramError, match="Step 'a' of network 'n' reads 'b' before"):
        Network("n", (Step("a", linear("a", "b")), Step("b", linear("b", "x"))))
    with pytest.raises(DiagramError, match="reads 'a' before"):
        Network("n", (Step("a", linear("a", "a")),))


def test_steps_have_different_names_and_there_is_one_at_least() -> None:
    with pytest.raises(DiagramError, match="two steps named 'a'"):
        Network("n", (Step("a", linear("a", "x")), Step("a", linear("b", "x"))))
    with pytest.raises(DiagramError, match="'n' has no steps"):
        Network("n", ())


def test_a_value_is_read_whole() -> None:
    with pytest.raises(SizeError, match=r"reads 'a' through node 'X' of 15 entries, but it has 12"):
        Network("n", (Step("a", linear("a", "x")), Step("b", linear("b", "a", rows=5))))
    # An unknown size is not a wrong one.
    Network("n", (Step("a", linear("a", "x")), Step("b", linear("b", "a", rows=None))))


def test_terms_of_a_sum_have_the_same_open_legs() -> None:
    terms = (Term(linear("a", "x")), Term(linear("b", "x", rows=5), 0.5))
    with pytest.raises(DiagramError, match=r"of sizes \(4, 3\), but 'b' has .* of sizes \(5, 3\)"):
        Sum("s", terms)
    with pytest.raises(DiagramError, match="Sum 's' has no terms"):
        Sum("s", ())


def test_the_values_of_a_one_hot_node_are_not_its_entries() -> None:
    diagram = Diagram(
        "embedding",
        (Index("n", 4), Index("v", 100), Index("f", 3)),
        (Node("T", ("n", "v"), Role.DATA, is_one_hot=True), Node("E", ("v", "f"))),
        output=("n", "f"),
    )
    assert entries(diagram, diagram.nodes[0]) == 4
    assert entries(diagram, diagram.nodes[1]) == 300


def test_sizes_reach_every_diagram_and_unknown_ones_are_named() -> None:
    network = Network(
        "n",
        (
            Step("a", Sum("s", (Term(linear("a", "x", None)),))),
            Step("b", linear("b", "a", None)),
        ),
    )
    sized = drawable_with_sizes(network, {"N": 7})
    assert all(diagram.sizes["n"] == 7 for diagram in diagrams_of(sized))
    assert drawable_with_sizes(network, {}) == network
    with pytest.raises(SizeError, match="'n' has no index or symbol 'Z'"):
        drawable_with_sizes(network, {"Z": 7})


def test_some_rows_of_a_value_may_be_read() -> None:
    """A node with rows reads those rows only, so their number decides what fits."""
    first = Step("a", linear("a", "x", rows=6))
    reader = linear("b", "a", rows=2)
    node = replace(reader.nodes[0], rows=(4, 6))
    Network("n", (first, Step("b", replace(reader, nodes=(node, reader.nodes[1])))))
    node = replace(node, rows=(3, 6))
    with pytest.raises(SizeError, match=r"reads 'a' through node 'X' of 6 entries, but it has 9"):
        Network("n", (first, Step("b", replace(reader, nodes=(node, reader.nodes[1])))))
