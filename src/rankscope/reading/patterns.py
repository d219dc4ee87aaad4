"""Operations of a trace that are one layer together, and operations that do nothing.

Models write the normalization by the root mean square in five operations; as one, it is a region.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from rankscope.reading.trace import Operation, Trace, Value


def simplified(made: Trace) -> Trace:
    """The same trace with root-mean-square normalizations as one operation each."""
    makers = {output: operation for operation in made.operations for output in operation.outputs}
    uses = made.num_uses()
    new: dict[Operation, Operation] = {}
    gone: set[Operation] = set()
    for operation in made.operations:
        matched = _rms_norm(operation, makers, uses)
        if matched is not None:
            new[operation], parts = matched
            gone.update(parts)
    operations = tuple(new.get(o, o) for o in made.operations if o not in gone)
    return replace(made, operations=operations)


def _rms_norm(
    product: Operation, makers: Mapping[Value, Operation], uses: Mapping[Value, int]
) -> tuple[Operation, list[Operation]] | None:
    """X * rsqrt(mean(x^2) + eps) over the last axis, and the operations that it replaces."""
    if product.kind != "mul":
        return None
    for name, other in (("self", "other"), ("other", "self")):
        given, factor = product.arguments.get(name), product.arguments.get(other)
        parts = _chain(factor, ("rsqrt", "add", "mean", "pow"), makers, uses)
        if parts is None or not isinstance(given, Value):
            continue
        _, total, mean, square = parts
        eps, axes = total["other"], mean.arguments.get("dim")
        fits = (
            square["self"] is given
            and square["exponent"] == 2
            and isinstance(eps, float)
            and axes in ([-1], [len(given.shape) - 1])
            and given.dtype == product.output.dtype
        )
        if fits:
            arguments: dict[str, Any] = {
                "input": given,
                "normalized_shape": [given.shape[-1]],
                "weight": None,
                "eps": eps,
            }
            one = replace(product, kind="rms_norm", arguments=MappingProxyType(arguments))
            return one, parts
    return None


def _chain(
    value: object,
    kinds: tuple[str, ...],
    makers: Mapping[Value, Operation],
    uses: Mapping[Value, int],
) -> list[Operation] | None:
    """The operations of these kinds that make a value, one from the other, used nowhere else."""
    parts: list[Operation] = []
    for kind in kinds:
        if not isinstance(value, Value) or value not in makers or uses[value] != 1:
            return None
        maker = makers[value]
        if maker.kind != kind:
            return None
        parts.append(maker)
        value = maker.arguments.get("self")
    return parts
