from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankscope.diagrams import Network, diagrams_of
from rankscope.reading.simplifying import split_rows

Check = Callable[..., Network]


class Joint(nn.Module):
    """Queries, keys and values from one layer, as nanoGPT and timm compute them."""

    def __init__(self, how: str, *, bias: bool) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(8, 24, bias=bias), nn.Linear(8, 8, bias=False)
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        batch, length, size = x.shape
        if self.how == "split":
            parts = self.qkv(x).split(size, dim=-1)
            query, key, value = (p.view(batch, length, 2, 4).transpose(1, 2) for p in parts)
        else:
            joint = self.qkv(x).reshape(batch, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
            query, key, value = joint.unbind(0) if self.how == "unbind" else joint
        found = F.scaled_dot_product_attention(query, key, value)
        return self.proj(found.transpose(1, 2).reshape(x.shape))  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["split", "unbind", "iterate"])
def test_a_joint_layer_without_bias_is_the_picture_of_multi_head_attention(
    how: str, assert_reads: Check
) -> None:
    network = assert_reads(Joint(how, bias=False), (2, 5, 8))
    (diagram,) = diagrams_of(network)
    sources = [node.source for node in diagram.nodes]
    assert (sources.count("x"), sources.count("qkv.weight")) == (3, 3)
    rows = [node.rows for node in diagram.nodes if node.source == "qkv.weight"]
    assert sorted(span for span in rows if span) == [(0, 8), (8, 16), (16, 24)]
    assert diagram.regions[0].scale == "D**-0.5"


@pytest.mark.parametrize("how", ["split", "unbind"])
def test_a_joint_layer_with_bias_is_three_steps(how: str, assert_reads: Check) -> None:
    network = assert_reads(Joint(how, bias=True), (2, 5, 8))
    assert [(step.name, step.label) for step in network.steps] == [
        ("qkv.query", r"\mathbf{Q}"),
        ("qkv.key", r"\mathbf{K}"),
        ("qkv.value", r"\mathbf{V}"),
        ("proj", r"\mathbf{X}_{1}"),
    ]
    labels = [node.label for node in diagrams_of(network.steps[1].body)[0].nodes]
    assert labels == [r"\mathbf{X}_{0}", r"\mathbf{W}^{K}"]


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.both, self.norm = nn.Linear(4, 6), nn.LayerNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        left, right = F.gelu(self.both(x)).chunk(2, dim=-1)
        return left * right


class Normed(Gated):
    def forward(self, x: Tensor) -> Tensor:
        left, right = self.norm(self.both(x)).chunk(2, dim=-1)
        return left * right  # type: ignore[no-any-return]


class Whole(Gated):
    def forward(self, x: Tensor) -> Tensor:
        both = self.both(x)
        return both * both[:, :1]  # type: ignore[no-any-return]


class Columns(Gated):
    def forward(self, x: Tensor) -> Tensor:
        both = self.both.weight @ x.T
        return both + both[:1] * both[2:3]


class Softmax(Gated):
    def forward(self, x: Tensor) -> Tensor:
        left, right = (x @ self.both.weight.T).softmax(-1).chunk(2, dim=-1)
        return left - right


class Transposed(Gated):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        left, right = (x @ self.table).chunk(2, dim=-1)
        return left - right


@pytest.mark.parametrize("kind", [Gated, Normed, Whole, Columns, Softmax, Transposed])
def test_parts_behind_functions_norms_and_whole_reads_keep_their_value(
    kind: type[nn.Module], assert_reads: Check
) -> None:
    assert_reads(kind(), (3, 4))


def test_a_network_that_is_read_whole_is_left_alone(assert_reads: Check) -> None:
    network = assert_reads(nn.Sequential(nn.Linear(4, 3), nn.Tanh()), (2, 4))
    assert split_rows(network, {"0.weight": 3, "0.bias": 3}) == network


class Slices(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(1, 7, 4))
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.table[:, 1 : 1 + x.shape[1]]
        return self.head(x[:, -1]) - self.head(x)[:, 0]  # type: ignore[no-any-return]


def test_positions_of_a_sequence_are_rows(assert_reads: Check) -> None:
    network = assert_reads(Slices(), (2, 5, 4))
    rows = {n.source: n.rows for d in diagrams_of(network) for n in d.nodes if n.rows is not None}
    assert rows["table"] == (1, 6)
