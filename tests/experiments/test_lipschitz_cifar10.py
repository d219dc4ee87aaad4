import pytest

from rankscope.architectures.lipschitz.network import LipschitzNetwork
from rankscope.experiments.lipschitz_cifar10 import LIPSCHITZ_CIFAR10, scaling
from rankscope.experiments.lipschitz_entry import LipschitzEntry


def test_every_network_is_trained_by_both_protocols() -> None:
    names = [entry.name for entry in LIPSCHITZ_CIFAR10.entries]
    scaled = [name.removesuffix("-scaled") for name in names if name.endswith("-scaled")]
    assert scaled == [name for name in names if not name.endswith("-scaled")]
    assert scaled[0] == "resnet9-16"


def test_the_published_protocol_makes_networks_four_times_as_steep_in_pixels() -> None:
    for entry in LIPSCHITZ_CIFAR10.entries:
        assert isinstance(entry, LipschitzEntry)
        is_scaled = entry.name.endswith("-scaled")
        assert entry.published is None or is_scaled
        model = entry.contender.build()
        assert isinstance(model, LipschitzNetwork)
        assert model.lipschitz_constant == pytest.approx(1 / 0.2435 if is_scaled else 1.0)
    assert scaling(is_scaled=False).lipschitz_constant == 1.0
