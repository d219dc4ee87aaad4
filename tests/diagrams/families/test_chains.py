from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from rankscope.diagrams import Diagram, IndexKind
from rankscope.diagrams.families import tensor_ring, tensor_train, tensor_train_matrix
from rankscope.errors import FamilyError

Array = NDArray[np.float64]
Evaluate = Callable[[Diagram, dict[str, Array]], Array]
RandomArrays = Callable[[Diagram], dict[str, Array]]
Count = Callable[[Diagram], int]


def test_a_train_entry_is_a_product_of_core_matrices(
    evaluate: Evaluate, random_arrays: RandomArrays
) -> None:
    train = tensor_train(sizes=(2, 3, 4, 2), bond_dimensions=(5, 3, 2))
    cores = random_arrays(train)
    value = evaluate(train, cores)
    for a, b, c, d in np.ndindex(2, 3, 4, 2):
        middle = cores["G2"][:, b, :] @ cores["G3"][:, c, :]
        entry = cores["G1"][a] @ middle @ cores["G4"][:, d]
        np.testing.assert_allclose(value[a, b, c, d], entry)


def test_a_ring_entry_is_a_trace_of_core_matrices(
    evaluate: Evaluate, random_arrays: RandomArrays
) -> None:
    ring = tensor_ring(sizes=(2, 3, 4), bond_dimensions=(5, 3, 2))
    cores = random_arrays(ring)
    assert [core.shape for core in cores.values()] == [(2, 2, 5), (5, 3, 3), (3, 4, 2)]
    value = evaluate(ring, cores)
    for a, b, c in np.ndindex(2, 3, 4):
        around = cores["G1"][:, a] @ cores["G2"][:, b] @ cores["G3"][:, c]
        np.testing.assert_allclose(value[a, b, c], np.trace(around))


def test_a_train_matrix_entry_has_a_row_and_a_column_of_every_core(
    evaluate: Evaluate, random_arrays: RandomArrays
) -> None:
    matrix = tensor_train_matrix(sizes=(2, 3, 2), out_sizes=(3, 1, 4), bond_dimensions=(3, 2))
    cores = random_arrays(matrix)
    value = evaluate(matrix, cores)
    for a, b, c, x, y, z in np.ndindex(2, 3, 2, 3, 1, 4):
        entry = cores["G1"][a, x] @ cores["G2"][:, b, y, :] @ cores["G3"][:, c, z]
        np.testing.assert_allclose(value[a, b, c, x, y, z], entry)


def test_the_last_core_of_a_train_has_no_bond_after_it() -> None:
    train = tensor_train(order=3)
    assert [node.indices for node in train.nodes] == [
        ("i1", "r1"),
        ("r1", "i2", "r2"),
        ("r2", "i3"),
    ]


def test_chains_of_one_core_are_a_tensor_and_a_trace() -> None:
    assert tensor_train(order=1).nodes[0].indices == ("i1",)
    assert tensor_train_matrix(order=1).nodes[0].indices == ("i1", "j1")
    assert tensor_ring(order=1).nodes[0].indices == ("r1", "i1", "r1")


def test_parameters_of_chains_are_the_sums_over_cores(count_parameters: Count) -> None:
    sizes, outs, ranks = (4, 5, 6), (7, 2, 3), (8, 9)
    train = 4 * 8 + 8 * 5 * 9 + 9 * 6
    assert count_parameters(tensor_train(sizes=sizes, bond_dimensions=ranks)) == train
    matrix = 4 * 7 * 8 + 8 * 5 * 2 * 9 + 9 * 6 * 3
    diagram = tensor_train_matrix(sizes=sizes, out_sizes=outs, bond_dimensions=ranks)
    assert count_parameters(diagram) == matrix
    ring = 3 * 4 * 8 + 8 * 5 * 9 + 9 * 6 * 3
    assert count_parameters(tensor_ring(sizes=sizes, bond_dimensions=(8, 9, 3))) == ring


def test_one_size_is_given_to_every_leg_and_unset_ones_stay_symbols() -> None:
    train = tensor_train(order=4, bond_dimensions=3)
    assert [index.size for index in train.indices] == [None] * 4 + [3] * 3
    assert [index.symbol for index in train.indices][2:6] == ["I_3", "I_4", "R_1", "R_2"]
    assert {index.kind for index in train.indices[4:]} == {IndexKind.RANK}
    assert train.with_sizes(I_3=7).sizes["i3"] == 7


def test_labels_beyond_nine_keep_both_digits() -> None:
    train = tensor_train(order=12)
    assert train.index_by_name["i12"].tex == "I_{12}"
    assert train.node_by_name["G12"].tex == r"\mathcal{G}_{12}"


def test_the_order_follows_a_list_of_sizes() -> None:
    assert len(tensor_train(sizes=(2, 3)).nodes) == 2
    assert len(tensor_train_matrix(sizes=(2, 3)).nodes) == 2
    assert len(tensor_train_matrix(out_sizes=(2, 3)).nodes) == 2


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: tensor_train(order=5, bond_dimensions=(2, 3, 4)),
            r"tensor-train: rank \(bond dimensions\) .* or 4 of them, .* got 3: \(2, 3, 4\)\.",
        ),
        (lambda: tensor_train(order=3, sizes=(2, 2)), "tensor-train: size .* or 3 of them"),
        (lambda: tensor_ring(order=3, sizes=(2, 2)), "tensor-ring: size .* or 3 of them"),
        (
            lambda: tensor_ring(order=3, bond_dimensions=(2, 2)),
            r"tensor-ring: rank \(bond dimensions\) must be one integer or 3 of them.*got 2",
        ),
        (
            lambda: tensor_train_matrix(sizes=(2, 2), out_sizes=(2, 2, 2)),
            "tt-matrix: out must be one integer or 2 of them, one for each core, got 3",
        ),
        (lambda: tensor_train_matrix(order=3, sizes=(2, 2)), "tt-matrix: size .* or 3 of them"),
        (lambda: tensor_train(order=0), "tensor-train: order must be a positive integer, got 0"),
        (lambda: tensor_train_matrix(order=-1), "tt-matrix: order must be .* integer, got -1"),
        (lambda: tensor_ring(order=0), "tensor-ring: order must be a positive integer, got 0"),
    ],
)
def test_lists_of_another_length_and_wrong_orders_are_refused(
    build: Callable[[], Diagram], message: str
) -> None:
    with pytest.raises(FamilyError, match=message):
        build()
