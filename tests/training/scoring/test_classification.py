"""The accuracy of a classifier."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.errors import DataError
from rankscope.training.scoring import accuracy


@settings(deadline=None, max_examples=25)
@given(count=st.integers(1, 30), batch_size=st.integers(1, 9), seed=st.integers(0, 2**16))
def test_accuracy_is_the_share_of_right_guesses_whatever_the_batches(
    count: int, batch_size: int, seed: int
) -> None:
    torch.manual_seed(seed)
    logits, labels = torch.randn(count, 3), torch.randint(3, (count,))
    right = sum(int(row.argmax()) == int(label) for row, label in zip(logits, labels, strict=True))
    assert accuracy(nn.Identity(), logits, labels, batch_size=batch_size) == right / count


def test_the_model_is_run_in_inference_mode_and_left_in_its_own() -> None:
    frozen = nn.BatchNorm1d(4).eval()
    model = nn.Sequential(frozen, nn.Dropout(1.0), nn.BatchNorm1d(4)).train()
    frozen.eval()
    assert accuracy(model, torch.eye(4), torch.arange(4)) == 1
    assert [part.training for part in model] == [False, True, True]
    assert model.training
    assert frozen.num_batches_tracked == 0


@pytest.mark.parametrize(("inputs", "labels"), [(0, 0), (3, 2)])
def test_no_inputs_or_another_number_of_labels_are_refused(inputs: int, labels: int) -> None:
    with pytest.raises(DataError, match=rf"got {inputs} inputs and labels of shape \({labels},\)"):
        accuracy(nn.Identity(), torch.zeros(inputs, 2), torch.zeros(labels).long())
