"""A network and a sample in, ranks and bounds out: all of the room in one call.

found = analyse(model, Sample(inputs, labels), margin=1.0)
print(found)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor, nn

from rankscope.architectures.models.cp_networks import in_cp_form
from rankscope.errors import UnsupportedModuleError
from rankscope.generalization.activations import (
    BATCH_SIZE,
    Activations,
    cushions,
    measure_activations,
)
from rankscope.generalization.arora import arora_order, measure_noise_stability
from rankscope.generalization.bounds import (
    GeneralizationBound,
    compression_order,
    parameter_counting,
    slides_order,
)
from rankscope.generalization.compressed_network import (
    Deviation,
    check_deviation,
    compressed_network,
    outputs_of,
)
from rankscope.generalization.finite_class import Quantization, quantize_network
from rankscope.generalization.measured_search import find_measured_ranks
from rankscope.generalization.rank_search import RankChoice, Search, find_ranks
from rankscope.generalization.rigorous import Concentration, Hoeffding, rigorous_bound
from rankscope.generalization.sample import Sample, margin_loss, require_margin
from rankscope.generalization.spectral import spectral_order
from rankscope.generalization.walk import Walk, read_walk
from rankscope.progress import Report, ignore
from rankscope.robustness.lipschitz import require_finite


@dataclass(frozen=True)
class Options:
    """What an analysis does beside measuring.

    Args:
        search: how ranks are searched for.
        is_measured: ranks are the smallest that keep the margin on the sample, instead of the
            smallest that provably do.
        quantization: of the compressed network, for the rigorous bound.
        concentration: of the rigorous bound.
        num_settings: how many settings were tried on this sample, this one included.
        chance: that the rigorous bound does not hold.
        num_jacobians: on how many samples Jacobians are measured; 0 leaves their bound out.
        batch_size: of forward passes.
    """

    search: Search = field(default_factory=Search)
    is_measured: bool = False
    quantization: Quantization = field(default_factory=Quantization)
    concentration: Concentration = field(default_factory=Hoeffding)
    num_settings: int = 1
    chance: float = 0.05
    num_jacobians: int = 16
    batch_size: int = BATCH_SIZE


@dataclass(frozen=True, eq=False)
class Generalization:
    """What was found.

    Args:
        margin: γ.
        options: how it was found.
        walk: the network, in CP form.
        activations: of the network on the sample.
        choice: the ranks.
        cushions: of each layer.
        deviation: of the compressed network, checked.
        bounds: on errors; the first is the one that follows the ranks.
        refused: names of bounds that do not cover this network, with the reason.
        compressed: g, before it is quantized.
    """

    margin: float
    options: Options
    walk: Walk
    activations: Activations
    choice: RankChoice
    cushions: tuple[float, ...]
    deviation: Deviation
    bounds: tuple[GeneralizationBound, ...]
    refused: tuple[tuple[str, str], ...]
    compressed: nn.Module

    def bound(self, name: str) -> GeneralizationBound:
        """One of the bounds by its name.

        Raises:
            KeyError: if it was refused or left out.
        """
        return {bound.name: bound for bound in self.bounds}[name]

    def __str__(self) -> str:
        return "\n".join(map(str, self.bounds))

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON; what is infinite is None."""
        search = self.options.search
        return {
            "margin": self.margin,
            "samples": len(self.activations.labels),
            "search": "measured" if self.options.is_measured else search.mode.name,
            "form": search.form.name,
            "tolerance": search.tolerance.name,
            "layers": [
                {
                    "name": layer.name,
                    "rank": layer.rank,
                    "kept_rank": layer.kept_rank,
                    "t": _finite(layer.factor),
                    "xi": _finite(layer.noise),
                    "cushion": _finite(cushion),
                }
                for layer, cushion in zip(self.choice.layers, self.cushions, strict=True)
            ],
            "deviation": self.deviation.largest,
            "deviation_check": {
                name: _finite(number) for name, number in self.deviation.to_dict().items()
            },
            "bounds": [bound.to_dict() for bound in self.bounds],
            "refused": [{"name": name, "reason": reason} for name, reason in self.refused],
        }


def _finite(number: float | int) -> float | int | None:
    return number if math.isfinite(number) else None


def analyse(
    model: nn.Module,
    sample: Sample,
    margin: float,
    *,
    options: Options | None = None,
    report: Report = ignore,
) -> Generalization:
    """Measure a classifier on a sample, compress it within a margin, and bound its error.

    Dense layers are first written in CP form, exactly. Bounds that are proved for chains only are
    refused for other networks, with the reason.

    Args:
        model: a classifier; stays untouched.
        sample: what it was trained on, as the bounds are for; inputs as the model takes them.
        margin: γ.
        options: see there.
        report: told of the steps.

    Raises:
        GeneralizationError: if the margin is not positive, labels are no classes, or a layer is
            dead in paper mode.
        UnsupportedModuleError: if the network cannot be walked, with the name of the operation.
        RobustnessError: if a weight is not finite, with its name.
    """
    require_margin(margin)
    require_finite(model)
    how = options or Options()
    written = in_cp_form(model).eval()
    walk = read_walk(written, tuple(sample.inputs.shape[1:]))
    activations = measure_activations(walk, sample, batch_size=how.batch_size, report=report)
    measured = _Measured(written, sample, walk, activations, margin, how, report)
    choice = measured.ranks()
    compressed = compressed_network(written, walk, choice.ranks)
    deviation = measured.deviation(compressed, choice)
    bounds, refused = measured.bounds(model, choice, compressed)
    return Generalization(
        margin,
        how,
        walk,
        activations,
        choice,
        tuple(cushions(walk, activations).tolist()),
        deviation,
        bounds,
        refused,
        compressed,
    )


@dataclass(frozen=True, eq=False)
class _Measured:
    """What every step of an analysis needs."""

    model: nn.Module
    sample: Sample
    walk: Walk
    activations: Activations
    margin: float
    options: Options
    report: Report

    def ranks(self) -> RankChoice:
        search = self.options.search
        if not self.options.is_measured:
            return find_ranks(self.walk, self.activations, self.margin, search)
        return find_measured_ranks(
            self.model,
            self.walk,
            self.activations,
            self.sample,
            self.margin,
            search=search,
            batch_size=self.options.batch_size,
            report=self.report,
        )

    def outputs(self, network: nn.Module) -> Tensor:
        size = self.options.batch_size
        return outputs_of(network, self.sample.inputs, batch_size=size, report=self.report)

    def deviation(self, compressed: nn.Module, choice: RankChoice) -> Deviation:
        return check_deviation(
            self.outputs(compressed),
            self.activations,
            choice,
            margin=self.margin,
            tolerance=self.options.search.tolerance,
        )

    def bounds(
        self, model: nn.Module, choice: RankChoice, compressed: nn.Module
    ) -> tuple[tuple[GeneralizationBound, ...], tuple[tuple[str, str], ...]]:
        """All that cover this network, and why others do not."""
        margin = self.options.search.tolerance.threshold(self.margin)
        found = [
            compression_order(choice, self.activations, margin),
            slides_order(choice, self.activations, margin),
            self.rigorous(compressed),
            parameter_counting(model, self.activations, margin),
        ]
        refused = []
        others: dict[str, Callable[[], GeneralizationBound]] = {
            "spectral-order": lambda: spectral_order(self.walk, self.activations, margin)
        }
        if self.options.num_jacobians:
            others["arora-order"] = lambda: self.arora(margin)
        for name, bound in others.items():
            try:
                found.append(bound())
            except UnsupportedModuleError as error:
                refused.append((name, str(error)))
        return tuple(found), tuple(refused)

    def arora(self, margin: float) -> GeneralizationBound:
        count = self.options.num_jacobians
        few = Sample(self.sample.inputs[:count], self.sample.labels[:count])
        stability = measure_noise_stability(self.walk, few, report=self.report)
        return arora_order(stability, self.activations, margin)

    def rigorous(self, compressed: nn.Module) -> GeneralizationBound:
        quantized = quantize_network(compressed, self.options.quantization)
        error = margin_loss(self.outputs(quantized.model), self.sample.labels, 0.0)
        return rigorous_bound(
            quantized,
            error,
            len(self.sample),
            layer_ranks=[layer.rank for layer in self.walk.layers],
            num_settings=self.options.num_settings,
            chance=self.options.chance,
            concentration=self.options.concentration,
        )
