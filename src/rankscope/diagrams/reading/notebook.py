"""The steps found so far, and the few ways to add one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rankscope.diagrams.functions import Function
from rankscope.diagrams.network import Body, Network, Step, Sum, Term, diagrams_of, output_shape
from rankscope.diagrams.parts import Role
from rankscope.diagrams.reading.alignment import Clash, align
from rankscope.diagrams.reading.drafts import Barrier, Draft, Operand
from rankscope.diagrams.reading.problems import Problem
from rankscope.diagrams.reading.rows import rows_along, with_axis, with_thin_piece
from rankscope.diagrams.reading.sketch import Naming, draw, unused
from rankscope.diagrams.reading.values import (
    Axis,
    Piece,
    Value,
    merged,
    permuted,
    reshaped,
    size_of,
)
from rankscope.errors import SizeError, UnsupportedModuleError


def axis_letters(value: Value) -> tuple[str, ...]:
    """A letter for every axis, its number."""
    return tuple(str(axis) for axis in range(len(value.axes)))


def trailing(values: Sequence[Value]) -> list[tuple[str, ...]]:
    """Letters for values that are broadcast against each other: axes match from the back."""
    order = max(len(value.axes) for value in values)
    return [tuple(str(n) for n in range(order - len(v.axes), order)) for v in values]


@dataclass
class Notebook:
    """Collects the steps of a network while a module is read.

    `problems` are the parts that could not be read, so that all can be reported at once.
    """

    steps: list[Step] = field(default_factory=list)
    reserved: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    _narrowed: dict[tuple[Value, int], Value] = field(default_factory=dict)

    def compute(
        self,
        name: str,
        *drafts: Draft,
        known: Mapping[str, Axis] | None = None,
        label: str | None = None,
    ) -> Value:
        """Add the step that computes the sum of some terms.

        Args:
            name: the step's name; a number is added if it is taken.
            drafts: the terms, with the same output letters.
            known: pieces of letters that no operand has.
            label: TeX for the result.

        Raises:
            SizeError: if the axes do not fit together; the message starts with the step's name.
            UnsupportedModuleError: if a masked value is used otherwise than by a function.
        """
        for operand in (o for draft in drafts for o in draft.operands):
            if operand.value.causal is not None and not _is_masked(operand, drafts):
                raise UnsupportedModuleError(
                    "a causal mask (minus infinity) must be followed by a function such as softmax"
                )
        drafts = tuple(self._with_whole_letters(name, draft) for draft in drafts)
        try:
            pieces = align(drafts, known or {})
            while isinstance(pieces, Clash):
                drafts = self._without_clash(name, drafts, pieces)
                pieces = align(drafts, known or {})
        except SizeError as error:
            raise SizeError(f"{name}: {error}") from error
        factors = [draft.outer_factor for draft in drafts]
        naming, step_name = Naming(), unused(name, self.reserved)
        diagrams = [draw(step_name, draft, pieces, naming) for draft in drafts]
        axes = tuple(pieces[letter] for letter in drafts[0].output)
        if len(diagrams) == 1:
            return replace(self._add(step_name, diagrams[0], axes, label), factor=factors[0])
        terms = tuple(Term(d, factor) for d, factor in zip(diagrams, factors, strict=True))
        return self._add(step_name, Sum(step_name, terms), axes, label)

    def _add(self, name: str, body: Body, axes: tuple[Axis, ...], label: str | None) -> Value:
        self.reserved.add(name)
        self.steps.append(Step(name, body, label))
        stored = tuple(piece for axis in axes for piece in axis)
        return Value(name, stored, axes, row_entries=size_of(stored[1:]))

    def _with_whole_letters(self, name: str, draft: Draft) -> Draft:
        for operand in draft.operands:
            value = operand.value
            for axis, letter in enumerate(operand.letters):
                if letter in draft.whole_letters:
                    value = self.with_whole_axis(f"{name}.copy", value, axis)
                elif letter in draft.normalized_letters and not value.axes[axis]:
                    value = with_thin_piece(value, axis)
            # Inside a barrier every leg must be held by a member.
            if draft.barriers and value.is_expanded:
                value = self.copied(f"{name}.copy", value)
            if value is not operand.value:
                draft = draft.with_operand(operand, replace(operand, value=value))
        return draft

    def _without_clash(
        self, name: str, drafts: tuple[Draft, ...], clash: Clash
    ) -> tuple[Draft, ...]:
        """Copy a value whose pieces do not fit, with one piece per axis."""
        old = clash.operand
        value = self.copied(f"{name}.copy", old.value)
        for axis in range(len(value.axes)):
            value = merged(value, axis) or value
        new = replace(old, value=value)
        return tuple(draft.with_operand(old, new) for draft in drafts)

    def copied(self, name: str, value: Value) -> Value:
        """The value as an array of its own, stored in the order of its axes."""
        letters = axis_letters(value)
        return self.compute(name, Draft((Operand("X", value, letters),), letters))

    def with_whole_axis(self, name: str, value: Value, axis: int) -> Value:
        """The value with exactly one piece on an axis, copied if there is no other way."""
        if not value.axes[axis]:
            return with_thin_piece(value, axis)
        found = merged(value, axis)
        if found is None:
            found = merged(self.copied(name, value), axis)
        assert found is not None, "a copy is stored in the order of its axes"
        return found

    def reshape(self, name: str, value: Value, shape: Sequence[int]) -> Value:
        """The value in another shape; one size may be -1.

        Raises:
            SizeError: if the number of entries differs.
        """
        wanted = _inferred(name, size_of(value.flat), tuple(shape))
        found = reshaped(value, wanted)
        if found is None:
            found = reshaped(self.copied(name, value), wanted)
        assert found is not None, "a copy is stored in the order of its axes"
        return found

    def narrow(self, name: str, value: Value, axis: int, span: tuple[int, int]) -> Value:
        """Positions `start` to `stop` of one axis, read as rows of the array."""
        start, stop = span
        if (start, stop) == (0, value.shape[axis]):
            return value
        if value.axes[axis] and value.axes[axis][0] not in value.stored:
            piece = Piece(stop - start, value.axes[axis][0].sort)
            return replace(value, axes=with_axis(value.axes, axis, (piece,)))
        found = rows_along(value, axis, span)
        if found is None:
            found = rows_along(self._stored_first(name, value, axis), axis, span)
        assert found is not None, "the axis is now stored first"
        return found

    def _stored_first(self, name: str, value: Value, axis: int) -> Value:
        """A copy whose array starts with an axis; the parts of one axis share a copy."""
        if (value, axis) not in self._narrowed:
            order = [axis, *(other for other in range(len(value.axes)) if other != axis)]
            back = [order.index(position) for position in range(len(order))]
            whole = self.with_whole_axis(name, value, axis)
            copy = self.copied(name, permuted(whole, order))
            self._narrowed[(value, axis)] = permuted(copy, back)
        return self._narrowed[(value, axis)]

    def apply(self, name: str, function: Function, value: Value, over: Sequence[int] = ()) -> Value:
        """Send a value through a function, entry by entry or normalized over some axes."""
        letters = axis_letters(value)
        causal = None
        if value.causal is not None:
            causal = tuple(
                letters[position]
                for piece in value.causal
                for position, axis in enumerate(value.axes)
                if piece in axis
            )
        barrier = Barrier(
            function.name,
            ("X",),
            function,
            tuple(letters[axis] for axis in over),
            causal=None if causal is None else (causal[0], causal[1]),
        )
        return self.compute(name, Draft((Operand("X", value, letters),), letters, (barrier,)))

    def add(
        self, name: str, terms: Sequence[Value | float], coefficients: Sequence[float]
    ) -> Value:
        """A weighted sum of values and numbers, broadcast against each other."""
        values = [term for term in terms if isinstance(term, Value)]
        letters = iter(trailing(values))
        output = max(trailing(values), key=len)
        drafts = []
        for term, coefficient in zip(terms, coefficients, strict=True):
            if isinstance(term, Value):
                operands = (Operand(_node_name(term), term, next(letters)),)
                drafts.append(Draft(operands, output, coefficient=coefficient, broadcast=output))
            else:
                drafts.append(Draft((), output, coefficient=coefficient * term))
        return self.compute(name, *drafts)

    def multiply(self, name: str, values: Sequence[Value]) -> Value:
        """The product of values entry by entry, broadcast against each other."""
        letters = trailing(values)
        names: list[str] = []
        for value in values:
            names.append(unused(_node_name(value), names))
        operands = tuple(
            Operand(node, v, own) for node, v, own in zip(names, values, letters, strict=True)
        )
        output = max(letters, key=len)
        return self.compute(name, Draft(operands, output, broadcast=output))

    def finished(self, name: str, result: Value) -> Network:
        """The network whose last step is `result`, in exactly its shape."""
        last = self.steps[-1:]
        is_last = [step.name for step in last] == [result.array]
        is_plain = result.stored == result.flat and result.rows is None and result.factor == 1.0
        shapes = [output_shape(diagrams_of(step.body)[0]) for step in last]
        if not (is_last and is_plain and shapes == [result.shape]):
            self._final_copy(result)
        return Network(name, tuple(self.steps))

    def _final_copy(self, result: Value) -> None:
        for axis in range(len(result.axes)):
            result = self.with_whole_axis("output.copy", result, axis)
        letters = axis_letters(result)
        draft = Draft((Operand("X", result, letters),), letters)
        found = self.compute("output", draft)
        if found.factor != 1.0:
            step = self.steps.pop()
            assert not isinstance(step.body, Sum), "one draft makes one diagram"
            self.steps.append(Step(step.name, Sum(step.name, (Term(step.body, found.factor),))))


def _is_masked(operand: Operand, drafts: Sequence[Draft]) -> bool:
    return any(
        operand.name in barrier.members and barrier.causal is not None
        for draft in drafts
        for barrier in draft.barriers
    )


def _node_name(value: Value) -> str:
    return {Role.DATA: "X", Role.CONSTANT: "constant"}.get(value.role, "P")


def _inferred(name: str, entries: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    known = 1
    for size in shape:
        known *= size if size != -1 else 1
    if shape.count(-1) == 1 and known and entries % known == 0:
        return tuple(entries // known if size == -1 else size for size in shape)
    if known != entries or -1 in shape:
        raise SizeError(f"{name}: {entries:,} entries do not fit the shape {shape}.")
    return shape
