"""What a model costs in every unit, and how much of it a budget allows."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from torch import nn

from rankscope.compression.plan import Budget, Candidate, Costs, Unit
from rankscope.compression.usage import Usage
from rankscope.errors import CompressionError

NANOSECOND = 1e-9  # seconds are counted in whole ones of these

_MEASURES: Mapping[Unit, Callable[[Costs], int]] = {
    Unit.PARAMETERS: lambda costs: costs.parameters,
    Unit.FLOPS: lambda costs: costs.flops,
    Unit.BYTES: lambda costs: costs.bytes,
    Unit.LATENCY: lambda costs: round(costs.seconds / NANOSECOND),
}
NEEDING_EXAMPLE = (Unit.FLOPS, Unit.LATENCY)


def count(costs: Costs, unit: Unit) -> int:
    """Costs in one unit, as an integer (latency in nanoseconds)."""
    return _MEASURES[unit](costs)


def check_budget(budget: Budget, *, has_example: bool) -> None:
    """Refuse a share that is none, and a unit that cannot be counted.

    Raises:
        CompressionError: if `keep` is not above 0 and at most 1, flops or latency are asked for
            without an example, or there are two budgets in one unit or more than two.
    """
    units = [str(part.unit) for part in budget.parts]
    if len(units) > 2 or len(set(units)) < len(units):
        raise CompressionError(
            f"Wanted at most 2 budgets, in different units, got {len(units)}: {', '.join(units)}."
        )
    for part in budget.parts:
        _check_part(part, has_example=has_example)


def _check_part(budget: Budget, *, has_example: bool) -> None:
    if not 0 < budget.keep <= 1:
        raise CompressionError(
            f"keep is the share of the model that stays, above 0 and at most 1, got {budget.keep}."
        )
    if budget.unit in NEEDING_EXAMPLE and not has_example:
        raise CompressionError(
            f"A budget in {budget.unit} depends on the inputs' sizes: pass example=, one batch as "
            "the model takes it (on the command line: --data, or --input with its shape)."
        )


def allowance(budget: Budget, dense: Costs) -> int:
    """The most that may be kept, in whole units.

    Example:
        >>> allowance(Budget(0.1), Costs(parameters=1009, flops=0, bytes=4036))
        100
    """
    return int(budget.keep * count(dense, budget.unit) + 1e-6)


def dense_costs(
    model: nn.Module, usage: Usage | None, sites: Iterable[Candidate], seconds: float
) -> Costs:
    """Of a whole model: `sites` are the dense weights of its sites."""
    flops = 0 if usage is None else usage.other_flops + sum(site.costs.flops for site in sites)
    return Costs(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        flops=flops,
        bytes=state_bytes(model),
        seconds=seconds,
    )


def state_bytes(model: nn.Module) -> int:
    """Bytes of everything in the state dict, shared tensors once."""
    held = {
        (tensor.data_ptr(), tensor.shape, tensor.dtype) if tensor.numel() else name: tensor
        for name, tensor in model.state_dict().items()
    }
    return sum(tensor.numel() * tensor.element_size() for tensor in held.values())


def exchanged(total: Costs, old: Costs, new: Costs) -> Costs:
    """The total, after one part of it was replaced."""
    return replace(
        total,
        parameters=total.parameters - old.parameters + new.parameters,
        flops=total.flops - old.flops + new.flops,
        bytes=total.bytes - old.bytes + new.bytes,
        seconds=total.seconds - old.seconds + new.seconds,
    )
