"""The same tensor from cores that cannot be made smaller."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.factorize import Bonds, Ring, contract_ring, decompose_tensor_ring
from rankscope.factorize.tensor_ring import least_norm_cores


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def random_ring(sizes: list[int], bonds: list[int], seed: int) -> Ring:
    return tuple(
        draw(bonds[place - 1], size, bonds[place], seed=seed + place)
        for place, size in enumerate(sizes)
    )


def turned(ring: Ring, strength: float, seed: int) -> Ring:
    """The same tensor, each bond turned by a matrix that is far from orthogonal."""
    cores = list(ring)
    for place, core in enumerate(ring):
        matrix = torch.matrix_exp(strength * draw(*2 * (core.shape[2],), seed=seed + place))
        after = (place + 1) % len(ring)
        cores[place] = cores[place] @ matrix
        cores[after] = torch.einsum("ab,bsc->asc", torch.linalg.inv(matrix), cores[after])
    return tuple(cores)


def size(ring: Ring) -> float:
    return sum(float(core.square().sum()) for core in ring)


@settings(deadline=None, max_examples=30)
@given(data=st.data(), order=st.integers(2, 5), seed=st.integers(0, 1000))
def test_the_tensor_stays_and_the_norms_are_those_of_the_least_ring(
    data: st.DataObject, order: int, seed: int
) -> None:
    bonds = data.draw(st.lists(st.integers(1, 3), min_size=order, max_size=order))
    ring = random_ring([4] * order, bonds, seed)
    other = turned(ring, 0.3, seed + 100)
    least, again = least_norm_cores(ring), least_norm_cores(other)
    torch.testing.assert_close(contract_ring(least), contract_ring(ring))
    torch.testing.assert_close(contract_ring(again), contract_ring(ring))
    assert size(least) <= size(ring) * (1 + 1e-12)
    assert size(again) == pytest.approx(size(least), rel=0.01)


@settings(deadline=None, max_examples=30)
@given(order=st.integers(2, 4), seed=st.integers(0, 1000))
def test_no_turn_of_a_bond_makes_it_smaller(order: int, seed: int) -> None:
    least = least_norm_cores(random_ring([5] * order, [3] * order, seed))
    for attempt in range(5):
        assert size(turned(least, 0.2, seed + attempt)) >= size(least) * (1 - 1e-3)


def test_a_bond_with_room_to_spare_stays_as_it_is() -> None:
    first, second = draw(2, 3, 4, seed=0), draw(4, 3, 2, seed=1)
    second[3] = 0
    least = least_norm_cores((first, second))
    assert float(least[0][:, :, 3].norm()) > 0
    torch.testing.assert_close(contract_ring(least), contract_ring((first, second)))


def test_a_decomposition_has_the_least_cores() -> None:
    ring = decompose_tensor_ring(draw(6, 6, 6, 5, seed=3), Bonds((4, 5, 4, 3)))
    assert size(least_norm_cores(ring.cores)) >= 0.999 * size(ring.cores)
