"""A network as CP layers and everything between them, read from its forward pass.

walk = read_walk(model, (3, 32, 32))
walk.layers          # what can be compressed, in the order in which it runs
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.errors import UnsupportedModuleError
from rankscope.layers.convolution import FactorizedConv1d, FactorizedConv2d
from rankscope.layers.cp_components import CPComponents, cp_components, is_cp
from rankscope.layers.formats.format import WeightShape
from rankscope.layers.frequency_blocks import Torus
from rankscope.layers.linear import FactorizedLinear
from rankscope.robustness.affine_operations import argument
from rankscope.robustness.graph import Graph, Operation
from rankscope.robustness.linear_map import as_convolution
from rankscope.robustness.lipschitz import require_finite
from rankscope.robustness.operations import read_meanings
from rankscope.robustness.recording import Value

CPModule = FactorizedConv1d | FactorizedConv2d | FactorizedLinear


@dataclass(frozen=True, eq=False)
class CPLayer:
    """A layer that can be compressed.

    Args:
        name: of the module.
        operation: where it runs.
        normalization: the batch normalization right behind it, whose scale is a part of it.
        components: float64, the scale of the normalization included.
        order: the number of each component among the cores of the module.
        torus: where its kernel moves; None for a matrix.
    """

    name: str
    operation: Operation
    normalization: Operation | None
    components: CPComponents
    order: Tensor
    torus: Torus | None

    @property
    def module(self) -> CPModule:
        """The layer itself, a copy of that in the model."""
        module = self.operation.module
        assert isinstance(module, CPModule)  # only those are read as layers
        return module

    @property
    def shape(self) -> WeightShape:
        """Of its weight."""
        return self.components.shape

    @property
    def rank(self) -> int:
        """How many components it has."""
        return len(self.components.weights)

    @property
    def input(self) -> Value:
        """What it takes."""
        return self.operation.inputs[0]

    @property
    def output(self) -> Value:
        """What it gives, behind the normalization."""
        return (self.normalization or self.operation).output

    def constant(self) -> Tensor:
        """What it makes of zeros: the part of its outputs that is not linear, (1, …)."""
        like = next(iter(self.module.cores.tensors().values()))
        with torch.no_grad():
            made = self.operation.run(torch.zeros(1, *self.input.shape).to(like))
            return made if self.normalization is None else self.normalization.run(made)


@dataclass(frozen=True, eq=False)
class Walk:
    """A network's operations; those that are no CP layers have fixed growths.

    Args:
        graph: all operations.
        layers: what can be compressed, in the order in which it runs.
        growths: by how much each other operation can stretch a change of each input, by output.
    """

    graph: Graph
    layers: tuple[CPLayer, ...]
    growths: Mapping[Value, tuple[float, ...]]

    @property
    def num_classes(self) -> int:
        """Length of the output."""
        return self.graph.output.shape[0] if len(self.graph.output.shape) == 1 else 0

    def run(self, inputs: Tensor) -> Iterator[tuple[Value, Tensor]]:
        """Every value of a batch, the input first; each is forgotten after its last use."""
        uses = _uses(self.graph)
        known = {self.graph.input: inputs}
        yield self.graph.input, inputs
        for operation in self.graph.operations:
            given = [known[value] for value in operation.inputs]
            known[operation.output] = outputs = operation.run(*given)
            for value in operation.inputs:
                uses[value] -= 1
                if not uses[value]:
                    del known[value]
            yield operation.output, outputs

    def gains(self, factor: Callable[[int, float], float]) -> tuple[float, ...]:
        r"""By how much a change behind each layer can grow until it reaches the output.

        From the output backwards: chains multiply, paths add up, so that a residual connection
        counts :math:`1 + \prod t`.

        Args:
            factor: called for the layers from the last to the first with the layer's number and
                its own gain; gives by how much the layer, compressed, can stretch its input.
        """
        numbers = {layer.operation.output: k for k, layer in enumerate(self.layers)}
        reached: dict[Value, float] = {self.graph.output: 1.0}
        found = [0.0] * len(self.layers)
        for operation in reversed(self.graph.operations):
            gain = reached.get(operation.output, 0.0)
            growths = self.growths.get(operation.output, ())
            if operation.output in numbers:
                number = numbers[operation.output]
                found[number] = gain
                growths = (factor(number, gain),)
            for value, growth in zip(operation.inputs, growths, strict=True):
                reached[value] = reached.get(value, 0.0) + gain * growth
        return tuple(found)


def read_walk(model: nn.Module, input_shape: tuple[int, ...]) -> Walk:
    """Read a network whose layers are in CP form; `in_cp_form` writes others so.

    Pooling, activations, residual connections and inference batch normalization are walked
    through; a normalization right behind a layer is folded into it. Convolutions in groups, and
    layers in other formats, cannot be compressed and count with their operator norms.

    Args:
        model: in any mode; read in inference mode, and not changed.
        input_shape: of one input.

    Raises:
        UnsupportedModuleError: if an operation is not known, a layer is used twice, or there is
            nothing to compress, with the name.
        SizeError: if the model does not take such inputs.
        RobustnessError: if a weight is not finite, with its name.
    """
    require_finite(model)
    graph, meanings = read_meanings(model, input_shape)
    layers = tuple(_layer(graph, op) for op in graph.operations if _is_compressible(op))
    if not layers:
        raise UnsupportedModuleError(
            f"{type(model).__name__} has no layer in CP form; write it so with "
            "rankscope.architectures.models.cp_networks.in_cp_form."
        )
    for name, count in Counter(layer.name for layer in layers).items():
        if count > 1:
            raise UnsupportedModuleError(
                f"{name}: runs {count} times in one pass, so that its rank would be chosen {count} "
                "times; copy the layer."
            )
    own = {layer.operation.output for layer in layers}
    folded = {layer.output for layer in layers} - own
    growths = {
        operation.output: (1.0,) if operation.output in folded else meaning.growth()
        for operation, meaning in zip(graph.operations, meanings, strict=True)
        if operation.output not in own
    }
    return Walk(graph, layers, growths)


def _is_compressible(operation: Operation) -> bool:
    module = operation.module
    if isinstance(module, FactorizedConv1d | FactorizedConv2d) and module.settings.groups != 1:
        return False
    return isinstance(module, CPModule) and is_cp(module.format.name, module.shape)


def _layer(graph: Graph, operation: Operation) -> CPLayer:
    module = operation.module
    assert isinstance(module, CPModule)  # only those are compressible
    cores = {name: core.detach().double() for name, core in module.cores.tensors().items()}
    components, order = cp_components(module.format.name, cores, module.shape)
    normalization = _normalization_behind(graph, operation)
    if normalization is not None:
        components, moved = components.scaled_outputs(_scale(normalization))
        order = order[moved]
    name = operation.name or type(module).__name__
    return CPLayer(name, operation, normalization, components, order, _torus(operation))


def _normalization_behind(graph: Graph, operation: Operation) -> Operation | None:
    users = [user for user in graph.operations if operation.output in user.inputs]
    is_only = len(users) == 1 and operation.output != graph.output
    # Of a matrix on several rows, channels of the normalization are not its outputs.
    is_plain = not isinstance(operation.module, FactorizedLinear) or (
        len(operation.output.shape) == 1
    )
    return users[0] if is_only and is_plain and users[0].kind == "batch_norm" else None


def _scale(normalization: Operation) -> Tensor:
    variance = argument(normalization, 2, "running_var").double()
    weight = argument(normalization, 3, "weight")
    scale: Tensor = (variance + argument(normalization, 7, "eps", 1e-5)).rsqrt()
    return scale if weight is None else scale * weight.double()


def _torus(operation: Operation) -> Torus | None:
    module = operation.module
    if not isinstance(module, FactorizedConv1d | FactorizedConv2d):
        return None
    # Only how it moves is asked for, so that the kernel need not be built.
    settings, shape = module.settings, module.shape
    empty = module.dense_class(
        shape.in_size, shape.out_size, bias=False, device="meta", **settings.arguments()
    )
    try:
        known = as_convolution(empty)
    except UnsupportedModuleError as error:
        raise operation.refuse(str(error).rstrip(".")) from error
    sizes, outputs = operation.inputs[0].shape, operation.output.shape
    if known.is_circular and not known.takes_every_place_once(sizes, outputs):
        raise operation.refuse(
            f"it pads periodically and gives the shape {outputs} for {sizes}, so that places count "
            "more than once or not at all; take the padding that gives the sizes over the stride"
        )
    return known.torus(sizes[1:])


def _uses(graph: Graph) -> Counter[Value]:
    uses = Counter(value for operation in graph.operations for value in operation.inputs)
    uses[graph.output] += 1
    return uses


def batches(inputs: Tensor, like: nn.Module | Tensor, size: int) -> Iterator[Tensor]:
    """Inputs in pieces, in the precision of a network's parameters."""
    given = like if isinstance(like, Tensor) else next(like.parameters(), inputs)
    for piece in torch.split(inputs, size):
        yield piece.to(given.dtype)
