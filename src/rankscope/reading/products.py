"""Rules for products of tensors: linear maps, matrices, einsums, tables, attention."""

import math
import string
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rankscope.diagrams.parts import PARAMETER_ROLES, Function, Role
from rankscope.reading.captions import PARTS, is_joint, marked, part_name, weight_label
from rankscope.reading.drafting import Known, axis_letters, unused
from rankscope.reading.drafts import Barrier, Draft, Letters, Operand
from rankscope.reading.rules import Result, Rule
from rankscope.reading.trace import Value
from rankscope.reading.views import (
    BATCH,
    FEATURE,
    HEAD,
    HEAD_FEATURE,
    KEY,
    SEQUENCE,
    VOCABULARY,
    ArrayView,
    Piece,
    Sort,
    expanded,
    relabelled,
    unsqueezed,
)


def read_linear(rule: Rule) -> Result:
    r"""Y = X W^T + 1 b; the last axis of X may be cut into several indices."""
    view, weight = rule.view("input"), rule.view("weight")
    return _linear(rule, view, relabelled(weight, (FEATURE,) * len(weight.axes)))


def _linear(rule: Rule, view: ArrayView, weight: ArrayView) -> ArrayView:
    letters = axis_letters(view)
    output = (*letters[:-1], *(("out",) if len(weight.axes) == 2 else ()))
    held = (*output[-1:], letters[-1]) if len(weight.axes) == 2 else (letters[-1],)
    operands = (
        Operand("X", view, letters),
        Operand("W", weight, held, _weight_label(weight)),
    )
    drafts = [Draft(operands, output)]
    bias = rule.optional("bias")
    if bias is not None:
        own = () if not bias.axes else ("out",)
        drafts.append(Draft((Operand("b", bias, own, _bias_label(bias)),), output))
    part = _joint_part(weight)
    name = rule.name if part is None else part_name(rule.name, part)
    label = None if part is None else rf"\mathbf{{{PARTS[part]}}}"
    made = rule.drafting.compute(name, *drafts, label=label)
    if len(weight.axes) == 2:
        rule.reading.linear_sizes[made.array] = weight.shape[0]
    return made


def _joint_part(weight: ArrayView) -> str | None:
    """Which part of a joint layer some rows of its weight or bias are: "query", "key", "value"."""
    if weight.role not in PARAMETER_ROLES or weight.rows is None or not is_joint(weight.array):
        return None
    start, stop = weight.rows
    place, rest = divmod(start, stop - start)
    return [*PARTS][place] if not rest and place < len(PARTS) else None


def _weight_label(weight: ArrayView) -> str | None:
    return _with_part(weight_label(weight.array), weight)


def _bias_label(bias: ArrayView) -> str | None:
    return _with_part(r"\mathbf{b}", bias)


def _with_part(label: str, weight: ArrayView) -> str | None:
    """The label of a parameter, marked if it is part of a joint one; None for everything else."""
    if weight.role not in PARAMETER_ROLES:
        return None
    part = _joint_part(weight)
    return label if part is None else marked(label, PARTS[part])


def read_addmm(rule: Rule) -> Result:
    """A b + c, as linear maps are written that keep their weight the other way round."""
    if float(rule.argument("beta")) != 1.0 or float(rule.argument("alpha")) != 1.0:
        return None
    first, second, added = rule.view("mat1"), rule.view("mat2"), rule.view("self")
    letters = ("row", "sum"), ("sum", "out")
    operands = (
        Operand("X", first, letters[0]),
        Operand("W", second, letters[1], _weight_label(second)),
    )
    own = ("row", "out")[2 - len(added.axes) :]
    bias = Operand("b", added, own, _bias_label(added))
    output = ("row", "out")
    return rule.drafting.compute(
        rule.name, Draft(operands, output), Draft((bias,), output, broadcast=output)
    )


def read_matrix_product(rule: Rule) -> Result:
    """A @ b; axes before the last two are broadcast."""
    names = [*rule.operation.arguments][:2]
    first, second = (rule.view(name) for name in names)
    if not first.axes or not second.axes:
        return None
    order = max(len(first.axes), len(second.axes))

    def letters(view: ArrayView, last: Letters) -> Letters:
        count = len(view.axes) - len(last)
        return (*(str(n) for n in range(order - 2 - count, order - 2)), *last)

    left = letters(first, ("row", "sum") if len(first.axes) > 1 else ("sum",))
    right = letters(second, ("sum", "column") if len(second.axes) > 1 else ("sum",))
    batch = max(left[:-2], right[:-2], key=len)
    output = (*batch, *(x for x in (*left[-2:], *right[-2:]) if x in ("row", "column")))
    return rule.drafting.compute(
        rule.name, Draft(_operands((first, second), (left, right)), output, broadcast=batch)
    )


def _operands(views: Sequence[ArrayView], letters: Sequence[Letters]) -> tuple[Operand, ...]:
    names: list[str] = []
    for view in views:
        names.append(unused("W" if view.role in PARAMETER_ROLES else "X", names))
    return tuple(
        Operand(name, view, own, _weight_label(view))
        for name, view, own in zip(names, views, letters, strict=True)
    )


def read_einsum(rule: Rule) -> Result:
    """An einsum of tensors; "..." stands for numbered axes."""
    views = [rule.reading.views[tensor] for tensor in rule.argument("tensors")]
    left, arrow, right = rule.argument("equation").replace(" ", "").partition("->")
    inputs = []
    for text, view in zip(left.split(","), views, strict=True):
        before, _, after = text.partition("...")
        count = len(view.axes) - len(before) - len(after)
        # Numbered from the back, so that terms with fewer axes are broadcast.
        inputs.append((*before, *(str(n) for n in reversed(range(count))), *after))
    dots = max((tuple(x for x in own if x.isdigit()) for own in inputs), key=len)
    if arrow:
        before, ellipsis, after = right.partition("...")
        output = (*before, *(dots if ellipsis else ()), *after)
    else:
        flat = [letter for own in inputs for letter in own if not letter.isdigit()]
        once = [x for x in sorted(set(flat), key=string.ascii_letters.index) if flat.count(x) == 1]
        output = (*dots, *once)
    letters = tuple(letter for own in inputs for letter in own)
    draft = Draft(_operands(views, inputs), output, broadcast=letters)
    return rule.drafting.compute(rule.name, draft)


def read_embedding(rule: Rule) -> Result:
    """A table look-up: a one-hot node times the table, or rows of it if they are known."""
    table, fixed = rule.view("weight"), rule.known("indices")
    rows = None if fixed is None else _fixed_rows(rule, fixed, table)
    if rows is not None:
        return rows
    tokens = rule.drafting.plain(rule.copy, rule.view("indices"))
    if tokens.role not in (Role.DATA, Role.BUFFER):
        return None
    usual = {1: (SEQUENCE,), 2: (BATCH, SEQUENCE)}.get(len(tokens.axes))
    if usual is not None:
        tokens = relabelled(tokens, usual)
    piece = Piece(table.shape[0], VOCABULARY)
    one_hot = replace(
        tokens, stored=(*tokens.stored, piece), axes=(*tokens.axes, (piece,)), is_one_hot=True
    )
    letters = axis_letters(one_hot)
    operands = (
        Operand("X", one_hot, letters),
        Operand("E", relabelled(table, (None, FEATURE)), (letters[-1], "out"), r"\mathbf{E}"),
    )
    return rule.drafting.compute(rule.name, Draft(operands, (*letters[:-1], "out")))


def _fixed_rows(rule: Rule, positions: Tensor, table: ArrayView) -> Result:
    """Rows for integers that are known, where they are a run: a table of positions."""
    flat = positions.reshape(-1)
    length = positions.shape[-1] if positions.ndim else 1
    run = flat[:length]
    start = int(run[0]) if length else 0
    is_run = torch.equal(run, torch.arange(start, start + length))
    if not is_run or not torch.equal(
        flat.reshape(-1, length), run.expand(flat.numel() // length, -1)
    ):
        return None
    rows = rule.drafting.narrow(rule.copy, table, 0, (start, start + length))
    rows = relabelled(rows, (SEQUENCE, FEATURE))
    shape = rule.output.shape
    rows = rule.reshape(rows, (*(1,) * (len(shape) - 2), *shape[-2:]))
    for axis, size in enumerate(shape[:-2]):
        if size > 1:
            rows = expanded(rows, axis, Piece(size, BATCH))
    return rows


# --- Attention: the dot product of queries and keys, and its masks --------------------------------


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
