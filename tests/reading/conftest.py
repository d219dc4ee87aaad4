"""What every reader must do: the network computes what the module computes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rankscope.diagrams import Network, module_arrays, to_module
from rankscope.reading import from_module

Check = Callable[..., Network]


def randomized(module: nn.Module, seed: int) -> nn.Module:
    """The module in evaluation mode and float64, every parameter and running statistic drawn."""
    draw = torch.Generator().manual_seed(seed)
    module = module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
        for name, buffer in module.named_buffers():
            if "running" in name:
                drawn = torch.rand(buffer.shape, generator=draw, dtype=torch.float64)
                buffer.copy_(drawn + 0.5)
    return module


@pytest.fixture
def assert_reads() -> Check:
    def check(
        module: nn.Module, *shapes: tuple[int, ...], below: int | None = None, seed: int = 0
    ) -> Network:
        """Compare the network with the module on random inputs (integers if `below` is given)."""
        module = randomized(module, seed)
        draw = torch.Generator().manual_seed(seed + 1)
        inputs: list[Tensor] = []
        for shape in shapes:
            if below is None:
                inputs.append(torch.randn(shape, generator=draw, dtype=torch.float64))
            else:
                inputs.append(torch.randint(below, shape, generator=draw))
        network = from_module(module, tuple(inputs))
        if isinstance(module, nn.MultiheadAttention):
            wanted = module(*inputs, *[inputs[-1]] * (3 - len(inputs)))[0]
        else:
            wanted = module(*(tensor.clone() for tensor in inputs))
        result = to_module(network, module_arrays(module))(*inputs)
        if isinstance(module, nn.MultiheadAttention) and isinstance(result, tuple):
            result = result[0]
        torch.testing.assert_close(result, wanted)
        return network

    return check
