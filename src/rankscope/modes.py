"""What holds for a while: a model in inference mode or all trainable, torch on one thread."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
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


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread, and afterwards on as many as before.

    Beside other work, two threads in a small matrix product or in LAPACK wait for each other: 114 s
    instead of 11 s for the spectra of a BERT-base on two busy cores.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
