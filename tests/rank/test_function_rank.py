import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.errors import FunctionError, MetricError, PartitionError
from rankscope.rank import (
    Frobenius,
    FunctionOptions,
    Partition,
    Supremum,
    normal_inputs,
    separation_rank,
)


@settings(deadline=None, max_examples=25)
@given(
    left=st.sets(st.integers(0, 3), min_size=1, max_size=3),
    degree=st.integers(0, 5),
    seed=st.integers(0, 999),
)
def test_a_power_of_a_sum_has_one_more_than_its_degree(
    left: set[int], degree: int, seed: int
) -> None:
    """(f(x^A) + g(x^B))^k is the sum of k + 1 products of powers, which are independent."""
    weights = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed)).double()

    def power(inputs: Tensor) -> Tensor:
        return torch.einsum("bps,ps->b", inputs, weights) ** degree

    found = separation_rank(
        power, Partition.of(left, order=4), inputs=normal_inputs(24, 4, 3, seed=seed)
    )
    assert found.numeric.value == found.lower == degree + 1
    assert found.is_saturated
    assert found.upper is None
    assert found.method == "numeric"


def test_the_curve_follows_the_sample_until_it_saturates() -> None:
    def five(inputs: Tensor) -> Tensor:
        return (inputs[:, 0] * inputs[:, 1]).sum(1)

    found = separation_rank(five, Partition((0,), (1,)), inputs=normal_inputs(20, 2, 5, seed=1))
    assert [(point.samples, point.matrix_rank) for point in found.curve] == [
        (1, 1),
        (2, 2),
        (4, 4),
        (8, 5),
        (16, 5),
        (20, 5),
    ]
    assert found.curve[0].entanglement_entropy == 0
    assert all(p.entanglement_entropy <= math.log(p.matrix_rank) + 1e-12 for p in found.curve)
    assert found.curve[-1].entanglement_entropy == found.numeric.entanglement_entropy
    few = separation_rank(five, Partition((0,), (1,)), inputs=normal_inputs(4, 2, 5, seed=1))
    assert [point.samples for point in few.curve] == [1, 2, 4]
    assert not few.is_saturated
    assert "not saturated: take more samples" in str(few)


def test_a_rank_that_the_tolerance_cut_off_is_not_called_saturated() -> None:
    """The function exp(x · z) has infinitely many singular values, of 3 inputs close together."""
    found = separation_rank(
        lambda given: torch.exp(given.prod(1).sum(1)),
        Partition((0,), (1,)),
        inputs=normal_inputs(300, 2, 3, seed=0),
    )
    assert 50 < found.numeric.value < 300
    assert not found.is_saturated
    assert "(undecided: the spectrum has no gap at the tolerance)" in str(found)


def test_positions_on_neither_side_are_held_at_the_background() -> None:
    inputs = normal_inputs(6, 3, 1, seed=0)
    partition = Partition((0,), (2,))

    def gated(given: Tensor) -> Tensor:
        return given[:, 0, 0] + given[:, 1, 0] * given[:, 2, 0]

    assert separation_rank(gated, partition, inputs=inputs).numeric.value == 2
    options = FunctionOptions(background=torch.zeros(3, 1))
    assert separation_rank(gated, partition, inputs=inputs, options=options).numeric.value == 1


def test_single_precision_is_judged_by_its_own_rounding() -> None:
    def product(given: Tensor) -> Tensor:
        return given.sum(2).prod(1)

    inputs = normal_inputs(30, 2, 4, seed=0).float()
    assert separation_rank(product, Partition((0,), (1,)), inputs=inputs).numeric.value == 1
    options = FunctionOptions(precision=1e-16)
    strict = separation_rank(product, Partition((0,), (1,)), inputs=inputs, options=options)
    assert strict.numeric.value > 1


def test_a_softmax_transformer_on_tokens() -> None:
    """A trained model's way: token numbers in, one logit out, the same every time."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
    model = nn.Sequential(
        nn.Embedding(11, 8),
        nn.TransformerEncoder(layer, 1, enable_nested_tensor=False),
        nn.Flatten(),
        nn.Linear(48, 3),
    )
    model = model.double().eval()
    tokens = torch.randint(0, 11, (40, 6), generator=torch.Generator().manual_seed(1))
    partition = Partition.interleaved(6)
    options = FunctionOptions(output=2)
    found = separation_rank(model, partition, inputs=tokens, options=options)
    again = separation_rank(model, partition, inputs=tokens, options=options)
    assert found.to_dict() == again.to_dict()
    assert found.numeric.value > 10  # softmax is no polynomial: the sample is the limit
    assert 0 < found.numeric.entanglement_entropy < math.log(40)


def test_images_are_split_by_patches_through_a_function() -> None:
    convolution = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))

    def of_patches(patches: Tensor) -> Tensor:  # (batch, 4 patches, 2, 2)
        rows = patches.reshape(-1, 2, 2, 2, 2).permute(0, 1, 3, 2, 4)
        values: Tensor = convolution(rows.reshape(-1, 1, 4, 4))
        return values

    patches = normal_inputs(12, 4, 4, seed=0).float().reshape(12, 4, 2, 2)
    options = FunctionOptions(output=0)
    found = separation_rank(of_patches, Partition.left_right(4), inputs=patches, options=options)
    assert found.samples == (12, 12)
    assert found.numeric.value >= 2


def test_an_epsilon_rank_is_that_of_the_matrix_of_values() -> None:
    """x + z / 1000: rank 2, but within 0.1 of x alone."""

    def nearly(given: Tensor) -> Tensor:
        return given[:, 0, 0] + given[:, 1, 0] / 1000

    inputs = normal_inputs(10, 2, 1, seed=0)
    found = separation_rank(nearly, Partition((0,), (1,)), inputs=inputs, epsilon=0.1)
    assert (found.numeric.value, found.lower, found.upper) == (2, 1, 1)
    assert found.method == "epsilon"
    assert str(found).endswith(
        "epsilon rank 1 (root-mean-square distance at most 0.1) on the sample"
    )
    for metric in (Frobenius(), Supremum()):
        other = separation_rank(
            nearly, Partition((0,), (1,)), inputs=inputs, epsilon=1e-6, metric=metric
        )
        assert (other.lower, other.upper) == (2, 2)


def test_results_are_plain_data() -> None:
    found = separation_rank(
        lambda given: given.sum((1, 2)),
        Partition((0,), (1,)),
        inputs=normal_inputs(3, 2, 1, seed=0),
        epsilon=1e-9,
    )
    data = json.loads(json.dumps(found.to_dict()))
    assert (data["lower"], data["upper"], data["method"]) == (2, 2, "epsilon")
    assert data["samples"] == [3, 3]
    assert data["partition"] == {"left": [0], "right": [1]}
    assert data["epsilon"]["metric"] == "root-mean-square distance"
    assert [point["rank"] for point in data["curve"]] == [1, 2, 2]
    assert len(data["singular_values"]) == 3
    constant = separation_rank(
        lambda given: given.sum((1, 2)) * 0,
        Partition((0,), (1,)),
        inputs=normal_inputs(3, 2, 1, seed=0),
    )
    assert constant.to_dict()["gap"] is None
    assert str(constant).startswith("rank 0 (tolerance 0.0e+00, gap inf) on 3 x 3 samples (saturat")


def test_normal_inputs_are_the_same_for_the_same_seed() -> None:
    first = normal_inputs(4, 3, 2, seed=5)
    assert first.shape == (4, 3, 2)
    assert first.dtype == torch.float64
    assert torch.equal(first, normal_inputs(4, 3, 2, seed=5))
    assert not torch.equal(first, normal_inputs(4, 3, 2, seed=6))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([[1.0, 2.0]], "got list.* torch.as_tensor"),
        (None, "got NoneType.* normal_inputs"),
        (torch.zeros(0, 4, 3), r"at least 1 sample, got shape \(0, 4, 3\)"),
        (torch.zeros(4), r"got shape \(4,\)"),
    ],
)
def test_inputs_that_are_no_sample_are_refused(inputs: object, message: str) -> None:
    with pytest.raises(FunctionError, match=message):
        separation_rank(lambda given: given.sum((1, 2)), Partition((0,), (1,)), inputs=inputs)


def test_a_position_that_the_inputs_do_not_have_is_refused() -> None:
    with pytest.raises(PartitionError, match=r"names position 4, but order 3 .* 0\.\.2"):
        separation_rank(
            lambda given: given.sum((1, 2)), Partition((0,), (4,)), inputs=torch.ones(2, 3, 1)
        )


@pytest.mark.parametrize(
    ("inputs", "background", "message"),
    [
        (torch.ones(2, 3, 1), torch.zeros(3), r"float32 of shape \(3, 1\), got .* shape \(3,\)"),
        (torch.ones(2, 3).long(), torch.zeros(3), r"int64 of shape \(3,\), got torch.float32"),
    ],
)
def test_a_background_unlike_an_input_is_refused(
    inputs: Tensor, background: Tensor, message: str
) -> None:
    options = FunctionOptions(background=background)
    with pytest.raises(FunctionError, match=message):
        separation_rank(lambda x: x.sum(1), Partition((0,), (2,)), inputs=inputs, options=options)


@pytest.mark.parametrize("epsilon", [-1.0, math.nan])
def test_a_bad_epsilon_is_refused_before_anything_is_evaluated(epsilon: float) -> None:
    def never(given: Tensor) -> Tensor:
        raise AssertionError(given.shape)

    with pytest.raises(MetricError, match=rf"separation_rank: epsilon must .* got {epsilon}"):
        separation_rank(never, Partition((0,), (1,)), inputs=torch.ones(2, 2, 1), epsilon=epsilon)
