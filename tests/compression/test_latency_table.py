"""Two models timed in pairs: what is called, how often, and on what."""

import pytest
import torch
from torch import Tensor, nn

from rankscope.compression import measure_latency
from rankscope.compression.usage import repeat_batch
from rankscope.errors import CompressionError


class Recorder(nn.Module):
    def __init__(self, name: str, log: list[tuple[str, int, bool]]) -> None:
        super().__init__()
        self.name, self.log = name, log

    def forward(self, inputs: Tensor, scale: float = 1.0) -> Tensor:
        self.log.append((self.name, len(inputs), self.training))
        return inputs * scale


def test_models_are_called_in_turn_in_inference_mode() -> None:
    log: list[tuple[str, int, bool]] = []
    dense, small = Recorder("dense", log), Recorder("small", log)
    found = measure_latency(dense, small, torch.ones(3, 2), batch_sizes=(1, 5), repeats=2)
    pairs = [("dense", False), ("small", False)]
    assert [(name, training) for name, _, training in log] == pairs * 6
    assert [size for _, size, _ in log] == [1] * 6 + [5] * 6
    assert [latency.batch_size for latency in found] == [1, 5]
    for latency in found:
        assert latency.repeats == 2
        assert latency.threads == torch.get_num_threads()
        assert min(latency.dense_seconds, latency.compressed_seconds, latency.ratio) > 0
    assert dense.training


def test_samples_of_all_kinds_of_batches_are_repeated() -> None:
    pair = repeat_batch((torch.tensor([[1], [2]]), 0.5), 3)
    assert isinstance(pair, tuple)
    assert torch.equal(pair[0], torch.tensor([[1], [2], [1]]))  # type: ignore[arg-type]
    assert pair[1] == 0.5
    named = repeat_batch({"inputs": torch.tensor([1, 2])}, 1)
    assert isinstance(named, dict)
    assert torch.equal(named["inputs"], torch.tensor([1]))
    log: list[tuple[str, int, bool]] = []
    model = Recorder("one", log)
    measure_latency(model, model, {"inputs": torch.ones(1, 1)}, batch_sizes=(4,), repeats=1)
    assert {size for _, size, _ in log} == {4}


def test_what_cannot_be_measured_is_refused() -> None:
    model = nn.Identity()
    with pytest.raises(CompressionError, match=r"at least 1 repeat .* got 0 of \(1, 64\)"):
        measure_latency(model, model, torch.ones(1), repeats=0)
    with pytest.raises(CompressionError, match=r"got 9 of \(0,\)"):
        measure_latency(model, model, torch.ones(1), batch_sizes=(0,))
    with pytest.raises(CompressionError, match=r"got the shape \(\)"):
        measure_latency(model, model, torch.ones(()))
    with pytest.raises(CompressionError, match=r"got the shape \(0, 3\)"):
        measure_latency(model, model, torch.ones(0, 3))
