import pytest
import torch

from rankscope.networks import BUILT_IN
from rankscope.robust import CIFAR10_MEANS, InputScaling, LipschitzNetwork

SMALL = ["lipschitz-digits", "lipschitz-resnet9-small", "lipschitz-wide-resnet-16-1"]


@pytest.mark.parametrize("name", SMALL)
def test_a_network_gives_ten_logits(name: str) -> None:
    model = BUILT_IN[name].make()
    shape = (1, 8, 8) if name == "lipschitz-digits" else (3, 32, 32)
    assert model(torch.rand(1, *shape)).shape == (1, 10)


def test_every_call_builds_a_network_of_its_own_that_only_centres_pixels() -> None:
    make = BUILT_IN["lipschitz-wide-resnet-10-1"].make
    first, second = make(), make()
    assert isinstance(first, LipschitzNetwork)
    assert isinstance(first.scaling, InputScaling)
    assert isinstance(second, LipschitzNetwork)
    assert first.scaling is not second.scaling
    assert first.lipschitz_constant == 1.0
    torch.testing.assert_close(first.scaling.means.flatten(), torch.tensor(CIFAR10_MEANS))
