"""A network as CP layers and everything between them, read from its trace.

trace = trace_layers(model, (3, 32, 32))
trace.layers         # what can be compressed, in the order in which it runs
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.errors import GeneralizationError, UnsupportedModuleError
from rankscope.factorize.convolution import FactorizedConv1d, FactorizedConv2d
from rankscope.factorize.formats.format import WeightShape
from rankscope.factorize.frequency_blocks import Torus
from rankscope.factorize.layer import CPComponents, cp_components, is_cp
from rankscope.factorize.linear import FactorizedLinear
from rankscope.generalize.sample import Sample
from rankscope.progress import Progress, Report, ignore
from rankscope.reading.trace import Value
from rankscope.robust.graph import Graph, Node, sample_shape
from rankscope.robust.linear_maps import normalization_scale
from rankscope.robust.lipschitz import require_finite
from rankscope.robust.operator_norms import as_convolution
from rankscope.robust.transfer import read_transfer_functions

CPModule = FactorizedConv1d | FactorizedConv2d | FactorizedLinear


@dataclass(frozen=True, eq=False)
class CPLayer:
    """A layer that can be compressed.

    Args:
        name: of the module.
        node: where it runs.
        normalization: the batch normalization right behind it, whose scale is a part of it.
        components: float64, the scale of the normalization included.
        order: the number of each component among the cores of the module.
        torus: where its kernel moves; None for a matrix.
    """

    name: str
    node: Node
    normalization: Node | None
    components: CPComponents
    order: Tensor
    torus: Torus | None

    @property
    def module(self) -> CPModule:
        """The layer itself, a copy of that in the model."""
        module = self.node.module
        assert isinstance(module, CPModule)  # only those are read as layers
        return module

    @property
    def shape(self) -> WeightShape:
        """Shape of its weight."""
        return self.components.shape

    @property
    def rank(self) -> int:
        """Number of components."""
        return len(self.components.weights)

    @property
    def input(self) -> Value:
        """The input of the layer."""
        return self.node.inputs[0]

    @property
    def output(self) -> Value:
        """The output of the layer, after the normalization."""
        return (self.normalization or self.node).output

    def constant(self) -> Tensor:
        """The output for zeros: the part of its outputs that is not linear, (1, …)."""
        like = next(iter(self.module.cores.tensors().values()))
        with torch.no_grad():
            made = self.node.run(torch.zeros(1, *sample_shape(self.input)).to(like))
            return made if self.normalization is None else self.normalization.run(made)


@dataclass(frozen=True, eq=False)
class LayerTrace:
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
        shape = sample_shape(self.graph.output)
        return shape[0] if len(shape) == 1 else 0

    def run(self, inputs: Tensor) -> Iterator[tuple[Value, Tensor]]:
        """Every value of a batch, the input first; each is forgotten after its last use."""
        uses = _uses(self.graph)
        known = {self.graph.input: inputs}
        yield self.graph.input, inputs
        for node in self.graph.nodes:
            given = [known[value] for value in node.inputs]
            known[node.output] = outputs = node.run(*given)
            for value in node.inputs:
                uses[value] -= 1
                if not uses[value]:
                    del known[value]
            yield node.output, outputs

    def gains(self, factor: Callable[[int, float], float]) -> tuple[float, ...]:
        r"""Factor by which a change behind each layer can grow until it reaches the output.

        From the output backwards: chains multiply, paths add up, so that a residual connection
        counts :math:`1 + \prod t`.

        Args:
            factor: called for the layers from the last to the first with the layer's number and
                its own gain; gives by how much the layer, compressed, can stretch its input.
        """
        numbers = {layer.node.output: k for k, layer in enumerate(self.layers)}
        reached: dict[Value, float] = {self.graph.output: 1.0}
        gains = [0.0] * len(self.layers)
        for node in reversed(self.graph.nodes):
            gain = reached.get(node.output, 0.0)
            growths = self.growths.get(node.output, ())
            if node.output in numbers:
                number = numbers[node.output]
                gains[number] = gain
                growths = (factor(number, gain),)
            for value, growth in zip(node.inputs, growths, strict=True):
                reached[value] = reached.get(value, 0.0) + gain * growth
        return tuple(gains)


def trace_layers(model: nn.Module, input_shape: tuple[int, ...]) -> LayerTrace:
    """Read a network whose layers are in CP form; `in_cp_form` writes others so.

    Pooling, activations, residual connections and inference batch normalization are passed
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
    graph, transfers = read_transfer_functions(model, input_shape, reader="generalization")
    layers = tuple(_layer(graph, node) for node in graph.nodes if _is_compressible(node))
    if not layers:
        raise UnsupportedModuleError(
            f"{type(model).__name__} has no layer in CP form; write it so with "
            "rankscope.networks.cp_networks.in_cp_form."
        )
    # A layer may stand in a model under several names.
    counts = Counter(layer.module for layer in layers)
    for layer in layers:
        count = counts[layer.module]
        if count > 1:
            raise UnsupportedModuleError(
                f"{layer.name}: runs {count} times in one pass, so that its rank would be chosen "
                f"{count} times; copy the layer."
            )
    own = {layer.node.output for layer in layers}
    folded = {layer.output for layer in layers} - own
    growths = {
        node.output: (1.0,) if node.output in folded else transfer.growth()
        for node, transfer in zip(graph.nodes, transfers, strict=True)
        if node.output not in own
    }
    return LayerTrace(graph, layers, growths)


def _is_compressible(node: Node) -> bool:
    module = node.module
    if isinstance(module, FactorizedConv1d | FactorizedConv2d) and module.settings.groups != 1:
        return False
    return isinstance(module, CPModule) and is_cp(module.format.name, module.shape)


def _layer(graph: Graph, node: Node) -> CPLayer:
    module = node.module
    assert isinstance(module, CPModule)  # only those are compressible
    cores = {name: core.detach().double() for name, core in module.cores.tensors().items()}
    components, order = cp_components(module.format.name, cores, module.shape)
    normalization = _normalization_behind(graph, node)
    if normalization is not None:
        components, moved = components.scaled_outputs(normalization_scale(normalization))
        order = order[moved]
    name = node.name or type(module).__name__
    return CPLayer(name, node, normalization, components, order, _torus(node))


def _normalization_behind(graph: Graph, node: Node) -> Node | None:
    users = [user for user in graph.nodes if node.output in user.inputs]
    is_only = len(users) == 1 and node.output != graph.output
    # Of a matrix on several rows, channels of the normalization are not its outputs.
    is_plain = not isinstance(node.module, FactorizedLinear) or (
        len(sample_shape(node.output)) == 1
    )
    return users[0] if is_only and is_plain and users[0].kind == "batch_norm" else None


def _torus(node: Node) -> Torus | None:
    module = node.module
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
        raise node.refusal(str(error).rstrip(".")) from error
    sizes, outputs = sample_shape(node.inputs[0]), sample_shape(node.output)
    if known.is_circular and not known.takes_every_place_once(sizes, outputs):
        raise node.refusal(
            f"it pads periodically and gives the shape {outputs} for {sizes}, so that places count "
            "more than once or not at all; take the padding that gives the sizes over the stride"
        )
    return known.torus(sizes[1:])


def _uses(graph: Graph) -> Counter[Value]:
    uses = Counter(value for node in graph.nodes for value in node.inputs)
    uses[graph.output] += 1
    return uses


def batches(inputs: Tensor, like: nn.Module | Tensor, size: int) -> Iterator[Tensor]:
    """Inputs in pieces, in the precision of a network's parameters."""
    given = like if isinstance(like, Tensor) else next(like.parameters(), inputs)
    for piece in torch.split(inputs, size):
        yield piece.to(given.dtype)


# --- What is measured on data ---------------------------------------------------------------------


BATCH_SIZE = 100


@dataclass(frozen=True, eq=False)
class Activations:
    """A network on a sample.

    Args:
        inputs: norms of the input of every layer, (samples, layers), float64.
        outputs: of the network, (samples, classes).
        labels: (samples).
    """

    inputs: Tensor
    outputs: Tensor
    labels: Tensor

    @property
    def lengths(self) -> Tensor:
        """Norms of the inputs of every layer, and of the outputs, (samples, layers + 1)."""
        outputs = torch.linalg.vector_norm(self.outputs.double(), dim=1, keepdim=True)
        return torch.cat([self.inputs, outputs], dim=1)

    @property
    def growths(self) -> Tensor:
        r"""The smallest growth from each layer's input to the next one's, (layers).

        .. math:: c_k = \min_{x \in S} \lVert X^{(k+1)} \rVert / \lVert X^{(k)} \rVert

        where the next of the last layer is the network's output. The next input lies behind the
        activation. It is the cushion times the norm of the weight, and all that the theorem uses
        of it. Layers are taken in the order in which they run, also in networks that are no
        chains: that norms of inputs are at most that of the output over the product of all later
        c needs no more. A layer that sends a sample to zero has c = 0.
        """
        before, after = self.lengths[:, :-1], self.lengths[:, 1:]
        # What is zero already needs no cushion.
        return torch.where(before > 0, after / before, torch.inf).amin(dim=0)

    @property
    def largest_output(self) -> float:
        """The longest output of the network, max ‖M(x)‖."""
        return float(self.lengths[:, -1].max())


def measure_activations(
    trace: LayerTrace, sample: Sample, *, batch_size: int = BATCH_SIZE, report: Report = ignore
) -> Activations:
    """Run a network once over a sample, in batches, and keep norms and outputs only.

    Raises:
        GeneralizationError: if labels are no classes, or an output is not finite.
    """
    sample.require_classes(trace.num_classes)
    like = next(trace.layers[0].module.parameters(), sample.inputs)
    lengths, outputs = [], []
    wanted = [layer.input for layer in trace.layers]
    total = -(-len(sample) // batch_size)
    with torch.no_grad():
        for number, piece in enumerate(batches(sample.inputs, like, batch_size)):
            norms = {}
            for value, tensor in trace.run(piece):
                if value in wanted:
                    norms[value] = _lengths(tensor)
            lengths.append(torch.stack([norms[value] for value in wanted], dim=1))
            outputs.append(tensor)
            report(Progress("activations", number + 1, total))
    result = Activations(torch.cat(lengths).double(), torch.cat(outputs), sample.labels)
    if not bool(torch.isfinite(result.lengths).all()):
        wrong = int((~torch.isfinite(result.lengths)).any(dim=1).sum())
        raise GeneralizationError(
            f"Activations are not finite on {wrong:,} of {len(sample):,} samples, so that nothing "
            "can be said."
        )
    return result


def _lengths(tensor: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(tensor, dim=tuple(range(1, tensor.ndim)))
    return lengths


def cushions(trace: LayerTrace, activations: Activations) -> Tensor:
    r"""Layer cushions ζ, (layers).

    .. math:: \zeta_k \lVert M_k \rVert_F \lVert X^{(k)} \rVert \le \lVert X^{(k+1)} \rVert
              \quad \text{for all } x \in S

    with the norm of the kernel (of the scale of a folded normalization as well). 0 for a dead
    layer.

    Reference:
        Li, Sun, Su, Suzuki & Huang (2020), Sec. 4 (as recalled), arXiv:2001.05070.
    """
    norms = torch.stack([layer.components.to_dense().norm() for layer in trace.layers])
    return torch.where(norms > 0, activations.growths / norms, 0.0)
