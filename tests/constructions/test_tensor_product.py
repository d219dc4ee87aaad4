import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.constructions.blocks import pure_factors, pure_tensor, tensor_product
from rankscope.decompositions.interval import cp_rank
from rankscope.errors import ConstructionError

shapes = st.lists(st.integers(1, 3), min_size=1, max_size=3)
seeds = st.integers(0, 2**16)


def integers(seed: int, shape: list[int]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-9, 10, shape, generator=generator).double()


@settings(deadline=None, max_examples=30)
@given(first=shapes, second=shapes, third=shapes, seed=seeds)
def test_the_tensor_product_is_its_definition_and_associative(
    first: list[int], second: list[int], third: list[int], seed: int
) -> None:
    left, middle, right = (
        integers(seed + place, shape) for place, shape in enumerate((first, second, third))
    )
    found = tensor_product(left, middle)
    assert torch.equal(found, torch.tensordot(left, middle, dims=0))
    last = (-1,) * len(second)
    assert found[(*([0] * len(first)), *last)] == left.flatten()[0] * middle[last]
    assert torch.equal(
        tensor_product(found, right), tensor_product(left, tensor_product(middle, right))
    )


def test_the_tensor_product_does_not_commute() -> None:
    first, second = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    assert not torch.equal(tensor_product(first, second), tensor_product(second, first))


@settings(deadline=None, max_examples=40)
@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4), seed=seeds)
def test_pure_tensors_are_recognized_and_taken_apart(sizes: list[int], seed: int) -> None:
    tensor = pure_tensor([integers(seed + place, [size]) for place, size in enumerate(sizes)])
    factors = pure_factors(tensor)
    assert factors is not None
    assert [len(factor) for factor in factors] == sizes
    torch.testing.assert_close(pure_tensor(factors), tensor)


@settings(deadline=None, max_examples=15)
@given(seed=seeds)
def test_a_tensor_is_pure_if_its_rank_is_at_most_one(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensor = torch.randint(0, 2, (2, 2, 2), generator=generator)
    assert (pure_factors(tensor.double()) is not None) == (cp_rank(tensor).upper <= 1)


def test_a_sum_of_two_basis_products_is_not_pure() -> None:
    assert pure_factors(torch.eye(2)) is None


def test_what_cannot_be_pure_is_refused() -> None:
    with pytest.raises(ConstructionError, match=r"got shapes \[\(2, 2\)\]"):
        pure_tensor([torch.eye(2)])
    with pytest.raises(ConstructionError, match=r"got shapes \[\]"):
        pure_tensor([])
    with pytest.raises(ConstructionError, match=r"got shape \(\)"):
        pure_factors(torch.tensor(1.0))
    with pytest.raises(ConstructionError, match=r"got shape \(0, 2\)"):
        pure_factors(torch.zeros(0, 2))
