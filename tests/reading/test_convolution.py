from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.diagrams import Network, Role, diagrams_of
from rankscope.reading import from_module

Check = Callable[..., Network]
quick = settings(
    deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def layers(draw: st.DrawFn) -> nn.Conv2d:
    kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    return nn.Conv2d(
        4,
        8,
        kernel,
        stride=draw(st.integers(1, 3)),
        padding=draw(st.integers(0, 2)),
        dilation=draw(st.integers(1, 2)),
        groups=draw(st.sampled_from([1, 2, 4])),
        bias=draw(st.booleans()),
    )


@pytest.mark.slow
@quick
@given(layer=layers(), batch=st.booleans())
def test_a_convolution_has_the_strides_paddings_dilations_and_groups_of_pytorch(
    layer: nn.Conv2d, batch: bool, assert_reads: Check
) -> None:
    assert_reads(layer, (3, 4, 5, 6) if batch else (4, 5, 6))


# PyTorch warns that it copies the input when the two paddings of "same" differ.
@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv1d(2, 3, 4, padding="same", dilation=3), (2, 2, 9)),
        (nn.Conv1d(2, 3, 2, padding="valid", padding_mode="circular"), (2, 9)),
        (nn.Conv1d(4, 6, 3, padding=2, padding_mode="reflect"), (4, 9)),
        (nn.Conv2d(3, 3, 3, padding="same", padding_mode="circular", groups=3), (2, 3, 5, 4)),
        (nn.Conv3d(2, 3, (2, 3, 1), padding=(0, 1, 2), padding_mode="replicate"), (1, 2, 5, 4, 3)),
    ],
    ids=str,
)
def test_one_two_and_three_axes_and_every_padding_mode(
    layer: nn.Module, shape: tuple[int, ...], assert_reads: Check
) -> None:
    assert_reads(layer, shape)


def test_a_grouped_convolution_shares_an_index_of_groups() -> None:
    layers = nn.Sequential(nn.ReLU(), nn.Conv2d(4, 8, 3, groups=2, bias=False), nn.ReLU())
    diagram = diagrams_of(from_module(layers, (1, 4, 5, 5)))[0]
    data, weight = diagram.nodes
    shared = [index for index in data.indices if index in weight.indices]
    assert [diagram.sizes[index] for index in shared] == [2, 2]
    assert [index in diagram.output for index in shared] == [True, False]
    assert [diagram.index_by_name[index].symbol for index in shared] == ["G", "C"]
    assert len(diagram.convolutions) == 2


@pytest.mark.parametrize(
    ("layer", "shape", "num_convolutions"),
    [
        (nn.AvgPool1d(2), (2, 3, 8), 0),
        (nn.AvgPool1d(3, 2), (3, 8), 1),
        (nn.AvgPool2d(3, 2, 1), (2, 3, 7, 8), 2),
        (nn.AvgPool2d((2, 1), divisor_override=5), (2, 3, 4, 4), 0),
        (nn.AvgPool3d(2, stride=1), (2, 3, 3, 4, 4), 3),
        (nn.AdaptiveAvgPool1d(2), (2, 3, 6), 0),
        (nn.AdaptiveAvgPool2d((2, None)), (2, 3, 4, 5), 0),
        (nn.AdaptiveAvgPool2d(1), (3, 4, 5), 0),
        (nn.AdaptiveAvgPool3d((1, 2, 3)), (2, 3, 4, 4, 3), 0),
    ],
    ids=str,
)
def test_an_average_is_a_constant_and_a_convolution_only_where_windows_overlap(
    layer: nn.Module, shape: tuple[int, ...], num_convolutions: int, assert_reads: Check
) -> None:
    diagrams = diagrams_of(assert_reads(layer, shape))
    assert sum(len(diagram.convolutions) for diagram in diagrams) == num_convolutions
    roles = [node.role for diagram in diagrams for node in diagram.nodes]
    assert roles.count(Role.CONSTANT) == 1
    assert Role.PARAMETER not in roles
