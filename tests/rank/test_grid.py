from itertools import product

import pytest
import torch
from torch import Tensor

from rankscope.errors import TemplateError, TooLargeError
from rankscope.rank import Partition, grid_tensor, matricize


def first_times_last(inputs: Tensor) -> Tensor:
    return inputs[:, 0, 0] * inputs[:, -1, 1] + 10 * inputs[:, 1, 0]


@pytest.mark.parametrize("batch_size", [1, 5, 1000])
def test_every_entry_is_the_function_at_its_templates(batch_size: int) -> None:
    lists = [torch.arange(2 * n, dtype=torch.float64).reshape(n, 2) ** 2 for n in (2, 3, 4)]
    grid = grid_tensor(first_times_last, lists, order=3, batch_size=batch_size)
    for i, j, k in product(range(2), range(3), range(4)):
        inputs = torch.stack([lists[0][i], lists[1][j], lists[2][k]])[None]
        assert grid[i, j, k] == first_times_last(inputs)[0]


def test_one_list_of_templates_serves_all_positions() -> None:
    templates = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    grid = grid_tensor(first_times_last, templates, order=3)
    repeated = grid_tensor(first_times_last, [templates] * 3, order=3)
    torch.testing.assert_close(grid, repeated, rtol=0, atol=0)


def test_the_grid_of_a_sum_of_two_products_has_rank_two() -> None:
    """Claim 7.1: a function of separation rank 2 has matricizations of rank at most 2."""
    templates = torch.randn(3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    grid = grid_tensor(first_times_last, templates, order=4)
    assert torch.linalg.matrix_rank(matricize(grid, Partition.left_right(4))) == 2


def test_a_grid_too_large_is_refused_with_its_size() -> None:
    with pytest.raises(TooLargeError, match=r"3 x 3 x 3 needs 27 entries, over the limit of 26\."):
        grid_tensor(first_times_last, torch.zeros(3, 2), order=3, max_entries=26)


def test_values_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(
        TemplateError, match=r"shape \(4,\), got shape \(4, 5\) from inputs of shape \(4, 2, 5\)"
    ):
        grid_tensor(lambda inputs: inputs.sum(1), torch.zeros(2, 5), order=2)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_values_that_are_not_finite_are_refused(bad: float) -> None:
    templates = torch.tensor([1.0, bad])
    with pytest.raises(TemplateError, match=rf"finite, got {bad} \(3 of 4 values"):
        grid_tensor(lambda inputs: inputs.sum(1), templates, order=2)


@pytest.mark.parametrize(
    ("templates", "order", "message"),
    [
        ([torch.zeros(2, 1)] * 3, 2, "2 positions need 2 lists of templates, got 3"),
        ([torch.zeros(2, 1), torch.zeros(0, 1)], 2, r"position 1 needs .* got .* \(0, 1\)"),
        ([torch.tensor(1.0)], 1, r"position 0 needs at least 1 template, got .* shape \(\)"),
        ([torch.zeros(2, 1), torch.zeros(2, 3)], 2, r"\(1,\) .* position 0, got \(3,\) at .* 1"),
        (torch.zeros(2, 1), 0, "at least 1 input, got order 0"),
    ],
)
def test_templates_that_do_not_fit_are_refused(
    templates: Tensor | list[Tensor], order: int, message: str
) -> None:
    with pytest.raises(TemplateError, match=message):
        grid_tensor(first_times_last, templates, order=order)


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(TemplateError, match="at least 1, got 0"):
        grid_tensor(first_times_last, torch.zeros(2, 2), order=2, batch_size=0)
