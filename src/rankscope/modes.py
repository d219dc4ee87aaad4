"""A model in inference mode, or with all its parameters trainable, for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def inference(model: nn.Module) -> Iterator[None]:
    """Put every module in inference mode, and afterwards back in the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def all_trainable(model: nn.Module) -> Iterator[None]:
    """Let every parameter ask for a gradient, and afterwards only those that did."""
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    for parameter in frozen:
        parameter.requires_grad = parameter.is_floating_point()
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad = False
