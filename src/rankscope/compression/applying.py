"""Apply a plan to a model: every planned weight becomes a factorized layer."""

import copy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from rankscope.compression.anchoring import Target
from rankscope.compression.candidates import factorize
from rankscope.compression.plan import Plan, Row
from rankscope.compression.scores import Batch, Scoring, Weights, relative_error
from rankscope.compression.sites import Site, as_linear, parts_of, read_sites
from rankscope.compression.usage import run_example
from rankscope.errors import CompressionError
from rankscope.factorize.attention import FactorizedMultiheadAttention
from rankscope.factorize.convolution import (
    ConvolutionSettings,
    FactorizedConv,
    FactorizedConv1d,
    FactorizedConv2d,
)
from rankscope.factorize.cores import BITS, CoreStore
from rankscope.factorize.experts import (
    FactorizedExperts,
    PackedCores,
    is_packed_experts,
    packed_weight,
)
from rankscope.factorize.formats.catalogue import STORED_FORMATS
from rankscope.factorize.formats.format import Format, Ranks, WeightShape
from rankscope.factorize.linear import FactorizedEmbedding, FactorizedLinear, layer_sharing
from rankscope.factorize.projected_attention import split_projections
from rankscope.factorize.recurrent import FactorizedGRU, FactorizedLSTM, split_weights
from rankscope.modes import inference
from rankscope.progress import Progress, Report, ignore

# --- Factorized modules with cores of zeros, into which those of a file are loaded ----------------


def blank(module: nn.Module, rows: Mapping[str, Row]) -> nn.Module:
    """The factorized form of a dense module; biases are copied, cores are zeros.

    Args:
        module: of a class that can be compressed; left as it is.
        rows: what a plan says of its weights, by part; parts without one stay dense.

    Raises:
        LayerError: if ranks are none that the weight can have.
    """
    match module:
        case nn.MultiheadAttention():
            linears = split_projections(module)
            parts = {name: _linear(linears[name], row) for name, row in rows.items()}
            return FactorizedMultiheadAttention.of(module, parts)
        case nn.LSTM() | nn.GRU():
            linears = split_weights(module)
            parts = {name: _linear(linears[name], row) for name, row in rows.items()}
            recurrent = FactorizedLSTM if isinstance(module, nn.LSTM) else FactorizedGRU
            return recurrent.of(module, parts)
        case nn.Module() if is_packed_experts(module):
            return FactorizedExperts(
                module, {n: _packed(module, n, row) for n, row in rows.items()}
            )
    return _single(module, rows["weight"])


def blank_layers(model: nn.Module, chosen: Mapping[str, Row]) -> dict[str, nn.Module]:
    """The factorized form of every module of which a plan compresses a weight, by its name.

    Args:
        model: dense, perhaps on the meta device; left as it is.
        chosen: rows of the plan that have a format, by their names.

    Raises:
        CompressionError: if the plan is for another model.
        LayerError: if ranks are none that a weight can have.
    """
    layers: dict[str, nn.Module] = {}
    for name, sites in sites_by_module(model, chosen).items():
        rows = {site.part: chosen[site.name] for site in sites}
        layers |= layers_of(model, sites[0], blank(model.get_submodule(name), rows))
    return layers


def _single(module: nn.Module, row: Row) -> nn.Module:
    layer: FactorizedConv | FactorizedEmbedding
    format, ranks = _choice(row)
    match module:
        case nn.Conv1d() | nn.Conv2d():
            convolution = FactorizedConv1d if isinstance(module, nn.Conv1d) else FactorizedConv2d
            shape = WeightShape.of(module.weight.chunk(module.groups)[0])
            cores = _zeros(module.weight, shape, format, ranks, groups=module.groups)
            settings = ConvolutionSettings.of(module)
            layer = convolution(format, ranks, shape, settings, cores, module.bias)
        case nn.Embedding():
            shape = WeightShape.of(module.weight)
            cores = _zeros(module.weight, shape, format, ranks)
            layer = FactorizedEmbedding(cores, shape, format, ranks, padding_idx=module.padding_idx)
        case _:
            return _linear(as_linear(module), row)
    _quantize(layer.cores, row)
    return layer


def _linear(linear: nn.Linear, row: Row) -> FactorizedLinear:
    format, ranks = _choice(row)
    shape = WeightShape.of(linear.weight)
    cores = _zeros(linear.weight, shape, format, ranks)
    layer = FactorizedLinear.from_cores(cores, shape, format, ranks, bias=linear.bias)
    _quantize(layer.cores, row)
    return layer


def _packed(module: nn.Module, name: str, row: Row) -> PackedCores:
    weight = packed_weight(module.get_parameter(name))
    format, ranks = _choice(row)
    shape = WeightShape.of(weight)
    layer = PackedCores(format, ranks, shape, _zeros(weight, shape, format, ranks))
    _quantize(layer.cores, row)
    return layer


def _choice(row: Row) -> tuple[Format, Ranks]:
    return STORED_FORMATS[row.format or ""], row.ranks


def _zeros(
    weight: Tensor, shape: WeightShape, format: Format, ranks: Ranks, *, groups: int = 1
) -> dict[str, Tensor]:
    # Checked first: ranks from a tampered file could ask for any amount of memory.
    format.check(shape, ranks)
    return {
        name: weight.new_zeros(groups * first, *rest)
        for name, (first, *rest) in format.core_shapes(shape, ranks).items()
    }


def _quantize(cores: CoreStore, row: Row) -> None:
    if row.bits in BITS:
        cores.quantize(row.bits)


# --- A copy of a model in which some modules are others -------------------------------------------


def with_replaced(model: nn.Module, layers: Mapping[str, nn.Module]) -> nn.Module:
    """A copy of a model with other modules under some names; the model itself stays as it is.

    Modules that are replaced are not copied. PyTorch's transformer layers are kept from the fast
    path of their eval mode, which would read the weights that are no longer there.

    Args:
        model: to copy.
        layers: by the name of the module whose place they take; the empty name is the model.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        >>> with_replaced(model, {"0": nn.Identity()})
        Sequential(
          (0): Identity()
          (1): ReLU()
        )
    """
    replacements: dict[int, object] = {
        id(model.get_submodule(name)): layer for name, layer in layers.items()
    }
    replaced = set(replacements)
    for name, layer in layers.items():
        # A bias may also be that of a module which is copied.
        before, after = (getattr(each, "bias", None) for each in (model.get_submodule(name), layer))
        if isinstance(before, nn.Parameter) and isinstance(after, nn.Parameter):
            replacements[id(before)] = after
    changed = {
        name
        for name, module in model.named_modules()
        if any(id(inner) in replaced for inner in module.modules())
    }
    copied = copy.deepcopy(model, replacements)
    for name, module in copied.named_modules():
        if name in changed and isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0
        elif name in changed and isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False
    return copied


@dataclass(frozen=True, eq=False)
class Compressed:
    """A compressed model, and the plan that it follows, with the errors actually made."""

    model: nn.Module
    plan: Plan

    def __repr__(self) -> str:
        return f"<Compressed {type(self.model).__name__}: {self.plan.summary}>"

    def _repr_html_(self) -> str:
        return self.plan.to_html(f"Compressed {type(self.model).__name__}")


def apply_plan(
    model: nn.Module, plan: Plan, *, scores: Scoring | None = None, example: Batch | None = None
) -> nn.Module:
    """A compressed copy of a model; the model itself stays as it is.

    Args:
        model: that the plan was made for.
        plan: what becomes of each weight.
        scores: what the plan was scored on, if it was scored on data: weights are then decomposed
            for the least error of their outputs.
        example: one batch; the compressed model must give outputs of the same shapes on it.

    Raises:
        CompressionError: if the plan is for another model, or the compressed one does not run.
    """
    return carry_out(model, plan, scores=scores, example=example).model


def carry_out(
    model: nn.Module,
    plan: Plan,
    *,
    scores: Scoring | None = None,
    example: Batch | None = None,
    report: Report = ignore,
) -> Compressed:
    """See `apply_plan`; also gives the plan with the errors that were actually made.

    Raises:
        CompressionError: see `apply_plan`.
    """
    scoring = scores or Weights()
    if scoring.name != plan.scoring:
        raise CompressionError(
            f"The plan was scored on {plan.scoring}, but scores are those of {scoring.name}; "
            "pass the scoring that it was made with."
        )
    is_of_transformers = _is_of_transformers(model)
    if is_of_transformers and getattr(model, "hf_quantizer", None) is not None:
        raise CompressionError(
            f"{type(model).__name__} is compressed or quantized already; compress the dense model."
        )
    chosen = {row.name: row for row in plan.rows if row.format is not None}
    sites = sites_by_module(model, chosen)
    layers, errors = _factorize_sites(model, sites, chosen, scoring, report)
    compressed = with_replaced(model, layers)
    if example is None and is_of_transformers:
        from rankscope.compression.hugging_face import tried_inputs

        example = tried_inputs(model)
    if example is not None:
        _check_outputs(model, compressed, example)
    final_rows = tuple(replace(row, error=errors.get(row.name, row.error)) for row in plan.rows)
    made = replace(plan, rows=final_rows)
    if layers and is_of_transformers:
        from rankscope.compression.hugging_face import attach

        attach(compressed, made)
    return Compressed(compressed, made)


def _is_of_transformers(model: nn.Module) -> bool:
    # Who has such a model has loaded transformers; nobody else should.
    package = sys.modules.get("transformers")
    return package is not None and isinstance(model, package.PreTrainedModel)


def layers_of(model: nn.Module, site: Site, layer: nn.Module) -> dict[str, nn.Module]:
    """The factorized module of a site, and those of the modules that share its weight."""
    layers = {site.module_name: layer}
    for name in site.also:
        module = model.get_submodule(name)
        assert isinstance(layer, FactorizedLinear | FactorizedEmbedding), "what can be tied"
        assert isinstance(module, nn.Linear | nn.Embedding), "what can be tied"
        layers[name] = layer_sharing(module, layer)
    return layers


def _factorize_sites(
    model: nn.Module,
    sites: Mapping[str, Sequence[Site]],
    chosen: Mapping[str, Row],
    scoring: Scoring,
    report: Report,
) -> tuple[dict[str, nn.Module], dict[str, float]]:
    """Factorized layers by the name of the module they replace, and errors by that of the site."""
    layers: dict[str, nn.Module] = {}
    errors: dict[str, float] = {}
    anchoring = scoring.anchoring(model, list(sites))
    levels = [list(sites)] if anchoring is None else anchoring.levels
    for done, level in enumerate(levels, start=1):
        targets = {} if anchoring is None else anchoring.targets(level)
        for name in level:
            error_norms = {site.part: scoring.error_norm(site.name) for site in sites[name]}
            rows = {site.part: chosen[site.name] for site in sites[name]}
            target = targets.get(name, Target(model.get_submodule(name), {}))
            layer = factorize(target.module, rows, {**error_norms, **target.error_norms})
            layers |= layers_of(model, sites[name][0], layer)
            dense = layer.to_dense()
            if anchoring is not None:
                anchoring.put(name, dense)
            rebuilt = {part.name: part.weight for part in parts_of(dense)}
            for site in sites[name]:
                error_norm = error_norms[site.part]
                errors[site.name] = relative_error(site.weight, rebuilt[site.part], error_norm)
        report(Progress("factors", done, len(levels)))
    return layers, errors


def sites_by_module(model: nn.Module, chosen: Mapping[str, Row]) -> dict[str, list[Site]]:
    """The sites of every module of which the plan compresses some."""
    sites = {site.name: site for site in read_sites(model).sites}
    by_module: dict[str, list[Site]] = {}
    for name, row in chosen.items():
        if name not in sites:
            raise CompressionError(
                f"The plan compresses {name!r}, which is no weight of this model that can be; "
                "make a plan for this model."
            )
        site = sites[name]
        if site.stored_shape != tuple(row.shape):
            raise CompressionError(
                f"{name}: the plan is for a weight of shape {tuple(row.shape)}, the model has "
                f"{site.stored_shape}; make a plan for this model."
            )
        if row.format not in STORED_FORMATS:
            raise CompressionError(
                f"{name}: unknown format {row.format!r}; there are {', '.join(STORED_FORMATS)}."
            )
        by_module.setdefault(site.module_name, []).append(site)
    return by_module


def _check_outputs(model: nn.Module, compressed: nn.Module, example: Batch) -> None:
    with torch.no_grad(), inference(model), inference(compressed):
        wanted = _shapes(run_example(model, example))
        got = _shapes(run_example(compressed, example))
    if wanted != got:
        raise CompressionError(
            f"The compressed model gives outputs {got} on the example, the dense one {wanted}; "
            "leave alone the module that reads the shape of another one's weight."
        )


def _shapes(output: object) -> object:
    if isinstance(output, Tensor):
        return tuple(output.shape)
    if isinstance(output, Mapping):
        return {name: _shapes(value) for name, value in output.items()}
    if isinstance(output, tuple | list):
        return [_shapes(value) for value in output]
    return type(output).__name__
