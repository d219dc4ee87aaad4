"""The turn of one core when a reshaped weight is applied: letters in, letters out.

Besides the letters of factors and bonds, a state has those of samples (n), groups (g) and places
(y, all positions of the inputs in one).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from rankscope.layers.formats.format import Window

KERNEL = "z"


@dataclass(frozen=True)
class Step:
    """One core's turn: the letters of the state before it, of the core, and of the state after."""

    before: str
    core: str
    after: str

    @property
    def is_convolution(self) -> bool:
        """Whether the core carries the kernel."""
        return KERNEL in self.core

    @property
    def summed(self) -> str:
        """Letters of both the state and the core that end here."""
        return "".join(x for x in self.before if x in self.core and x not in self.after)

    @property
    def fresh(self) -> str:
        """Letters that come from the core."""
        return "".join(x for x in self.core if x in self.after and x not in self.before)

    @property
    def untouched(self) -> str:
        """Letters of the state that the core does not have."""
        return "".join(x for x in self.before if x not in self.core)

    @property
    def equation(self) -> str:
        """As an einsum, with samples, groups and places."""
        return f"ng{self.before}y,g{self.core}->ng{self.after}y"

    def convolve(
        self,
        state: Tensor,
        core: Tensor,
        window: Window,
        places: Sequence[int],
        kernel: Sequence[int],
    ) -> tuple[Tensor, Sequence[int]]:
        """The step of the kernel: letters the core does not touch are samples of a convolution."""
        sizes = dict(zip(f"ng{self.before}", state.shape, strict=False))
        sizes |= dict(zip(f"g{self.core}", core.shape, strict=True))
        # Lists and not generators, which a traced graph could not contain.
        rows = math.prod([sizes[x] for x in "n" + self.untouched])
        channels = math.prod([sizes[x] for x in "g" + self.summed])
        filters = math.prod([sizes[x] for x in "g" + self.fresh])
        state = torch.einsum(f"ng{self.before}y->n{self.untouched}g{self.summed}y", state)
        core = torch.einsum(f"g{self.core}->g{self.fresh}{self.summed}z", core)
        convolution = functional.conv1d if len(kernel) == 1 else functional.conv2d
        outputs = convolution(
            state.reshape(rows, channels, *places),
            core.reshape(filters, channels // window.groups, *kernel),
            None,
            window.stride,
            window.padding,
            window.dilation,
            window.groups,
        )
        letters = f"n{self.untouched}g{self.fresh}"
        result = outputs.reshape(*(sizes[x] for x in letters), math.prod(outputs.shape[2:]))
        return torch.einsum(f"{letters}y->ng{self.after}y", result), outputs.shape[2:]


def subsample(inputs: Tensor, window: Window) -> Tensor:
    """The places that a kernel of size 1 reads."""
    if any(window.padding):
        inputs = functional.pad(inputs, [n for n in reversed(window.padding) for _ in range(2)])
    for position, stride in enumerate(window.stride, start=2):
        if stride > 1:
            places = (slice(None),) * position
            inputs = inputs[(*places, slice(None, None, stride))]
    return inputs
