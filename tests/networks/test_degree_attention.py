"""Attention of odd degree: trained and measured are one function, and deep ones train."""

import pytest
import torch

from rankscope.errors import SizeError
from rankscope.networks import DegreeAttention
from rankscope.rank import Partition, SelfAttention, measure_rank

SETTINGS: list[dict[str, int | bool]] = [
    {"depth": 2, "width": 4, "heads": 2, "num_tokens": 3},
    {"depth": 2, "width": 3, "degree": 5, "num_tokens": 4, "output_position": 2},
    {"depth": 1, "width": 4, "degree": 7, "num_tokens": 3, "embedding_rank": 2},
    {"depth": 2, "width": 4, "num_tokens": 3, "has_positions": True},
]


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("settings", SETTINGS)
def test_each_output_at_inference_is_a_self_attention(settings: dict[str, int | bool]) -> None:
    network = DegreeAttention(num_outputs=3, generator=drawn(), **settings).double()
    shape = (6, network.core.num_positions, network.core.input_size)
    inputs = torch.randn(shape, generator=drawn(1), dtype=torch.float64)
    for _ in range(3):
        network(inputs)
    network.eval()
    for output in range(3):
        found = network.polynomial(output)
        assert isinstance(found, SelfAttention)
        torch.testing.assert_close(found(inputs), network(inputs)[:, output])


@pytest.mark.parametrize(("degree", "depth", "rank"), [(3, 1, 3), (5, 1, 6), (9, 1, 18)])
def test_the_rank_at_its_weights_is_that_of_the_catalogue(
    degree: int, depth: int, rank: int
) -> None:
    network = DegreeAttention(depth=depth, width=2, degree=degree, generator=drawn())
    network(torch.randn(6, 4, 2, generator=drawn(1)))
    found = network.polynomial()
    measured = measure_rank(found, Partition.left_right(4), weights=dict(found.named_parameters()))
    assert measured.lower == rank


@pytest.mark.parametrize(("degree", "depth"), [(3, 4), (5, 3)])
def test_deep_attention_starts_at_a_sane_scale_and_learns(degree: int, depth: int) -> None:
    network = DegreeAttention(depth=depth, width=8, degree=degree, num_tokens=4, generator=drawn())
    inputs = torch.randn(64, 4, 8, generator=drawn(1))
    wanted = inputs[:, 0, :1]
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    losses = []
    for _ in range(40):
        loss = (network(inputs) - wanted).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[0] < 10
    assert losses[-1] < 0.8 * losses[0]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(SizeError, match="must be odd and at least 3, got 4"):
        DegreeAttention(depth=1, width=2, degree=4)
    with pytest.raises(SizeError, match="coordinates of a token, at most 2, got 3"):
        DegreeAttention(num_outputs=3, depth=1, width=2)
    network = DegreeAttention(num_outputs=2, depth=1, width=2)
    with pytest.raises(SizeError, match=r"the output must lie in 0\.\.1, got -1"):
        network.polynomial(-1)
    with pytest.raises(SizeError, match=r"\(batch, 4, 2\), got \(3, 4\)"):
        network(torch.ones(3, 4))
