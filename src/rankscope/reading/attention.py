"""Rules for attention: the dot product of queries and keys, and its masks."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rankscope.diagrams.parts import Function
from rankscope.reading.drafting import Known
from rankscope.reading.drafts import Barrier, Draft, Letters, Operand
from rankscope.reading.rules import Result, Rule
from rankscope.reading.trace import Value
from rankscope.reading.views import (
    HEAD,
    HEAD_FEATURE,
    KEY,
    SEQUENCE,
    ArrayView,
    Sort,
    relabelled,
    unsqueezed,
)


def read_attention(rule: Rule) -> Result:
    """softmax(QK/√D + mask) V; axes before the last two are broadcast."""
    views = [rule.view(name) for name in ("query", "key", "value")]
    mask = rule.argument("attn_mask")
    fixed = None if mask is None else rule.known("attn_mask")
    shape = (views[0].shape[-2], views[1].shape[-2])
    causal = bool(rule.argument("is_causal"))
    if fixed is not None and is_causal(fixed, shape):
        causal, mask = True, None
    elif fixed is not None and _hides_nothing(fixed):
        mask = None
    groups = views[1].shape[-3] if len(views[1].axes) > 2 else 1
    heads = views[0].shape[-3] if len(views[0].axes) > 2 else 1
    is_grouped = rule.argument("enable_gqa") and heads != groups
    if is_grouped and mask is not None:
        return None
    if is_grouped:
        return _grouped_query(rule, views, heads // groups, causal=causal)
    if mask is not None:
        return _masked_dot_product(rule, views, fixed)
    return _dot_product(rule, views, causal=causal)


def _hides_nothing(mask: Tensor) -> bool:
    return bool(mask.all()) if mask.dtype == torch.bool else not bool(mask.any())


def _scale(rule: Rule, query: ArrayView) -> float:
    scale = rule.argument("scale")
    return float(query.shape[-1] ** -0.5 if scale is None else scale)


def _fronts(views: Sequence[ArrayView]) -> tuple[list[Letters], Letters]:
    order = max(len(view.axes) for view in views)
    fronts = [tuple(str(n) for n in range(order - len(v.axes), order - 2)) for v in views]
    return fronts, max(fronts, key=len)


def _dot_product(rule: Rule, views: Sequence[ArrayView], *, causal: bool) -> ArrayView:
    query, key, value = views
    fronts, batch = _fronts(views)
    operands = (
        Operand("Q", _positions(query, SEQUENCE), (*fronts[0], "query", "inner")),
        Operand("K", _positions(key, KEY), (*fronts[1], "key", "inner")),
        Operand("V", _positions(value, KEY), (*fronts[2], "key", "outer")),
    )
    mask = ("query", "key") if causal else None
    scale = None if _scale(rule, query) == 1.0 else repr(_scale(rule, query))
    barrier = Barrier("A", ("Q", "K"), Function("softmax"), ("key",), scale, mask)
    draft = Draft(operands, (*batch, "query", "outer"), (barrier,), broadcast=batch)
    return rule.drafting.compute(rule.name, draft)


def _masked_dot_product(rule: Rule, views: Sequence[ArrayView], fixed: Tensor | None) -> Result:
    """Scores plus a mask are a step of their own: a region holds products, not sums."""
    query, key, value = views
    given: Value = rule.argument("attn_mask")
    mask = rule.view("attn_mask")
    if given.dtype == torch.bool:
        mask = _added_mask(rule, mask, fixed)
    elif given.dtype != rule.output.dtype:
        return None
    (*fronts, of_mask), batch = _fronts((query, key, value, mask))
    output = (*batch, "query", "key")
    operands = (
        Operand("Q", _positions(query, SEQUENCE), (*fronts[0], "query", "inner")),
        Operand("K", _positions(key, KEY), (*fronts[1], "key", "inner")),
    )
    scores = rule.drafting.compute(
        f"{rule.name}.scores",
        Draft(operands, output, coefficient=_scale(rule, query), broadcast=batch),
        Draft((Operand("M", mask, (*of_mask, "query", "key")),), output, broadcast=output),
    )
    last = (Operand("A", scores, output), Operand("V", value, (*fronts[2], "key", "outer")))
    barrier = Barrier("softmax", ("A",), Function("softmax"), ("key",))
    draft = Draft(last, (*batch, "query", "outer"), (barrier,), broadcast=batch)
    return rule.drafting.compute(rule.name, draft)


def _added_mask(rule: Rule, mask: ArrayView, fixed: Tensor | None) -> ArrayView:
    """A mask of booleans as numbers to be added: 0 where an entry is kept, else minus infinity."""
    if fixed is not None:
        numbers = torch.zeros(fixed.shape, dtype=rule.output.dtype)
        return rule.reading.constant(f"{rule.name}.mask", numbers.masked_fill(~fixed, -math.inf))
    arguments = (("condition", mask), ("self", 0.0), ("other", -math.inf))
    (made,) = rule.drafting.call(
        f"{rule.name}.mask", "torch.ops.aten.where.Scalar", arguments, (mask.shape,), Known()
    )
    return made


def _positions(view: ArrayView, position: Sort) -> ArrayView:
    """The view with its last axes called heads (after a batch), positions and features."""
    front: list[Sort | None] = [None] * (len(view.axes) - 2)
    if len(front) > 1:
        front[-1] = HEAD
    return relabelled(view, (*front, position, HEAD_FEATURE))


def _grouped_query(rule: Rule, views: Sequence[ArrayView], size: int, *, causal: bool) -> ArrayView:
    """Several query heads share the key and value heads of their group."""
    query, key, value = views
    *front, heads, positions, features = query.shape
    split = rule.reshape(query, (*front, heads // size, size, positions, features))
    made = _dot_product(rule, (split, unsqueezed(key, -3), unsqueezed(value, -3)), causal=causal)
    return rule.reshape(made, rule.output.shape)


def read_masked_fill(rule: Rule) -> Result:
    """Minus infinity where the key comes after the query."""
    mask, number = rule.known("mask"), rule.argument("value")
    view = rule.view("self")
    if isinstance(number, Value) or mask is None or len(view.axes) < 2 or view.causal is not None:
        return None
    if number > torch.finfo(torch.float32).min / 2 or not is_causal(~mask, view.shape[-2:]):
        return None
    view = rule.drafting.with_whole_axis(rule.copy, view, -2 + len(view.axes))
    view = rule.drafting.with_whole_axis(rule.copy, view, -1 + len(view.axes))
    return replace(view, causal=(view.axes[-2][0], view.axes[-1][0]))


def is_causal(mask: Tensor, shape: Sequence[int]) -> bool:
    """Whether a mask lets each query see exactly the keys up to its own position.

    Booleans are true where an entry is kept; numbers are added, so that 0 keeps, and minus
    infinity or the lowest number drops.
    """
    if mask.shape[-2:] != tuple(shape) or shape[0] < 2:
        return False
    kept = torch.ones(tuple(shape), dtype=torch.bool).tril()
    if mask.dtype != torch.bool:
        if not mask.is_floating_point() or not bool((mask[..., kept] == 0).all()):
            return False
        return bool((mask[..., ~kept] <= torch.finfo(mask.dtype).min).all())
    return bool((mask == kept).all())
