"""Units of a ReLU network that never act on given data, and so never learn from it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from rankscope.errors import ConstructionError

RELUS = (functional.relu, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_)
FUSED = (torch.rnn_relu, torch.rnn_relu_cell)
# Where the units are, counted from the end: a channel of a convolution is one unit at many places.
UNIT_POSITIONS = {
    functional.linear: -1,
    functional.conv1d: -2,
    functional.conv2d: -3,
    functional.conv3d: -4,
    functional.conv_transpose1d: -2,
    functional.conv_transpose2d: -3,
    functional.conv_transpose3d: -4,
}


@dataclass(frozen=True)
class LayerUnits:
    """How often the units of one layer act.

    Args:
        name: the linear map or convolution that feeds the ReLU.
        activity: for each unit the share of examples (and places, steps) where it is above zero.
    """

    name: str
    activity: tuple[float, ...]

    @property
    def dead(self) -> tuple[int, ...]:
        """Units that never act."""
        return tuple(unit for unit, share in enumerate(self.activity) if share == 0)


@dataclass(frozen=True)
class DeadUnits:
    """The layers in the order in which they were first met."""

    layers: tuple[LayerUnits, ...]
    num_examples: int

    @property
    def num_units(self) -> int:
        """How many units there are."""
        return sum(len(layer.activity) for layer in self.layers)

    @property
    def num_dead(self) -> int:
        """How many of them never act."""
        return sum(len(layer.dead) for layer in self.layers)

    def __str__(self) -> str:
        return f"{self.num_dead} of {self.num_units} units are dead on {self.num_examples} examples"


class _Watch(TorchFunctionMode):
    """Sees every call of a ReLU, as a module or a function, and the map that came before."""

    def __init__(self, names: dict[int, str]) -> None:
        super().__init__()
        self.names = names
        self.active: dict[str, Tensor] = {}
        self.seen: dict[str, int] = {}
        self.new_pass()

    def new_pass(self) -> None:
        self.map_name, self.position = "input", -1
        self.maps = self.relus = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in RELUS:
            self._count(result)
        elif func in UNIT_POSITIONS:
            self.maps, self.relus = self.maps + 1, 0
            self.position = UNIT_POSITIONS[func]
            weight = args[1] if len(args) > 1 else (kwargs or {}).get("weight")
            self.map_name = self.names.get(id(weight), f"map {self.maps}")
        elif func in FUSED:
            raise ConstructionError(
                f"dead_units cannot see inside {func.__name__}, one call for all its steps; "
                "write the recurrence with Linear and relu."
            )
        return result

    def _count(self, outputs: Tensor) -> None:
        self.relus += 1
        name = self.map_name if self.relus == 1 else f"{self.map_name}, ReLU {self.relus}"
        # After pooling and flattening there is one axis left, and that is the units'.
        position = self.position if outputs.ndim >= -self.position else -1
        rows = outputs.detach().movedim(position, -1).flatten(0, -2)
        if not rows.isfinite().all():
            raise ConstructionError(
                f"dead_units: {int((~rows.isfinite()).sum())} of {rows.numel()} outputs of the "
                f"ReLU after {name} are not finite; look at the weights and the inputs."
            )
        self.active[name] = self.active.get(name, 0) + (rows > 0).sum(dim=0)
        self.seen[name] = self.seen.get(name, 0) + len(rows)


def dead_units(network: nn.Module, inputs: Tensor, *, batch_size: int = 256) -> DeadUnits:
    """Count how often each unit of each ReLU acts, in evaluation mode.

    A unit that acts on none of the examples passes no gradient to its weights, so that gradient
    descent on these examples cannot revive it. A layer is named after the map before its ReLU; a
    map that is used again and again, as in a recurrence, is one layer.

    Args:
        network: any module; its training flags are put back.
        inputs: examples along the first axis.
        batch_size: how many at once.

    Example:
        >>> network = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 1))
        >>> _ = nn.init.constant_(network[0].bias, -9.0)
        >>> print(dead_units(network, torch.zeros(3, 2)))
        5 of 5 units are dead on 3 examples

    Raises:
        ConstructionError: if there is no example or no ReLU, a ReLU is hidden in a fused
            recurrence, or a value is not finite.
    """
    if not inputs.ndim or not len(inputs):
        raise ConstructionError(
            f"dead_units needs examples along the first axis, got inputs {tuple(inputs.shape)}."
        )
    names = {
        id(weight): name.removesuffix(".weight") for name, weight in network.named_parameters()
    }
    watch = _Watch(names)
    flags = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        with torch.no_grad(), watch:
            for batch in torch.split(inputs, batch_size):
                watch.new_pass()
                network(batch)
    finally:
        for module, flag in flags:
            module.training = flag
    if not watch.active:
        raise ConstructionError(
            f"dead_units: {type(network).__name__} called no ReLU in a pass of {watch.maps} linear "
            "maps and convolutions; only ReLU has units that are exactly zero."
        )
    layers = (
        LayerUnits(name, tuple((count.double() / watch.seen[name]).tolist()))
        for name, count in watch.active.items()
    )
    return DeadUnits(tuple(layers), len(inputs))
