import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.errors import DecompositionError
from rankscope.factorize import (
    KeepParameters,
    MaxBond,
    RelativeError,
    Train,
    contract_train,
    decompose_tensor_train,
    limited_bonds,
    round_tensor_train,
)
from rankscope.factorize import truncation as computing

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=5)


def random_train(sizes: list[int], bond: int, seed: int) -> Train:
    generator = torch.Generator().manual_seed(seed)
    ends = [1, *[bond] * (len(sizes) - 1), 1]
    return tuple(
        torch.randn(ends[place], size, ends[place + 1], dtype=torch.float64, generator=generator)
        for place, size in enumerate(sizes)
    )


@settings(deadline=None, max_examples=40)
@given(sizes=SIZES, bond=st.integers(1, 6), kept=st.integers(1, 4), seed=st.integers(0, 99))
def test_rounding_a_train_is_cutting_its_tensor(
    sizes: list[int], bond: int, kept: int, seed: int
) -> None:
    cores = random_train(sizes, bond, seed)
    whole = contract_train(cores)
    rounded = round_tensor_train(cores, MaxBond(kept))
    cut = decompose_tensor_train(whole, MaxBond(min(kept, bond)))
    assert rounded.bonds == cut.bonds == limited_bonds(sizes, [min(kept, bond)] * (len(sizes) - 1))
    torch.testing.assert_close(rounded.to_dense(), cut.to_dense())
    error = float((rounded.to_dense() - whole).norm() / whole.norm())
    # Measured by orthonormal cores, not by entries: rounding is as small, and no root of it.
    assert rounded.relative_error == pytest.approx(error, abs=1e-12)
    assert rounded.relative_error == pytest.approx(rounded.error_bound, abs=1e-12)


@settings(deadline=None, max_examples=30)
@given(sizes=SIZES, error=st.floats(1e-12, 0.99), seed=st.integers(0, 99))
def test_an_error_is_met_without_building_the_tensor(
    sizes: list[int], error: float, seed: int
) -> None:
    assert (
        round_tensor_train(random_train(sizes, 3, seed), RelativeError(error)).relative_error
        <= error
    )


def test_bonds_that_carry_nothing_go() -> None:
    cores = random_train([4] * 30, 2, 0)  # 4^30 entries
    doubled = tuple(
        torch.cat([torch.cat([core, core], 0)[: 2 * len(core)]] * 2, 2) / 2 for core in cores[1:-1]
    )
    first, last = torch.cat([cores[0]] * 2, 2) / 2, torch.cat([cores[-1]] * 2, 0)
    found = round_tensor_train([first, *doubled, last], RelativeError(1e-9))
    assert found.bonds == (2,) * 29
    assert found.relative_error < 1e-12


def test_a_share_is_one_of_the_given_parameters() -> None:
    cores = random_train([6, 6, 6, 6], 6, 0)
    given_parameters = sum(core.numel() for core in cores)
    found = round_tensor_train(cores, KeepParameters(0.4))
    assert 0.3 * given_parameters < found.num_parameters <= 0.4 * given_parameters


def test_zero_and_large_cores_are_rounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    zero = round_tensor_train([torch.zeros(1, 3, 2), torch.ones(2, 3, 1)], MaxBond(1))
    assert (zero.relative_error, zero.error_bound) == (0.0, 0.0)
    monkeypatch.setattr(computing, "MAX_DOUBLE_ENTRIES", 1)
    cores = [torch.ones(1, 3, 2), torch.ones(2, 3, 1)]
    assert round_tensor_train(cores, MaxBond(1)).cores[0].dtype == torch.float32


@pytest.mark.parametrize(
    ("cores", "message"),
    [
        ([], r"cores of order 3, at least one, got shapes \[\]"),
        ([torch.ones(1, 2)], r"cores of order 3, at least one, got shapes \[\(1, 2\)\]"),
        ([torch.ones(1, 2, 3), torch.ones(2, 2, 1)], r"both ends, got .*\(1, 2, 3\), \(2, 2, 1\)"),
        ([torch.ones(2, 2, 2)], r"1 at both ends, got shapes \[\(2, 2, 2\)\]"),
    ],
)
def test_cores_that_make_no_train_are_refused(cores: list[Tensor], message: str) -> None:
    with pytest.raises(DecompositionError, match=message):
        round_tensor_train(cores, MaxBond(1))
