import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import dropout as torch_dropout

from rankscope.errors import ConstructionError
from rankscope.factorize import cp_rank
from rankscope.lab.constructions import (
    BatchNormalization,
    EarlyStopping,
    JacobianRange,
    branches,
    compose,
    concentration_bound,
    dropout,
    jacobian_range,
    l2_penalty,
    layer_normalize,
    moments,
    pure_factors,
    pure_tensor,
    soft_threshold,
    softmax,
    softmax_properties,
    tensor_product,
)

# Softmax.


scores = st.lists(st.floats(-20.0, 20.0), min_size=1, max_size=8, unique=True)


@settings(deadline=None)
@given(numbers=scores, shift=st.floats(-100.0, 100.0), sharpness=st.floats(0.1, 50.0))
def test_the_four_properties(numbers: list[float], shift: float, sharpness: float) -> None:
    vector = torch.tensor(numbers, dtype=torch.float64)
    result = softmax_properties(vector, shift=shift, sharpness=sharpness)
    assert 0 < result.smallest <= result.largest <= 1
    assert result.sum_error < 1e-14
    # Adding the shift rounds scores to about 1e-14, and weights move by no more than scores do.
    assert result.shift_error < 1e-12
    assert result.distance <= result.bound + 1e-14


@settings(deadline=None)
@given(numbers=scores)
def test_softmax_is_torchs(numbers: list[float]) -> None:
    vector = torch.tensor(numbers, dtype=torch.float64)
    torch.testing.assert_close(softmax(vector), torch.softmax(vector, dim=0))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_is_along_one_axis(axis: int) -> None:
    values = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(softmax(values, axis=axis), torch.softmax(values, dim=axis))


def test_the_distance_to_the_maximum_falls_with_the_sharpness() -> None:
    vector = torch.tensor([1.0, 3.0, 2.0])
    distances = [softmax_properties(vector, sharpness=sharp).distance for sharp in (1.0, 5.0, 25.0)]
    assert distances[0] > 10 * distances[1] > 100 * distances[2]


def test_one_score_has_all_the_weight() -> None:
    assert softmax_properties(torch.tensor([5.0])).largest == 1.0
    assert concentration_bound(torch.tensor([5.0]), sharpness=1.0) == 0.0


def test_two_greatest_scores_are_refused() -> None:
    with pytest.raises(ConstructionError, match="got 3 twice"):
        softmax_properties(torch.tensor([3.0, 1.0, 3.0]))


@pytest.mark.parametrize("shape", [(2, 2), (0,)])
def test_what_is_no_vector_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConstructionError, match=rf"got shape \({shape[0]}"):
        softmax_properties(torch.zeros(shape))


# Normalization.


sizes = st.integers(2, 5)
seeds = st.integers(0, 2**16)


def random(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(*shape, generator=generator, dtype=torch.float64) + 1


@settings(deadline=None, max_examples=30)
@given(batch=sizes, channels=sizes, side=sizes, seed=seeds)
def test_batch_normalization_is_torchs_in_training_and_inference(
    batch: int, channels: int, side: int, seed: int
) -> None:
    theirs = nn.BatchNorm2d(channels, dtype=torch.float64)
    shape = (channels, side, side)
    ours = BatchNormalization.new(shape, over=(0, 2, 3), dtype=torch.float64)
    for step in range(3):
        images = random(seed + step, batch, *shape)
        outputs, ours = ours.train(images)
        torch.testing.assert_close(outputs, theirs(images))
    theirs.eval()
    torch.testing.assert_close(ours.infer(images), theirs(images))
    assert theirs.running_mean is not None
    assert theirs.running_var is not None
    torch.testing.assert_close(ours.mean.flatten(), theirs.running_mean)
    torch.testing.assert_close(ours.variance.flatten(), theirs.running_var)


@settings(deadline=None, max_examples=30)
@given(batch=sizes, positions=sizes, channels=sizes, seed=seeds)
def test_the_lectures_batch_normalization_is_torchs_with_a_feature_for_each_entry(
    batch: int, positions: int, channels: int, seed: int
) -> None:
    values = random(seed, batch, positions, channels)
    layer = BatchNormalization.new((positions, channels), dtype=torch.float64)
    theirs = nn.BatchNorm1d(positions * channels, dtype=torch.float64)
    torch.testing.assert_close(layer.train(values)[0].flatten(1), theirs(values.flatten(1)))


@settings(deadline=None, max_examples=30)
@given(batch=sizes, positions=sizes, channels=sizes, num_axes=st.integers(1, 2), seed=seeds)
def test_layer_normalization_is_torchs(
    batch: int, positions: int, channels: int, num_axes: int, seed: int
) -> None:
    values = random(seed, batch, positions, channels)
    theirs = nn.LayerNorm(values.shape[-num_axes:], dtype=torch.float64)
    torch.testing.assert_close(layer_normalize(values, num_axes=num_axes), theirs(values))


@settings(deadline=None, max_examples=30)
@given(seed=seeds, scale=st.floats(0.5, 2.0), shift=st.floats(-5.0, 5.0))
def test_layer_normalization_does_not_see_the_scale_and_shift_of_a_sample(
    seed: int, scale: float, shift: float
) -> None:
    values = random(seed, 3, 8)
    before = layer_normalize(values, epsilon=0.0)
    torch.testing.assert_close(layer_normalize(scale * values + shift, epsilon=0.0), before)


def test_normalized_values_have_mean_zero_and_variance_one() -> None:
    result = moments(layer_normalize(random(0, 4, 50), epsilon=0.0), over=(1,))
    torch.testing.assert_close(result.mean, torch.zeros_like(result.mean))
    torch.testing.assert_close(result.variance, torch.ones_like(result.variance))
    assert result.count == 50


def test_scale_and_shift_come_last() -> None:
    layer = BatchNormalization.new((2,))
    layer = BatchNormalization(
        layer.mean, layer.variance, (0,), 0.1, 0.0, layer.scale * 3, layer.shift + 7
    )
    batch = torch.tensor([[1.0, 4.0], [3.0, 8.0]])
    assert layer.train(batch)[0].tolist() == [[4.0, 4.0], [10.0, 10.0]]
    assert layer.infer(batch).tolist() == [[10.0, 19.0], [16.0, 31.0]]


@pytest.mark.parametrize("over", [(3,), (-4,), (1, -2), (0, 0)])
def test_axes_that_are_not_there_are_refused(over: tuple[int, ...]) -> None:
    with pytest.raises(ConstructionError, match=r"of the 3 axes of shape \(2, 3, 4\)"):
        moments(torch.zeros(2, 3, 4), over=over)


def test_no_axis_and_no_value_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"got axes \(\) of shape \(2,\)"):
        moments(torch.zeros(2), over=())
    with pytest.raises(ConstructionError, match=r"got axes \(0,\) of shape \(0, 3\)"):
        moments(torch.zeros(0, 3), over=(0,))


def test_a_batch_of_one_is_refused() -> None:
    with pytest.raises(ConstructionError, match=r"at least 2 values.*got 1 in .* \(1, 3\)"):
        BatchNormalization.new((3,)).train(torch.zeros(1, 3))


def test_batch_normalization_must_average_over_the_batch() -> None:
    with pytest.raises(ConstructionError, match=r"axis 0, got over=\(1,\)"):
        BatchNormalization.new((3,), over=(1,))


# Skip connections.


depths, widths = st.integers(1, 4), st.integers(1, 5)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(deadline=None, max_examples=25)
@given(depth=depths, width=widths, seed=seeds, gain=st.floats(0.05, 1.0))
def test_with_skips_singular_values_stay_between_their_bounds(
    depth: int, width: int, seed: int, gain: float
) -> None:
    maps = branches(depth, width, generator=generator(seed), gain=gain)
    inputs = torch.randn(width, generator=generator(seed + 1), dtype=torch.float64)
    result = jacobian_range(maps, inputs, with_skips=True)
    low, high = result.skip_bounds
    assert low - 1e-12 <= result.smallest <= result.largest <= high + 1e-12


@settings(deadline=None, max_examples=25)
@given(depth=depths, width=widths, seed=seeds)
def test_without_skips_norms_only_multiply(depth: int, width: int, seed: int) -> None:
    maps = branches(depth, width, generator=generator(seed))
    inputs = torch.randn(width, generator=generator(seed + 1), dtype=torch.float64)
    result = jacobian_range(maps, inputs, with_skips=False)
    product = torch.tensor(result.branch_norms, dtype=torch.float64).prod()
    assert result.largest <= float(product) + 1e-12


def test_composition_is_its_definition() -> None:
    maps = branches(3, 4, generator=generator(0))
    inputs = torch.randn(2, 4, generator=generator(1), dtype=torch.float64)
    torch.testing.assert_close(
        compose(maps, inputs, with_skips=False), nn.Sequential(*maps)(inputs)
    )
    for branch in maps:
        inputs = inputs + branch(inputs)
    again = torch.randn(2, 4, generator=generator(1), dtype=torch.float64)
    torch.testing.assert_close(compose(maps, again, with_skips=True), inputs)


def test_branches_that_are_zero_leave_the_identity_or_nothing() -> None:
    maps = [torch.zeros_like, torch.zeros_like]
    inputs = torch.arange(3, dtype=torch.float64)
    assert torch.equal(compose(maps, inputs, with_skips=True), inputs)
    assert jacobian_range(maps, inputs, with_skips=True) == JacobianRange(1.0, 1.0, (0.0, 0.0))
    assert jacobian_range(maps, inputs, with_skips=False).largest == 0.0


def test_a_branch_that_changes_the_size_is_refused_under_a_skip() -> None:
    with pytest.raises(ConstructionError, match=r"got shapes \(3,\) and \(2,\)"):
        compose([lambda values: values[:2]], torch.zeros(3), with_skips=True)


def test_sizes_that_are_not_positive_are_refused() -> None:
    with pytest.raises(ConstructionError, match="got 0 and 3"):
        branches(0, 3, generator=generator(0))


def test_the_derivative_is_taken_at_one_vector() -> None:
    with pytest.raises(ConstructionError, match=r"one input vector, got shape \(2, 2\)"):
        jacobian_range([torch.zeros_like], torch.zeros(2, 2), with_skips=True)


# Regularizers.


def random_tensor(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_penalties_are_sums_over_all_parameters() -> None:
    parameters = [torch.tensor([[3.0, -4.0]]), torch.tensor([1.0])]
    assert l2_penalty(parameters) == 13.0


@settings(deadline=None, max_examples=40)
@given(seed=seeds, threshold=st.floats(0.0, 2.0))
def test_soft_thresholding_minimizes_distance_and_l1_penalty(seed: int, threshold: float) -> None:
    values = random_tensor(seed, 6)
    best = soft_threshold(values, threshold)

    def objective(point: torch.Tensor) -> float:
        return float((point - values).square().sum() / 2 + threshold * point.abs().sum())

    for other in range(20):
        near = best + 0.1 * random_tensor(seed + other, 6)
        assert objective(best) <= objective(near) + 1e-12
    assert bool((best[values.abs() <= threshold] == 0).all())


@settings(deadline=None, max_examples=25)
@given(seed=seeds, rate=st.floats(0.01, 0.5), decay=st.floats(0.0, 1.0))
def test_decay_is_the_l2_penalty_and_torchs_weight_decay(
    seed: int, rate: float, decay: float
) -> None:
    target = random_tensor(seed + 1, 5)
    theirs, penalized = (
        random_tensor(seed, 5).requires_grad_(),
        random_tensor(seed, 5).requires_grad_(),
    )
    ours = random_tensor(seed, 5)
    optimizer = torch.optim.SGD([theirs], lr=rate, weight_decay=decay)
    plain = torch.optim.SGD([penalized], lr=rate)
    for _ in range(5):
        ours = (1 - rate * decay) * ours - rate * (ours - target)
        optimizer.zero_grad()
        torch.autograd.backward((theirs - target).square().sum() / 2)
        optimizer.step()
        plain.zero_grad()
        loss = (penalized - target).square().sum() / 2 + decay * l2_penalty([penalized])
        torch.autograd.backward(loss)
        plain.step()
    torch.testing.assert_close(ours, theirs.detach())
    torch.testing.assert_close(ours, penalized.detach())


def test_with_adam_decay_and_penalty_go_different_ways() -> None:
    target = random_tensor(1, 5)
    ends = []
    for make in (torch.optim.Adam, torch.optim.AdamW):
        theta = random_tensor(0, 5).requires_grad_()
        optimizer = make([theta], lr=0.1, weight_decay=0.5)
        for _ in range(10):
            optimizer.zero_grad()
            torch.autograd.backward((theta - target).square().sum() / 2)
            optimizer.step()
        ends.append(theta.detach())
    assert (ends[0] - ends[1]).abs().max() > 0.01


@settings(deadline=None, max_examples=25)
@given(seed=seeds, probability=st.floats(0.0, 0.9))
def test_dropout_is_torchs_with_the_same_choices(seed: int, probability: float) -> None:
    values = random_tensor(seed, 4, 5)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        theirs = torch_dropout(values, probability)
        torch.manual_seed(seed)
        is_kept = torch_dropout(torch.ones_like(values), probability) > 0
    torch.testing.assert_close(dropout(values, is_kept, probability=probability), theirs)


@pytest.mark.parametrize("probability", [0.0, 0.3, 0.5])
def test_the_mean_over_all_choices_is_the_value(probability: float) -> None:
    values = random_tensor(0, 4)
    mean = torch.zeros_like(values)
    for choice in itertools.product([True, False], repeat=4):
        chance = (1 - probability) ** sum(choice) * probability ** (4 - sum(choice))
        mean += chance * dropout(values, torch.tensor(choice), probability=probability)
    torch.testing.assert_close(mean, values)


@settings(deadline=None)
@given(losses=st.lists(st.floats(-5.0, 5.0), min_size=1, max_size=12), patience=st.integers(1, 12))
def test_early_stopping_takes_the_best_loss_it_saw(losses: list[float], patience: int) -> None:
    best = EarlyStopping(patience).best_step(losses)
    assert losses[best] == min(losses[: best + patience + 1])
    assert EarlyStopping(len(losses)).best_step(losses) == losses.index(min(losses))


def test_wrong_probabilities_shapes_and_patience_are_refused() -> None:
    with pytest.raises(ConstructionError, match="below 1, got 1"):
        dropout(torch.zeros(2), torch.ones(2).bool(), probability=1.0)
    with pytest.raises(ConstructionError, match=r"got shapes \(3,\) and \(2,\)"):
        dropout(torch.zeros(2), torch.ones(3).bool(), probability=0.5)
    with pytest.raises(ConstructionError, match="1 or more, got 0"):
        EarlyStopping(0)
    with pytest.raises(ConstructionError, match="1 or more losses, got 0"):
        EarlyStopping(1).best_step([])


# Tensor product.


shapes = st.lists(st.integers(1, 3), min_size=1, max_size=3)


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
    result = tensor_product(left, middle)
    assert torch.equal(result, torch.tensordot(left, middle, dims=0))
    last = (-1,) * len(second)
    assert result[(*([0] * len(first)), *last)] == left.flatten()[0] * middle[last]
    assert torch.equal(
        tensor_product(result, right), tensor_product(left, tensor_product(middle, right))
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


@pytest.mark.slow
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
