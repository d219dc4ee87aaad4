from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams import (
    Convolution,
    Diagram,
    Function,
    Index,
    Network,
    Node,
    Region,
    Role,
    Step,
    Sum,
    Term,
    plan_contraction,
)
from rankscope.drawing import contraction_frames, frame_sequences, largest_intermediate, total_flops
from rankscope.errors import ContractionError


def attention() -> Diagram:
    sizes = {"n": 5, "m": 6, "f": 8, "g": 8, "e": 8, "d": 4, "c": 4}
    indices = tuple(Index(name, size, name.upper()) for name, size in sizes.items())
    data = {"Xq": ("n", "f"), "Xk": ("m", "g"), "Xv": ("m", "e")}
    weights = {"Q": ("f", "d"), "K": ("g", "d"), "V": ("e", "c")}
    nodes = [Node(name, held, Role.DATA, r"\mathbf{X}") for name, held in data.items()]
    nodes += [Node(f"W{k}", held, label=rf"\mathbf{{W}}^{{{k}}}") for k, held in weights.items()]
    region = Region("A", ("Xq", "WQ", "WK", "Xk"), Function("softmax"), ("m",), scale="D**-0.5")
    return Diagram("attention", indices, tuple(nodes), ("n", "c"), regions=(region,))


def test_attention_is_told_as_a_textbook_would() -> None:
    diagram = attention()
    frames = contraction_frames(diagram, plan_contraction(diagram))
    assert [frame.formula for frame in frames] == [
        "start",
        r"$\mathbf{Q} = \sum_{F}\,\mathbf{X}\,\mathbf{W}^{Q}$",
        r"$\mathbf{K} = \sum_{G}\,\mathbf{X}\,\mathbf{W}^{K}$",
        r"$\mathbf{S} = \sum_{D}\,\mathbf{Q}\,\mathbf{K}$",
        r"$\mathbf{A} = \mathrm{softmax}_{M}(\,\mathbf{S}\,/\sqrt{D}\,)$",
        r"$\mathbf{V} = \sum_{E}\,\mathbf{X}\,\mathbf{W}^{V}$",
        r"$\mathbf{Y} = \sum_{M}\,\mathbf{A}\,\mathbf{V}$",
    ]
    # Multiplications and additions of X W^Q: two for each of n, f and d.
    assert frames[1].cost == f"{2 * 5 * 8 * 4} FLOP,  {5 * 4} values"
    assert frames[4].cost == "30 values"
    assert frames[1].merged == ("Xq", "WQ")
    assert frames[4].merged == (frames[3].result,)
    assert frames[4].result == "A"


def test_every_frame_is_one_move_from_the_last() -> None:
    diagram = attention()
    frames = contraction_frames(diagram, plan_contraction(diagram))
    for before, after in pairwise(frames):
        kept = [n.name for n in before.diagram.nodes if n.name not in after.merged]
        assert {n.name for n in after.diagram.nodes} == {*kept, after.result}
        assert all(name in before.diagram.node_by_name for name in after.merged)
    (value,) = frames[-1].diagram.nodes
    assert sorted(value.indices) == ["c", "n"]


@settings(deadline=None, max_examples=60)
@given(
    words=st.lists(st.text("abcde", max_size=3), min_size=1, max_size=5),
    is_open=st.tuples(*[st.booleans()] * 5),
    num_inside=st.integers(0, 3),
)
def test_any_network_ends_as_one_tensor_with_the_plans_indices_on_the_way(
    words: list[str], is_open: tuple[bool, ...], num_inside: int
) -> None:
    used = sorted(set("".join(words)))
    nodes = tuple(Node(f"T{place}", tuple(word)) for place, word in enumerate(words))
    inside = tuple(node.name for node in nodes[:num_inside])
    diagram = Diagram(
        "random",
        tuple(Index(name, 2) for name in used),
        nodes,
        tuple(name for name in used if is_open["abcde".index(name)]),
        regions=(Region("R", inside, Function("tanh")),) if inside else (),
    )
    plan = plan_contraction(diagram)
    frames = contraction_frames(diagram, plan)
    moves = [frame for frame in frames[1:] if frame.result != "R"]
    for frame, move in zip(moves, plan.contractions, strict=True):
        made = frame.diagram.node_by_name[frame.result]
        assert sorted(made.indices) == sorted(move.output)
    assert len(frames) == 1 + len(plan.contractions) + len(diagram.regions)
    assert len(frames[-1].diagram.nodes) == 1
    labels = [frame.formula.partition(" = ")[0] for frame in frames[1:]]
    assert len(set(labels)) == len(labels)


def test_a_name_that_the_diagram_has_already_is_not_used_again() -> None:
    letters = "ijkl"
    nodes = tuple(Node(f"T{place}", tuple(letters[place : place + 2])) for place in (0, 1, 2))
    diagram = Diagram("chain", tuple(Index(name, 2) for name in letters), nodes, ("i", "l"))
    frames = contraction_frames(diagram, plan_contraction(diagram))
    assert len(frames) == 3
    assert frames[1].result == "T3"


def test_convolutions_disappear_when_they_are_carried_out() -> None:
    diagram = Diagram(
        "layer",
        (Index("h", 5), Index("u", 2), Index("y", 4), Index("s", 3)),
        (Node("X", ("s", "h"), Role.DATA), Node("G", ("s", "u"))),
        output=("y",),
        convolutions=(Convolution("c", "h", "u", "y"),),
    )
    frames = contraction_frames(diagram, plan_contraction(diagram))
    assert frames[-1].diagram.convolutions == ()
    assert frames[-1].diagram.nodes[0].indices == ("y",)


def test_a_plan_for_another_diagram_is_refused() -> None:
    other = Diagram("other", (Index("i", 2),), (Node("Z", ("i",)),), ("i",))
    message = r"another diagram than 'attention': it contracts \[\(None, \('Z',\)\)\]"
    with pytest.raises(ContractionError, match=message):
        contraction_frames(attention(), plan_contraction(other))


def matrix(name: str, read: str, weight: str) -> Diagram:
    nodes = (Node("X", ("i",), Role.DATA, array=read), Node("W", ("i", "j"), array=weight))
    return Diagram(name, (Index("i", 4), Index("j", 4)), nodes, ("j",))


def bias(name: str) -> Diagram:
    return Diagram(name, (Index("j", 4),), (Node("b", ("j",), array=f"{name}.bias"),), ("j",))


def test_a_network_has_a_chapter_for_every_diagram_and_repeats_once() -> None:
    steps = tuple(
        Step(f"h{k + 1}", matrix("layer", f"h{k}", f"w{k}"), rf"\mathbf{{H}}_{{{k + 1}}}")
        for k in range(3)
    )
    head = Step("head", Sum("sum", (Term(matrix("head", "h3", "v")), Term(bias("head")))))
    sequences = frame_sequences(Network("model", (*steps, head)), plan_contraction)
    assert [sequence.heading for sequence in sequences] == [
        r"$\mathbf{H}_{1}$,  $\times\,3$",
        r"$\mathbf{head}$,  term 1 of 2",
    ]
    assert [sequence.count for sequence in sequences] == [3, 1]
    assert sequences[0].frames[-1].formula.startswith(r"$\mathbf{H}_{1} = ")
    assert total_flops(sequences) == 4 * 2 * 4 * 4
    assert largest_intermediate(sequences) == 4


def test_a_sum_has_a_chapter_for_every_term() -> None:
    total = Sum("sum", (Term(matrix("a", "x", "w")), Term(matrix("b", "y", "v"))))
    headings = [sequence.heading for sequence in frame_sequences(total, plan_contraction)]
    assert headings == ["term 1 of 2", "term 2 of 2"]


def test_a_value_that_needs_no_move_is_still_a_story_of_one_frame() -> None:
    (sequence,) = frame_sequences(bias("b"), plan_contraction)
    assert len(sequence.frames) == 1
    (sequence,) = frame_sequences(Sum("sum", (Term(bias("b")),)), plan_contraction)
    assert len(sequence.frames) == 1
