"""Our own count against fvcore's, where fvcore can count (it counts a multiply-add as one)."""

import warnings

import pytest
import torch
from torch import Tensor, nn

from rankscope.diagrams.cost import cost
from rankscope.reading import from_module


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, bias=False, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.attention(inputs, inputs, inputs)[0]
        return outputs


MODULES: list[tuple[nn.Module, tuple[int, ...]]] = [
    (nn.Linear(6, 5, bias=False), (3, 6)),
    (nn.Linear(6, 5, bias=False), (2, 3, 6)),
    (nn.Conv1d(3, 8, 3, dilation=2, bias=False), (2, 3, 9)),
    (nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), (2, 3, 9, 7)),
    (nn.Conv2d(4, 8, 3, groups=2, bias=False), (2, 4, 9, 9)),
    (nn.Sequential(nn.Linear(6, 5, bias=False), nn.ReLU(), nn.Linear(5, 4, bias=False)), (7, 6)),
    (SelfAttention(), (2, 5, 16)),
]


@pytest.mark.parametrize(("module", "shape"), MODULES)
def test_operations_are_twice_fvcore_s_multiply_adds(
    module: nn.Module, shape: tuple[int, ...]
) -> None:
    with warnings.catch_warnings():
        # fvcore is built on torch.jit, which PyTorch now calls deprecated at every turn.
        warnings.simplefilter("ignore")
        from fvcore.nn import FlopCountAnalysis

        oracle = FlopCountAnalysis(module.eval(), torch.zeros(shape))
        oracle.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        multiply_adds = oracle.total()
    assert cost(from_module(module, shape)).flops == 2 * multiply_adds
