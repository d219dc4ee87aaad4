import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.errors import TrainingError
from rankscope.training.batches import Batch, TensorData
from rankscope.training.loop import fit
from rankscope.training.losses import MarginLoss
from rankscope.training.recipe import Recipe


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), margin=st.floats(0.1, 3.0))
def test_it_is_its_formula(seed: int, margin: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 5, dtype=torch.float64, generator=generator)
    labels = torch.randint(5, (3,), generator=generator)
    lacking = sum(
        max(0.0, margin - float(logits[row, label] - logits[row, other])) / 5
        for row, label in enumerate(labels.tolist())
        for other in range(5)
        if other != label
    )
    found = MarginLoss(margin)(nn.Identity(), Batch(logits, labels))
    torch.testing.assert_close(found, torch.tensor(lacking / 3, dtype=torch.float64))


def test_a_network_trained_with_it_is_right_by_the_margin() -> None:
    inputs = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    model = nn.Linear(2, 2)
    data = TensorData(inputs, torch.tensor([0, 1]))
    fit(model, MarginLoss(1.0), data, Recipe(epochs=200, learning_rate=0.05))
    logits = model(inputs).detach()
    assert float((logits.diagonal() - logits.flip(1).diagonal()).min()) > 0.99


def test_margins_that_are_none_are_refused() -> None:
    for margin in (0.0, -1.0, math.inf):
        with pytest.raises(TrainingError, match=f"finite and above 0, got {margin}"):
            MarginLoss(margin)
