import pytest
import torch

from rankscope.architectures.lipschitz.network import LipschitzNetwork
from rankscope.experiments.lipschitz import (
    LIPSCHITZ_CIFAR10,
    LONGER,
    TRAINED_ON,
    LipschitzEntry,
    scaling,
    usual_network,
)
from rankscope.training.losses import AdversarialLoss

ENTRIES = [entry for entry in LIPSCHITZ_CIFAR10.entries if isinstance(entry, LipschitzEntry)]
USUAL = [entry for entry in ENTRIES if entry.name.startswith("usual")]
CERTIFIED = [entry for entry in ENTRIES if entry not in USUAL]


def test_every_network_is_trained_by_both_protocols() -> None:
    names = [entry.name for entry in CERTIFIED]
    scaled = [name.removesuffix("-scaled") for name in names if name.endswith("-scaled")]
    assert scaled == [name for name in names if not name.endswith("-scaled")]
    wide = [f"wide-resnet-{depth}-1" for depth in (10, 16, 22)]
    assert scaled == ["resnet9-8", *wide, "resnet9-8-longer"]


def test_the_published_protocol_makes_networks_four_times_as_steep_in_pixels() -> None:
    for entry in CERTIFIED:
        is_scaled = entry.name.endswith("-scaled")
        assert entry.published is None or is_scaled
        model = entry.setup.build()
        assert isinstance(model, LipschitzNetwork)
        assert model.lipschitz_constant == pytest.approx(1 / 0.2435 if is_scaled else 1.0)
    assert scaling(is_scaled=False).lipschitz_constant == 1.0


def test_a_usual_network_is_trained_with_and_without_attacks() -> None:
    plain, adversarial = USUAL
    assert not isinstance(plain.setup.loss, AdversarialLoss)
    assert isinstance(adversarial.setup.loss, AdversarialLoss)
    assert usual_network()(torch.rand(2, 3, 32, 32)).shape == (2, 10)


def test_all_rows_see_as_many_images_but_those_that_say_otherwise() -> None:
    for entry in ENTRIES:
        wanted = LONGER if "longer" in entry.name else TRAINED_ON
        assert entry.setup.recipe.max_samples == wanted


def test_the_quick_version_is_on_embedded_data_by_both_protocols() -> None:
    constants = []
    for entry in LIPSCHITZ_CIFAR10.quick:
        assert isinstance(entry, LipschitzEntry)
        assert entry.data_set == "digits"
        model = entry.setup.build()
        assert isinstance(model, LipschitzNetwork)
        constants.append(model.lipschitz_constant)
    assert constants == pytest.approx([1 / 0.376, 1.0])
