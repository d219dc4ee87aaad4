from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rankscope.diagrams import (
    Block,
    Diagram,
    Index,
    Network,
    Node,
    Role,
    Step,
    Sum,
    Term,
    collapse,
    expand,
    nodes_of,
)


def product(name: str, reads: tuple[str, ...], weight: str, *, size: int = 4) -> Diagram:
    data = tuple(Node(f"X{k}", ("i",), Role.DATA, array=read) for k, read in enumerate(reads))
    return Diagram(name, (Index("i", size),), (*data, Node("W", ("i",), array=weight)), ("i",))


def step(name: str, reads: tuple[str, ...], weight: str, *, size: int = 4) -> Step:
    return Step(name, product(name, reads, weight, size=size))


def network(*steps: Step) -> Network:
    return Network("network", steps)


def counts(*steps: Step) -> list[tuple[int, int]]:
    return [(len(block.steps), block.count) for block in collapse(network(*steps))]


def transformer(layers: int) -> tuple[Step, ...]:
    """Embedding, then layers of attention, residual sum, and a feed-forward step; then a head."""
    steps, value = [step("embedding", ("tokens",), "embedding.weight")], "embedding"
    for layer in range(layers):
        name = f"layers.{layer}"
        attention = step(f"{name}.attention", (value, value), f"{name}.attention.weight")
        left, right = (
            product(f"{name}.{side}", (read,), f"{name}.{side}.weight")
            for side, read in (("residual", value), ("update", f"{name}.attention"))
        )
        residual = Step(f"{name}.sum", Sum("sum", (Term(left), Term(right, 0.5))))
        forward = step(f"{name}.forward", (f"{name}.sum",), f"{name}.forward.weight")
        steps += [attention, residual, forward]
        value = f"{name}.forward"
    return (*steps, step("head", (value,), "head.weight"))


def test_twelve_layers_are_one_block_twelve_times() -> None:
    before, layers, after = collapse(network(*transformer(12)))
    assert (before.count, layers.count, after.count) == (1, 12, 1)
    assert [s.name for s in layers.steps] == [
        "layers.0.attention",
        "layers.0.sum",
        "layers.0.forward",
    ]
    assert layers.carried == (("layers.0.forward", "embedding"),)


def test_blocks_start_where_the_layer_number_changes() -> None:
    """A step before the layers that looks like their last one must not shift the blocks."""
    start = step("layers.9.forward", ("tokens",), "layers.9.forward.weight")
    layers = [redirected(s, "embedding", "layers.9.forward") for s in transformer(4)[1:-1]]
    blocks = collapse(network(start, *layers))
    assert [(len(b.steps), b.count) for b in blocks] == [(1, 1), (3, 4)]
    assert blocks[1].steps[0].name == "layers.0.attention"


def redirected(found: Step, old: str, new: str) -> Step:
    def edit(diagram: Diagram) -> Diagram:
        nodes = (replace(n, array=new) if n.array == old else n for n in diagram.nodes)
        return replace(diagram, nodes=tuple(nodes))

    if isinstance(found.body, Diagram):
        return replace(found, body=edit(found.body))
    assert isinstance(found.body, Sum)
    terms = tuple(replace(term, diagram=edit(term.diagram)) for term in found.body.terms)
    return replace(found, body=replace(found.body, terms=terms))


def test_the_first_block_may_read_the_input() -> None:
    steps = [step(f"l{k}", (f"l{k - 1}" if k else "x",), f"l{k}.weight") for k in range(5)]
    (block,) = collapse(network(*steps))
    assert block.count == 5
    assert block.carried == (("l0", "x"),)


def test_an_array_that_all_blocks_share_stays_shared() -> None:
    steps = [step(f"l{k}", (f"l{k - 1}" if k else "x", "memory"), "tied") for k in range(5)]
    (block,) = collapse(network(*steps))
    assert block.count == 5
    assert block.carried == (("l0", "x"),)


def test_sharing_must_be_the_same_in_every_block() -> None:
    def chain(*weights: str) -> list[tuple[int, int]]:
        reads = ("x", *(f"l{k}" for k in range(len(weights) - 1)))
        pairs = enumerate(zip(reads, weights, strict=True))
        return counts(*[step(f"l{k}", (read,), weight) for k, (read, weight) in pairs])

    assert chain("w0", "w0", "w1", "w2") == [(1, 2), (1, 2)]
    assert chain("w0", "w0", "w1", "w1") == [(2, 2)]
    assert chain("w0", "w1", "w0", "w1") == [(2, 2)]


def test_an_input_that_is_carried_in_one_place_and_kept_in_another_is_not_hidden() -> None:
    """Every layer reads x; the first one reads it twice, which no renaming can express."""
    steps = [step(f"l{k}", (f"l{k - 1}" if k else "x", "x"), f"l{k}.weight") for k in range(5)]
    assert counts(*steps) == [(1, 1), (1, 4)]


def test_weights_tied_inside_a_block_must_be_tied_in_every_block() -> None:
    def pair(number: int, weights: tuple[str, str]) -> tuple[Step, Step]:
        read = f"b{number - 1}" if number else "x"
        return (
            step(f"a{number}", (read,), weights[0]),
            step(f"b{number}", (f"a{number}",), weights[1]),
        )

    tied = [*pair(0, ("w0", "w0")), *pair(1, ("w1", "w1"))]
    assert counts(*tied) == [(2, 2)]
    loose = [*pair(0, ("w0", "w0")), *pair(1, ("w1", "w2"))]
    assert counts(*loose) == [(1, 1)] * 4
    # A weight that is handed on to another place in the next block is not the block's own.
    handed_on = [*pair(0, ("w0", "w1")), *pair(1, ("w1", "w2"))]
    assert counts(*handed_on) == [(1, 1)] * 4


def test_a_block_that_is_read_from_outside_ends_its_run() -> None:
    """A skip connection from layer 2 must stay visible."""
    steps = [step(f"l{k}", (f"l{k - 1}" if k else "x",), f"l{k}.weight") for k in range(6)]
    end = step("head", ("l5", "l2"), "head.weight")
    assert counts(*steps, end) == [(1, 3), (1, 3), (1, 1)]


def test_a_run_after_one_that_cannot_be_hidden_is_still_found() -> None:
    steps = [step(f"l{k}", (f"l{k - 1}" if k else "x",), f"l{k}.weight") for k in range(8)]
    end = step("head", ("l7", "l0", "l1", "l2"), "head.weight")
    assert counts(*steps, end) == [(1, 1), (1, 1), (1, 1), (1, 5), (1, 1)]


def test_steps_that_read_two_steps_back_make_blocks_of_two() -> None:
    """A block may read only the block before it, so one step is too short a block here."""
    reads = [("x", "y"), ("l0", "z"), ("l1", "l0"), ("l2", "l1"), ("l3", "l2")]
    steps = [step(f"l{k}", read, f"l{k}.weight") for k, read in enumerate(reads)]
    assert counts(*steps) == [(1, 1), (2, 2)]
    block = collapse(network(*steps))[1]
    assert block.carried == (("l2", "l0"), ("l1", "z"))


def test_every_block_is_wired_like_the_second() -> None:
    """The third step reads the first again, so only the last two are alike."""

    def chain(*reads: str) -> list[tuple[int, int]]:
        return counts(*[step(f"l{k}", (read,), f"l{k}.weight") for k, read in enumerate(reads)])

    assert chain("x", "l0", "l0") == [(1, 1), (1, 2)]
    assert chain("x", "l0", "l1", "y", "l3") == [(1, 3), (1, 2)]


def test_names_that_differ_by_more_than_a_number_are_kept_apart() -> None:
    steps = [step(name, ("x",), f"{name}.weight") for name in ("query", "key", "value")]
    assert counts(*steps) == [(1, 1)] * 3


def random_network(letters: str, backs: list[tuple[int, ...]], weights: list[int]) -> Network:
    """Step k reads the values made `back` steps earlier, or the input where there is none."""
    names = [f"{letter}{position}" for position, letter in enumerate(letters)]
    steps = []
    for position, letter in enumerate(letters):
        kind = ord(letter) - ord("a")
        origins = [position - back for back in backs[kind]]
        reads = tuple(names[origin] if origin >= 0 else "x" for origin in origins)
        weight = weights[position % len(weights)]
        steps.append(step(names[position], reads, f"w{position if weight > 2 else weight}"))
    return network(*steps)


@settings(deadline=None, max_examples=60)
@given(
    st.text("abc", min_size=1, max_size=14)
    | st.text("ab", min_size=1, max_size=4).map(lambda t: t * 4),
    st.lists(st.lists(st.integers(1, 5), max_size=2).map(tuple), min_size=3, max_size=3),
    st.lists(st.integers(0, 12), min_size=1, max_size=14),
)
@example("abcabcabc", [(1,), (1, 2), (1, 3)], [9])
def test_expanding_gives_the_network_back_and_blocks_are_equal_up_to_arrays(
    letters: str, backs: list[tuple[int, ...]], weights: list[int]
) -> None:
    whole = random_network(letters, backs, weights)
    blocks = collapse(whole)
    assert expand(blocks) == whole.steps
    position = 0
    for block in blocks:
        position += block.count * len(block.steps)
        for number in range(1, block.count):
            assert_renames(block, number)
        hidden = {s.name for steps in block.repetitions[:-1] for s in steps}
        later = [node for s in whole.steps[position:] for node in nodes_of(s.body)]
        assert not [node for node in later if node.array in hidden]


def assert_renames(block: Block, number: int) -> None:
    """One renaming of arrays, step names and entry values turns the first run into this one."""
    first, now = block.repetitions[0], block.repetitions[number]
    before = dict(zip((s.name for s in first), block.repetitions[number - 1], strict=True))
    renaming = {a.name: b.name for a, b in zip(first, now, strict=True)}
    renaming |= {entry: before[made].name for made, entry in block.carried}
    for a, b in zip(first, now, strict=True):
        assert renaming[a.name] == b.name
        for old, new in zip(nodes_of(a.body), nodes_of(b.body), strict=True):
            assert renaming.setdefault(old.source, new.source) == new.source


def test_a_thousand_steps_are_grouped_without_trying_every_pair() -> None:
    blocks = collapse(network(*transformer(300)))
    assert [block.count for block in blocks] == [1, 300, 1]
