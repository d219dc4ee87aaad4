"""A network and a sample in, ranks and bounds out, in one call; drawn, and during training.

analysis = analyse(model, Sample(inputs, labels), margin=1.0)
print(analysis)
draw_properties(analysis, "layers.svg")

track = TrackBounds(train, test, margin=1.0)
fit(model, loss, data, recipe, evaluate=EveryFewEpochs(track, 5))   # records hold its numbers
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from rankscope.display import counted, fragment
from rankscope.drawing.raster import write_figure
from rankscope.drawing.themes import LIGHT
from rankscope.errors import UnsupportedModuleError
from rankscope.generalize.arora import arora_order, measure_noise_stability
from rankscope.generalize.bounds import (
    GeneralizationBound,
    compression_order,
    parameter_counting,
    slides_order,
    spectral_order,
)
from rankscope.generalize.compressed_network import (
    Deviation,
    check_deviation,
    compressed_network,
    find_measured_ranks,
    outputs_of,
)
from rankscope.generalize.finite_class import (
    Concentration,
    Hoeffding,
    Quantization,
    quantize_network,
    rigorous_bound,
)
from rankscope.generalize.layer_trace import (
    BATCH_SIZE,
    Activations,
    LayerTrace,
    cushions,
    measure_activations,
    trace_layers,
)
from rankscope.generalize.properties import Exact, Triangle, fourier_factors
from rankscope.generalize.rank_search import RankChoice, Search, find_ranks
from rankscope.generalize.sample import Sample, margin_loss, require_margin
from rankscope.networks.cp_networks import in_cp_form
from rankscope.progress import Report, ignore
from rankscope.robust.lipschitz import require_finite


@dataclass(frozen=True)
class Options:
    """Options of an analysis.

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
    """The result of an analysis: properties, ranks and bounds.

    Args:
        margin: γ.
        options: how it was made.
        trace: the network, in CP form.
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
    trace: LayerTrace
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

    def __repr__(self) -> str:
        return f"<Generalization: {counted(len(self.bounds), 'bound')} at margin {self.margin:g}>"

    def _repr_html_(self) -> str:
        refused = [f"{name} does not apply: {reason}" for name, reason in self.refused]
        return fragment(repr(self)[1:-1], [*map(str, self.bounds), *refused])

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
        report: called after every stage.

    Raises:
        GeneralizationError: if the margin is not positive, labels are no classes, or a layer is
            dead in paper mode.
        UnsupportedModuleError: if the network cannot be passed, with the name of the operation.
        RobustnessError: if a weight is not finite, with its name.
    """
    require_margin(margin)
    read = _read(model, sample)
    return _analyse_margin(read, sample, margin, options or Options(), report)


@dataclass(frozen=True, eq=False)
class _Read:
    """A classifier, the same in CP form, and its layer trace, made once for all searches."""

    model: nn.Module
    written: nn.Module
    trace: LayerTrace


def _read(model: nn.Module, sample: Sample) -> _Read:
    require_finite(model)
    written = in_cp_form(model).eval()
    return _Read(model, written, trace_layers(written, tuple(sample.inputs.shape[1:])))


def _analyse_margin(
    read: _Read, sample: Sample, margin: float, how: Options, report: Report = ignore
) -> Generalization:
    model, written, trace = read.model, read.written, read.trace
    activations = measure_activations(trace, sample, batch_size=how.batch_size, report=report)
    measured = _Measured(written, sample, trace, activations, margin, how, report)
    choice = measured.ranks()
    compressed = compressed_network(written, trace, choice.ranks)
    deviation = measured.deviation(compressed, choice)
    bounds, refused = measured.bounds(model, choice, compressed)
    return Generalization(
        margin,
        how,
        trace,
        activations,
        choice,
        tuple(cushions(trace, activations).tolist()),
        deviation,
        bounds,
        refused,
        compressed,
    )


@dataclass(frozen=True, eq=False)
class _Measured:
    """The measured network, which every step of an analysis needs."""

    model: nn.Module
    sample: Sample
    trace: LayerTrace
    activations: Activations
    margin: float
    options: Options
    report: Report

    def ranks(self) -> RankChoice:
        search = self.options.search
        if not self.options.is_measured:
            return find_ranks(self.trace, self.activations, self.margin, search)
        return find_measured_ranks(
            self.model,
            self.trace,
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
        bounds = [
            compression_order(choice, self.activations, margin),
            slides_order(choice, self.activations, margin),
            self.rigorous(compressed),
            parameter_counting(model, self.activations, margin),
        ]
        refused = []
        others: dict[str, Callable[[], GeneralizationBound]] = {
            "spectral-order": lambda: spectral_order(self.trace, self.activations, margin)
        }
        if self.options.num_jacobians:
            others["arora-order"] = lambda: self.arora(margin)
        for name, bound in others.items():
            try:
                bounds.append(bound())
            except UnsupportedModuleError as error:
                refused.append((name, str(error)))
        return tuple(bounds), tuple(refused)

    def arora(self, margin: float) -> GeneralizationBound:
        count = self.options.num_jacobians
        few = Sample(self.sample.inputs[:count], self.sample.labels[:count])
        stability = measure_noise_stability(self.trace, few, report=self.report)
        return arora_order(stability, self.activations, margin)

    def rigorous(self, compressed: nn.Module) -> GeneralizationBound:
        quantized = quantize_network(compressed, self.options.quantization)
        error = margin_loss(self.outputs(quantized.model), self.sample.labels, 0.0)
        return rigorous_bound(
            quantized,
            error,
            len(self.sample),
            layer_ranks=[layer.rank for layer in self.trace.layers],
            num_settings=self.options.num_settings,
            chance=self.options.chance,
            concentration=self.options.concentration,
        )


# --- Pictures -------------------------------------------------------------------------------------


_INK, _MUTED = LIGHT.label("caption"), LIGHT.label("muted")
_KEPT = LIGHT.wire("cut").color
_MOST_NAMES = 8  # more layers than these get numbers instead


def draw_properties(analysis: Generalization, path: Path | str) -> Path:
    """Draw the five properties and the CP spectra to a .svg, .pdf or .png file.

    One curve for each layer, over the share of its components; a dot where the rank kept is.

    Raises:
        OutputError: if the ending is none of these, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    return write_figure(path, lambda: _figure(analysis), what="properties")


# Matplotlib's classes can only be named where it is imported; hence Any.
def _figure(analysis: Generalization) -> Any:
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 6.0), layout="constrained", facecolor=LIGHT.background)
    panels = figure.subplots(2, 3)
    count = len(analysis.trace.layers)
    colors = [colormaps["viridis"](number / max(1, count)) for number in range(count)]
    for panel, (title, curves) in zip(panels.flat[:5], _curves(analysis), strict=True):
        _draw_curves(panel, curves, analysis.choice.ranks, colors)
        panel.set_title(title, loc="left", color=_INK)
        panel.set_xlabel("components, share", color=_MUTED)
    _draw_cushions(panels.flat[5], analysis, colors)
    for panel in panels.flat:
        panel.tick_params(colors=_MUTED)
        panel.grid(color=_MUTED, alpha=0.15, linewidth=0.6)
    figure.suptitle(
        f"{count} layers, margin {analysis.margin:g}; dots: ranks kept",
        x=0.01,
        ha="left",
        color=_INK,
    )
    return figure


def _curves(analysis: Generalization) -> list[tuple[str, list[Tensor]]]:
    properties = [Triangle().of(layer) for layer in analysis.trace.layers]
    fourier = [fourier_factors(of) for of in properties]
    return [
        ("CP spectrum λ", [layer.components.weights for layer in analysis.trace.layers]),
        ("tensorization factor t", [of.factors for of in properties]),
        ("tensor noise bound ξ", [of.noises for of in properties]),
        ("Fourier factor η (kept)", [of.etas for of in fourier]),
        ("Fourier factor θ (dropped)", [of.thetas for of in fourier]),
    ]


def _draw_curves(
    panel: Any, curves: Sequence[Tensor], ranks: Sequence[int], colors: Sequence[Any]
) -> None:
    panel.set_yscale("log")
    for curve, rank, color in zip(curves, ranks, colors, strict=True):
        # What is exactly zero has no place on a logarithmic axis.
        points = [
            ((at + 1) / len(curve), number) for at, number in enumerate(curve.tolist()) if number
        ]
        panel.plot([x for x, _ in points], [y for _, y in points], color=color, linewidth=1.0)
        kept = float(curve[rank - 1])
        if kept:
            panel.plot([rank / len(curve)], [kept], ".", color=_KEPT)


def _draw_cushions(panel: Any, analysis: Generalization, colors: Sequence[Any]) -> None:
    names = [layer.name for layer in analysis.trace.layers]
    places = list(range(1, len(names) + 1))
    # Infinite where no sample reaches a layer.
    heights = [cushion if math.isfinite(cushion) else 0.0 for cushion in analysis.cushions]
    panel.bar(places, heights, color=colors)
    panel.set_title("layer cushion ζ", loc="left", color=_INK)
    panel.set_xlabel("layer", color=_MUTED)
    if len(names) <= _MOST_NAMES:
        panel.set_xticks(places, names, rotation=30, ha="right")


# --- Bounds beside the true test error, during training -------------------------------------------


def usual_searches() -> dict[str, Options]:
    """Ranks by the triangle form and the exact form (both proved), and measured on the sample."""
    return {
        "triangle": Options(search=Search(form=Triangle())),
        "exact": Options(search=Search(form=Exact())),
        "measured": Options(is_measured=True),
    }


@dataclass(frozen=True, eq=False)
class TrackBounds:
    """Measures a classifier on its training sample, and on samples that it was not trained on.

    Args:
        train: what it is trained on.
        test: new samples.
        margin: γ, the same throughout.
        searches: what is compared, by name; bounds that do not depend on ranks are taken from the
            first.

    Raises:
        GeneralizationError: if the margin is not positive.
    """

    train: Sample
    test: Sample
    margin: float
    searches: Mapping[str, Options] = field(default_factory=usual_searches)

    def __post_init__(self) -> None:
        require_margin(self.margin)

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Errors as shares, bounds without constants, and the parameters that are left.

        The complexity of a bound is what it adds to the margin loss on the training sample.

        Bounds of others (arora-order, spectral-order) are there where they cover the network.
        """
        outputs = outputs_of(model, self.test.inputs, batch_size=BATCH_SIZE)
        numbers = {"test error": margin_loss(outputs, self.test.labels, 0.0)}
        read = _read(model, self.train)
        for number, (name, options) in enumerate(self.searches.items()):
            count = options.num_jacobians if number == 0 else 0
            how = replace(options, num_jacobians=count)
            analysis = _analyse_margin(read, self.train, self.margin, how)
            bound = analysis.bound("compression-order")
            constants = dict(bound.constants)
            numbers[name] = bound.value
            numbers[f"{name} complexity"] = constants["complexity"]
            numbers[f"{name} parameters"] = constants["parameters"]
            if number == 0:
                numbers.update(self._independent(analysis))
        return numbers

    def _independent(self, analysis: Generalization) -> dict[str, float]:
        """What does not depend on how ranks are searched for."""
        activations = analysis.activations
        numbers = {
            "train error": margin_loss(activations.outputs, activations.labels, 0.0),
            "margin loss": analysis.bound("compression-order").empirical,
        }
        for bound in analysis.bounds:
            if bound.name in ("arora-order", "spectral-order"):
                numbers[bound.name] = bound.value
                numbers[f"{bound.name} complexity"] = dict(bound.constants)["complexity"]
        return numbers
