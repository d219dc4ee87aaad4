"""Rules for the operations of a trace: looks at the same numbers, arithmetic, products, attention.

A rule turns an operation into views and steps: contractions, sums and regions. It returns None
where the operation is not one of these with its arguments; then the operation is called as it is.
"""

import math
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from rankscope.diagrams.network import Word
from rankscope.diagrams.parts import PARAMETER_ROLES, Function, Role
from rankscope.reading.captions import fraction_label, weight_label
from rankscope.reading.drafting import (
    Barrier,
    Draft,
    Drafting,
    Letters,
    Operand,
    axis_letters,
    unused,
)
from rankscope.reading.trace import Operation, Value
from rankscope.reading.views import (
    BATCH,
    FEATURE,
    GENERIC,
    HEAD_FEATURE,
    KEY,
    SEQUENCE,
    VOCABULARY,
    ArrayView,
    Piece,
    Sort,
    expanded,
    guess,
    permuted,
    relabelled,
    scaled,
    size_of,
    squeezed,
    unsqueezed,
    whole,
)

MAX_POWER = 4


@dataclass
class Reading:
    """What is known while a trace is read: a view of every value, and the steps so far.

    Args:
        drafting: the steps.
        views: of values that were read.
        tensors: numbers of the values that no input has a part in and no parameter.
        linear_sizes: for the result of each linear map, how many features it makes; rows of them
            are rows of its weight.
        constants: numbers that belong to the network, by name.
    """

    drafting: Drafting
    views: dict[Value, ArrayView] = field(default_factory=dict)
    tensors: dict[Value, Tensor] = field(default_factory=dict)
    linear_sizes: dict[str, int] = field(default_factory=dict)
    constants: dict[str, Tensor] = field(default_factory=dict)

    def constant(self, name: str, numbers: Tensor) -> ArrayView:
        """A view of numbers that belong to the network."""
        free = unused(name, self.drafting.reserved)
        self.drafting.reserved.add(free)
        self.constants[free] = numbers
        shape = tuple(numbers.shape)
        return whole(free, shape, guess(len(shape)), Role.BUFFER)


@dataclass(frozen=True)
class Rule:
    """An operation that is being read.

    Args:
        reading: what is known.
        operation: of the trace.
        name: for the step that it becomes.
    """

    reading: Reading
    operation: Operation
    name: str

    @property
    def drafting(self) -> Drafting:
        """The steps so far."""
        return self.reading.drafting

    def argument(self, name: str) -> Any:
        """An argument as the trace has it."""
        return self.operation.arguments.get(name)

    def view(self, name: str) -> ArrayView:
        """An argument that is a tensor."""
        return self.reading.views[self.argument(name)]

    def optional(self, name: str) -> ArrayView | None:
        """An argument that is a tensor or None."""
        return None if self.argument(name) is None else self.view(name)

    def known(self, name: str) -> Tensor | None:
        """The numbers of an argument that is the same for every input, or None."""
        return self.reading.tensors.get(self.argument(name))

    @property
    def copy(self) -> str:
        """Name for a copy that only the layout needs."""
        return f"{self.name}.copy"

    @property
    def output(self) -> Value:
        """What the operation makes, or the first of several."""
        return self.operation.output

    def call(self, *, is_exact: bool, operations: int = 0) -> tuple[ArrayView, ...]:
        """The operation called as it is."""
        target = self.operation.target
        if not isinstance(target, torch._ops.OpOverload):
            raise self.operation.refusal("from_module", "it is no operator of PyTorch")
        usual = {
            argument.name: argument.default_value
            for argument in target._schema.arguments
            if argument.has_default_value()
        }
        arguments = [
            (name, self._given(part))
            for name, part in self.operation.arguments.items()
            if name not in usual or isinstance(part, Value | list) or part != usual[name]
        ]
        return self.drafting.call(
            self.name,
            f"torch.ops.{target}",
            arguments,
            [output.shape for output in self.operation.outputs],
            is_exact=is_exact,
            operations=operations,
        )

    def _given(self, part: Any) -> Any:
        if isinstance(part, list | tuple):
            return [self._given(each) for each in part]
        if isinstance(part, torch.dtype | torch.layout | torch.memory_format | torch.device):
            return Word(type(part).__name__, str(part).removeprefix("torch."))
        return self.reading.views[part] if isinstance(part, Value) else part

    def reshape(self, view: ArrayView, shape: Sequence[int]) -> ArrayView:
        """A view in another shape."""
        return self.drafting.reshape(self.copy, view, shape)

    def axis(self, name: str, order: int) -> int:
        """An argument that is an axis, counted from the front."""
        axis = int(self.argument(name))
        return axis + order if axis < 0 else axis


Result = ArrayView | tuple[ArrayView, ...] | None
Reader = Callable[[Rule], Result]


# --- Other looks at the same numbers ---------------------------------------------------------


def read_same(rule: Rule) -> Result:
    """An operation that gives back its input."""
    first = next(iter(rule.operation.arguments))
    given: Value = rule.argument(first)
    if given.dtype != rule.output.dtype or given.shape != rule.output.shape:
        return None
    return rule.view(first)


def read_dropout(rule: Rule) -> Result:
    """Dropout, which does nothing in inference."""
    return None if rule.argument("train") or rule.argument("training") else rule.view("input")


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
    """Without axes of size 1."""
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


# --- Arithmetic --------------------------------------------------------------------------------


def _is_number(part: object) -> bool:
    return isinstance(part, int | float) and not isinstance(part, bool)


def _term(rule: Rule, name: str) -> ArrayView | float | None:
    """An operand of a sum or a product: floating-point numbers, or None for anything else."""
    part = rule.argument(name)
    if _is_number(part):
        return float(part)
    if not isinstance(part, Value) or part.dtype != rule.output.dtype:
        return None
    fixed = rule.reading.tensors.get(part)
    if fixed is not None and fixed.numel() == 1 and not fixed.shape:
        return float(fixed)
    return rule.view(name)


def read_add(rule: Rule) -> Result:
    """A + alpha b, where either may be a number."""
    sign = -1.0 if rule.operation.kind in ("sub", "rsub") else 1.0
    alpha = rule.argument("alpha")
    coefficient = sign * float(1 if alpha is None else alpha)
    terms = [_term(rule, "self"), _term(rule, "other")]
    if None in terms or not any(isinstance(term, ArrayView) for term in terms):
        return None
    weights = (coefficient, 1.0) if rule.operation.kind == "rsub" else (1.0, coefficient)
    given = [term for term in terms if term is not None]
    return rule.drafting.add(rule.name, given, weights)


def read_multiply(rule: Rule) -> Result:
    """A product entry by entry, or by a number."""
    first, second = _term(rule, "self"), _term(rule, "other")
    if isinstance(first, float):
        first, second = second, first
    if not isinstance(first, ArrayView) or second is None:
        return None
    if isinstance(second, float):
        return scaled(first, second)
    return rule.drafting.multiply(rule.name, (first, second))


def read_divide(rule: Rule) -> Result:
    """A quotient: a product with the reciprocal."""
    first, second = _term(rule, "self"), _term(rule, "other")
    if rule.argument("rounding_mode") is not None or None in (first, second):
        return None
    if not isinstance(second, ArrayView):
        return scaled(first, 1.0 / second) if isinstance(first, ArrayView) and second else None
    over = rule.drafting.apply(f"{rule.name}.reciprocal", Function("reciprocal"), second)
    if not isinstance(first, ArrayView):
        return scaled(over, first or 0.0)
    return rule.drafting.multiply(rule.name, (first, over))


def read_negate(rule: Rule) -> Result:
    """-a."""
    return scaled(rule.view("self"), -1.0)


def read_power(rule: Rule) -> Result:
    """A whole power, as a product of a value with itself, or any other as a function."""
    exponent, view = rule.argument("exponent"), rule.view("self")
    if not _is_number(exponent):
        return None
    count = int(exponent)
    if count == exponent and 1 <= count <= MAX_POWER:
        return rule.drafting.multiply(rule.name, (view,) * count)
    function = Function("power", (("exponent", float(exponent)),))
    return rule.drafting.apply(rule.name, function, view)


def read_square(rule: Rule) -> Result:
    """A square."""
    return rule.drafting.multiply(rule.name, (rule.view("self"),) * 2)


def read_norm(rule: Rule) -> Result:
    """The Euclidean norm along some axes: the root of a sum of squares."""
    if rule.argument("ord") != 2 or rule.argument("dtype") is not None:
        return None
    view = rule.view("self")
    given = rule.argument("dim")
    axes = range(len(view.axes)) if given is None else [view.position(axis) for axis in given]
    letters = axis_letters(view)
    kept = tuple(letter for axis, letter in enumerate(letters) if axis not in axes)
    operands = (Operand("X", view, letters), Operand("X2", view, letters))
    squares = rule.drafting.compute(f"{rule.name}.squares", Draft(operands, kept))
    root = rule.drafting.apply(rule.name, Function("sqrt"), squares)
    return rule.reshape(root, rule.output.shape)


def read_add_product(rule: Rule) -> Result:
    """A + value b c, entry by entry."""
    terms = [_term(rule, name) for name in ("self", "tensor1", "tensor2")]
    added, first, second = terms
    if not (isinstance(first, ArrayView) and isinstance(second, ArrayView)) or added is None:
        return None
    product = rule.drafting.multiply(f"{rule.name}.product", (first, second))
    return rule.drafting.add(rule.name, (added, product), (1.0, float(rule.argument("value"))))


def read_mean(rule: Rule) -> Result:
    """A mean or a sum over some axes: a sum against a constant."""
    view = rule.view("self")
    if not view.axes:
        return view
    given = rule.argument("dim")
    chosen = range(len(view.axes)) if not given and given != 0 else given
    axes = [view.position(axis) for axis in ([chosen] if isinstance(chosen, int) else chosen)]
    count = math.prod(view.shape[axis] for axis in axes)
    weight = 1.0 / count if rule.operation.kind == "mean" else 1.0
    letters = axis_letters(view)
    pieces = tuple(Piece(view.shape[axis], _sort(view, axis)) for axis in axes)
    constant = ArrayView(
        "constant", pieces, tuple((piece,) for piece in pieces), Role.CONSTANT, fill=weight
    )
    # The constant holds the summed legs outside any barrier that the value is drawn with.
    operands = (
        Operand("X", view, letters),
        Operand("average", constant, tuple(letters[a] for a in axes), fraction_label(weight)),
    )
    kept = tuple(letter for axis, letter in enumerate(letters) if axis not in axes)
    total = rule.drafting.compute(rule.name, Draft(operands, kept))
    return rule.reshape(total, rule.output.shape)


def _sort(view: ArrayView, axis: int) -> Sort:
    return view.axes[axis][0].sort if view.axes[axis] else GENERIC


# --- Products of tensors -------------------------------------------------------------------------


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
        label = r"\mathbf{b}" if bias.role in PARAMETER_ROLES else None
        drafts.append(Draft((Operand("b", bias, own, label),), output))
    made = rule.drafting.compute(rule.name, *drafts)
    if len(weight.axes) == 2:
        rule.reading.linear_sizes[made.array] = weight.shape[0]
    return made


def _weight_label(weight: ArrayView) -> str | None:
    return weight_label(weight.array) if weight.role in PARAMETER_ROLES else None


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
    bias = Operand("b", added, own, r"\mathbf{b}" if added.role in PARAMETER_ROLES else None)
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


# --- Functions -----------------------------------------------------------------------------------

# The function of a region that an operation is, and its options by the names of the operation.
FUNCTIONS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "relu": ("relu", {}),
    "relu6": ("relu6", {}),
    "leaky_relu": ("leaky_relu", {"negative_slope": "negative_slope"}),
    "gelu": ("gelu", {"approximate": "approximate"}),
    "silu": ("silu", {}),
    "tanh": ("tanh", {}),
    "sigmoid": ("sigmoid", {}),
    "softplus": ("softplus", {"beta": "beta", "threshold": "threshold"}),
    "exp": ("exp", {}),
    "log": ("log", {}),
    "sqrt": ("sqrt", {}),
    "rsqrt": ("rsqrt", {}),
    "reciprocal": ("reciprocal", {}),
    "sin": ("sin", {}),
    "cos": ("cos", {}),
    "abs": ("abs", {}),
    "erf": ("erf", {}),
    "hardtanh": ("hardtanh", {"min_val": "min_val", "max_val": "max_val"}),
    "hardswish": ("hardswish", {}),
    "hardsigmoid": ("hardsigmoid", {}),
    "mish": ("mish", {}),
    "selu": ("selu", {}),
    "log_sigmoid": ("log_sigmoid", {}),
    "clamp": ("clamp", {"min": "min", "max": "max"}),
    "clamp_min": ("clamp", {"min": "min"}),
    "clamp_max": ("clamp", {"max": "max"}),
}


def read_function(rule: Rule) -> Result:
    """A function entry by entry: a region around one value."""
    name, options = FUNCTIONS[rule.operation.kind]
    given = {ours: rule.argument(theirs) for ours, theirs in options.items()}
    return _applied(rule, name, given)


def read_elu(rule: Rule) -> Result:
    """ELU, whose other scales are 1."""
    if float(rule.argument("scale")) != 1.0 or float(rule.argument("input_scale")) != 1.0:
        return None
    return _applied(rule, "elu", {"alpha": rule.argument("alpha")})


def _applied(rule: Rule, name: str, given: Mapping[str, Any]) -> Result:
    if any(isinstance(option, Value) for option in given.values()):
        return None
    usual = dict(Function(name).recipe.options)
    options = {
        key: option if isinstance(option, str) else float(option)
        for key, option in given.items()
        if option is not None
    }
    changed = tuple((key, option) for key, option in options.items() if option != usual[key])
    view = rule.view(next(iter(rule.operation.arguments)))
    return rule.drafting.apply(rule.name, Function(name, changed), view)


def read_softmax(rule: Rule) -> Result:
    """Softmax or its logarithm over one axis."""
    view = rule.view("self")
    if not view.axes or rule.argument("dtype") not in (None, rule.output.dtype):
        return None
    name = "log_softmax" if rule.operation.kind == "log_softmax" else "softmax"
    return rule.drafting.apply(rule.name, Function(name), view, (rule.axis("dim", len(view.axes)),))


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


# --- Attention -----------------------------------------------------------------------------------


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
    scale = repr(_scale(rule, query))
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
        f"{rule.name}.mask", "torch.ops.aten.where.Scalar", arguments, (mask.shape,), is_exact=True
    )
    return made


def _positions(view: ArrayView, position: Sort) -> ArrayView:
    return relabelled(view, (*[None] * (len(view.axes) - 2), position, HEAD_FEATURE))


def _grouped_query(rule: Rule, views: Sequence[ArrayView], size: int, *, causal: bool) -> ArrayView:
    """Several query heads share the key and value heads of their group."""
    query, key, value = views
    *front, heads, positions, features = query.shape
    split = rule.reshape(query, (*front, heads // size, size, positions, features))
    made = _dot_product(rule, (split, unsqueezed(key, -3), unsqueezed(value, -3)), causal=causal)
    return rule.reshape(made, rule.output.shape)
