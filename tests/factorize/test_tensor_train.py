import math

import pytest
import tensorly
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorly.decomposition import tensor_train
from torch import Tensor

from rankscope.errors import DecompositionError
from rankscope.factorize import (
    Bonds,
    KeepParameters,
    MaxBond,
    RelativeError,
    contract_train,
    count_train,
    decompose_tensor_train,
    limited_bonds,
)

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=5)
SEEDS = st.integers(0, 999)


def random_tensor(shape: list[int] | tuple[int, ...], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    tensor = torch.randn(*shape, dtype=torch.float64, generator=generator)
    return tensor * 0.7 ** torch.arange(tensor.numel()).reshape(shape).remainder(7)


@settings(deadline=None, max_examples=60)
@given(shape=SHAPES, bond=st.integers(1, 5), seed=SEEDS)
def test_the_error_lies_between_the_largest_tail_and_the_root_of_all_tails(
    shape: list[int], bond: int, seed: int
) -> None:
    """No train with these bonds comes nearer than one tail: at most sqrt(N - 1) times the least."""
    tensor = random_tensor(shape, seed)
    train = decompose_tensor_train(tensor, MaxBond(bond))
    square = float(tensor.square().sum())
    tails = [
        float(torch.linalg.svdvals(tensor.flatten(0, cut).flatten(1))[kept:].square().sum())
        for cut, kept in enumerate(train.bonds)
    ]
    assert train.relative_error == pytest.approx(train.error_bound, abs=1e-12)
    assert train.error_bound**2 * square <= sum(tails) + 1e-12 * square
    assert train.relative_error**2 * square >= max(tails, default=0.0) - 1e-12 * square
    assert train.bonds == limited_bonds(shape, (bond,) * (len(shape) - 1))
    assert train.num_parameters == count_train(shape, train.bonds)
    difference = float((train.to_dense() - tensor).norm() / tensor.norm())
    assert train.relative_error == pytest.approx(difference, abs=1e-13)
    for core in train.cores[:-1]:
        columns = core.flatten(0, 1)
        torch.testing.assert_close(columns.T @ columns, torch.eye(columns.shape[1]).double())


@settings(deadline=None, max_examples=40)
@given(shape=SHAPES, error=st.floats(1e-13, 0.99), seed=SEEDS)
def test_an_error_is_met(shape: list[int], error: float, seed: int) -> None:
    assert (
        decompose_tensor_train(random_tensor(shape, seed), RelativeError(error)).relative_error
        <= error
    )


def test_a_train_is_found_again_with_just_its_bonds() -> None:
    cores = [random_tensor(shape, 0) for shape in ((1, 4, 2), (2, 5, 3), (3, 4, 2), (2, 3, 1))]
    assert decompose_tensor_train(contract_train(cores), RelativeError(1e-10)).bonds == (2, 3, 2)


def test_entries_are_products_of_matrices() -> None:
    train = decompose_tensor_train(random_tensor((3, 4, 2, 3), 0), Bonds((2, 3, 2)))
    first, second, third, fourth = train.cores
    entry = first[:, 2] @ second[:, 1] @ third[:, 0] @ fourth[:, 2]
    torch.testing.assert_close(train.to_dense()[2, 1, 0, 2], entry[0, 0])


@pytest.mark.parametrize("seed", range(4))
def test_errors_are_those_of_tensorly(seed: int) -> None:
    tensor = random_tensor((4, 5, 3, 4), seed)
    theirs = tensor_train(tensor.numpy(), rank=[1, 3, 4, 2, 1])
    dense = torch.from_numpy(tensorly.tt_to_tensor(theirs))
    ours = decompose_tensor_train(tensor, Bonds((3, 4, 2)))
    torch.testing.assert_close(ours.to_dense(), dense)


@pytest.mark.parametrize(
    ("sizes", "bonds", "limited"),
    [
        ((2, 2, 2, 2), (9, 9, 9), (2, 4, 2)),
        ((2, 3, 9), (1, 9), (1, 3)),
        ((5,), (), ()),
        ((4, 2, 4), (4, 1), (4, 1)),
    ],
)
def test_bonds_never_exceed_what_can_be_cut(
    sizes: tuple[int, ...], bonds: tuple[int, ...], limited: tuple[int, ...]
) -> None:
    assert limited_bonds(sizes, bonds) == limited


@settings(deadline=None, max_examples=30)
@given(shape=st.lists(st.integers(2, 5), min_size=2, max_size=4), share=st.floats(0.3, 1.5))
def test_a_share_of_the_parameters_is_never_exceeded(shape: list[int], share: float) -> None:
    tensor = random_tensor(shape, 0)
    if sum(shape) > int(share * math.prod(shape)):
        with pytest.raises(DecompositionError, match=f"bonds of size 1 need {sum(shape)}"):
            decompose_tensor_train(tensor, KeepParameters(share))
        return
    train = decompose_tensor_train(tensor, KeepParameters(share))
    assert train.num_parameters <= share * tensor.numel()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_short_numbers_are_computed_in_float64(dtype: torch.dtype) -> None:
    train = decompose_tensor_train(random_tensor((3, 4, 2), 0).to(dtype), MaxBond(8))
    assert train.cores[0].dtype == torch.float64
    assert train.relative_error < 1e-14


def test_zero_has_no_error() -> None:
    train = decompose_tensor_train(torch.zeros(3, 4, 2), RelativeError(0.5))
    assert (train.bonds, train.relative_error, train.error_bound) == ((1, 1), 0.0, 0.0)
    assert not train.to_dense().any()
