"""A linear layer, dense or factorized, as steps of a network of diagrams."""

import math
from dataclasses import replace

from torch import nn

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Step, Sum, Term
from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.layers.linear import FactorizedLinear
from rankscope.layers.linear_layers import LinearLayer


def linear_steps(
    name: str,
    layer: LinearLayer,
    source: str,
    *,
    prefix: str,
    rows: Index | None = None,
) -> tuple[Step, ...]:
    """The product with the weight, and the sum with the bias if there is one.

    Args:
        name: of the array that the last step makes, (rows, out_features).
        layer: whose cores, or whose weight, are drawn.
        source: array of the inputs, (rows, in_features).
        prefix: of the layer's arrays, which are named as its parameters are.
        rows: the index of the inputs besides their features; None for a single vector.
    """
    weight = _weight(layer)
    outputs, inputs = _sides(weight, layer.out_features)
    held = () if rows is None else (rows.name,)
    indices = weight.indices if rows is None else (rows, *weight.indices)
    within = "" if isinstance(layer, nn.Linear) else "cores."
    steps: tuple[Step, ...] = ()
    if len(inputs) > 1:
        # Inputs of the whole network have one index of features, whatever the weight makes of it.
        whole = _read(f"{name} input", source, layer.in_features, rows)
        steps, source = (Step(whole.name, whole),), whole.name
    nodes = (
        Node("X", (*held, *inputs), Role.DATA, array=source),
        *(
            Node(node.name, node.indices, node.role, node.label, f"{prefix}.{within}{node.name}")
            for node in weight.nodes
        ),
    )
    product = Diagram(f"{name} product", indices, nodes, (*held, *outputs))
    if layer.bias is None and len(outputs) == 1:
        return *steps, Step(name, product)
    first = Step(f"{name} product", product, rf"\mathbf{{{name}}}_{{0}}")
    return *steps, first, Step(name, _sum(name, layer, first.name, prefix=prefix, rows=rows))


def _sum(name: str, layer: LinearLayer, source: str, *, prefix: str, rows: Index | None) -> Sum:
    """The product, its outputs as one index again, and the bias."""
    read = _read(name, source, layer.out_features, rows)
    if layer.bias is None:
        return Sum(name, (Term(read),))
    bias = Node("b", ("t",), label=r"\mathbf{b}", array=f"{prefix}.bias")
    # The same bias in every row: a column of ones times it.
    ones = () if rows is None else (Node("ones", (rows.name,), Role.CONSTANT, r"\mathbf{1}"),)
    return Sum(name, (Term(read), Term(replace(read, name="bias", nodes=(*ones, bias)))))


def _read(name: str, source: str, size: int, rows: Index | None) -> Diagram:
    """An array (rows, features) as it is."""
    feature = Index("t", size, kind=IndexKind.FEATURE)
    indices = (feature,) if rows is None else (rows, feature)
    legs = tuple(index.name for index in indices)
    return Diagram(name, indices, (Node("X", legs, Role.DATA, array=source),), legs)


def _weight(layer: LinearLayer) -> Diagram:
    if isinstance(layer, FactorizedLinear):
        return layer.diagram()
    sizes = zip("ts", layer.weight.shape, strict=True)
    indices = tuple(Index(name, size, kind=IndexKind.FEATURE) for name, size in sizes)
    node = Node("weight", ("t", "s"), label=r"\mathbf{W}")
    return Diagram("weight", indices, (node,), ("t", "s"))


def _sides(weight: Diagram, out_features: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The open indices of a weight that are its outputs, and those that are its inputs."""
    sizes = [weight.index_by_name[name].size or 1 for name in weight.output]
    count = next(n for n in range(1, len(sizes)) if math.prod(sizes[:n]) == out_features)
    return weight.output[:count], weight.output[count:]
