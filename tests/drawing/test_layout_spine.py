from itertools import pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams import Diagram, from_einsum
from rankscope.diagrams.families import multi_head, tensor_train, tucker, with_batch
from rankscope.drawing.layout import Wiring
from rankscope.drawing.layout.rows import components, links_among, longest_path


def spine(diagram: Diagram) -> list[str]:
    wiring = Wiring(diagram)
    names = [node.name for node in diagram.nodes]
    return longest_path(wiring, names, links_among(wiring, names))


@pytest.mark.parametrize("order", [2, 5, 12, 13, 40])
def test_the_spine_of_a_train_is_the_train(order: int) -> None:
    assert spine(tensor_train(order=order)) == [f"G{place}" for place in range(1, order + 1)]


def test_of_equal_paths_the_first_declared_wins() -> None:
    assert spine(tucker(order=4)) == ["U1", "G", "U2"]


def test_ends_with_open_legs_are_preferred() -> None:
    # A, B and C meet in r; only B and C own an open leg.
    assert spine(from_einsum("r,ri,rj->ij")) == ["B", "C"]


def test_a_large_ring_still_has_a_spine() -> None:
    letters = "abcdefghijklmnop"
    equation = ",".join(a + b for a, b in pairwise(letters)) + f",{letters[-1]}{letters[0]}->"
    assert len(spine(from_einsum(equation))) == len(letters) // 2 + 1


def test_a_batch_index_never_carries_the_spine() -> None:
    diagram = with_batch(multi_head())
    wiring = Wiring(diagram)
    links = links_among(wiring, ["Xq", "WQ", "WK", "Xk"])
    assert links["Xq"].keys() == {"WQ"}
    # Unless nothing else joins the tensors.
    assert links_among(wiring, ["Xq", "Xk"])["Xq"]["Xk"].index == "b"


def test_components_come_in_order_of_declaration() -> None:
    wiring = Wiring(from_einsum("a,bc,a,cd->"))
    assert components(links_among(wiring, list("ABCD"))) == [["A", "C"], ["B", "D"]]


def test_nothing_has_no_spine() -> None:
    assert longest_path(Wiring(from_einsum("i->i")), [], {}) == []


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sets(st.sampled_from("abcdef"), max_size=3), min_size=1, max_size=5))
def test_no_simple_path_is_heavier(held: list[set[str]]) -> None:
    equation = ",".join("".join(sorted(indices)) for indices in held) + "->"
    diagram = from_einsum(equation)
    wiring = Wiring(diagram)
    names = [node.name for node in diagram.nodes]
    links = links_among(wiring, names)

    def weight(path: tuple[str, ...]) -> float:
        steps = [links[a].get(b) for a, b in pairwise(path)]
        used = [step.index for step in steps if step is not None]
        if None in steps or len(set(used)) < len(used):
            return -1.0
        return sum(step.weight for step in steps if step is not None)

    best = max(
        weight(path) for count in range(1, len(names) + 1) for path in permutations(names, count)
    )
    assert weight(tuple(longest_path(wiring, names, links))) == pytest.approx(best)
