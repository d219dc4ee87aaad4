"""Neighbouring operations that PyTorch has one call for, made one operation.

Only what pays at the sizes of real models is joined: the bias of a linear map or a convolution,
the scales of a normalization, and softmax attention, whose scores are then never stored; and a
function overwrites a value that nobody else needs (`benchmarks/contraction.py` measures them). The
schedule computes the same before and after.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rankscope.diagrams.running.operations import (
    Add,
    Apply,
    Attend,
    Convolve,
    Indices,
    Mask,
    Multiply,
    Normalize,
    Operation,
    Read,
    Scale,
    Shape,
    Spread,
)
from rankscope.diagrams.running.schedule import Schedule
from rankscope.diagrams.running.statements import (
    convolution_axes,
    is_elementwise,
    last_positions,
    linear_axes,
)

# Functions that PyTorch has in place.
IN_PLACE = frozenset(
    (
        "elu",
        "hardsigmoid",
        "hardswish",
        "hardtanh",
        "leaky_relu",
        "mish",
        "relu",
        "relu6",
        "selu",
        "silu",
    )
)


def fused(planned: Schedule) -> Schedule:
    """The schedule with fewer, larger operations."""
    fuser = _Fuser(planned)
    for operation in planned.operations:
        if isinstance(operation, Multiply) and len(operation.inputs) == 2:
            fuser.find_attention(operation)
            fuser.find_norm(operation)
    for operation in planned.operations:
        if isinstance(operation, Add):
            fuser.find_biases(operation)
        elif isinstance(operation, Apply) and operation.function.name in IN_PLACE:
            fuser.find_overwritten(operation)
    return fuser.rewritten()


@dataclass(frozen=True)
class _Attention:
    """What a chain of operations computes if it is softmax attention.

    `sources` and `inputs` are those of queries, keys and values. Each has the indices `batch`,
    then positions, then features; the result has `batch`, positions of queries and features.
    """

    sources: tuple[int, ...]
    inputs: tuple[Indices, ...]
    batch: Indices
    ends: tuple[Indices, ...]
    scale: float
    is_causal: bool


class _Fuser:
    """Finds what can be joined, then walks along the old operations and writes the new ones."""

    def __init__(self, planned: Schedule) -> None:
        self.planned = planned
        self.made_by = {operation.target: operation for operation in planned.operations}
        self.uses = Counter(s for operation in planned.operations for s in operation.sources)
        self.uses.update(planned.results)
        self.shapes = planned.shapes
        # By old target: what to do instead, in old numbers, and what then need not be done.
        self.changed: dict[int, Operation] = {}
        self.attention: dict[int, _Attention] = {}
        self.absorbed: set[int] = set()
        # By old target: the axes in which it is computed instead, and the axes that it should have.
        self.turns: dict[int, tuple[Indices, Indices]] = {}
        self.operations: list[Operation] = []
        self.labels = list(planned.labels[: len(planned.arrays)])
        self.new = {place: place for place in range(len(planned.arrays))}

    def only(self, value: int) -> Operation | None:
        """The operation that makes a value, if that is used once."""
        return self.made_by.get(value) if self.uses[value] == 1 else None

    def find_norm(self, product: Multiply) -> None:
        """A normalization over the last positions, times a weight along them."""
        if not is_elementwise(product.inputs, product.output):
            return
        for first, second in ((0, 1), (1, 0)):
            weight = product.inputs[second]
            norm, order, views = self.behind_views(product.sources[first], product.inputs[first])
            if (
                isinstance(norm, Apply)
                and norm.function.name in ("layer_norm", "rms_norm")
                and norm.over == last_positions(norm)
                and sorted(order) == sorted(product.output)
                and weight == order[len(order) - len(norm.over) :]
            ):
                sources = (*norm.sources, product.sources[second])
                self.changed[product.target] = replace(norm, target=product.target, sources=sources)
                self.absorbed |= {norm.target, *views}
                if order != product.output:
                    self.turns[product.target] = (order, product.output)
                return

    def behind_views(
        self, value: int, indices: Indices
    ) -> tuple[Operation | None, Indices, list[int]]:
        """What makes a value behind other orders of its axes, its axes as made, and the views."""
        views: list[int] = []
        operation = self.only(value)
        while isinstance(operation, Multiply) and operation.stored_entries is None:
            (own,) = operation.inputs
            if sorted(own) != sorted(operation.output):
                break
            names = dict(zip(operation.output, indices, strict=True))
            indices = tuple(names[index] for index in own)
            views.append(operation.target)
            operation = self.only(operation.sources[0])
        return operation, indices, views

    def find_overwritten(self, applied: Apply) -> None:
        """A function of a value that was made for it, by what needs its own value no more."""
        operation = self.only(applied.sources[0])
        while operation is not None and operation.stored_entries is None:
            operation = self.only(operation.sources[0])
        is_made = isinstance(operation, Convolve | Normalize) or (
            isinstance(operation, Add | Multiply) and len(operation.sources) > 1
        )
        if is_made:
            self.changed[applied.target] = replace(applied, in_place=True)

    def find_biases(self, total: Add) -> None:
        """Terms of a sum that a product beside them can add by itself."""
        terms = list(self.terms(total))
        for product in terms:
            for term in terms:
                spread = self.only(term)
                if not isinstance(spread, Spread) or spread.factor != 1.0:
                    continue
                if term in self.absorbed or not self.is_ready(spread.sources[0], product):
                    continue
                changed = self.with_bias(product, spread)
                if changed is not None:
                    self.changed[product] = changed
                    self.absorbed.add(term)
                    break

    def terms(self, total: Add) -> Iterator[int]:
        """Everything that a sum adds with coefficient one, also through sums inside it."""
        for coefficient, source in zip(total.coefficients, total.sources, strict=True):
            inner = self.only(source)
            if coefficient == 1.0 and isinstance(inner, Add):
                yield from self.terms(inner)
            elif coefficient == 1.0:
                yield source

    def is_ready(self, value: int, product: int) -> bool:
        """Whether a value is there when a product is made, or can be read from an array then."""
        operation = self.made_by.get(value)
        if value < product or operation is None:
            return True
        return isinstance(operation, Read) and self.is_ready(operation.sources[0], product)

    def with_bias(self, product: int, spread: Spread) -> Operation | None:
        """An operation that adds a bias itself, if the bias has the axes that its weight brings."""
        operation = self.only(product)
        if operation is None or product in self.attention:
            return None
        operation = self.changed.get(product, operation)
        # A sum joins values of different diagrams, so that their axes are compared by position.
        bias = tuple(spread.output.index(i) if i in spread.output else -1 for i in spread.inputs[0])
        match operation:
            case Apply(function=function, over=over, sources=(_, _)):
                order, made = self.turns.get(product, (spread.output, spread.output))
                own = tuple(made.index(order[place]) for place in over)
                takes = function.name == "layer_norm" and bias == own
            case Multiply(inputs=(_, _), has_bias=False):
                linear = _linear(operation, bias)
                takes, operation = linear is not None, linear or operation
            case Convolve(has_bias=False):
                _, groups, brought, _ = convolution_axes(operation)
                held = [operation.output[place] for place in bias if place >= 0]
                thin = {i for i, n in zip(operation.output, operation.shape, strict=True) if n == 1}
                takes = bool(bias) and [i for i in (*groups, *brought) if i not in thin] == [
                    i for i in held if i not in thin
                ]
            case _:
                takes = False
        if not takes:
            return None
        changed = replace(operation, sources=(*operation.sources, *spread.sources))
        return (
            replace(changed, has_bias=True) if isinstance(changed, Multiply | Convolve) else changed
        )

    def find_attention(self, product: Multiply) -> None:
        """Scores, a scale, a mask, softmax, and a product with values."""
        for place in range(2):
            chain: list[Operation] = []
            value = product.sources[place]
            for kind in (Read, Apply, Mask, Scale):
                operation = self.only(value)
                if isinstance(operation, kind) and self.keeps_shape(operation):
                    chain.append(operation)
                    value = operation.sources[0]
            scores = self.only(value)
            if isinstance(scores, Multiply) and len(scores.inputs) == 2:
                attention = _attention(product, place, chain, scores, self.shapes)
                if attention is not None:
                    self.attention[product.target] = attention
                    self.absorbed |= {operation.target for operation in (*chain, scores)}
                    return

    def keeps_shape(self, operation: Operation) -> bool:
        """Whether its value has the axes of its source: a reader may see them in another way."""
        is_rows = isinstance(operation, Read) and operation.rows is not None
        return not is_rows and self.shapes[operation.sources[0]] == operation.shape

    def rewritten(self) -> Schedule:
        """The new schedule."""
        for operation in self.planned.operations:
            if operation.target not in self.new and operation.target not in self.absorbed:
                self.emit(operation)
        return replace(
            self.planned,
            operations=tuple(self.operations),
            labels=tuple(self.labels),
            results=tuple(self.new[value] for value in self.planned.results),
        )

    def emit(self, old: Operation) -> None:
        label = self.planned.labels[old.target]
        if isinstance(old, Add):
            self.new[old.target] = self.add(old, label)
        elif old.target in self.attention:
            assert isinstance(old, Multiply)
            self.new[old.target] = self.attend(old, self.attention[old.target], label)
        else:
            changed = self.changed.get(old.target, old)
            sources = tuple(self.value(source) for source in changed.sources)
            made = self.write(replace(changed, sources=sources), label)
            if old.target in self.turns:
                order, wanted = self.turns[old.target]
                sizes = dict(zip(order, changed.shape, strict=True))
                made = self.turned(made, order, wanted, sizes, label)
            self.new[old.target] = made

    def value(self, old: int) -> int:
        """The new number of a value; what is read from an array is read where it is needed."""
        if old not in self.new:
            self.emit(self.made_by[old])
        return self.new[old]

    def write(self, operation: Operation, label: str) -> int:
        """Add an operation under the next number."""
        target = len(self.labels)
        self.operations.append(replace(operation, target=target))
        self.labels.append(label)
        return target

    def add(self, old: Add, label: str) -> int:
        """Copy a sum, without the parts that were fused away."""
        pairs = zip(old.coefficients, old.sources, strict=True)
        left = [(c, self.value(source)) for c, source in pairs if source not in self.absorbed]
        coefficients, sources = zip(*left, strict=True)
        if coefficients == (1.0,):
            self.labels[sources[0]] = label
            return int(sources[0])
        return self.write(replace(old, sources=sources, coefficients=coefficients), label)

    def attend(self, old: Multiply, attention: _Attention, label: str) -> int:
        """Attention with two axes of batch, between views that bring the axes in order."""
        sizes = dict(zip(old.output, old.shape, strict=True))
        for source, indices in zip(attention.sources, attention.inputs, strict=True):
            sizes |= zip(indices, self.shapes[source], strict=True)
        batch, ends = attention.batch, attention.ends
        outer = (1, 1, *(sizes[index] for index in batch))[-2:]
        views = []
        for source, indices, last in zip(attention.sources, attention.inputs, ends, strict=True):
            view = self.turned(self.value(source), indices, (*batch, *last), sizes, label)
            shape = (*outer, *(sizes[index] for index in last))
            views.append(
                view if len(batch) == 2 else self.write(Read(0, (view,), shape, None), label)
            )
        natural = (*batch, ends[0][0], ends[2][1])
        shape = tuple(sizes[index] for index in natural)
        made = (*outer, *shape[-2:])
        value = self.write(
            Attend(0, tuple(views), made, attention.scale, attention.is_causal), label
        )
        if made != shape:
            value = self.write(Read(0, (value,), shape, None), label)
        return self.turned(value, natural, old.output, sizes, label)

    def turned(
        self, value: int, indices: Indices, wanted: Indices, sizes: dict[str, int], label: str
    ) -> int:
        """A view with the axes in another order."""
        if indices == wanted:
            return value
        shape = tuple(sizes[index] for index in wanted)
        return self.write(Multiply(0, (value,), shape, (indices,), wanted), label)


def _linear(product: Multiply, bias: Shape) -> Multiply | None:
    """A product with its weight second, if that brings exactly the axes of a bias."""
    for first, second in ((0, 1), (1, 0)):
        value, weight = product.inputs[first], product.inputs[second]
        axes = linear_axes(value, weight, product.output)
        if axes and axes[2] and tuple(map(product.output.index, axes[2])) == bias:
            sources = (product.sources[first], product.sources[second])
            return replace(product, sources=sources, inputs=(value, weight))
    return None


def _attention(
    product: Multiply,
    place: int,
    chain: list[Operation],
    scores: Multiply,
    shapes: tuple[Shape, ...],
) -> _Attention | None:
    """Read a chain from a product with values back to scores as attention, if it is that.

    Every operand must have the same batch of at most two indices, and one index each for
    positions and features, keys as many features as values.
    """
    applied = [operation for operation in chain if isinstance(operation, Apply)]
    weights, values = product.inputs[place], product.inputs[1 - place]
    if not applied or applied[0].function.name != "softmax" or len(applied[0].over) != 1:
        return None
    # The two products may be of different diagrams: the indices of the second name everything.
    summed = [index for index in scores.inputs[0] if index not in scores.output]
    names = dict(zip(scores.output, weights, strict=True))
    names |= {index: f"{index} of scores" for index in summed}
    inputs = [tuple(names.get(index, "") for index in indices) for indices in scores.inputs]
    key = weights[applied[0].over[0]]
    batch = tuple(index for index in product.output if index in weights and index in values)
    query = [index for index in weights if index not in (*batch, key)]
    made = [index for index in values if index not in (*batch, key)]
    if len(summed) != 1 or len(query) != 1 or len(made) != 1 or len(batch) > 2:
        return None
    sources = scores.sources
    if key in inputs[0]:
        inputs, sources = inputs[::-1], sources[::-1]
    feature = names[summed[0]]
    ends = ((query[0], feature), (key, feature), (key, made[0]))
    every = (*inputs, values)
    fits = all(
        sorted(one) == sorted((*batch, *last)) for one, last in zip(every, ends, strict=True)
    )
    fits &= sorted(weights) == sorted((*batch, query[0], key))
    fits &= sorted(product.output) == sorted((*batch, query[0], made[0]))
    masks = [operation for operation in chain if isinstance(operation, Mask)]
    fits &= all((weights[m.query], weights[m.key]) == (query[0], key) for m in masks)
    if not fits:
        return None
    sources = (*sources, product.sources[1 - place])
    widths = [
        shapes[source][indices.index(last[1])]
        for source, indices, last in zip(sources, every, ends, strict=True)
    ]
    scale = [operation.factor for operation in chain if isinstance(operation, Scale)]
    return (
        _Attention(sources, every, batch, ends, scale[0] if scale else 1.0, bool(masks))
        if widths[1] == widths[2]
        else None
    )
