"""The network for digits; its weights are tested with the embedded models."""

import torch

from rankscope.networks import DigitsNetwork


def test_an_image_becomes_ten_logits_of_its_own() -> None:
    model, images = DigitsNetwork(), torch.rand(3, 1, 8, 8)
    assert model(images).shape == (3, 10)
    torch.testing.assert_close(model(images)[1:2], model(images[1:2]))
