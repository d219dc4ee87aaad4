import torch

from rankscope.experiments.lipschitz import LIPSCHITZ_DIGITS, NUM_DIGITS_SAMPLES, LipschitzEntry
from rankscope.training.datasets import load_data_set


def test_certified_networks_stand_beside_usual_ones_on_the_whole_test_set() -> None:
    names = [entry.name for entry in LIPSCHITZ_DIGITS.entries]
    assert names[-2:] == ["usual", "usual-adversarial"]
    assert len(load_data_set("digits").test) == NUM_DIGITS_SAMPLES
    for entry in LIPSCHITZ_DIGITS.entries:
        assert isinstance(entry, LipschitzEntry)
        assert entry.setup.build()(torch.rand(2, 1, 8, 8)).shape == (2, 10)
