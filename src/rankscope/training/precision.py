"""In which numbers a forward pass is computed; weights and their updates stay as they are."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from rankscope.errors import TrainingError

_UNITS = ("avx512_bf16", "amx_bf16", "bf16", "arm_bf16")  # as processors call them


class Precision(ABC):
    """How a forward pass is computed. Subclasses are frozen."""

    @abstractmethod
    def context(self, device: torch.device) -> AbstractContextManager[object]:
        """What the loss of a batch is computed in."""


@dataclass(frozen=True)
class FullPrecision(Precision):
    """In the numbers of the weights."""

    def context(self, device: torch.device) -> AbstractContextManager[object]:
        """Nothing special."""
        return nullcontext()


@dataclass(frozen=True)
class Bfloat16(Precision):
    """Products in bfloat16, where `torch.autocast` thinks it safe.

    Its exponents are those of float32, so that gradients need no scaling.
    """

    def context(self, device: torch.device) -> AbstractContextManager[object]:
        """Autocast of the device.

        Raises:
            TrainingError: if the device has no units for it: it would be slower and less exact.
        """
        if not has_bfloat16_units(device):
            raise TrainingError(
                f"Bfloat16: the device {str(device)!r} has no bfloat16 units, so that mixed "
                f"precision would be slower and less exact than float32. Train with "
                f"FullPrecision()."
            )
        return torch.autocast(device.type, dtype=torch.bfloat16)


def has_bfloat16_units(device: torch.device) -> bool:
    """Whether a device multiplies bfloat16 numbers by itself."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        # Older versions of PyTorch cannot tell.
        capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
        return any(capabilities.get(unit, False) for unit in _UNITS)
    return False
