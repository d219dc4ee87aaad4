"""From a model and a plan to the compressed model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from rankscope.compression.factorizing import factorize
from rankscope.compression.parts import parts_of
from rankscope.compression.plan import Plan, Row
from rankscope.compression.replacing import with_replaced
from rankscope.compression.scores import Batch, Scoring, Weights
from rankscope.compression.sites import Site, read_sites
from rankscope.compression.usage import run_example
from rankscope.compression.whitening import relative_error
from rankscope.errors import CompressionError
from rankscope.layers.formats.catalogue import FORMATS
from rankscope.modes import inference


@dataclass(frozen=True, eq=False)
class Compressed:
    """A compressed model, and the plan that it follows, with the errors actually made."""

    model: nn.Module
    plan: Plan


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
    model: nn.Module, plan: Plan, *, scores: Scoring | None = None, example: Batch | None = None
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
    chosen = {row.name: row for row in plan.rows if row.format is not None}
    sites = sites_by_module(model, chosen)
    layers: dict[str, nn.Module] = {}
    errors: dict[str, float] = {}
    for name, group in sites.items():
        weighings = {site.part: scoring.weigh(site.name) for site in group}
        rows = {site.part: chosen[site.name] for site in group}
        layer = factorize(model.get_submodule(name), rows, weighings)
        layers[name] = layer
        rebuilt = {part.name: part.weight for part in parts_of(layer.to_dense())}
        for site in group:
            weighing = weighings[site.part]
            errors[site.name] = relative_error(site.weight, rebuilt[site.part], weighing)
    compressed = with_replaced(model, layers)
    if example is not None:
        _check_outputs(model, compressed, example)
    made = tuple(replace(row, error=errors.get(row.name, row.error)) for row in plan.rows)
    return Compressed(compressed, replace(plan, rows=made))


def sites_by_module(model: nn.Module, chosen: Mapping[str, Row]) -> dict[str, list[Site]]:
    """The sites of every module of which the plan compresses some."""
    sites = {site.name: site for site in read_sites(model).sites}
    found: dict[str, list[Site]] = {}
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
        if row.format not in FORMATS:
            raise CompressionError(
                f"{name}: unknown format {row.format!r}; there are {', '.join(FORMATS)}."
            )
        found.setdefault(site.module_name, []).append(site)
    return found


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
