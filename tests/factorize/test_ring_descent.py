import pytest
import torch

from rankscope.factorize import Ring, contract_ring
from rankscope.factorize.tensor_ring import descend_ring


def random_ring(sizes: tuple[int, ...], bonds: tuple[int, ...], seed: int) -> Ring:
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(bonds[place - 1], size, bonds[place], dtype=torch.float64, generator=generator)
        for place, size in enumerate(sizes)
    )


def test_entries_are_traces_of_products_of_matrices() -> None:
    first, second, third = ring = random_ring((3, 4, 5), (2, 3, 4), 0)
    entry = torch.trace(first[:, 2] @ second[:, 1] @ third[:, 4])
    torch.testing.assert_close(contract_ring(ring)[2, 1, 4], entry)


@pytest.mark.parametrize(
    ("sizes", "bonds"), [((4, 5), (2, 3)), ((3, 4, 5), (2, 3, 2)), ((3, 2, 4, 3), (2, 2, 3, 1))]
)
def test_each_core_ends_as_the_best_one_for_all_others(
    sizes: tuple[int, ...], bonds: tuple[int, ...]
) -> None:
    """Least squares: what is missing is orthogonal to all that the last core can add."""
    target = contract_ring(random_ring(sizes, tuple(bond + 1 for bond in bonds), 1))
    ring = descend_ring(target, random_ring(sizes, bonds, 2), 1)
    free = ring[-1].clone().requires_grad_()
    missing = target - contract_ring((*ring[:-1], free))
    (slope,) = torch.autograd.grad(missing.square().sum(), free)
    assert float(slope.abs().max()) < 1e-9 * float(target.square().sum())


def test_sweeps_lower_the_error() -> None:
    target = contract_ring(random_ring((4, 5, 6, 3), (2, 3, 2, 3), 1))
    start = random_ring((4, 5, 6, 3), (2, 3, 2, 3), 2)
    errors = [
        float((target - contract_ring(descend_ring(target, start, sweeps))).norm())
        for sweeps in (0, 1, 2, 5, 50)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[1] < errors[0]


def test_a_core_0_does_no_harm() -> None:
    ring = random_ring((3, 4, 5), (2, 2, 2), 0)
    zero = (torch.zeros_like(ring[0]), *ring[1:])
    found = descend_ring(torch.zeros(3, 4, 5, dtype=torch.float64), zero, 3)
    assert not contract_ring(found).any()
