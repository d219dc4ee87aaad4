import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.errors import DecompositionError
from rankscope.factorize import (
    Bonds,
    KeepParameters,
    MaxBond,
    RelativeError,
    contract_ring,
    count_ring,
    decompose_tensor_ring,
    decompose_tensor_train,
)
from rankscope.factorize.tensor_ring import limited_ring_bonds

SHAPES = st.lists(st.integers(1, 5), min_size=2, max_size=4).map(tuple)
SEEDS = st.integers(0, 99)


def random_tensor(shape: tuple[int, ...], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def random_ring(sizes: tuple[int, ...], bonds: tuple[int, ...], seed: int) -> Tensor:
    return contract_ring(
        tuple(
            random_tensor((bonds[place - 1], size, bonds[place]), seed + place)
            for place, size in enumerate(sizes)
        )
    )


@settings(deadline=None, max_examples=15)
@given(shape=SHAPES, seed=SEEDS, data=st.data())
def test_a_ring_is_never_worse_than_its_start_nor_than_the_train_with_its_bonds(
    shape: tuple[int, ...], seed: int, data: st.DataObject
) -> None:
    bonds = tuple(data.draw(st.integers(1, 4)) for _ in shape)
    tensor = random_tensor(shape, seed)
    ring = decompose_tensor_ring(tensor, Bonds(bonds), sweeps=4, seed=seed)
    start = decompose_tensor_ring(tensor, Bonds(bonds), sweeps=0, seed=seed)
    assert ring.relative_error <= start.relative_error + 1e-13
    train = decompose_tensor_train(tensor, Bonds(ring.bonds[:-1]))
    assert ring.relative_error <= train.relative_error + 1e-13
    assert ring.num_parameters == count_ring(shape, ring.bonds)
    assert all(bond <= most for bond, most in zip(ring.bonds, bonds, strict=True))
    error = float((ring.to_dense() - tensor).norm() / tensor.norm())
    assert ring.relative_error == pytest.approx(error, abs=1e-12)


@pytest.mark.parametrize("bonds", [(2, 2, 2), (3, 2, 2), (2, 3, 1)])
def test_a_ring_comes_nearer_than_a_train_to_what_is_one(bonds: tuple[int, ...]) -> None:
    tensor = random_ring((6, 7, 8), bonds, 0)
    ring = decompose_tensor_ring(tensor, Bonds(bonds), sweeps=300)
    train = decompose_tensor_train(tensor, KeepParameters(ring.num_parameters / tensor.numel()))
    assert ring.bonds == bonds
    assert ring.relative_error <= train.relative_error
    assert ring.relative_error < 0.1


def test_with_the_full_bonds_of_a_train_nothing_is_lost() -> None:
    assert (
        decompose_tensor_ring(random_tensor((3, 4, 5), 0), Bonds((3, 5, 1))).relative_error < 1e-13
    )


@settings(deadline=None, max_examples=15)
@given(shape=SHAPES, error=st.floats(1e-13, 0.99), seed=SEEDS)
def test_an_error_is_met_with_no_more_parameters_than_a_train(
    shape: tuple[int, ...], error: float, seed: int
) -> None:
    tensor = random_tensor(shape, seed)
    ring = decompose_tensor_ring(tensor, RelativeError(error), sweeps=2)
    assert ring.relative_error <= error
    train = decompose_tensor_train(tensor, RelativeError(error))
    assert ring.num_parameters <= train.num_parameters


@settings(deadline=None, max_examples=30)
@given(shape=SHAPES, share=st.floats(0.2, 2.0))
def test_a_share_of_the_parameters_is_never_exceeded(shape: tuple[int, ...], share: float) -> None:
    if int(share * math.prod(shape)) < sum(shape):
        with pytest.raises(DecompositionError, match=f"bonds of size 1 need {sum(shape)}"):
            decompose_tensor_ring(random_tensor(shape, 0), KeepParameters(share), sweeps=0)
        return
    ring = decompose_tensor_ring(random_tensor(shape, 0), KeepParameters(share), sweeps=0)
    assert ring.num_parameters <= share * math.prod(shape)


@settings(deadline=None, max_examples=30)
@given(shape=SHAPES, bond=st.integers(1, 30))
def test_limited_bonds_leave_no_core_wider_than_it_can_use(
    shape: tuple[int, ...], bond: int
) -> None:
    bonds = limited_ring_bonds(shape, (bond,) * len(shape))
    for place, size in enumerate(shape):
        assert bonds[place] <= bonds[place - 1] * size
        assert bonds[place - 1] <= bonds[place] * size


def test_bonds_that_fit_are_kept() -> None:
    assert limited_ring_bonds((4, 5, 6), (3, 4, 2)) == (3, 4, 2)
    assert decompose_tensor_ring(random_tensor((4, 5, 6), 0), MaxBond(3)).bonds == (3, 3, 3)


def test_the_same_seed_gives_the_same_ring() -> None:
    tensor = random_tensor((3, 4, 5), 0).float()
    first, again = (decompose_tensor_ring(tensor, MaxBond(3), seed=5) for _ in range(2))
    assert all(torch.equal(*pair) for pair in zip(first.cores, again.cores, strict=True))


def test_zero_has_no_error() -> None:
    ring = decompose_tensor_ring(torch.zeros(3, 4, 2), MaxBond(2))
    assert (ring.bonds, ring.relative_error) == ((2, 2, 2), 0.0)
    assert not ring.to_dense().any()


def test_vectors_and_negative_sweeps_are_refused() -> None:
    with pytest.raises(DecompositionError, match=r"decompose_tensor_ring needs .* order 2 or more"):
        decompose_tensor_ring(torch.ones(3), MaxBond(1))
    with pytest.raises(DecompositionError, match="sweeps must be at least 0, got -2"):
        decompose_tensor_ring(torch.ones(3, 2), MaxBond(1), sweeps=-2)
