"""The parts stand on each other: what one verb returns, the next one takes."""

from pathlib import Path

import pytest
import torch
from tests.reading.zoo import two_block_mixer
from torch import Tensor, nn

import rankscope
from rankscope.diagrams import module_arrays
from rankscope.errors import RobustnessError
from rankscope.factorize import FORMATS
from rankscope.networks import BUILT_IN, build
from rankscope.reading import from_trace


def outputs(model: nn.Module, example: Tensor) -> Tensor:
    with torch.no_grad():
        result: Tensor = model(example)
    return result


def read_and_run(model: nn.Module, example: Tensor, folder: Path, name: str) -> None:
    """Read a model, draw it whole and at depth 1, price it, and run it again from the diagram."""
    made, arrays = rankscope.trace(model, example), module_arrays(model)
    network, outline = from_trace(made, arrays), from_trace(made, arrays, depth=1)
    assert rankscope.cost(network).flops > 0
    for place, shown in enumerate((outline, network)):
        assert rankscope.draw(shown, folder / f"{name}-{place}.svg").stat().st_size > 0
    again = rankscope.to_module(network, arrays)
    torch.testing.assert_close(
        outputs(again, example), outputs(model, example), rtol=1e-4, atol=1e-4
    )


def built_in(name: str) -> tuple[nn.Module, Tensor]:
    example = BUILT_IN[name].example()
    assert isinstance(example, Tensor)
    return build(name).eval(), example.repeat(2, *[1] * (example.ndim - 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "resnet20", "transformer", "mixer_s32"])
def test_read_draw_compress_draw_certify_save_load(name: str, tmp_path: Path) -> None:
    if name == "mixer_s32":
        model, example = two_block_mixer().eval(), torch.rand(2, 3, 96, 96)
    else:
        model, example = built_in(name)
    read_and_run(model, example, tmp_path, "dense")
    # Fits of CP would take half of the time, and nothing here is about formats.
    formats = [FORMATS[each] for each in ("svd", "tucker", "tensor-train")]
    compressed = rankscope.compress(model, 0.6, example=example, formats=formats)
    read_and_run(compressed.model, example, tmp_path, "compressed")
    if name == "transformer":
        with pytest.raises(RobustnessError, match=r"\(samples, classes\).*got outputs of shape"):
            rankscope.certify_robustness(compressed.model, (example, torch.zeros(2).long()), [0.1])
    elif name != "mixer_s32":
        labels = outputs(compressed.model, example).argmax(dim=1)
        certified = rankscope.certify_robustness(compressed.model, (example, labels), [0.1])
        assert certified.to_dict()
    rankscope.save(compressed, tmp_path / "saved", dense=model, example=example)
    loaded = rankscope.load(tmp_path / "saved", into=model)
    torch.testing.assert_close(
        outputs(loaded, example), outputs(compressed.model, example), rtol=0.0, atol=0.0
    )
