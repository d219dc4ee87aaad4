from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rankscope.diagrams import Diagram, Role
from rankscope.diagrams.families import cp, hierarchical_tucker, tucker
from rankscope.errors import FamilyError

Array = NDArray[np.float64]
Evaluate = Callable[[Diagram, dict[str, Array]], Array]
RandomArrays = Callable[[Diagram], dict[str, Array]]
Count = Callable[[Diagram], int]


def test_a_cp_entry_sums_products_over_the_rank(
    evaluate: Evaluate, random_arrays: RandomArrays
) -> None:
    diagram = cp(sizes=(2, 3, 4), cp_rank=5)
    factors = random_arrays(diagram)
    value = evaluate(diagram, factors)
    for a, b, c in np.ndindex(2, 3, 4):
        entry = sum(
            factors["A1"][a, r] * factors["A2"][b, r] * factors["A3"][c, r] for r in range(5)
        )
        np.testing.assert_allclose(value[a, b, c], entry)


def test_a_tucker_entry_sums_the_core_against_one_row_of_every_factor(
    evaluate: Evaluate, random_arrays: RandomArrays
) -> None:
    diagram = tucker(sizes=(2, 3, 4), tucker_ranks=(3, 2, 5))
    arrays = random_arrays(diagram)
    assert arrays["G"].shape == (3, 2, 5)
    value = evaluate(diagram, arrays)
    for a, b, c in np.ndindex(2, 3, 4):
        entry = sum(
            arrays["G"][p, q, r] * arrays["U1"][a, p] * arrays["U2"][b, q] * arrays["U3"][c, r]
            for p, q, r in np.ndindex(3, 2, 5)
        )
        np.testing.assert_allclose(value[a, b, c], entry)


def test_a_hierarchical_tucker_tensor_follows_its_recursion(
    evaluate: Evaluate, random_arrays: RandomArrays
) -> None:
    diagram = hierarchical_tucker(sizes=(2, 3, 4, 2, 3), bond_dimensions=(2, 3, 2, 3, 4, 2, 3, 2))
    arrays = random_arrays(diagram)

    def subtree(first: int, last: int) -> Array:
        """V of the docstring: rows are all positions of the legs, columns the bond upwards."""
        if first == last:
            return arrays[f"U{first}"]
        middle = (first + last) // 2
        left, right = subtree(first, middle), subtree(middle + 1, last)
        transfer = arrays[f"B{first}_{last}"].reshape(left.shape[1], right.shape[1], -1)
        columns = [
            np.kron(left, right) @ transfer[..., k].ravel() for k in range(transfer.shape[2])
        ]
        return np.stack(columns, axis=1)

    expected = subtree(1, 5).reshape(2, 3, 4, 2, 3)
    np.testing.assert_allclose(evaluate(diagram, arrays), expected)


def test_bonds_of_a_hierarchical_tucker_are_listed_leaves_first() -> None:
    diagram = hierarchical_tucker(order=5, bond_dimensions=(1, 2, 3, 4, 5, 6, 7, 8))
    sizes = {index.name: index.size for index in diagram.indices if index.name.startswith("r")}
    assert sizes == {"r1": 1, "r2": 2, "r3": 3, "r4": 4, "r5": 5, "r1_2": 6, "r1_3": 7, "r4_5": 8}
    assert diagram.index_by_name["r1_3"].tex == "R_{1:3}"


@settings(deadline=None)
@given(order=st.integers(2, 40))
def test_a_hierarchical_tucker_is_a_balanced_binary_tree(order: int) -> None:
    diagram = hierarchical_tucker(order=order)
    transfers = [node for node in diagram.nodes if node.role is Role.CORE]
    assert len(transfers) == order - 1
    assert [len(node.indices) for node in transfers] == [2] + [3] * (order - 2)
    upper = {node.indices[-1]: node for node in transfers[1:]}

    def depth(bond: str) -> int:
        return 1 + max(map(depth, upper[bond].indices[:2])) if bond in upper else 1

    depths = [depth(bond) for bond in transfers[0].indices]
    assert max(depths) == (order - 1).bit_length()
    assert abs(depths[0] - depths[1]) <= 1
    owners = diagram.structure.owners
    assert all(len(owners[f"i{place}"]) == 1 for place in range(1, order + 1))
    assert all(len(names) == 2 for bond, names in owners.items() if bond.startswith("r"))


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6), rank=st.integers(1, 9))
def test_cp_parameters_are_the_rank_times_the_sum_of_sizes(
    count_parameters: Count, sizes: list[int], rank: int
) -> None:
    """Acceptance case 5."""
    assert count_parameters(cp(sizes=tuple(sizes), cp_rank=rank)) == rank * sum(sizes)


def test_tucker_parameters_are_a_core_and_its_factors(count_parameters: Count) -> None:
    diagram = tucker(sizes=(4, 5, 6), tucker_ranks=(2, 3, 7))
    assert count_parameters(diagram) == 2 * 3 * 7 + 4 * 2 + 5 * 3 + 6 * 7


def test_hierarchical_tucker_parameters_are_frames_and_transfers(count_parameters: Count) -> None:
    diagram = hierarchical_tucker(order=4, sizes=(4, 5, 6, 7), bond_dimensions=(2, 3, 4, 5, 6, 7))
    frames = 4 * 2 + 5 * 3 + 6 * 4 + 7 * 5
    assert count_parameters(diagram) == frames + 2 * 3 * 6 + 4 * 5 * 7 + 6 * 7


@pytest.mark.parametrize("order", [3, 4, 6])
def test_the_rank_of_cp_is_one_index_on_every_factor(order: int) -> None:
    diagram = cp(order=order)
    assert len(diagram.structure.owners["r"]) == order
    assert diagram.index_by_name["r"].tex == "R"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: cp(order=3, sizes=(2, 2)),
            r"cp: size must be one integer or 3 of them, one for each factor, got 2: \(2, 2\)",
        ),
        (lambda: cp(order=0), "cp: order must be a positive integer, got 0"),
        (lambda: tucker(order=3, sizes=(2, 2)), "tucker: size must be one integer or 3"),
        (lambda: tucker(order=3, tucker_ranks=(2, 2)), "tucker: rank must be one integer or 3"),
        (lambda: tucker(order=0), "tucker: order must be a positive integer, got 0"),
        (lambda: hierarchical_tucker(order=1), "order must be at least 2, got 1"),
        (lambda: hierarchical_tucker(order=0), "order must be a positive integer, got 0"),
        (lambda: hierarchical_tucker(order=3, sizes=(2, 2)), "size must be one integer or 3"),
        (
            lambda: hierarchical_tucker(order=4, bond_dimensions=(2, 2)),
            r"rank \(bond dimensions\) must be one integer or 6 of them, one for each bond, got 2",
        ),
    ],
)
def test_lists_of_another_length_and_wrong_orders_are_refused(
    build: Callable[[], Diagram], message: str
) -> None:
    with pytest.raises(FamilyError, match=message):
        build()
