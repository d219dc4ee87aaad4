import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import LayerError
from rankscope.layers.tunable_attention import (
    CoreMatrix,
    DenseCore,
    IdentityCore,
    LowRankCore,
    SkipLeftCore,
    SkipRightCore,
)

FORMS: list[type[CoreMatrix]] = [DenseCore, LowRankCore, SkipLeftCore, SkipRightCore]


def _drawn(form: type[CoreMatrix], num_heads: int, head_size: int, seed: int) -> CoreMatrix:
    draw = torch.Generator().manual_seed(seed)
    core = form.of_heads(num_heads, head_size).double()
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
    return core


@settings(deadline=None, max_examples=60)
@given(
    form=st.sampled_from([*FORMS, IdentityCore]),
    num_heads=st.integers(1, 3),
    head_size=st.integers(1, 3),
    seed=st.integers(0, 2**16),
)
def test_scores_of_every_form_are_those_of_its_matrix(
    form: type[CoreMatrix], num_heads: int, head_size: int, seed: int
) -> None:
    if form is IdentityCore:
        num_heads, head_size = num_heads * head_size, 1
    core = _drawn(form, num_heads, head_size, seed)
    draw = torch.Generator().manual_seed(seed + 1)
    channels = num_heads * head_size
    query = torch.randn(2, 4, channels, generator=draw, dtype=torch.float64)
    key = torch.randn(2, 5, channels, generator=draw, dtype=torch.float64)
    scores = core.scores(query, key)
    wanted = torch.einsum("tr,bnr,bmr->btnm", core.matrix(), query, key)
    assert core.num_channels == channels
    assert scores.shape == (2, core.num_maps, 4, 5)
    # Channels share a map with their neighbours where a form has fewer maps than channels.
    torch.testing.assert_close(scores.repeat_interleave(channels // core.num_maps, 1), wanted)


@pytest.mark.parametrize("form", FORMS)
def test_the_core_of_heads_joins_the_channels_of_each_head(form: type[CoreMatrix]) -> None:
    matrix = form.of_heads(3, 2).matrix()
    heads = torch.arange(6) // 2
    assert torch.equal(matrix, (heads[:, None] == heads).float())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("num_heads", "head_size"), [(1, 5), (3, 2), (8, 4)])
def test_the_stable_rank_is_the_number_of_heads(
    form: type[CoreMatrix], num_heads: int, head_size: int
) -> None:
    assert form.of_heads(num_heads, head_size).stable_rank() == pytest.approx(num_heads)


def test_the_stable_rank_of_a_diagonal_is_known() -> None:
    core = DenseCore(torch.diag(torch.tensor([3.0, 2.0, 1.0])))
    assert core.stable_rank() == pytest.approx((9 + 4 + 1) / 9)


@pytest.mark.parametrize(
    ("form", "count"),
    [(DenseCore, 36), (LowRankCore, 2 * 6 * 3), (SkipLeftCore, 2 * 2), (SkipRightCore, 3 * 3)],
)
def test_each_form_has_the_parameters_of_its_table(form: type[CoreMatrix], count: int) -> None:
    assert sum(parameter.numel() for parameter in form.of_heads(3, 2).parameters()) == count


def test_each_form_prints_its_sizes() -> None:
    shown = [repr(form.of_heads(3, 2)) for form in FORMS]
    assert shown == [
        "DenseCore(num_channels=6)",
        "LowRankCore(num_channels=6, matrix_rank=3)",
        "SkipLeftCore(num_heads=3, head_size=2)",
        "SkipRightCore(num_heads=3, head_size=2)",
    ]
    assert repr(IdentityCore(6)) == "IdentityCore(num_channels=6)"


def test_the_identity_follows_the_precision_of_its_layer() -> None:
    core = IdentityCore(3).double()
    assert torch.equal(core.matrix(), torch.eye(3, dtype=torch.float64))
    assert not core.state_dict()


def test_heads_of_more_than_one_feature_are_no_identity() -> None:
    with pytest.raises(LayerError, match="contains no attention with 3 heads of size 2"):
        IdentityCore.of_heads(3, 2)


def test_parameters_of_other_shapes_are_refused() -> None:
    with pytest.raises(LayerError, match=r"square matrix, got shape \(2, 3\)"):
        DenseCore(torch.zeros(2, 3))
    with pytest.raises(LayerError, match=r"S x R, got shapes \(2, 3\) and \(2, 3\)"):
        LowRankCore(torch.zeros(2, 3), torch.zeros(2, 3))
    with pytest.raises(LayerError, match=r"head size, got shapes \(2,\) and \(3,\)"):
        SkipLeftCore(2, torch.zeros(2), torch.zeros(3))
    with pytest.raises(LayerError, match=r"over heads, got shape \(4,\)"):
        SkipRightCore(torch.zeros(4), 2)
