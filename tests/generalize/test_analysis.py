"""The whole analysis of a network on a sample."""

import json
from typing import Any

import pytest
import torch
from tests.generalize.strategies import drawn, random_network
from torch import nn

from rankscope.errors import GeneralizationError, RobustnessError, SizeError
from rankscope.generalize import (
    AsPublished,
    Chernoff,
    CushionLimits,
    Euclidean,
    Exact,
    Generalization,
    Options,
    Quantization,
    Sample,
    Search,
    analyse,
    margin_loss,
)
from rankscope.networks import build

FAST = Options(num_jacobians=2)


def own_sample(seed: int = 0) -> Sample:
    return drawn(random_network(seed), seed).sample


def analysed(seed: int = 0, options: Options = FAST, margin: float = 1.0) -> Generalization:
    return analyse(random_network(seed), own_sample(seed), margin, options=options)


def test_an_analysis_gives_layers_deviation_and_all_bounds() -> None:
    found = analysed()
    assert [bound.name for bound in found.bounds] == [
        "compression-order",
        "slides-order",
        "rigorous",
        "parameter-counting",
        "spectral-order",
        "arora-order",
    ]
    assert found.refused == ()
    assert [bound.is_rigorous for bound in found.bounds].count(True) == 1
    assert found.deviation.euclidean <= found.deviation.bound + 1e-9
    assert found.bound("rigorous") in found.bounds
    assert str(found).count("\n") == 5


def test_the_document_is_plain_json_with_what_machines_rely_on() -> None:
    document = json.loads(json.dumps(analysed().to_dict(), allow_nan=False))
    assert [sorted(layer) for layer in document["layers"]] == [
        ["cushion", "kept_rank", "name", "rank", "t", "xi"]
    ] * 3
    assert isinstance(document["deviation"], float)
    for bound in document["bounds"]:
        assert {"name", "value", "vacuous", "theorem"} <= bound.keys()
        assert bound["theorem"]["assumptions"]
    assert (document["search"], document["form"], document["tolerance"]) == (
        "direct",
        "triangle",
        "inf",
    )


@pytest.mark.slow
def test_dense_networks_are_written_in_cp_form_first() -> None:
    model = build("digits")
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(5, 1, 8, 8, generator=generator)
    sample = Sample(inputs, model(inputs).argmax(dim=1))
    found = analyse(model, sample, 2.0, options=Options(num_jacobians=0, is_measured=True))
    assert [layer.name for layer in found.choice.layers] == ["conv1", "conv2", "conv3", "linear"]
    assert [layer.rank for layer in found.choice.layers] == [9, 144, 288, 10]
    torch.testing.assert_close(found.activations.outputs, model(inputs).detach())
    assert found.deviation.lost_margin <= 2.0
    assert "arora-order" not in [bound.name for bound in found.bounds]
    assert found.to_dict()["search"] == "measured"


def test_residual_networks_get_all_bounds_but_those_for_chains() -> None:
    found = analyse(random_network(1, is_residual=True), own_sample(1), 1.0, options=FAST)
    assert [name for name, _ in found.refused] == ["spectral-order", "arora-order"]
    assert all("add (in 2)" in reason for _, reason in found.refused)
    assert len(found.bounds) == 4


def test_options_reach_their_places() -> None:
    search = Search(CushionLimits(), Exact(3, is_monotone=True), Euclidean())
    options = Options(
        search=search,
        quantization=Quantization(2),
        concentration=Chernoff(),
        num_settings=5,
        chance=0.2,
        num_jacobians=0,
        batch_size=2,
    )
    found = analysed(2, options)
    constants = dict(found.bound("rigorous").constants)
    assert (constants["bits"], constants["settings tried"], constants["chance"]) == (2.0, 5.0, 0.2)
    assert "Chernoff" in found.bound("rigorous").theorem.label
    document = found.to_dict()
    assert (document["search"], document["form"], document["tolerance"]) == (
        "paper",
        "exact",
        "l2",
    )


def test_the_margin_of_the_loss_is_the_threshold_of_the_tolerance() -> None:
    found = analysed(3, Options(search=Search(tolerance=AsPublished()), num_jacobians=0))
    loss = margin_loss(found.activations.outputs, found.activations.labels, 2.0)
    assert found.bound("compression-order").empirical == loss
    assert dict(found.bound("compression-order").constants)["margin"] == 2.0


def test_the_model_stays_untouched() -> None:
    model = random_network(4, has_normalization=True).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    analyse(model, own_sample(4), 1.0, options=FAST)
    assert model.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_bad_input_is_refused() -> None:
    sample = own_sample()
    with pytest.raises(GeneralizationError, match=r"got 0\.0"):
        analyse(random_network(0), sample, 0.0)
    with pytest.raises(GeneralizationError, match="got 7 to 7"):
        analyse(random_network(0), Sample(sample.inputs, torch.full((7,), 7)), 1.0)
    broken: Any = nn.Sequential(nn.Flatten(), nn.Linear(108, 3))
    nn.init.constant_(broken[1].bias, float("inf"))
    with pytest.raises(RobustnessError, match=r"3 of 3 numbers in 1\.bias"):
        analyse(broken, sample, 1.0)
    with pytest.raises(SizeError, match=r"\(3, 6, 6\)"):
        analyse(nn.Sequential(nn.Flatten(), nn.Linear(5, 3)), sample, 1.0)
