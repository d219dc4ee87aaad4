import dataclasses
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from rankscope.errors import LayerError
from rankscope.factorize import FORMATS, WeightShape, Window, largest_balanced_ranks
from rankscope.factorize.formats.format import even_cores

LIMITS = st.lists(st.integers(1, 12), min_size=1, max_size=3)


def test_a_shape_is_read_off_a_weight() -> None:
    assert WeightShape.of(torch.ones(4, 3, 2, 5)) == WeightShape(4, 3, (2, 5))
    assert WeightShape.of(torch.ones(4, 3)).sizes == (4, 3)
    assert WeightShape(4, 3, (2, 5)).num_parameters == 120


@settings(deadline=None, max_examples=40)
@given(
    size=st.integers(5, 12),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
)
def test_output_sizes_are_those_of_pytorch(
    size: int, kernel: int, stride: int, padding: int, dilation: int
) -> None:
    window = Window((stride,), (padding,), (dilation,))
    outputs = functional.conv1d(
        torch.zeros(1, 1, size), torch.zeros(1, 1, kernel), None, stride, padding, dilation
    )
    assert window.output_sizes((size,), (kernel,)) == (outputs.shape[2],)


@pytest.mark.parametrize("ranks", [(), (0,), (4,), (1, 1)])
def test_ranks_that_do_not_fit_are_named(ranks: tuple[int, ...]) -> None:
    given = re.escape(str(ranks))
    message = rf"svd: a weight of shape \(4, 3\) needs 1 rank\(s\), from 1 to \(3,\), got {given}"
    with pytest.raises(LayerError, match=message):
        FORMATS["svd"].check(WeightShape(4, 3), ranks)


def test_a_refused_shape_is_named_with_the_reason() -> None:
    with pytest.raises(LayerError, match=r"cp: a weight of shape \(4, 3\) is refused: without a"):
        FORMATS["cp"].check(WeightShape(4, 3), (1,))


def test_every_format_of_the_command_line_is_there_under_its_name() -> None:
    plain = ["svd", "cp", "tucker", "tensor-train", "tensor-ring"]
    reshaped = ["r-cp", "r-tucker", "r-tensor-train", "r-tensor-ring"]
    assert sorted(FORMATS) == sorted(plain + reshaped)
    for name, format in FORMATS.items():
        assert format.name == name
        assert dataclasses.is_dataclass(format)
        assert format == type(format)()
        assert hash(format) == hash(type(format)())


def _count(ranks: tuple[int, ...]) -> int:
    neighbours = zip((3, *ranks), (*ranks, 5), strict=True)
    return sum(left * right for left, right in neighbours)


@given(limits=LIMITS, num_parameters=st.integers(1, 300))
def test_ranks_are_even_until_a_limit_or_the_last_few_numbers(
    limits: list[int], num_parameters: int
) -> None:
    ranks = largest_balanced_ranks(_count, tuple(limits), num_parameters)
    if ranks is None:
        assert _count((1,) * len(limits)) > num_parameters
        return
    assert _count(ranks) <= num_parameters
    level = min(
        (rank for rank, limit in zip(ranks, limits, strict=True) if rank < limit), default=12
    )
    one_more = tuple(min(level + 1, limit) for limit in limits)
    assert one_more == ranks or _count(one_more) > num_parameters


def test_norms_are_evened_and_the_product_stays() -> None:
    torch.manual_seed(0)
    cores = {
        "a": 1e-30 * torch.randn(3, 4, dtype=torch.float64),
        "b": 1e35 * torch.randn(4, 5, dtype=torch.float64),
    }
    shapes = {"a": (3, 6), "b": (6, 5)}
    found = even_cores(cores, shapes, torch.float64)
    assert {name: tuple(core.shape) for name, core in found.items()} == shapes
    torch.testing.assert_close(found["a"].norm(), found["b"].norm())
    torch.testing.assert_close(found["a"] @ found["b"], cores["a"] @ cores["b"])


def test_one_core_of_zeros_makes_all_of_them_zero() -> None:
    cores = {"a": torch.zeros(2, 2), "b": torch.ones(2, 2)}
    found = even_cores(cores, {"a": (2, 2), "b": (2, 2)}, torch.bfloat16)
    assert not any(core.any() for core in found.values())
    assert found["b"].dtype == torch.bfloat16
