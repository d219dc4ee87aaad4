"""The bound of Arora et al., from how noise is damped between layers; ours is compared with it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rankscope.errors import GeneralizationError
from rankscope.generalize.bounds import GeneralizationBound, order_bound, require_chain
from rankscope.generalize.layer_trace import Activations, CPLayer, LayerTrace, batches
from rankscope.generalize.sample import Sample
from rankscope.progress import Progress, Report, ignore
from rankscope.robust.graph import sample_shape
from rankscope.theorem import Status, Theorem

ARORA = Theorem(
    "Arora, Ge, Neyshabur & Zhang (2018)",
    "Thm 4.1 and 5.1",
    "1802.05296",
    (
        "samples are drawn independently from one distribution",
        "order only: constants and logarithms are left out",
        "bounds a compressed network, not f",
        "the network is a chain",
        "Jacobian norms are estimates with Gaussian probes",
    ),
    Status.RECALLED,
)


@dataclass(frozen=True, eq=False)
class NoiseStability:
    """The quantities of Arora et al.'s bound, each (layers).

    Args:
        cushions: μ, how much of a layer's norm its inputs use.
        interlayer: μ→, the smallest share of a Jacobian's norm that later layers' inputs use.
        spreads: β, how unevenly a Jacobian is spread over places; 1 for matrices.
        patches: ⌈kernel / stride⌉; 1 for matrices.
        contraction: c, how much an activation shortens at most.
    """

    cushions: Tensor
    interlayer: Tensor
    spreads: Tensor
    patches: Tensor
    contraction: float


def measure_noise_stability(
    trace: LayerTrace,
    sample: Sample,
    *,
    num_probes: int = 4,
    batch_size: int = 32,
    seed: int = 0,
    report: Report = ignore,
) -> NoiseStability:
    r"""Measure cushions and Jacobians on a sample: a small one, as every pair of layers counts.

    With x the output of layer i before its activation φ, and J the Jacobian from there to the
    output of layer j,

    .. math:: \mu_i = \min_x \frac{\sqrt{n_1 n_2} \lVert A_i \varphi(x_{i-1}) \rVert}{\lVert A_i
              \rVert_F \lVert \varphi(x_{i-1}) \rVert}, \qquad
              \mu_{i \to} = \min \Big( \frac 1 {\sqrt{h_i}}, \min_{x, j > i}
              \frac{\lVert J x_i \rVert}{\lVert J \rVert_F \lVert x_i \rVert} \Big)

    Raises:
        UnsupportedModuleError: if the network is no chain.
        GeneralizationError: if there is no probe.

    Reference:
        Arora, Ge, Neyshabur & Zhang (2018), Def. 4 to 8 (as recalled), arXiv:1802.05296.
    """
    require_chain(trace, who="the bound of Arora et al.")
    if num_probes < 1:
        raise GeneralizationError(
            f"measure_noise_stability: wanted at least 1 probe, got {num_probes}."
        )
    generator = torch.Generator().manual_seed(seed)
    like = next(trace.layers[0].module.parameters(), sample.inputs)
    pieces = list(batches(sample.inputs, like, batch_size))
    parts = []
    for number, piece in enumerate(pieces):
        parts.append(_measure_batch(trace, piece, num_probes, generator))
        report(Progress("Jacobians", number + 1, len(pieces)))
    cushions, interlayer, spreads, contraction = (torch.stack(part) for part in zip(*parts))  # noqa: B905
    return NoiseStability(
        cushions.amin(dim=0),
        interlayer.amin(dim=0),
        spreads.amax(dim=0),
        torch.tensor([_patches(layer) for layer in trace.layers], dtype=torch.float64),
        float(contraction.max()),
    )


def arora_order(
    stability: NoiseStability, activations: Activations, margin: float
) -> GeneralizationBound:
    r"""Their bound without constants.

    .. math:: \hat L_\gamma(f) + \sqrt{\frac{c^2 d^2 \max_x \lVert f(x) \rVert^2}{\gamma^2 m}
              \sum_i \frac{\beta_i^2 \lceil \kappa_i / s_i \rceil^2}{\mu_i^2 \mu_{i \to}^2}}

    Raises:
        GeneralizationError: if the margin is not positive.

    Reference:
        Arora, Ge, Neyshabur & Zhang (2018), Thm 5.1 (as recalled), arXiv:1802.05296.
    """
    terms = (stability.spreads * stability.patches) / (stability.cushions * stability.interlayer)
    depth, longest = len(terms), activations.largest_output
    factor = stability.contraction * depth * longest
    total = math.sqrt(float(terms.square().sum()))
    size = len(activations.labels)
    complexity = factor * total / (margin * math.sqrt(size)) if margin > 0 else 0.0
    complexity = complexity if math.isfinite(complexity) else math.inf
    constants = (("contraction", stability.contraction), ("root of the sum", total))
    return order_bound("arora-order", ARORA, activations, margin, constants, complexity)


def _patches(layer: CPLayer) -> float:
    if layer.torus is None:
        return 1.0
    steps = zip(layer.shape.kernel, layer.torus.stride, strict=True)
    return float(max(math.ceil(kernel / stride) for kernel, stride in steps))


def _measure_batch(
    trace: LayerTrace, inputs: Tensor, num_probes: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    with torch.no_grad():
        values = dict(trace.run(inputs))
    cushions = [
        _cushion(layer, values[layer.input], values[layer.output]) for layer in trace.layers
    ]
    after = [*(values[layer.input] for layer in trace.layers[1:]), values[trace.graph.output]]
    before = [values[layer.output] for layer in trace.layers]
    # The last layer has no activation behind it.
    contraction = max(
        (
            float((_norms(x) / _norms(y)).max())
            for x, y in zip(before[:-1], after[:-1], strict=True)
        ),
        default=1.0,
    )
    interlayer, spreads = [], []
    for number, outputs in enumerate(before):
        smallest, spread = _between(trace, number, outputs, num_probes, generator)
        interlayer.append(smallest)
        spreads.append(spread if trace.layers[number].torus is not None else 1.0)
    numbers = (torch.tensor(part, dtype=torch.float64) for part in (cushions, interlayer, spreads))
    first, second, third = numbers
    return first, second, third, torch.tensor(contraction, dtype=torch.float64)


def _cushion(layer: CPLayer, inputs: Tensor, outputs: Tensor) -> float:
    places = math.prod(outputs.shape[2:]) if layer.torus is not None else 1
    norm = float(layer.components.to_dense().norm())
    ratio = _norms(outputs - layer.constant()) / _norms(inputs)
    return math.sqrt(places) * float(ratio.min()) / norm if norm > 0 else 0.0


def _between(
    trace: LayerTrace, number: int, start: Tensor, num_probes: int, generator: torch.Generator
) -> tuple[float, float]:
    """The interlayer cushion of a layer, and how unevenly its Jacobians are spread over places."""
    layer = trace.layers[number]
    smallest, spread = 1 / math.sqrt(math.prod(sample_shape(layer.output))), 1.0
    later = trace.layers[number + 1 :]
    if not later:
        return smallest, spread
    outputs = [value.output for value in later]
    nodes = trace.graph.nodes
    first = [node.output for node in nodes].index(layer.output) + 1

    def run(values: Tensor) -> tuple[Tensor, ...]:
        outputs_of_layers = []
        for node in nodes[first:]:
            values = node.run(values)
            if node.output in outputs:
                outputs_of_layers.append(values)
        return tuple(outputs_of_layers)

    moved = torch.func.jvp(run, (start,), (start,))[1]
    powers = _jacobian_powers(run, start, num_probes, generator)
    for change, power in zip(moved, powers, strict=True):
        norms = power.flatten(1).sum(dim=1).sqrt()
        smallest = min(smallest, float((_norms(change) / (norms * _norms(start))).min()))
        largest = power.flatten(1).amax(dim=1).sqrt() / norms
        spread = max(spread, float(largest.max()) * math.sqrt(power[0].numel()))
    return smallest, spread


def _jacobian_powers(
    run: Callable[[Tensor], tuple[Tensor, ...]],
    start: Tensor,
    num_probes: int,
    generator: torch.Generator,
) -> list[Tensor]:
    r"""Squared column norms of the Jacobian to each later layer, at every place.

    (samples, places), by :math:`\mathbb E_v (J^T v)^2` over Gaussian probes v.
    """
    given = start.detach().requires_grad_()
    with torch.enable_grad():
        outputs = run(given)
    powers = []
    for output in outputs:
        total = torch.zeros_like(start, dtype=torch.float64)
        for _ in range(num_probes):
            probe = torch.randn(output.shape, generator=generator).to(output)
            (pulled,) = torch.autograd.grad(output, given, probe, retain_graph=True)
            total += pulled.double().square()
        channels = total.flatten(2).sum(dim=1) if total.ndim > 2 else total
        powers.append(channels / num_probes)
    return powers


def _norms(values: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(values.double(), dim=tuple(range(1, values.ndim)))
    return lengths
