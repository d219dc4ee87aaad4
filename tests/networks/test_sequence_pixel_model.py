import math

import pytest
import torch
from torch import nn

from rankscope.errors import SizeError
from rankscope.networks import (
    MultiHead,
    PixelInput,
    PixelModel,
    TransformerShape,
    bits_per_dimension,
)


def model(pixels: PixelInput, levels: int = 5) -> PixelModel:
    torch.manual_seed(0)
    rank = 3 if pixels is PixelInput.VECTOR else None
    own = PixelModel(levels, TransformerShape(2, 8, MultiHead(2, 4), 4, rank), pixels)
    for parameter in own.parameters():
        nn.init.normal_(parameter, std=0.5)
    return own.double().eval()


@pytest.mark.parametrize("pixels", PixelInput)
def test_an_intensity_depends_on_exactly_those_before_it(pixels: PixelInput) -> None:
    own = model(pixels)
    image = torch.randint(5, (1, 4, 3))
    wanted = own(image).flatten(1, 2)
    for place in range(12):
        changed = image.clone().flatten(1)
        changed[0, place] = (changed[0, place] + 2) % 5
        got = own(changed.reshape(1, 4, 3)).flatten(1, 2)
        torch.testing.assert_close(got[:, : place + 1], wanted[:, : place + 1])
        if place < 11:
            assert not torch.allclose(got[:, place + 1], wanted[:, place + 1])


@pytest.mark.parametrize("pixels", PixelInput)
def test_the_shares_of_all_images_add_up_to_one(pixels: PixelInput) -> None:
    """Two levels and two pixels: 64 images, each with the share that its bits say."""
    own = model(pixels, levels=2)
    images = torch.cartesian_prod(*[torch.arange(2)] * 6).reshape(64, 2, 3)
    with torch.no_grad():
        bits = [6 * float(bits_per_dimension(own, image[None])) for image in images]
    assert sum(2**-each for each in bits) == pytest.approx(1)


def test_equal_logits_cost_the_logarithm_of_the_levels() -> None:
    own = model(PixelInput.VECTOR)
    for parameter in own.parameters():
        nn.init.zeros_(parameter)
    bits = bits_per_dimension(own, torch.randint(5, (3, 4, 3))).detach()
    assert float(bits) == pytest.approx(math.log2(5))


def test_what_does_not_fit_is_refused() -> None:
    shape = TransformerShape(1, 8, MultiHead(2, 4), 4, embedding_rank=2)
    with pytest.raises(SizeError, match="must be 3, got 2"):
        PixelModel(5, shape, PixelInput.VECTOR)
    with pytest.raises(SizeError, match="5 pixels do not fit into 4 positions"):
        model(PixelInput.TABLES)(torch.zeros(1, 5, 3, dtype=torch.long))
