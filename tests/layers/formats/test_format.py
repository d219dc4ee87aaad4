import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from rankscope.errors import LayerError
from rankscope.layers.formats.catalogue import FORMATS
from rankscope.layers.formats.format import WeightShape, Window


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
    told = rf"svd: a weight of shape \(4, 3\) needs 1 rank\(s\), from 1 to \(3,\), got {given}"
    with pytest.raises(LayerError, match=told):
        FORMATS["svd"].check(WeightShape(4, 3), ranks)


def test_a_refused_shape_is_named_with_the_reason() -> None:
    with pytest.raises(LayerError, match=r"cp: a weight of shape \(4, 3\) is refused: without a"):
        FORMATS["cp"].check(WeightShape(4, 3), (1,))
