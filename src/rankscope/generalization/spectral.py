"""The bound from spectral norms, which looks at weights only."""

import math

import torch

from rankscope.generalization.activations import Activations
from rankscope.generalization.bounds import GeneralizationBound, order_bound
from rankscope.generalization.properties import Exact
from rankscope.generalization.walk import CPLayer, Walk
from rankscope.robustness.graph import sample_shape
from rankscope.theorem import Status, Theorem

SPECTRAL = Theorem(
    "Bartlett, Foster & Telgarsky (2017)",
    "Thm 1.1",
    "1706.08498",
    (
        "samples are drawn independently from one distribution",
        "order only: constants and logarithms are left out",
        "the network is a chain",
        "reference matrices are zero",
        "a convolution counts as its matrix",
    ),
    Status.RECALLED,
)


def require_chain(walk: Walk, *, who: str) -> None:
    """Refuse networks in which a value is used twice, or several are put together.

    Raises:
        UnsupportedModuleError: with the name of the first operation that is not in a chain.
    """
    before = walk.graph.input
    for node in walk.graph.nodes:
        if node.inputs != (before,):
            raise node.refusal(
                f"{who} is proved for chains, and here values branch or meet, as at a residual "
                "connection"
            )
        before = node.output


def spectral_order(walk: Walk, activations: Activations, margin: float) -> GeneralizationBound:
    r"""Norms of all layers, without constants.

    .. math:: \hat L_\gamma(f) + \frac{\lVert X \rVert_F}{\gamma m} \prod_i \rho_i s_i
              \Big( \sum_i (b_i / s_i)^{2/3} \Big)^{3/2}

    with spectral norms s, the sums b of the norms of rows, and Lipschitz constants ρ of what lies
    between layers. Of convolutions every place of the output has the rows of the kernel.

    Raises:
        UnsupportedModuleError: if the network is no chain.
        GeneralizationError: if the margin is not positive.

    Reference:
        Bartlett, Foster & Telgarsky (2017), Thm 1.1 (as recalled), arXiv:1706.08498.
    """
    require_chain(walk, who="the spectral-norm bound")
    norms = [Exact().of(layer).factor(layer.rank) for layer in walk.layers]
    rows = [_row_norms(layer) for layer in walk.layers]
    stretched = math.prod(norms) * math.prod(growth for (growth,) in walk.growths.values())
    # A layer of norm zero makes the product zero, whatever the sum is.
    ratios = sum((row / norm) ** (2 / 3) for row, norm in zip(rows, norms, strict=True) if norm > 0)
    first = activations.inputs[:, 0]
    length = float(torch.linalg.vector_norm(first))
    complexity = length * stretched * ratios**1.5 / (margin * len(first)) if margin > 0 else 0.0
    constants = (("product of norms", stretched), ("norm of the sample", length))
    return order_bound("spectral-order", SPECTRAL, activations, margin, constants, complexity)


def _row_norms(layer: CPLayer) -> float:
    places = math.prod(sample_shape(layer.output)[1:]) if layer.torus is not None else 1
    weight = layer.components.to_dense().flatten(1)
    return places * float(torch.linalg.vector_norm(weight, dim=1).sum())
