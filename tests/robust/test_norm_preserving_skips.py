import pytest
import torch
from torch import nn

from rankscope.errors import LayerError
from rankscope.robust import ConcatenativeSkip, ConvexSkip, OrthogonalConv2d


def test_the_mean_is_weighted_by_a_sigmoid_and_starts_in_the_middle() -> None:
    double = nn.Linear(3, 3, bias=False)
    double.weight.data = 2 * torch.eye(3)
    skip, inputs = ConvexSkip(double), torch.randn(2, 3)
    torch.testing.assert_close(skip(inputs), 1.5 * inputs)
    skip.balance.data.fill_(2.0)
    kept = 1 / (1 + torch.exp(torch.tensor(-2.0)))
    torch.testing.assert_close(skip.share(), kept)
    torch.testing.assert_close(skip(inputs), (kept + (1 - kept) * 2) * inputs)


def test_paths_of_different_shapes_are_refused() -> None:
    with pytest.raises(LayerError, match=r"shortcut gives the shape \(2, 3\), .* \(2, 5\)"):
        ConvexSkip(nn.Linear(3, 5))(torch.zeros(2, 3))
    with pytest.raises(LayerError, match=r"must keep the shape \(2, 2\), got \(2, 5\)"):
        ConcatenativeSkip(nn.Linear(2, 5))(torch.zeros(2, 4))
    with pytest.raises(LayerError, match=r"must be even, got inputs of shape \(2, 3\)"):
        ConcatenativeSkip(nn.Identity())(torch.zeros(2, 3))


def test_a_concatenative_skip_around_an_orthogonal_map_is_orthogonal() -> None:
    skip = ConcatenativeSkip(OrthogonalConv2d(2, 2, 3, bias=False)).double()
    basis = torch.eye(64, dtype=torch.float64).reshape(64, 4, 4, 4)
    matrix = skip(basis).flatten(1)
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(64, dtype=torch.float64))


def test_the_kept_half_and_the_changed_half_take_turns() -> None:
    double = nn.Linear(2, 2, bias=False)
    double.weight.data = 2 * torch.eye(2)
    outputs = ConcatenativeSkip(double)(torch.tensor([[1.0, 2.0, 10.0, 20.0]]))
    assert outputs.tolist() == [[1.0, 20.0, 2.0, 40.0]]
