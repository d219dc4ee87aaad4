"""Rules for other looks at the same numbers: shapes, orders of axes, parts of an axis."""

from rankscope.reading.rules import Result, Rule
from rankscope.reading.trace import Value
from rankscope.reading.views import (
    GENERIC,
    ArrayView,
    Piece,
    expanded,
    permuted,
    size_of,
    squeezed,
    unsqueezed,
)


def read_same(rule: Rule) -> Result:
    """An operation that gives back its input."""
    first = next(iter(rule.operation.arguments))
    given: Value = rule.argument(first)
    if given.dtype != rule.output.dtype or given.shape != rule.output.shape:
        return None
    return rule.view(first)


def read_shape(rule: Rule) -> Result:
    """A reshape of any kind; the trace says which shape comes out."""
    first = next(iter(rule.operation.arguments))
    return rule.reshape(rule.view(first), rule.output.shape)


def read_permute(rule: Rule) -> Result:
    """Axes in another order."""
    view = rule.view("self")
    return permuted(view, [view.position(axis) for axis in rule.argument("dims")])


def read_transpose(rule: Rule) -> Result:
    """Two axes exchanged."""
    view = rule.view("self")
    order = list(range(len(view.axes)))
    if len(order) < 2:
        return view
    first, second = (
        (-1, -2) if rule.operation.kind == "t" else (rule.argument("dim0"), rule.argument("dim1"))
    )
    order[first], order[second] = order[second], order[first]
    return permuted(view, order)


def read_unsqueeze(rule: Rule) -> Result:
    """A new axis of size 1."""
    return unsqueezed(rule.view("self"), rule.argument("dim"))


def read_squeeze(rule: Rule) -> Result:
    """The value without its axes of size 1."""
    view = rule.view("self")
    given = rule.argument("dim")
    axes = range(len(view.axes)) if given is None else given if isinstance(given, list) else [given]
    for axis in sorted((view.position(axis) for axis in axes), reverse=True):
        view = squeezed(view, axis)
    return view


def read_expand(rule: Rule) -> Result:
    """Axes of size 1 repeated."""
    view = rule.view(next(iter(rule.operation.arguments)))
    shape = rule.output.shape
    while len(view.axes) < len(shape):
        view = unsqueezed(view, 0)
    for axis, size in enumerate(shape):
        if view.shape[axis] != size:
            view = expanded(view, axis, Piece(size, GENERIC))
    return view


def _rows(rule: Rule, view: ArrayView, axis: int, span: tuple[int, int]) -> ArrayView | None:
    """Part of an axis, where it is rows of an array or of the weight of a linear map."""
    if span == (0, view.shape[axis]):
        return view
    first = next((piece for piece in view.axes[axis] if piece.size > 1), None)
    if span[1] <= span[0] or first is None:
        return None
    if first in view.stored:
        place = view.stored.index(first)
        is_leading = size_of(view.stored[:place]) == 1
        size = size_of(view.stored[place:])
        if not is_leading and rule.reading.linear_sizes.get(view.array) != size:
            return None
    return rule.drafting.narrow(rule.copy, view, axis, span)


def read_slice(rule: Rule) -> Result:
    """Positions start to stop of one axis."""
    view = rule.view("self")
    if rule.argument("step") != 1 or not view.axes:
        return None
    axis = rule.axis("dim", len(view.axes))
    size = view.shape[axis]
    start, stop = rule.argument("start") or 0, rule.argument("end")
    start = min(size, start + size if start < 0 else start)
    stop = size if stop is None else min(size, stop + size if stop < 0 else stop)
    return _rows(rule, view, axis, (max(0, start), stop))


def read_select(rule: Rule) -> Result:
    """One position of an axis."""
    view = rule.view("self")
    axis = rule.axis("dim", len(view.axes))
    index = rule.argument("index")
    if not isinstance(index, int):
        return None
    index += view.shape[axis] if index < 0 else 0
    part = _rows(rule, view, axis, (index, index + 1))
    return None if part is None else squeezed(part, axis)


def read_split(rule: Rule) -> Result:
    """One axis cut into parts that lie side by side."""
    view = rule.view("self")
    axis = rule.axis("dim", len(view.axes))
    start, parts = 0, []
    is_unbound = rule.operation.kind == "unbind"
    for output in rule.operation.outputs:
        size = 1 if is_unbound else output.shape[axis]
        part = _rows(rule, view, axis, (start, start + size))
        if part is None:
            return None
        parts.append(squeezed(part, axis) if is_unbound else part)
        start += size
    return tuple(parts)
