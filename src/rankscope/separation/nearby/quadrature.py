"""Functions of few scalar inputs as operators between two groups of them, by Gauss rules."""

import numpy
import torch

from rankscope.errors import PartitionError
from rankscope.separation.nearby.measures import Measure
from rankscope.separation.nearby.metrics import Matrix
from rankscope.separation.pairing import (
    DEFAULTS,
    AnyFunction,
    FunctionOptions,
    Halves,
    pair_values,
    require_memory,
)
from rankscope.separation.partition import Partition


def quadrature_kernel(
    function: AnyFunction,
    partition: Partition,
    *,
    measure: Measure,
    num_nodes: int,
    options: FunctionOptions = DEFAULTS,
) -> Matrix:
    r"""Tabulate a function at Gauss nodes, weighted by the roots of their weights.

    .. math:: \sqrt{w_p}\; y(a_p, b_q)\; \sqrt{v_q}

    Singular values are those of the function in mean square if it is a polynomial of degree less
    than `num_nodes` in each input; for other functions they only converge to them as the nodes
    grow more, and bound nothing. `epsilon_rank(kernel, epsilon, metric=Frobenius())` is the
    least rank within a root-mean-square error under the rule's own measure.

    Args:
        function: takes (batch, inputs), one scalar for each position, and gives (batch,) values.
        partition: must cover all positions.
        measure: of each scalar input.
        num_nodes: for each input; a side of k inputs has num_nodes^k points.
        options: how the function is evaluated.

    Example:
        >>> from rankscope.separation.nearby.measures import Uniform
        >>> kernel = quadrature_kernel(
        ...     lambda inputs: inputs.prod(1),
        ...     Partition.left_right(3),
        ...     measure=Uniform(),
        ...     num_nodes=2,
        ... )
        >>> kernel.shape
        (2, 4)

    Raises:
        PartitionError: if the partition leaves a position out.
        MetricError: if there are too many nodes for a rule.
        FunctionError: if the function gives no usable values.
        TooLargeError: if there are too many pairs of points.
    """
    order = partition.smallest_order
    if partition.fixed(order):
        raise PartitionError(
            f"quadrature_kernel: every input is integrated over, got {partition.positions} of "
            f"0..{order - 1} on a side. Fix the others inside the function."
        )
    nodes, weights = measure.rule(num_nodes)
    require_memory((num_nodes ** len(partition.left), num_nodes ** len(partition.right)), options)
    sides = [_product_rule(nodes, weights, len(s)) for s in (partition.left, partition.right)]
    (left, left_weights), (right, right_weights) = sides
    points = Halves(
        partition, torch.from_numpy(left), torch.from_numpy(right), torch.zeros(order).double()
    )
    values = pair_values(function, points, options).matrix
    kernel: Matrix = numpy.sqrt(left_weights)[:, None] * values * numpy.sqrt(right_weights)
    return kernel


def _product_rule(nodes: Matrix, weights: Matrix, count: int) -> tuple[Matrix, Matrix]:
    """All combinations of nodes, (points, count), and the products of their weights."""
    choice = numpy.indices((len(nodes),) * count).reshape(count, -1)
    products: Matrix = weights[choice].prod(axis=0)
    return nodes[choice].T, products
