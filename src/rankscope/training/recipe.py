"""How a model is trained: plain data, checked when it is made."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import nn

from rankscope.errors import TrainingError
from rankscope.training.history import EarlyStop, StopAt

# Floating-point precision of the forward pass; weights and their updates stay as they are.


_UNITS = ("avx512_bf16", "amx_bf16", "bf16", "arm_bf16")  # as processors call them


class Precision(ABC):
    """How a forward pass is computed. Subclasses are frozen."""

    @abstractmethod
    def context(self, device: torch.device) -> AbstractContextManager[object]:
        """What the loss of a batch is computed in."""


@dataclass(frozen=True)
class FullPrecision(Precision):
    """The precision of the weights."""

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


@dataclass(frozen=True)
class Adam:
    """Adam, with the weight decay of the recipe taken from the weights and not from the gradient.

    Reference:
        Kingma & Ba (2015), arXiv:1412.6980; Loshchilov & Hutter (2019), arXiv:1711.05101.
    """

    betas: tuple[float, float] = (0.9, 0.999)

    def build(
        self, parameters: Sequence[nn.Parameter], *, weight_decay: float
    ) -> torch.optim.Optimizer:
        """A fresh optimizer; the loop sets its learning rate before every step."""
        return torch.optim.AdamW(parameters, betas=self.betas, weight_decay=weight_decay)


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent; the weight decay of the recipe is added to the gradient."""

    momentum: float = 0.9
    nesterov: bool = False

    def build(
        self, parameters: Sequence[nn.Parameter], *, weight_decay: float
    ) -> torch.optim.Optimizer:
        """A fresh optimizer; the loop sets its learning rate before every step."""
        return torch.optim.SGD(
            parameters,
            lr=1.0,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=weight_decay,
        )


@dataclass(frozen=True)
class Spent:
    """How much of a run is over, before a step.

    Args:
        epoch: counted from 0.
        steps: share of all steps, in 0..1.
        seconds: share of the seconds allowed, in 0..1; 0 if there is no limit.
    """

    epoch: int
    steps: float
    seconds: float


class Schedule(ABC):
    """What the learning rate is multiplied by as a run goes on. Subclasses are frozen."""

    @abstractmethod
    def factor(self, spent: Spent) -> float:
        """The factor of the step that comes next."""


@dataclass(frozen=True)
class Constant(Schedule):
    """The same learning rate throughout."""

    def factor(self, spent: Spent) -> float:
        return 1.0


@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine from 1 down to 0 over all steps.

    Example:
        >>> Cosine().factor(Spent(epoch=0, steps=0.5, seconds=0.0))
        0.5
    """

    def factor(self, spent: Spent) -> float:
        return (1 + _cosine(spent.steps)) / 2


@dataclass(frozen=True)
class TimedCosine(Schedule):
    """Half a cosine over the steps or the seconds allowed, whichever are spent sooner.

    For runs that end by the clock. Such a run depends on the machine, so that it is not repeated
    to the bit.
    """

    def factor(self, spent: Spent) -> float:
        return (1 + _cosine(max(spent.steps, spent.seconds))) / 2


@dataclass(frozen=True)
class Recipe:
    """Everything that decides how a run goes, besides the model, the loss and the data.

    Args:
        epochs: passes over the data, unless one of the limits ends the run earlier.
        batch_size: the last batch of an epoch may be smaller.
        learning_rate: at the start; the schedule multiplies it.
        optimizer: Adam or SGD, with their own settings.
        weight_decay: of all parameters alike.
        schedule: of the learning rate.
        clip_norm: largest 2-norm of all gradients together; None for no limit.
        seed: of the order of the samples, of their augmentation, and of dropout.
        max_seconds: the run ends with the step during which they are over; it can be resumed. They
            are those of `working_seconds`, which other work on the machine does not use up.
        max_samples: the run ends with the step that reaches this many samples.
        early_stop: the run ends when a score no longer improves, or reaches a value; None for
            never.
        precision: of the forward pass.

    Raises:
        TrainingError: if a number is not of its kind.
    """

    epochs: int = 1
    batch_size: int = 128
    learning_rate: float = 1e-3
    optimizer: Adam | SGD = Adam()
    weight_decay: float = 0.0
    schedule: Schedule = Constant()
    clip_norm: float | None = None
    seed: int = 0
    max_seconds: float | None = None
    max_samples: int | None = None
    # Not in the representation, by which checkpoints of version 0.1.0 know their run.
    early_stop: EarlyStop | StopAt | None = field(default=None, repr=False)
    precision: Precision = field(default=FullPrecision(), repr=False)

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "learning_rate", *_LIMITS):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise TrainingError(f"Recipe: {name} must be finite and above 0, got {value}.")
        if not 0 <= self.weight_decay < math.inf:
            raise TrainingError(
                f"Recipe: weight_decay must be finite and not negative, got {self.weight_decay}."
            )
        if not 0 <= self.seed < 2**63:
            raise TrainingError(f"Recipe: seed must lie in 0..2^63 - 1, got {self.seed}.")


_LIMITS = ("clip_norm", "max_seconds", "max_samples")


def _cosine(share: float) -> float:
    # Exact at the middle, where floating point would give 6e-17.
    return math.sin(math.pi * (0.5 - share))


# A learning rate that goes up and down in straight lines.


# Of the published Lipschitz networks: up over two fifths, down to a twentieth, then to nothing.
RISE_AND_FALL = ((0.0, 0.0), (0.4, 1.0), (0.8, 0.05), (1.0, 0.0))


@dataclass(frozen=True)
class PiecewiseLinear(Schedule):
    """Straight lines between given points.

    Args:
        points: (share of the run, factor), with shares that rise from 0 to 1.

    Example:
        >>> PiecewiseLinear().factor(Spent(epoch=0, steps=0.2, seconds=0.0))
        0.5

    Raises:
        TrainingError: if the shares do not rise from 0 to 1.
    """

    points: tuple[tuple[float, float], ...] = RISE_AND_FALL

    def __post_init__(self) -> None:
        shares = [share for share, _ in self.points]
        rises = all(before < after for before, after in pairwise(shares))
        if not shares or shares[0] != 0 or shares[-1] != 1 or not rises:
            raise TrainingError(
                f"PiecewiseLinear: the shares of a run must rise from 0 to 1, got {shares}."
            )

    def factor(self, spent: Spent) -> float:
        """The factor of the step that comes next."""
        for (before, low), (after, high) in pairwise(self.points):
            if spent.steps <= after:
                return low + (high - low) * (spent.steps - before) / (after - before)
        return self.points[-1][1]
