"""Whole models: the budget is kept, counted on what comes out, and the outputs stay right."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.compression import (
    Activations,
    Budget,
    Compressed,
    Unit,
    apply_plan,
    compress,
    plan_compression,
    state_bytes,
)
from rankscope.errors import CompressionError
from rankscope.factorize import FORMATS, FactorizedLinear

PLAIN = [FORMATS[name] for name in ("svd", "tucker", "tensor-train")]


class Everything(nn.Module):
    """One of each kind of layer that is compressed, and some that are not."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.table = nn.Embedding(40, width, padding_idx=3)
        block = nn.TransformerEncoderLayer(width, 2, 2 * width, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, 1)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.wave = nn.Conv1d(2 * width, 2 * width, 3, groups=2, padding="same")
        self.image = nn.Conv2d(2 * width, width, 3, padding=1, padding_mode="circular")
        self.norm = nn.BatchNorm2d(width)
        self.head = nn.Linear(width, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.blocks(self.table(tokens)))
        states, _ = self.gru(states)
        channels = self.wave(states.mT)
        pictures = self.norm(self.image(channels[..., None].expand(-1, -1, -1, 4)))
        logits: Tensor = self.head(pictures.mean(dim=(2, 3)))
        return logits


@pytest.fixture
def everything() -> Everything:
    torch.manual_seed(0)
    return Everything().eval()


@pytest.fixture
def tokens(generator: torch.Generator) -> Tensor:
    return torch.randint(0, 40, (3, 7), generator=generator)


def num_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@st.composite
def small_models(draw: st.DrawFn) -> nn.Module:
    torch.manual_seed(draw(st.integers(0, 2**16)))
    layers: list[nn.Module] = []
    channels = draw(st.sampled_from([4, 6, 12]))
    for _ in range(draw(st.integers(1, 3))):
        groups = draw(st.sampled_from([1, 2]))
        new = draw(st.sampled_from([4, 8, 12]))
        kernel = draw(st.integers(1, 3))
        layers.append(nn.Conv2d(channels, new, kernel, groups=groups, bias=draw(st.booleans())))
        layers.append(nn.BatchNorm2d(new))
        channels = new
    layers += [nn.Linear(channels, 30), nn.Linear(30, 30), nn.LSTM(30, draw(st.integers(3, 9)))]
    return nn.Sequential(*layers)


def compressed_if_possible(
    model: nn.Module, keep: float, unit: Unit, bits: tuple[int, ...]
) -> Compressed | None:
    try:
        return compress(model, keep, by=unit, bits=bits, formats=PLAIN[:2])
    except CompressionError as error:
        if "the smallest that can be reached is" not in str(error):
            raise
    return None


@settings(deadline=None, max_examples=10)
@given(
    model=small_models(),
    keep=st.floats(0.02, 1.0),
    unit=st.sampled_from([Unit.PARAMETERS, Unit.BYTES]),
    bits=st.sampled_from([(), (32, 8), (8, 4)]),
)
def test_a_plan_never_exceeds_its_budget_counted_on_the_compressed_model(
    model: nn.Module, keep: float, unit: Unit, bits: tuple[int, ...]
) -> None:
    small = compressed_if_possible(model, keep, unit, bits)
    if small is None:
        return
    assert state_bytes(small.model) == small.plan.kept.bytes
    assert sum(row.kept for row in small.plan.rows) == small.plan.kept.parameters
    assert sum(row.dense for row in small.plan.rows) == num_parameters(model)
    if not bits:
        assert num_parameters(small.model) == small.plan.kept.parameters
        assert small.plan.kept.parameters <= keep * num_parameters(model) + 1e-6
    if unit is Unit.BYTES:
        assert state_bytes(small.model) <= keep * state_bytes(model) + 1e-6


def test_the_smallest_budget_that_is_named_can_be_met(everything: Everything) -> None:
    with pytest.raises(CompressionError, match=r"keep=0\.001 allows") as refused:
        compress(everything, 0.001)
    named = float(str(refused.value).split("(keep=")[1].split(")")[0])
    assert compress(everything, named).plan.kept.parameters <= named * num_parameters(everything)


@pytest.mark.slow
def test_the_dense_model_is_left_as_it_was(everything: Everything, tokens: Tensor) -> None:
    before = copy.deepcopy(everything.state_dict())
    everything.train()
    compress(everything, 0.5, [tokens], example=tokens, formats=PLAIN[:1])
    assert everything.training
    torch.testing.assert_close(everything.state_dict(), before, rtol=0, atol=0)
    assert not everything.head._forward_pre_hooks


@pytest.mark.slow
def test_a_model_within_a_tiny_tolerance_gives_the_same_outputs(
    everything: Everything, tokens: Tensor
) -> None:
    model = everything.double()
    with torch.no_grad():  # low ranks that a tolerance can find
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.copy_(parameter[:, :2] @ parameter[:2])
    small = compress(model, tolerance=1e-6, formats=PLAIN)
    assert small.plan.kept.parameters < 0.7 * small.plan.dense.parameters
    assert all(row.error <= 1e-6 for row in small.plan.rows)
    # Each layer is off by at most 1e-6 and none of them amplifies it a hundredfold.
    torch.testing.assert_close(small.model(tokens), model(tokens), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("is_padded", [False, True])
def test_transformers_run_right_in_eval_mode_without_gradients(
    everything: Everything, tokens: Tensor, is_padded: bool
) -> None:
    small = compress(everything.blocks, 0.5).model
    assert isinstance(small, nn.TransformerEncoder)
    assert isinstance(small.get_submodule("layers.0.linear1"), FactorizedLinear)
    states = everything.table(tokens).detach()
    mask = torch.zeros(3, 7, dtype=torch.bool)
    mask[:, 5:] = is_padded
    rebuilt = copy.deepcopy(everything.blocks)
    rebuilt.use_nested_tensor = False  # its outputs would have other shapes
    for ours, dense in zip(small.layers, rebuilt.layers, strict=True):
        for name in ("self_attn", "linear1", "linear2"):
            layer = getattr(ours, name)
            setattr(dense, name, layer.to_dense() if hasattr(layer, "to_dense") else layer)
    with torch.no_grad():
        found = small(states, src_key_padding_mask=mask)
        wanted = rebuilt(states, src_key_padding_mask=mask)
    torch.testing.assert_close(found[:, :5], wanted[:, :5], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_flops_are_those_of_the_example_and_kept(everything: Everything, tokens: Tensor) -> None:
    small = compress(everything, 0.6, by=Unit.FLOPS, example=tokens)
    assert 0 < small.plan.kept.flops <= 0.6 * small.plan.dense.flops


@pytest.mark.slow
def test_latency_is_measured_and_its_estimate_kept(everything: Everything, tokens: Tensor) -> None:
    plan = plan_compression(
        everything, Budget(1.0, Unit.LATENCY), example=tokens, formats=PLAIN[:1]
    )
    assert 0 < plan.kept.seconds <= plan.dense.seconds + 1e-9
    assert any("thread(s)" in note for note in plan.notes)


def test_calibrated_weights_err_less_on_the_outputs_of_what_they_saw(
    generator: torch.Generator,
) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(24, 24))
    inputs = torch.randn(200, 24, generator=generator) * torch.logspace(0, -3, 24)
    plain = compress(model, 0.4)
    aware = compress(model, 0.4, [inputs])
    dense = model(inputs)

    def loss(small: nn.Module) -> float:
        return float((small(inputs) - dense).detach().norm() / dense.detach().norm())

    assert aware.plan.scoring == "loss"
    assert loss(aware.model) < 0.5 * loss(plain.model)
    (row,) = aware.plan.rows
    centred = inputs @ model.get_parameter("0.weight").mT
    measured = loss(aware.model) * float(dense.detach().norm() / centred.detach().norm())
    assert row.error == pytest.approx(measured, rel=1e-2)  # up to the ridge, and float32


def test_errors_in_the_rows_are_those_that_were_made() -> None:
    torch.manual_seed(0)
    dense = nn.Linear(48, 48)
    small = compress(dense, 0.4, by=Unit.BYTES, bits=(8,))
    (row,) = small.plan.rows
    assert isinstance(small.model, FactorizedLinear)
    assert row.bits == 8
    assert state_bytes(small.model) == small.plan.kept.bytes
    weight, rebuilt = dense.weight.detach(), small.model.to_dense().weight.detach()
    assert row.error == pytest.approx(float((weight - rebuilt).norm() / weight.norm()), rel=1e-5)


def test_weights_in_bfloat16_stay_in_bfloat16() -> None:
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 8)).bfloat16()
    inputs = torch.randn(64, 32).bfloat16()
    small = compress(model, 0.5, [inputs], example=inputs).model
    assert {parameter.dtype for parameter in small.parameters()} == {torch.bfloat16}
    assert small(inputs).dtype == torch.bfloat16


def test_a_model_that_is_one_layer_is_replaced_itself() -> None:
    small = compress(nn.Linear(32, 32, bias=False), 0.5)
    assert isinstance(small.model, FactorizedLinear)
    assert small.plan.rank_pattern() == {"": 8}


def test_embeddings_are_whitened_by_how_often_their_rows_are_used() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(60, 12))
    tokens = torch.randint(0, 4, (200,))
    plain, aware = compress(model, 0.3), compress(model, 0.3, [tokens])

    def loss(small: nn.Module) -> float:
        return float((small(tokens) - model(tokens)).detach().norm())

    assert loss(aware.model) < loss(plain.model)


def test_a_plan_scored_on_data_is_applied_with_the_same_scores() -> None:
    model, batches = nn.Sequential(nn.Linear(16, 16)), [torch.randn(40, 16)]
    plan = plan_compression(model, Budget(0.5), scores=Activations(batches))
    with pytest.raises(CompressionError, match=r"scored on activations, but .* those of weights"):
        apply_plan(model, plan)


def test_a_plan_for_another_model_is_refused() -> None:
    plan = plan_compression(nn.Sequential(nn.Linear(16, 16)), Budget(0.5))
    with pytest.raises(CompressionError, match=r"shape \(16, 16\), the model has \(16, 20\)"):
        apply_plan(nn.Sequential(nn.Linear(20, 16)), plan)
    with pytest.raises(CompressionError, match="The plan compresses '0', which is no weight"):
        apply_plan(nn.Sequential(nn.ReLU()), plan)


class Peeking(nn.Module):
    """Reads the weight of a module that it never calls."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.linear = nn.Embedding(30, 16), nn.Linear(16, 16)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(inputs + self.places.weight[: len(inputs)])
        return outputs


def test_modules_that_the_example_does_not_reach_are_left_alone() -> None:
    model, inputs = Peeking(), torch.randn(5, 16)
    small = compress(model, 0.9, example=inputs)
    (row,) = [row for row in small.plan.rows if row.name == "places"]
    assert row.reason.startswith("its weight is used by add in the model")
    assert small.model(inputs).shape == (5, 16)


class Nosy(nn.Module):
    """Its output depends on a weight's own shape."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(inputs)
        return outputs[: len(list(self.linear.parameters()))]


def test_outputs_of_another_shape_are_refused() -> None:
    with pytest.raises(CompressionError, match=r"outputs \(3, 16\) on the example, .* \(2, 16\)"):
        compress(Nosy(), 0.5, example=torch.randn(4, 16))


def test_a_padding_vector_that_is_kept_beside_the_cores_is_counted() -> None:
    model = nn.Sequential(nn.Embedding(60, 12, padding_idx=3))
    small = compress(model, keep=0.5)
    assert small.plan.rows[0].format == "svd"
    assert small.plan.kept.parameters == sum(p.numel() for p in small.model.parameters())
    assert small.plan.kept.bytes == state_bytes(small.model)
