"""What a report counts is what the two models hold."""

import json

import pytest
import torch
from torch import nn

from rankscope.compression import Unit, compress, count_parameters, report_on
from rankscope.errors import CompressionError


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))


def size(model: nn.Module) -> float:
    return float(sum(parameter.detach().square().sum() for parameter in model.parameters()))


def test_totals_are_those_of_the_models() -> None:
    dense = network()
    compressed = compress(dense, keep=0.3, example=torch.randn(2, 32))
    report = report_on(dense, compressed)
    totals = {total.unit: total for total in report.totals}
    kept = sum(parameter.numel() for parameter in compressed.model.parameters())
    assert (totals["parameters"].dense, totals["parameters"].kept) == (2632, kept)
    assert totals["parameters"].ratio == kept / 2632
    assert (totals["bytes"].dense, totals["bytes"].kept) == (4 * 2632, 4 * kept)
    # Of two samples, each multiplied by 32 x 64 and 64 x 8.
    assert totals["flops"].dense == 2 * 2 * (32 * 64 + 64 * 8)
    assert totals["flops"].kept < totals["flops"].dense
    assert report.layers == compressed.plan.rows
    assert (report.latencies, report.scores) == ((), ())


def test_flops_that_were_not_counted_are_left_out() -> None:
    dense = network()
    report = report_on(dense, compress(dense, keep=0.3))
    assert [total.unit for total in report.totals] == ["parameters", "bytes"]


def test_quantized_numbers_count_as_parameters_but_not_as_four_bytes() -> None:
    dense = nn.Sequential(nn.Linear(64, 64, bias=False))
    compressed = compress(dense, keep=0.1, by=Unit.BYTES, bits=(8,))
    assert not list(compressed.model.parameters())
    report = report_on(dense, compressed)
    parameters, num_bytes = report.totals
    assert parameters.kept == compressed.plan.kept.parameters
    assert num_bytes.kept == compressed.plan.kept.bytes <= 0.1 * 4 * 4096
    assert parameters.kept < num_bytes.kept < 4 * parameters.kept  # a byte each, and scales


def test_latencies_and_scores_stand_side_by_side() -> None:
    dense = network()
    compressed = compress(dense, keep=0.3)
    report = report_on(
        dense,
        compressed,
        example=torch.randn(2, 32),
        scorer=lambda model: {"size": size(model)},
        repeats=1,
    )
    assert [latency.batch_size for latency in report.latencies] == [1, 64]
    (score,) = report.scores
    assert (score.name, score.dense, score.compressed) == (
        "size",
        size(dense),
        size(compressed.model),
    )
    assert "at batch 64; size" in str(report)


def test_it_is_plain_data_that_says_what_a_ratio_is() -> None:
    dense = network()
    report = report_on(dense, compress(dense, keep=0.3), example=torch.randn(1, 32), repeats=1)
    plain = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert "compressed model has / what the dense one has" in plain["meaning"]
    assert [set(total) for total in plain["totals"]] == [{"unit", "dense", "kept", "ratio"}] * 2
    assert {row["name"] for row in plain["layers"]} == {"0", "2"}


def test_a_scorer_that_changes_its_mind_is_refused() -> None:
    dense = network()
    names = iter("ab")
    with pytest.raises(CompressionError, match=r"gives \['a'\] for .* but \['b'\] for"):
        report_on(dense, compress(dense, keep=0.3), scorer=lambda model: {next(names): 0.0})


def test_shared_parameters_count_once() -> None:
    one = nn.Linear(3, 3)
    assert count_parameters(nn.Sequential(one, one)) == 12
