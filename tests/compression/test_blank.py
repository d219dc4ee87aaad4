"""A blank module takes exactly the state of the factorized one, of every class."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from rankscope.compression import Row, blank, parts_of
from rankscope.compression.candidates import factorize
from rankscope.errors import LayerError
from rankscope.factorize import FORMATS, WeightShape

MODULES = {
    "linear": (nn.Linear(12, 8), ("weight",)),
    "linear without bias": (nn.Linear(12, 8, bias=False), ("weight",)),
    "embedding": (nn.Embedding(20, 8, padding_idx=3), ("weight",)),
    "convolution": (
        nn.Conv2d(8, 12, 3, stride=2, padding=1, dilation=2, groups=2, padding_mode="circular"),
        ("weight",),
    ),
    "convolution of one position": (nn.Conv1d(8, 12, 3, padding="same"), ("weight",)),
    "attention": (nn.MultiheadAttention(8, 2, kdim=6, batch_first=True), ("query", "key", "out")),
    "lstm": (nn.LSTM(8, 6, num_layers=2, bidirectional=True), ("weight_ih_l0", "weight_hh_l1")),
    "gru": (nn.GRU(8, 6, bias=False), ("weight_hh_l0",)),
}


def row_for(module: nn.Module, part: str, bits: int) -> Row:
    weight = next(one.weight for one in parts_of(module) if one.name == part)
    ranks = tuple(min(2, rank) for rank in FORMATS["svd"].full_ranks(WeightShape.of(weight[0])))
    return Row("it", type(module).__name__, (), "svd", ranks, bits, 0, 0, 0.0, "")


@pytest.mark.parametrize("bits", [32, 8, 4])
@pytest.mark.parametrize("name", MODULES)
def test_a_blank_module_takes_the_state_of_the_factorized_one(name: str, bits: int) -> None:
    module, parts = MODULES[name]
    rows = {part: row_for(module, part, bits) for part in parts}
    wanted = factorize(module, rows, {})
    found = blank(module, rows)
    assert type(found) is type(wanted)
    assert repr(found) == repr(wanted)
    shapes = {key: (value.shape, value.dtype) for key, value in wanted.state_dict().items()}
    assert shapes == {key: (value.shape, value.dtype) for key, value in found.state_dict().items()}
    found.load_state_dict(wanted.state_dict())


def test_a_blank_module_has_the_dtype_and_mode_of_the_dense_one() -> None:
    module = nn.Linear(4, 4, dtype=torch.bfloat16)
    found = blank(module, {"weight": row_for(module, "weight", 16)})
    assert {part.dtype for part in found.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("ranks", [(10**9,), (0,), (1, 1), ()])
def test_ranks_that_cannot_be_are_refused_before_memory_is_taken(ranks: tuple[int, ...]) -> None:
    module = nn.Linear(12, 8)
    row = replace(row_for(module, "weight", 32), ranks=ranks)
    with pytest.raises(LayerError, match=r"from 1 to \(8,\)"):
        blank(module, {"weight": row})
