"""One format for all, by counted parameters."""

import pytest
import torch

from rankscope.architectures.models.catalogue import build
from rankscope.errors import ExperimentError
from rankscope.experiments.image_compression import (
    DIGITS,
    PUBLISHED,
    RESNET32,
    compare,
    compress_uniformly,
    ranks_at_one_rate,
)
from rankscope.layers.formats.catalogue import FORMATS
from rankscope.layers.formats.format import WeightShape

RESNET_SHAPES = {
    name: WeightShape.of(module.weight)
    for name, module in RESNET32.convolutions(build("resnet32")).items()
}


def test_thirty_convolutions_of_resnet32_are_compressed() -> None:
    assert len(RESNET_SHAPES) == 30
    assert sum(shape.num_parameters for shape in RESNET_SHAPES.values()) == 460_800
    assert "conv1" not in RESNET_SHAPES


CELLS = [(name, percentage) for name, row in PUBLISHED.items() for percentage in row]


@pytest.mark.parametrize(("name", "percentage"), CELLS)
def test_every_cell_of_the_table_keeps_its_share_and_hardly_less(
    name: str, percentage: int
) -> None:
    format, limit = FORMATS[name], percentage * 4608
    ranks = ranks_at_one_rate(format, RESNET_SHAPES, percentage / 100)
    kept = sum(format.num_parameters(shape, ranks[at]) for at, shape in RESNET_SHAPES.items())
    # Only what the ranks of the last layer leave over is lost.
    assert 0.98 * limit <= kept <= limit


def test_a_share_that_is_too_small_is_refused_with_numbers() -> None:
    with pytest.raises(ExperimentError, match=r"svd cannot write .*\(16, 16, 3, 3\), with 23 of"):
        ranks_at_one_rate(FORMATS["svd"], RESNET_SHAPES, 0.01)


@pytest.mark.parametrize("name", ["svd", "tucker", "r-tensor-train"])
def test_the_copy_is_counted_and_compared_and_the_model_untouched(name: str) -> None:
    model = build("digits")
    before = {key: value.clone() for key, value in model.state_dict().items()}
    compressed = compress_uniformly(DIGITS, model, FORMATS[name], 0.2)
    found = compare(DIGITS, model, compressed)
    assert found.dense == 13_824
    total = sum(parameter.numel() for parameter in model.parameters())
    after = sum(parameter.numel() for parameter in compressed.parameters())
    assert found.kept == found.dense - (total - after)
    assert 0.1 < found.share <= 0.2
    assert 0 < found.error < 1
    for key, value in model.state_dict().items():
        assert torch.equal(before[key], value)


def test_a_network_beside_itself_keeps_everything_without_error() -> None:
    model = build("digits")
    found = compare(DIGITS, model, model)
    assert (found.kept, found.share, found.error) == (13_824, 1.0, 0.0)
