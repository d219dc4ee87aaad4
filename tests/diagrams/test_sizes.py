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
    resolved_sizes,
)
from rankscope.diagrams.sizes import region_scale
from rankscope.errors import SizeError


def chain(*, last: int | None = None) -> Diagram:
    """Two convolutions in a row: 20 -> 9 (kernel 3, stride 2) -> 8 (kernel 2)."""
    return Diagram(
        "chain",
        (
            Index("h", 20),
            Index("k", 3),
            Index("g"),
            Index("l", 2, symbol="L"),
            Index("x", last),
            Index("c", symbol="L"),
        ),
        (Node("X", ("h", "c"), Role.DATA), Node("K", ("k",)), Node("M", ("l", "c"))),
        ("x",),
        # Declared last link first, so that one pass over them is not enough.
        (Convolution("second", "g", "l", "x"), Convolution("first", "h", "k", "g", stride=2)),
    )


def test_outputs_of_a_chain_of_convolutions_and_shared_symbols_are_inferred() -> None:
    assert resolved_sizes(chain()) == {"h": 20, "k": 3, "g": 9, "l": 2, "x": 8, "c": 2}


def test_a_size_that_contradicts_an_inferred_one_is_refused() -> None:
    with pytest.raises(SizeError, match=r"'second': input 9 and kernel 2 give .* 8, .* size 7"):
        resolved_sizes(chain(last=7))


def test_a_kernel_that_does_not_fit_an_inferred_input_is_refused() -> None:
    with pytest.raises(SizeError, match=r"'second': input 9 and kernel 11 give an output of -1"):
        resolved_sizes(chain().with_sizes(L=11))


def test_all_missing_symbols_are_listed_at_once() -> None:
    diagram = Diagram(
        "product",
        (Index("i", symbol="N"), Index("j", 3), Index("k"), Index("l", symbol="N")),
        (Node("A", ("i", "j")), Node("B", ("k", "l"))),
        ("i",),
    )
    message = r"'product' has no size for N, k\. Give each: --size N=….* with_sizes\(N=…\)"
    with pytest.raises(SizeError, match=message):
        resolved_sizes(diagram)


def test_outputs_of_convolutions_are_not_asked_for() -> None:
    plain = chain()
    unknown = replace(plain, indices=tuple(replace(index, size=None) for index in plain.indices))
    with pytest.raises(SizeError, match=r"no size for h, k, L\."):
        resolved_sizes(unknown)


def test_a_scale_may_use_symbols_and_index_names() -> None:
    diagram = Diagram(
        "scaled",
        (Index("i", 4, symbol="N"), Index("j", 3)),
        (Node("A", ("i", "j")),),
        ("i",),
        regions=(Region("R", ("A",), Function("identity"), scale="N * j / 6"),),
    )
    assert region_scale(diagram, "R", resolved_sizes(diagram)) == 2.0
