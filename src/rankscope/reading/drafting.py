"""Views and letters become the steps of a network.

`draw_term` gives names to the pieces that the letters of a draft stand for, and `Drafting` collects
the steps.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import (
    Argument,
    Body,
    Call,
    Reference,
    Step,
    Sum,
    Term,
)
from rankscope.diagrams.parts import Convolution, Function, Index, Node, Region, Role
from rankscope.errors import SizeError, UnsupportedModuleError
from rankscope.reading.drafts import Barrier, Clash, Draft, Letters, Operand, Slide, common_pieces
from rankscope.reading.views import (
    ArrayView,
    Axis,
    Piece,
    guess,
    merged,
    permuted,
    reshaped,
    rows_along,
    size_of,
    whole,
    with_axis,
    with_thin_piece,
)


@dataclass(frozen=True)
class Known:
    """What is known about a call that only moves numbers, is linear in them, or has equations.

    Args:
        operations: additions and multiplications.
        equations: what it computes, in TeX, if it is not linear.
    """

    operations: int = 0
    equations: tuple[str, ...] = ()


@dataclass
class Naming:
    """Names for pieces, the same in all terms of a step."""

    indices: dict[Piece, Index] = field(default_factory=dict)

    def name(self, piece: Piece) -> str:
        """The index that stands for a piece."""
        if piece not in self.indices:
            self.indices[piece] = self._index(piece)
        return self.indices[piece].name

    def _index(self, piece: Piece) -> Index:
        names = {index.name for index in self.indices.values()}
        name = unused(piece.sort.letter, names)
        sizes = {index.symbol: index.size for index in self.indices.values()}
        symbol, primes = piece.sort.symbol, 0
        while sizes.get(symbol, piece.size) != piece.size:
            primes += 1
            symbol = f"{piece.sort.symbol}{primes + 1}"
        label = primed(piece.sort.symbol, primes) if primes else None
        return Index(name, piece.size, symbol, piece.sort.kind, label)


def unused(stem: str, taken: Iterable[str]) -> str:
    """A name that is not taken: the stem, or the stem and the first free number from 2.

    Example:
        >>> unused("f", ["f", "f2"])
        'f3'
    """
    known = taken if isinstance(taken, set | dict) else set(taken)
    name, number = stem, 2
    while name in known:
        name, number = f"{stem}{number}", number + 1
    return name


def primed(symbol: str, count: int) -> str:
    """TeX for a symbol with primes."""
    return symbol + "^{" + r"\prime" * count + "}"


def draw_term(name: str, draft: Draft, pieces: Mapping[str, Axis], naming: Naming) -> Diagram:
    """The diagram of one term; open legs that nothing holds are held by a constant of ones."""
    nodes = tuple(_node(operand, pieces, naming) for operand in draft.operands)
    convolutions = tuple(
        _convolution(f"conv{number}", slide, pieces, naming)
        for number, slide in enumerate(draft.slides, 1)
    )
    output = legs(draft.output, pieces, naming)
    held = [index for part in nodes for index in part.indices]
    held += [convolution.output for convolution in convolutions]
    ones = _ones(draft, pieces, naming, held)
    regions = tuple(_region(barrier, draft, pieces, naming) for barrier in draft.barriers)
    used = dict.fromkeys([*held, *(index for part in ones for index in part.indices)])
    by_name = {index.name: index for index in naming.indices.values()}
    indices = tuple(by_name[name] for name in used)
    return Diagram(name, indices, (*nodes, *ones), output, convolutions, regions)


def _convolution(
    name: str, slide: Slide, pieces: Mapping[str, Axis], naming: Naming
) -> Convolution:
    into, kernel, out = legs((slide.input, slide.kernel, slide.output), pieces, naming)
    return Convolution(
        name,
        into,
        kernel,
        out,
        slide.stride,
        slide.padding,
        slide.dilation,
        slide.padding_mode,
    )


def legs(letters: Letters, pieces: Mapping[str, Axis], naming: Naming) -> tuple[str, ...]:
    """Index names of some letters, in order."""
    return tuple(naming.name(piece) for letter in letters for piece in pieces[letter])


def _node(operand: Operand, pieces: Mapping[str, Axis], naming: Naming) -> Node:
    value = operand.value
    new: dict[Piece, Axis] = {}
    for axis, letter in zip(value.axes, operand.letters, strict=True):
        new |= _cut(axis, pieces[letter])
    indices = tuple(naming.name(piece) for old in value.stored for piece in new[old])
    return Node(
        operand.name,
        indices,
        value.role,
        operand.label,
        value.array if value.role is not Role.CONSTANT else None,
        value.rows,
        value.is_one_hot,
        fill=value.fill,
    )


def _cut(axis: Axis, cut: Axis) -> dict[Piece, Axis]:
    """Which pieces of the common cut stand for each piece of an axis."""
    rest, parts = list(cut), dict[Piece, Axis]()
    for piece in axis:
        taken: list[Piece] = []
        # A piece of size 1 is kept where all have size 1, and dropped where it is broadcast.
        while rest and (piece.size > size_of(taken) or (piece.size == size_of(cut) and not taken)):
            taken.append(rest.pop(0))
        parts[piece] = tuple(taken)
    return parts


def _ones(
    draft: Draft, pieces: Mapping[str, Axis], naming: Naming, held: Sequence[str]
) -> tuple[Node, ...]:
    slid = [letter for slide in draft.slides for letter in (slide.input, slide.kernel)]
    letters = dict.fromkeys((*draft.output, *(x for o in draft.operands for x in o.letters)))
    wanted = legs(tuple(letter for letter in letters if letter not in slid), pieces, naming)
    missing = tuple(index for index in dict.fromkeys(wanted) if index not in held)
    if not missing and draft.operands:
        return ()
    return (Node("ones", missing, Role.CONSTANT, r"\mathbf{1}"),)


def _region(barrier: Barrier, draft: Draft, pieces: Mapping[str, Axis], naming: Naming) -> Region:
    factors = [o.value.factor for o in draft.operands if o.name in barrier.members]
    number = math.prod(factors)
    scale = barrier.scale
    if number != 1.0:
        scale = repr(number) if scale is None else f"{number!r}*{scale}"
    causal = None
    if barrier.causal is not None:
        query, key = legs(barrier.causal, pieces, naming)
        causal = (query, key)
    over = legs(barrier.over, pieces, naming)
    return Region(barrier.name, barrier.members, barrier.function, over, scale, causal)


def axis_letters(value: ArrayView) -> tuple[str, ...]:
    """A letter for every axis, its number."""
    return tuple(str(axis) for axis in range(len(value.axes)))


def trailing(values: Sequence[ArrayView]) -> list[tuple[str, ...]]:
    """Letters for values that are broadcast against each other: axes match from the back."""
    order = max(len(value.axes) for value in values)
    return [tuple(str(n) for n in range(order - len(v.axes), order)) for v in values]


@dataclass
class Drafting:
    """Collects the steps of a network while a module is read.

    `reserved` are the names that no step may have.
    """

    steps: list[Step] = field(default_factory=list)
    reserved: set[str] = field(default_factory=set)
    _narrowed: dict[tuple[ArrayView, int], ArrayView] = field(default_factory=dict)

    def compute(
        self,
        name: str,
        *drafts: Draft,
        known: Mapping[str, Axis] | None = None,
        label: str | None = None,
    ) -> ArrayView:
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
            pieces = common_pieces(drafts, known or {})
            while isinstance(pieces, Clash):
                drafts = self._without_clash(name, drafts, pieces)
                pieces = common_pieces(drafts, known or {})
        except SizeError as error:
            raise SizeError(f"{name}: {error}") from error
        factors = [draft.outer_factor for draft in drafts]
        naming, step_name = Naming(), unused(name, self.reserved)
        diagrams = [draw_term(step_name, draft, pieces, naming) for draft in drafts]
        axes = tuple(pieces[letter] for letter in drafts[0].output)
        if len(diagrams) == 1:
            return replace(self._add(step_name, diagrams[0], axes, label), factor=factors[0])
        terms = tuple(Term(d, factor) for d, factor in zip(diagrams, factors, strict=True))
        return self._add(step_name, Sum(step_name, terms), axes, label)

    def _add(self, name: str, body: Body, axes: tuple[Axis, ...], label: str | None) -> ArrayView:
        self.reserved.add(name)
        self.steps.append(Step(name, body, label))
        stored = tuple(piece for axis in axes for piece in axis)
        thick = next((place for place, piece in enumerate(stored) if piece.size > 1), 0)
        return ArrayView(name, stored, axes, row_entries=size_of(stored[thick + 1 :]))

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

    def call(
        self,
        name: str,
        function: str,
        arguments: Sequence[tuple[str, Any]],
        shapes: Sequence[tuple[int, ...]],
        known: Known | None = None,
    ) -> tuple[ArrayView, ...]:
        """Add a step that calls an operator; views among its arguments are what it takes.

        Args:
            name: the step's name; a number is added if it is taken.
            function: full name of the operator.
            arguments: by name; views alone or in lists.
            shapes: of the arrays it makes.
            known: what is known about it if it is exact; None if it is opaque.
        """
        taken: list[Node] = []
        indices: list[Index] = []

        def given(part: Any) -> Argument:
            if isinstance(part, list | tuple):
                return tuple(given(each) for each in part)
            if not isinstance(part, ArrayView):
                plain: Argument = part
                return plain
            view = self.plain(f"{name}.copy", part)
            indices.append(bundle(f"i{len(taken)}", view.shape))
            stem = {Role.DATA: "X", Role.BUFFER: "C"}.get(view.role, "W")
            node = unused(stem, [node.name for node in taken])
            taken.append(Node(node, (indices[-1].name,), view.role, None, view.array))
            return Reference(node, view.shape)

        written = tuple((key, given(part)) for key, part in arguments)
        made = [bundle(f"o{place}", shape) for place, shape in enumerate(shapes)]
        legs = tuple(index.name for index in (*indices, *made))
        word = function.split(".")[3]
        label = rf"\mathrm{{{word.strip('_').replace('_', chr(92) + ' ')}}}"
        operation = Node("operation", legs, Role.OPERATION, label)
        output = tuple(index.name for index in made)
        step_name = unused(name, self.reserved)
        diagram = Diagram(step_name, (*indices, *made), (*taken, operation), output)
        body = Call(
            step_name,
            function,
            written,
            diagram,
            tuple(shapes),
            known is not None,
            known.operations if known is not None else 0,
            equations=known.equations if known is not None else (),
        )
        step = Step(step_name, body)
        self.reserved.update(step.arrays)
        self.steps.append(step)
        return tuple(
            whole(array, shape, guess(len(shape)), Role.DATA)
            for array, shape in zip(step.arrays, shapes, strict=True)
        )

    def forget(self, count: int) -> None:
        """Take back all steps but the first ones."""
        gone = {name for step in self.steps[count:] for name in step.arrays}
        del self.steps[count:]
        self.reserved -= gone
        self._narrowed = {
            key: copy for key, copy in self._narrowed.items() if copy.array not in gone
        }

    def copied(self, name: str, value: ArrayView) -> ArrayView:
        """The value as an array of its own, stored in the order of its axes."""
        letters = axis_letters(value)
        return self.compute(name, Draft((Operand("X", value, letters),), letters))

    def with_whole_axis(self, name: str, value: ArrayView, axis: int) -> ArrayView:
        """The value with exactly one piece on an axis, copied if there is no other way."""
        if not value.axes[axis]:
            return with_thin_piece(value, axis)
        result = merged(value, axis)
        if result is None:
            result = merged(self.copied(name, value), axis)
        assert result is not None, "a copy is stored in the order of its axes"
        return result

    def reshape(self, name: str, value: ArrayView, shape: Sequence[int]) -> ArrayView:
        """The value in another shape; one size may be -1.

        Raises:
            SizeError: if the number of entries differs.
        """
        wanted = _inferred(name, size_of(value.flat), tuple(shape))
        result = reshaped(value, wanted)
        if result is None:
            result = reshaped(self.copied(name, value), wanted)
        assert result is not None, "a copy is stored in the order of its axes"
        return result

    def narrow(self, name: str, value: ArrayView, axis: int, span: tuple[int, int]) -> ArrayView:
        """Positions `start` to `stop` of one axis, read as rows of the array."""
        start, stop = span
        if (start, stop) == (0, value.shape[axis]):
            return value
        if value.axes[axis] and value.axes[axis][0] not in value.stored:
            piece = Piece(stop - start, value.axes[axis][0].sort)
            return replace(value, axes=with_axis(value.axes, axis, (piece,)))
        result = rows_along(value, axis, span)
        if result is None:
            result = rows_along(self._stored_first(name, value, axis), axis, span)
        assert result is not None, "the axis is now stored first"
        return result

    def _stored_first(self, name: str, value: ArrayView, axis: int) -> ArrayView:
        """A copy whose array starts with an axis; the parts of one axis share a copy."""
        if (value, axis) not in self._narrowed:
            order = [axis, *(other for other in range(len(value.axes)) if other != axis)]
            back = [order.index(position) for position in range(len(order))]
            whole = self.with_whole_axis(name, value, axis)
            copy = self.copied(name, permuted(whole, order))
            self._narrowed[(value, axis)] = permuted(copy, back)
        return self._narrowed[(value, axis)]

    def apply(
        self, name: str, function: Function, value: ArrayView, over: Sequence[int] = ()
    ) -> ArrayView:
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
        self, name: str, terms: Sequence[ArrayView | float], coefficients: Sequence[float]
    ) -> ArrayView:
        """A weighted sum of values and numbers, broadcast against each other."""
        values = [term for term in terms if isinstance(term, ArrayView)]
        letters = iter(trailing(values))
        output = max(trailing(values), key=len)
        drafts = []
        for term, coefficient in zip(terms, coefficients, strict=True):
            if isinstance(term, ArrayView):
                operands = (Operand(_node_name(term), term, next(letters)),)
                drafts.append(Draft(operands, output, coefficient=coefficient, broadcast=output))
            else:
                drafts.append(Draft((), output, coefficient=coefficient * term))
        return self.compute(name, *drafts)

    def multiply(self, name: str, values: Sequence[ArrayView]) -> ArrayView:
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

    def plain(self, name: str, value: ArrayView) -> ArrayView:
        """The value as an array of its own or as one that is stored just so, copied if it is not.

        Reading the array of the result in the result's shape gives the value.
        """
        return value if value.is_plain else self.whole_copy(name, value)

    def whole_copy(self, name: str, value: ArrayView) -> ArrayView:
        """The value as an array of its own with one leg for each axis."""
        for axis in range(len(value.axes)):
            value = self.with_whole_axis(name, value, axis)
        letters = axis_letters(value)
        copy = self.compute(name, Draft((Operand("X", value, letters),), letters))
        if copy.factor != 1.0:
            step = self.steps.pop()
            assert isinstance(step.body, Diagram), "one draft makes one diagram"
            self.steps.append(Step(step.name, Sum(step.name, (Term(step.body, copy.factor),))))
        return replace(copy, factor=1.0)


def bundle(name: str, shape: tuple[int, ...]) -> Index:
    """One leg for all axes of an array."""
    size = math.prod(shape)
    label = r"\,{\cdot}\,".join(map(str, shape)) or "1"
    return Index(name, size or None, label=label)


def _is_masked(operand: Operand, drafts: Sequence[Draft]) -> bool:
    return any(
        operand.name in barrier.members and barrier.causal is not None
        for draft in drafts
        for barrier in draft.barriers
    )


def _node_name(value: ArrayView) -> str:
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
