"""A model put in another mode for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def inference(model: nn.Module) -> Iterator[None]:
    """Every module in inference mode, and afterwards in the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def all_trainable(model: nn.Module) -> Iterator[None]:
    """Every parameter asks for a gradient, and afterwards only those that did."""
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    for parameter in frozen:
        parameter.requires_grad = parameter.is_floating_point()
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad = False
