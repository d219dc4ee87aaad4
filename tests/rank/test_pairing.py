import math

import numpy
import pytest
import torch
from torch import Tensor, nn

from rankscope.errors import FunctionError, TooLargeError
from rankscope.progress import Progress
from rankscope.rank import AnyFunction, FunctionOptions, Partition
from rankscope.rank.numeric import Halves, pair_values

PARTITION = Partition((0, 3), (1,))  # position 2 is held fixed


def halves(rows: int = 4, columns: int = 3) -> Halves:
    draw = torch.Generator().manual_seed(0)
    left = torch.randn(rows, 2, 5, generator=draw)
    right = torch.randn(columns, 1, 5, generator=draw)
    return Halves(PARTITION, left, right, torch.randn(4, 5, generator=draw))


def weighted(inputs: Tensor) -> Tensor:
    return (inputs.sum(2) * torch.tensor([1.0, 10.0, 100.0, 1000.0])).sum(1)


@pytest.mark.parametrize("batch_size", [1, 5, 12, 100])
def test_every_pair_is_evaluated_at_its_place(batch_size: int) -> None:
    given = halves()
    found = pair_values(weighted, given, FunctionOptions(batch_size=batch_size))
    for row, column in numpy.ndindex(4, 3):
        inputs = given.background.clone()
        inputs[0], inputs[3] = given.left[row]
        inputs[1] = given.right[column, 0]
        expected = weighted(inputs[None]).item()
        assert found.matrix[row, column] == pytest.approx(expected, rel=1e-5)


def test_progress_is_reported_in_pairs() -> None:
    seen: list[Progress] = []
    pair_values(weighted, halves(), FunctionOptions(batch_size=5, report=seen.append))
    assert [str(progress) for progress in seen] == [
        f"evaluating pairs: {done} of 12" for done in (5, 10, 12)
    ]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(torch.float64, 2**-52), (torch.float32, 2**-23), (torch.bfloat16, 2**-7)],
)
def test_the_precision_is_that_of_the_values(dtype: torch.dtype, expected: float) -> None:
    found = pair_values(lambda inputs: weighted(inputs).to(dtype), halves())
    assert found.precision == expected
    assert found.matrix.dtype == numpy.float64


def test_integer_values_are_taken_as_they_are() -> None:
    found = pair_values(lambda inputs: weighted(inputs).to(torch.int64), halves())
    assert (found.matrix == found.matrix.round()).all()
    assert found.precision == 2**-52


def test_a_stated_precision_is_kept() -> None:
    assert pair_values(weighted, halves(), FunctionOptions(precision=1e-3)).precision == 1e-3


@pytest.mark.parametrize("output", [1, -1, lambda pair: pair[:, 1]])
def test_one_of_several_outputs_is_chosen(output: int) -> None:
    def several(inputs: Tensor) -> Tensor:
        return torch.stack([weighted(inputs), inputs.sum((1, 2))], 1)

    found = pair_values(several, halves(), FunctionOptions(output=output))
    expected = pair_values(lambda inputs: inputs.sum((1, 2)), halves())
    assert (found.matrix == expected.matrix).all()


def test_no_gradient_is_recorded() -> None:
    layer = nn.Linear(5, 1)
    tracked: list[bool] = []

    def function(inputs: Tensor) -> Tensor:
        values: Tensor = layer(inputs).sum((1, 2))
        tracked.append(values.requires_grad)
        return values

    pair_values(function, halves())
    assert not any(tracked)


@pytest.mark.parametrize(
    ("function", "output", "message"),
    [
        (
            lambda inputs: inputs.sum(2),
            None,
            r"\(12,\), got shape \(12, 4\) .* \(12, 4, 5\).*outpu",
        ),
        (lambda inputs: inputs.sum(), None, r"12 inputs, shape \(12,\), got shape \(\)"),
        (lambda inputs: inputs.sum((1, 2)) + 1j, None, "real numbers, got torch.complex64"),
        (lambda inputs: inputs.sum((1, 2)) > 0, None, "got torch.bool.* a logit"),
        (lambda inputs: inputs.tolist(), None, "must give a tensor, got list.* output="),
        (lambda inputs: inputs.sum(2), 4, r"output=4 is not one of the 4 columns 0..3"),
        (lambda inputs: inputs.sum(2), -5, r"output=-5 is not one of the 4 columns 0..3"),
        (lambda inputs: inputs, 0, r"output=0 chooses a column .* got \(12, 4, 5\)"),
        (lambda inputs: {"logits": inputs}, 0, "output=0 chooses a column .* got dict"),
    ],
)
def test_values_of_a_wrong_kind_are_refused(
    function: AnyFunction, output: int | None, message: str
) -> None:
    with pytest.raises(FunctionError, match=message):
        pair_values(function, halves(), FunctionOptions(output=output))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused_with_their_place(bad: float) -> None:
    given = halves()
    given.left[2] = bad
    options = FunctionOptions(batch_size=7)  # of the left half 2 the first pair is number 6
    message = rf"got {bad} for left half 2 with right half 0 \(1 of 7 values of this batch"
    with pytest.raises(FunctionError, match=message):
        pair_values(weighted, given, options)


def test_a_function_may_change_its_inputs() -> None:
    def doubling(inputs: Tensor) -> Tensor:
        return weighted(inputs.mul_(2))

    expected = 2 * pair_values(weighted, halves()).matrix
    numpy.testing.assert_allclose(pair_values(doubling, halves()).matrix, expected, rtol=1e-5)


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.BatchNorm1d(4)])
def test_a_model_in_training_mode_is_refused(layer: nn.Module) -> None:
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(20, 1), nn.Flatten(0))
    many = halves(20, 20)
    with pytest.raises(FunctionError, match=r"other values for \d+ of 200 inputs .* \.eval\(\)"):
        pair_values(model, many)
    assert pair_values(model.eval(), many).matrix.shape == (20, 20)


def test_too_large_a_matrix_is_refused_with_the_largest_that_fits() -> None:
    with pytest.raises(
        TooLargeError, match=r"4 x 3 values needs 12 .* limit of 10. At most 3 left"
    ):
        pair_values(weighted, halves(), FunctionOptions(memory_limit=80))


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(FunctionError, match="batch_size must be at least 1, got 0"):
        FunctionOptions(batch_size=0)
    with pytest.raises(FunctionError, match=r"between 0 and 1, got 1\.5"):
        FunctionOptions(precision=1.5)
