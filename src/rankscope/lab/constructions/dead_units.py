"""Units of a ReLU network that never act on given data, and so never learn from it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.errors import ConstructionError
from rankscope.reading.trace import Trace, Value, trace

# Where the units are, counted from the end: a channel of a convolution is one unit at many places.
UNIT_POSITIONS = {
    "linear": -1,
    "conv1d": -2,
    "conv2d": -3,
    "conv3d": -4,
    "conv_transpose1d": -2,
    "conv_transpose2d": -3,
    "conv_transpose3d": -4,
}
FUSED = ("rnn_relu", "rnn_relu_cell")


@dataclass(frozen=True)
class LayerUnits:
    """Counts of how often the units of one layer are active.

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
        """Number of units."""
        return sum(len(layer.activity) for layer in self.layers)

    @property
    def num_dead(self) -> int:
        """Number of units that are never active."""
        return sum(len(layer.dead) for layer in self.layers)

    def __str__(self) -> str:
        return f"{self.num_dead} of {self.num_units} units are dead on {self.num_examples} examples"


@dataclass(frozen=True)
class _Relu:
    """A ReLU of a trace: the layer that it belongs to, and where the units are."""

    layer: str
    position: int


def _relus(read: Trace) -> dict[Value, _Relu]:
    """Every ReLU by its output, named after the last map before it."""
    relus: dict[Value, _Relu] = {}
    layer, position, maps, since = "input", -1, 0, 0
    for operation in read.operations:
        if operation.kind in FUSED:
            raise ConstructionError(
                f"dead_units cannot see inside {operation.kind}, one call for all its steps; "
                "write the recurrence with Linear and relu."
            )
        if operation.kind in UNIT_POSITIONS:
            maps, since = maps + 1, 0
            position = UNIT_POSITIONS[operation.kind]
            weight = operation["weight"]
            is_held = isinstance(read.arrays.get(weight), nn.Parameter)
            layer = weight.name.removesuffix(".weight") if is_held else f"map {maps}"
        elif operation.kind == "relu":
            since += 1
            name = layer if since == 1 else f"{layer}, ReLU {since}"
            # After pooling and flattening there is one axis left, and that is the units'.
            axes = len(operation.output.shape)
            relus[operation.output] = _Relu(name, position if axes >= -position else -1)
    if not relus:
        raise ConstructionError(
            f"dead_units: {read.name} called no ReLU in a pass of {maps} linear maps and "
            "convolutions; only ReLU has units that are exactly zero."
        )
    return relus


def dead_units(network: nn.Module, inputs: Tensor, *, batch_size: int = 256) -> DeadUnits:
    """Count how often each unit of each ReLU acts, in evaluation mode.

    A unit that acts on none of the examples passes no gradient to its weights, so that gradient
    descent on these examples cannot revive it. A layer is named after the map before its ReLU; a
    map that is used again and again, as in a recurrence, is one layer.

    Args:
        network: any module that torch can export; it is not changed.
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
        UnsupportedModuleError: if torch cannot export the network, with torch's reason.
    """
    if not inputs.ndim or not len(inputs):
        raise ConstructionError(
            f"dead_units needs examples along the first axis, got inputs {tuple(inputs.shape)}."
        )
    active: dict[str, Tensor] = {}
    seen: dict[str, int] = {}
    read = trace(network, inputs[: min(batch_size, 2)])
    for batch in torch.split(inputs, batch_size):
        (start,) = read.inputs
        if not read.has_free_batch and start.shape[0] != len(batch):
            read = trace(network, batch)
            (start,) = read.inputs
        relus = _relus(read)
        with torch.no_grad():
            for _, made in read.walk({start: batch}):
                for value in relus.keys() & made.keys():
                    name, rows = relus[value].layer, _rows(relus[value], made[value])
                    active[name] = active.get(name, 0) + (rows > 0).sum(dim=0)
                    seen[name] = seen.get(name, 0) + len(rows)
    layers = (
        LayerUnits(name, tuple((count.double() / seen[name]).tolist()))
        for name, count in active.items()
    )
    return DeadUnits(tuple(layers), len(inputs))


def _rows(relu: _Relu, outputs: Tensor) -> Tensor:
    rows = outputs.movedim(relu.position, -1).flatten(0, -2)
    if not rows.isfinite().all():
        raise ConstructionError(
            f"dead_units: {int((~rows.isfinite()).sum())} of {rows.numel()} outputs of the "
            f"ReLU after {relu.layer} are not finite; look at the weights and the inputs."
        )
    return rows
