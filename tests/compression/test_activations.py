"""Scores from activations: the weighted error of a weight is the error of its outputs."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import unfold

from rankscope.compression import Activations, ErrorNorm
from rankscope.errors import CompressionError

TINY = 1e-12  # a ridge far below the tolerances of the comparisons


def prepared(model: nn.Module, batches: list[object], ridge: float = TINY) -> Activations:
    scoring = Activations(batches, ridge=ridge)  # type: ignore[arg-type]
    scoring.prepare(model)
    return scoring


def factor_of(scoring: Activations, name: str) -> Tensor:
    error_norm = scoring.error_norm(name)
    assert isinstance(error_norm, ErrorNorm)
    assert error_norm.factor is not None
    return error_norm.factor


def test_the_weighted_error_of_a_linear_map_is_that_of_its_outputs() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Tanh(), nn.Linear(4, 3)).double()
    batches = [torch.randn(2, 5, 4).double(), torch.randn(7, 4).double()]
    factor = factor_of(prepared(model, list(batches)), "1")
    change = torch.randn(3, 4).double()
    rows = torch.cat([batch.tanh().reshape(-1, 4) for batch in batches])
    outputs = (rows @ change.T).square().sum(dim=1).mean()
    torch.testing.assert_close((change @ factor).square().sum(), outputs)


def test_a_convolution_counts_channels_over_all_positions_and_groups_apart() -> None:
    torch.manual_seed(0)
    model = nn.Conv2d(6, 4, 1, groups=2).double()
    images = torch.randn(3, 6, 4, 5).double()
    factor = factor_of(prepared(model, [images]), "")
    assert factor.shape == (2, 3, 3)
    columns = unfold(images, 1).reshape(3, 2, 3, -1)
    wanted = torch.einsum("ngip,ngjp->gij", columns, columns) / (3 * 20)
    torch.testing.assert_close(factor @ factor.mT, wanted)


def test_one_group_and_one_dimension_give_a_plain_matrix() -> None:
    model = nn.Conv1d(2, 4, 3).double()
    inputs = torch.randn(3, 2, 8).double()
    factor = factor_of(prepared(model, [inputs, inputs[0]]), "")
    rows = torch.cat([inputs, inputs[:1]]).movedim(1, 2).reshape(-1, 2)
    torch.testing.assert_close(factor @ factor.mT, rows.T @ rows / len(rows))


def test_rows_of_an_embedding_count_as_often_as_they_are_looked_up() -> None:
    model = nn.Embedding(3, 2)
    error_norm = prepared(model, [torch.tensor([[0, 0], [2, 0]]), torch.tensor([0])]).error_norm("")
    assert error_norm is not None
    assert error_norm.rows is not None
    assert error_norm.factor is None
    # 4, 0 and 1 times, and each once more.
    wanted = torch.tensor([5.0, 1.0, 2.0], dtype=torch.float64) / 8
    torch.testing.assert_close(error_norm.rows.square(), wanted)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("is_float", [False, True])
def test_attention_sees_what_its_four_projections_see(batch_first: bool, is_float: bool) -> None:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(4, 2, kdim=3, vdim=5, batch_first=batch_first).double()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
            outputs: Tensor = self.attention(query, key, value=value, key_padding_mask=mask)[0]
            return outputs

    query, key, value = (
        torch.randn(2, length, size).double() for length, size in ((3, 4), (6, 3), (6, 5))
    )
    mask = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    given = torch.zeros(2, 6).double().masked_fill(mask, float("-inf")) if is_float else mask
    inputs = [query, key, value]
    laid_out = inputs if batch_first else [part.movedim(0, 1) for part in inputs]
    scoring = prepared(Model(), [(*laid_out, given)])

    def moments(rows: Tensor) -> Tensor:
        return rows.mT @ rows / len(rows)

    for name, rows in {
        "query": query.reshape(-1, 4),
        "key": key[~mask],
        "value": value[~mask],
    }.items():
        factor = factor_of(scoring, f"attention.{name}")
        torch.testing.assert_close(factor @ factor.mT, moments(rows))
    # The outputs follow from what the output projection sees: y = W x + b.
    factor = factor_of(scoring, "attention.out")
    outputs, _ = attention(*laid_out, key_padding_mask=given)
    weight, bias = attention.out_proj.weight, attention.out_proj.bias
    heads = torch.linalg.solve(weight, (outputs.reshape(-1, 4) - bias).T).T
    torch.testing.assert_close(factor @ factor.mT, moments(heads))


def test_a_transformer_layer_is_watched_although_it_has_a_fast_path() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    scoring = prepared(nn.TransformerEncoder(layer, 2), [torch.randn(2, 3, 4)])
    for name in ("self_attn.query", "self_attn.out", "linear1", "linear2"):
        assert scoring.error_norm(f"layers.1.{name}") is not None, name


def test_recurrent_weights_are_weighed_by_inputs_and_states() -> None:
    torch.manual_seed(0)
    model = nn.LSTM(3, 4, num_layers=2, proj_size=2).double()
    scoring = prepared(model, [torch.randn(5, 2, 3).double()])
    sizes = {name: factor_of(scoring, name).shape[0] for name in ("weight_ih_l0", "weight_hh_l0")}
    assert sizes == {"weight_ih_l0": 3, "weight_hh_l0": 2}
    assert factor_of(scoring, "weight_ih_l1").shape == (2, 2)
    assert scoring.error_norm("weight_hr_l0") is None  # nothing shows what it sees


def test_a_site_that_no_data_reach_is_weighed_by_its_weight() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, inputs: Tensor) -> Tensor:
            outputs: Tensor = self.used(inputs)
            return outputs

    scoring = prepared(Half(), [torch.ones(1, 2)])
    assert scoring.error_norm("used") is not None
    assert scoring.error_norm("unused") is None
    assert scoring.error_norm("no such site") is None


def test_batches_may_name_their_inputs_and_the_model_stays_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 2))
    before = copy.deepcopy(model.state_dict())
    scoring = prepared(model, [{"input": torch.randn(4, 3)}])
    assert scoring.error_norm("3") is not None
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(part.training for part in model.modules())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_data_that_do_not_fit_are_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    with pytest.raises(CompressionError, match=r"0 \(Linear\).* \(2, 3\), on \(\(5, 4\)\)"):
        prepared(model, [torch.zeros(5, 4)])
    with pytest.raises(CompressionError, match="at least 1 batch, got 0"):
        prepared(model, [])
    with pytest.raises(CompressionError, match="the 1 inputs of 0 hold NaN"):
        prepared(model, [torch.full((1, 3), float("nan"))])
    assert not model[0]._forward_hooks


@pytest.mark.parametrize("ridge", [0.0, 1.0, -1.0, float("nan")])
def test_a_ridge_that_makes_no_sense_is_refused(ridge: float) -> None:
    with pytest.raises(CompressionError, match=f"between 0 and 1, got {ridge}"):
        Activations([], ridge=ridge)


class Row(nn.Module):
    """Blocks that read their state twice, between an embedding and a head."""

    def __init__(self, size: int = 24) -> None:
        super().__init__()
        self.start = nn.Linear(5, size)
        self.blocks = nn.ModuleList(Twice(size) for _ in range(4))
        self.head = nn.Linear(size, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        state: Tensor = self.start(inputs)
        for block in self.blocks:
            state = block(state)
        outputs: Tensor = self.head(state) + self.head(state.tanh())
        return outputs


class Twice(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, state: Tensor) -> Tensor:
        change: Tensor = self.one(state).tanh() * self.other(state)
        return state + change


def test_block_by_block_every_input_is_counted_as_in_one_run() -> None:
    torch.manual_seed(0)
    model = Row()
    batches = [torch.randn(3, 5), torch.randn(2, 5)]
    by_blocks = prepared(model, list(batches))
    whole = Activations(iter(batches), ridge=TINY)  # can be run once only, so that it is
    whole.prepare(model)
    names = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    for name in names:
        assert torch.equal(factor_of(by_blocks, name), factor_of(whole, name)), name
    assert not any(part._forward_hooks for part in model.modules())


def test_block_by_block_a_batch_that_does_not_fit_is_named() -> None:
    with pytest.raises(CompressionError, match=r"batch 1 \(\(2, 4\)\) fails in start"):
        prepared(Row(), [torch.randn(3, 5), torch.randn(2, 4)])


def test_modules_that_read_the_same_input_share_its_factor() -> None:
    scoring = prepared(Row(), [torch.randn(3, 5)], ridge=1e-6)
    factors = [
        factor_of(scoring, f"blocks.{n}.{which}") for n in (0, 1) for which in ("one", "other")
    ]
    assert factors[0] is factors[1]
    assert factors[1] is not factors[2]


def test_large_factors_are_kept_in_single_precision() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(400, 300).double()
    factor = factor_of(prepared(nn.Linear(300, 2).double(), [inputs], ridge=1e-6), "")
    assert factor.dtype == torch.float32
    moments = inputs.T @ inputs / len(inputs)
    assert torch.dist(factor.double() @ factor.double().T, moments) < 1e-5 * moments.norm()
