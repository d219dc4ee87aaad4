from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from rankscope.diagrams import Network, Role, Sum, diagrams_of
from rankscope.reading import from_module

Check = Callable[..., Network]
quick = settings(
    deadline=None, max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@quick
@given(
    leading=st.lists(st.integers(1, 3), max_size=3),
    into=st.integers(1, 4),
    out=st.integers(1, 4),
    bias=st.booleans(),
)
def test_a_linear_layer_acts_on_the_last_axis(
    leading: list[int], into: int, out: int, bias: bool, assert_reads: Check
) -> None:
    assert_reads(nn.Linear(into, out, bias=bias), (*leading, into))


def test_a_bias_is_a_second_term_against_ones() -> None:
    (step,) = from_module(nn.Linear(4, 3), (5, 4)).steps
    assert isinstance(step.body, Sum)
    product, bias = diagrams_of(step.body)
    assert [node.source for node in product.nodes] == ["input", "weight"]
    assert [(node.source, node.role) for node in bias.nodes] == [
        ("bias", Role.PARAMETER),
        ("ones", Role.CONSTANT),
    ]
    assert product.output == bias.output == ("b", "f2")


def test_a_linear_layer_after_a_flatten_splits_its_columns(assert_reads: Check) -> None:
    network = assert_reads(nn.Sequential(nn.Flatten(), nn.Linear(24, 5, bias=False)), (2, 3, 4, 2))
    (step,) = network.steps
    (diagram,) = diagrams_of(step.body)
    weight = diagram.node_by_name["W"]
    assert [diagram.sizes[index] for index in weight.indices] == [5, 3, 4, 2]


def test_a_bilinear_layer_shares_the_leading_axes(assert_reads: Check) -> None:
    assert_reads(nn.Bilinear(3, 4, 5), (2, 6, 3), (2, 6, 4))
    assert_reads(nn.Bilinear(3, 4, 5, bias=False), (3,), (4,))


@pytest.mark.parametrize("shape", [(5,), (2, 5), (2, 3, 4)])
def test_an_embedding_is_a_one_hot_node_times_a_table(
    shape: tuple[int, ...], assert_reads: Check
) -> None:
    network = assert_reads(nn.Embedding(7, 3, padding_idx=0, sparse=True), shape, below=7)
    (diagram,) = diagrams_of(network)
    assert [node.is_one_hot for node in diagram.nodes] == [True, False]


class Positions(nn.Module):
    def __init__(self, start: int = 2, step: int = 1) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 3)
        self.start, self.step = start, step

    def forward(self, x: Tensor) -> Tensor:
        stop = self.start + self.step * x.shape[1]
        places = torch.arange(self.start, stop, self.step, device=x.device)
        found: Tensor = self.table(places) + F.embedding(places[None], self.table.weight)
        return x + found


def test_a_table_at_known_positions_is_rows_of_it(assert_reads: Check) -> None:
    network = assert_reads(Positions(), (2, 4, 3))
    rows = [node.rows for node in diagrams_of(network)[1].nodes if node.source == "table.weight"]
    assert rows == [(2, 6)]


class Lookup(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.table(x + 1)  # type: ignore[no-any-return]
