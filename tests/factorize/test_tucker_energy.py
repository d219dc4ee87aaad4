import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import DecompositionError
from rankscope.factorize import Bonds, decompose_tucker, multiply_factors, tucker_energy


@settings(deadline=None, max_examples=25)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_the_table_holds_the_error_of_every_truncation(
    shape: list[int], seed: int, data: st.DataObject
) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensor = torch.randn(*shape, dtype=torch.float64, generator=generator)
    every = list(range(len(shape)))
    positions = data.draw(st.permutations(every).map(lambda order: order[: 1 + seed % len(order)]))
    energy = tucker_energy(tensor, positions)
    torch.testing.assert_close(multiply_factors(energy.core, energy.factors), tensor)
    sizes = [shape[position] for position in positions]
    assert energy.relative_errors.shape == tuple(sizes)
    for ranks in itertools.product(*(range(1, size + 1) for size in sizes)):
        kept = {p: energy.factors[p][:, :r] for p, r in zip(positions, ranks, strict=True)}
        corner = multiply_factors(tensor, {p: factor.T for p, factor in kept.items()})
        error = float((multiply_factors(corner, kept) - tensor).norm() / tensor.norm())
        assert energy.relative_error(ranks) == pytest.approx(error, abs=1e-7)
    assert energy.relative_error(sizes) == 0.0


def test_sweeps_never_end_above_the_table() -> None:
    generator = torch.Generator().manual_seed(0)
    tensor = torch.randn(6, 5, 3, 3, dtype=torch.float64, generator=generator)
    energy = tucker_energy(tensor, (0, 1))
    for ranks in ((1, 1), (2, 4), (3, 2)):
        swept = decompose_tucker(tensor, Bonds(ranks), positions=(0, 1), sweeps=50)
        # The start of the sweeps truncates one position after the other, here hardly different.
        assert swept.relative_error <= energy.relative_error(ranks) * 1.001


def test_zero_has_no_errors() -> None:
    energy = tucker_energy(torch.zeros(2, 3))
    assert not energy.relative_errors.any()


@pytest.mark.parametrize("ranks", [(1,), (0, 1), (3, 1), (1, 4)])
def test_ranks_that_do_not_fit_are_refused(ranks: tuple[int, ...]) -> None:
    energy = tucker_energy(torch.ones(2, 3))
    with pytest.raises(
        DecompositionError, match=r"each of the sizes \(2, 3\), got \(" + str(ranks[0])
    ):
        energy.relative_error(ranks)


def test_positions_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DecompositionError, match=r"tucker_energy needs .* in 0..1, .* got \(2,\)"):
        tucker_energy(torch.ones(2, 3), (2,))
