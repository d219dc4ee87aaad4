import json
import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams import (
    Convolution,
    Diagram,
    Drawable,
    Function,
    Index,
    IndexKind,
    Network,
    Node,
    Region,
    Role,
    Step,
    Sum,
    Term,
    from_dict,
    to_dict,
)
from rankscope.errors import DiagramError, RankscopeError, SizeError

TEXTS = st.text(max_size=6)
MAYBE = st.none() | TEXTS


# Diagrams are built in the tests, not in strategies: beartype draws random numbers of its own.
def any_diagram(data: st.DataObject) -> Diagram:
    """Any nodes on any indices, with a plain region, a normalizing one and all optional fields."""
    draw = data.draw
    names = draw(st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=5, unique=True))
    indices = tuple(
        Index(
            name,
            draw(st.none() | st.integers(1, 9)),
            None,
            draw(st.sampled_from(IndexKind)),
            draw(MAYBE),
        )
        for name in names
    )
    nodes = tuple(
        Node(
            f"node{place}",
            tuple(draw(st.lists(st.sampled_from(names), max_size=3))),
            draw(st.sampled_from(Role)),
            draw(MAYBE),
            draw(MAYBE),
            draw(st.none() | st.tuples(st.integers(0, 3), st.integers(4, 9))),
            draw(st.booleans()),
            fill=draw(st.floats(allow_nan=False)),
        )
        for place in range(draw(st.integers(1, 4)))
    )
    held = list(dict.fromkeys(index for node in nodes for index in node.indices))
    output = tuple(draw(st.lists(st.sampled_from(held), unique=True))) if held else ()
    bare = Diagram("bare", indices, nodes, output, title=draw(MAYBE))
    return replace(bare, name=draw(TEXTS), regions=any_regions(data, bare))


def any_regions(data: st.DataObject, diagram: Diagram) -> tuple[Region, ...]:
    inner = Region("inner", (diagram.nodes[0].name,), Function("gelu", (("approximate", "tanh"),)))
    leaving = replace(diagram, regions=(inner,)).structure.legs["inner"]
    is_normalizing = data.draw(st.booleans())
    if leaving and is_normalizing:
        over = (data.draw(st.sampled_from(leaving)),)
        function = Function("layer_norm", (("eps", data.draw(st.floats(allow_nan=False))),))
        inner = replace(inner, function=function, over=over, scale="2**-0.5")
        inner = replace(inner, causal=(leaving[0], leaving[-1]), label=data.draw(MAYBE))
    outer = Region("outer", ("inner",), Function("relu"))
    return ((), (inner,), (inner, outer))[data.draw(st.integers(0, 2))]


def any_sum(data: st.DataObject) -> Sum:
    diagram = any_diagram(data)
    coefficients = data.draw(st.lists(st.floats(allow_nan=False), min_size=1, max_size=2))
    return Sum("sum", tuple(Term(diagram, value) for value in coefficients), data.draw(MAYBE))


def any_network(data: st.DataObject) -> Network:
    first = Step("one", any_diagram(data), r"\mathbf{h}")
    return Network("network", (first, Step("two", any_sum(data))), data.draw(MAYBE))


CONVOLUTION = Diagram(
    "convolution",
    (Index("h", 8, "H"), Index("k", 3), Index("o", 4, kind=IndexKind.SPACE)),
    (Node("X", ("h",), Role.DATA), Node("K", ("k",), narrow_side="k")),
    ("o",),
    (Convolution("c", "h", "k", "o", stride=2, padding=(1, 1), padding_mode="circular"),),
)


def through_json(drawable: Drawable) -> Drawable:
    text = json.dumps(to_dict(drawable), allow_nan=False)
    return from_dict(json.loads(text))


@settings(deadline=None, max_examples=40)
@pytest.mark.parametrize("make", [any_diagram, any_sum, any_network])
@given(data=st.data())
def test_what_is_written_is_read_back_exactly(
    make: Callable[[st.DataObject], Drawable], data: st.DataObject
) -> None:
    drawable = make(data)
    assert through_json(drawable) == drawable
    assert to_dict(through_json(drawable)) == to_dict(drawable)


def test_convolutions_are_read_back_exactly() -> None:
    assert through_json(CONVOLUTION) == CONVOLUTION


def test_every_field_of_every_part_is_written() -> None:
    document = to_dict(
        Network("n", (Step("s", Sum("sum", (Term(CONVOLUTION),))), Step("t", CONVOLUTION)))
    )
    inner = document["steps"][0]["body"]["terms"][0]["diagram"]
    written = {
        Network: document,
        Step: document["steps"][0],
        Sum: document["steps"][0]["body"],
        Term: document["steps"][0]["body"]["terms"][0],
        Diagram: inner,
        Index: inner["indices"][0],
        Node: inner["nodes"][0],
        Convolution: inner["convolutions"][0],
    }
    for kind, data in written.items():
        assert [field.name for field in fields(kind)] == [
            key for key in data if key not in ("version", "kind") or kind is Index
        ]
    barrier = Region("R", ("X", "K", "c"), Function("relu"))
    region = to_dict(replace(CONVOLUTION, regions=(barrier,)))["regions"][0]
    assert list(region) == [field.name for field in fields(Region)]
    assert list(region["function"]) == [field.name for field in fields(Function)]


def test_infinities_are_written_as_json_has_none() -> None:
    node = Node("mask", ("h",), Role.CONSTANT, fill=-math.inf)
    diagram = Diagram("d", (Index("h", 2),), (node,), ("h",))
    assert to_dict(diagram)["nodes"][0]["fill"] == {"float": "-inf"}
    assert through_json(diagram) == diagram


def spoilt(**changes: Any) -> dict[str, Any]:
    return {**to_dict(CONVOLUTION), **changes}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], r"at top: wanted an object whose kind is one of diagram, .*, got a list of 0"),
        ({}, r"at version: wanted 1, got None"),
        (spoilt(version=2), r"at version: wanted 1, got 2\. Read it with the rankscope that wrote"),
        (spoilt(version=True), r"at version: wanted 1, got True"),
        (spoilt(kind="picture"), r"at kind: wanted one of diagram, sum, network, got 'p"),
        (spoilt(kind=["diagram"]), r"at kind: .* got a list of 1"),
        ({"version": 1, "kind": "diagram"}, r"at top: name, indices, nodes, output are missing"),
        (spoilt(colour="red"), r"at top: wanted only the keys name, .*, got 'colour'"),
        (spoilt(nodes=[{"name": "X"}]), r"at nodes\[0\]: indices is missing"),
        (spoilt(output=["q"]), r"Open leg 'q' of diagram 'convolution' is on no node"),
        (spoilt(output="o"), r"at output: wanted a list, each a string, got 'o'"),
        (
            {"version": 1, "kind": "network", "name": "n", "steps": [{"name": "s", "body": 3}]},
            r"at steps\[0\]\.body: wanted an object .*, got 3",
        ),
        (
            {"version": 1, "kind": "network", "name": "n", "steps": [
                {"name": "s", "body": {"kind": "network"}}]},
            r"at steps\[0\]\.body\.kind: wanted one of diagram, sum, call, box, got 'network'",
        ),
        ({"version": 1, "kind": "sum", "name": "s", "terms": []}, r"Sum 's' has no terms"),
    ],
)  # fmt: skip
def test_documents_that_are_not_ours_are_refused_by_name(document: Any, message: str) -> None:
    with pytest.raises(DiagramError, match=message):
        from_dict(document)


def test_a_size_that_is_not_positive_is_refused() -> None:
    document = to_dict(CONVOLUTION)
    document["indices"][0]["size"] = 0
    with pytest.raises(SizeError, match=r"index 'h' must be a positive integer, got 0"):
        from_dict(document)


def test_a_scale_is_never_run_and_never_too_long() -> None:
    barrier = Region("R", ("X", "K", "c"), Function("relu"), scale="H**-0.5")
    document = to_dict(replace(CONVOLUTION, regions=(barrier,)))
    document["regions"][0]["scale"] = "__import__('os').system('true')"
    with pytest.raises(DiagramError, match=r"may hold symbols, numbers"):
        from_dict(document)
    document["regions"][0]["scale"] = "-" * 50000 + "1"
    with pytest.raises(DiagramError, match=r"has 50,001 characters; at most 200"):
        from_dict(document)


def test_regions_nested_deeper_than_python_recurses_are_read() -> None:
    document = to_dict(CONVOLUTION)
    relu = {"name": "relu", "options": []}
    document["regions"] = [{"name": "r0", "members": ["X", "K", "c"], "function": relu}]
    document["regions"] += [
        {"name": f"r{depth}", "members": [f"r{depth - 1}"], "function": relu}
        for depth in range(1, 1500)
    ]
    found = from_dict(document)
    assert isinstance(found, Diagram)
    assert len(found.regions) == 1500


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@settings(deadline=None, max_examples=150)
@given(data=st.data(), junk=JSON)
def test_hostile_documents_are_refused_and_never_crash(data: st.DataObject, junk: Any) -> None:
    """Junk anywhere in a good document: either it still means something, or we say why not."""
    document: Any = to_dict(
        Network("n", (Step("s", Sum("sum", (Term(CONVOLUTION),))), Step("t", CONVOLUTION)))
    )
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            place[key] = junk
            break
        place = place[key]
    try:
        found: Drawable | None = from_dict(document)
    except RankscopeError:
        found = None
    assert found is None or to_dict(found)["kind"] == "network"
