"""Rules for products of tensors: linear maps, matrices, einsums, tables."""

import string
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rankscope.diagrams.parts import PARAMETER_ROLES, Role
from rankscope.reading.captions import PARTS, is_joint, marked, part_name, weight_label
from rankscope.reading.drafting import axis_letters, unused
from rankscope.reading.drafts import Draft, Letters, Operand
from rankscope.reading.rules import Result, Rule
from rankscope.reading.views import (
    BATCH,
    FEATURE,
    SEQUENCE,
    VOCABULARY,
    ArrayView,
    Piece,
    expanded,
    relabelled,
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
