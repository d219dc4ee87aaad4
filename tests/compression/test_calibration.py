"""Calibration data that do not fit are refused, naming the module and both shapes."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from rankscope.compression.calibration import run_batches, shapes
from rankscope.errors import CompressionError

MODEL = nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(6, 4), nn.ReLU()), nn.Linear(4, 2))


def call(batch: Tensor) -> None:
    MODEL(batch)


def test_every_batch_is_run_once_and_nothing_stays_behind() -> None:
    seen: list[Tensor] = []
    batches = [torch.zeros(2, 6), torch.ones(3, 6)]
    run_batches(MODEL, iter(batches), seen.append)
    assert all(one is other for one, other in zip(seen, batches, strict=True))
    run_batches(MODEL, batches, call)
    assert not any(part._forward_pre_hooks or part._forward_hooks for part in MODEL.modules())


def test_a_batch_of_the_wrong_shape_names_the_module_and_both_shapes() -> None:
    batches = [torch.zeros(2, 6), torch.zeros(2, 5)]
    wanted = r"batch 1 \(\(2, 5\)\) fails in 1\.0 \(Linear\).* shape \(4, 6\), on \(\(2, 5\)\)"
    with pytest.raises(CompressionError, match=wanted):
        run_batches(MODEL, batches, call)
    assert not any(part._forward_pre_hooks or part._forward_hooks for part in MODEL.modules())


def test_an_index_out_of_range_is_refused_too() -> None:
    embedding = nn.Embedding(3, 2)

    def look_up(batch: Tensor) -> None:
        embedding(batch)

    with pytest.raises(CompressionError, match=r"fails in the model \(Embedding\).*\(3, 2\)"):
        run_batches(embedding, [torch.tensor([7])], look_up)


def test_what_fails_outside_of_the_model_is_said_to_be_the_loss() -> None:
    def fail(batch: Tensor) -> None:
        MODEL(batch)
        raise ValueError("no such label")

    with pytest.raises(CompressionError, match=r"fails in the loss: no such label"):
        run_batches(MODEL, [torch.zeros(2, 6)], fail)


def test_a_refusal_of_our_own_is_passed_on_as_it_is() -> None:
    def refuse(batch: Tensor) -> None:
        raise CompressionError("as it is")

    with pytest.raises(CompressionError, match=r"^as it is$"):
        run_batches(MODEL, [torch.zeros(1)], refuse)


def test_no_batch_is_refused() -> None:
    with pytest.raises(CompressionError, match="at least 1 batch, got 0"):
        run_batches(MODEL, [], call)


def test_batches_of_all_kinds_are_described() -> None:
    @dataclass
    class Pair:
        inputs: Tensor
        weight: float

    assert shapes(Pair(torch.zeros(2, 1), 3.0)) == "inputs: (2, 1)"
    assert shapes([torch.zeros(1), {"mask": torch.zeros(2)}]) == "(1,), mask: (2,)"
    assert shapes(3) == "int"
