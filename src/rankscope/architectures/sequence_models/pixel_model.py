"""A causal model of images, pixel by pixel, and within a pixel red, green, blue."""

import math
from enum import Enum, auto

import torch
from torch import Tensor, nn

from rankscope.architectures.sequence_models.blocks import (
    Block,
    Places,
    causal_mask,
    small_embedding,
)
from rankscope.architectures.sequence_models.shape import TransformerShape
from rankscope.errors import SizeError

COLOURS = 3


class PixelInput(Enum):
    """What a pixel is to the model.

    Attributes:
        VECTOR: its three intensities in -1..1: inputs have rank 3, whatever the width.
        TABLES: the sum of a learned vector for every intensity of every colour: any rank.
    """

    VECTOR = auto()
    TABLES = auto()


class PixelModel(nn.Module):
    """How likely each intensity of each colour of the next pixel is.

    Args:
        levels: intensities are 0..levels - 1.
        shape: depth, width, attention, positions (pixels of an image).
        pixels: what a pixel is to the model; as a vector, the embedding rank is 3.

    Example:
        >>> from rankscope.architectures.sequence_models.attention_forms import MultiHead
        >>> shape = TransformerShape(1, 8, MultiHead(2, 4), num_positions=4, embedding_rank=3)
        >>> model = PixelModel(16, shape, PixelInput.VECTOR)
        >>> model(torch.zeros(2, 4, 3, dtype=torch.long)).shape
        torch.Size([2, 4, 3, 16])

    Raises:
        SizeError: if a pixel as a vector is given another embedding rank than 3.
    """

    mask: Tensor

    def __init__(self, levels: int, shape: TransformerShape, pixels: PixelInput) -> None:
        super().__init__()
        if pixels is PixelInput.VECTOR and (shape.embedding_rank or shape.width) != COLOURS:
            raise SizeError(
                f"PixelModel: a pixel as a vector has {COLOURS} numbers, so that the embedding "
                f"rank must be {COLOURS}, got {shape.embedding_rank}."
            )
        self.levels, self.shape, self.pixels = levels, shape, pixels
        size = shape.embedding_rank or shape.width
        if pixels is PixelInput.TABLES:
            self.tables = _tables(COLOURS, levels, size)
        self.places = Places(shape)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.depth))
        self.norm = nn.LayerNorm(shape.width)
        # What green may know of red, and blue of both.
        self.known = _tables(COLOURS - 1, levels, shape.width)
        self.heads = nn.ModuleList(nn.Linear(shape.width, levels) for _ in range(COLOURS))
        self.register_buffer("mask", causal_mask(shape.num_positions), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Intensities (batch, pixels, 3) to logits (batch, pixels, 3, levels) of the same.

        Those of a pixel depend on the pixels before it, and on the colours before each.

        Raises:
            SizeError: if there are more pixels than positions.
        """
        count = images.shape[1]
        if count > self.shape.num_positions:
            raise SizeError(
                f"PixelModel: {count} pixels do not fit into {self.shape.num_positions} positions."
            )
        # A pixel is predicted from those before it, the first one from zeros.
        before = nn.functional.pad(self._vectors(images)[:, :-1], (0, 0, 1, 0))
        states = self.places(before)
        for block in self.blocks:
            states = block(states, self.mask[:count, :count])
        return self._logits(self.norm(states), images)

    def _vectors(self, images: Tensor) -> Tensor:
        if self.pixels is PixelInput.VECTOR:
            return images.to(self.norm.weight) * (2 / max(self.levels - 1, 1)) - 1
        parts = [table(images[..., colour]) for colour, table in enumerate(self.tables)]
        return torch.stack(parts).sum(0)

    def _logits(self, states: Tensor, images: Tensor) -> Tensor:
        found = []
        for colour, head in enumerate(self.heads):
            found.append(head(nn.functional.gelu(states)))
            if colour < COLOURS - 1:
                states = states + self.known[colour](images[..., colour])
        return torch.stack(found, -2)


def bits_per_dimension(model: nn.Module, images: Tensor) -> Tensor:
    """Mean bits of an intensity of images (batch, pixels, 3), given those before it."""
    logits: Tensor = model(images)
    nats = nn.functional.cross_entropy(logits.flatten(0, 2), images.flatten().long())
    return nats / math.log(2)


def _tables(count: int, levels: int, size: int) -> nn.ModuleList:
    return nn.ModuleList(small_embedding(levels, size) for _ in range(count))
