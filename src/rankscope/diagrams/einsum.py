"""Convert einsum strings to diagrams and back."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope.diagrams.diagram import Diagram, check_size
from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.diagrams.sizes import letters
from rankscope.errors import EinsumError, SizeError

# --- Reading an einsum equation: letters, ellipses and the arrow; every complaint has a position


ELLIPSIS = "..."

# A letter or an ellipsis, and where it stands in the equation.
Token = tuple[str, int]


@dataclass(frozen=True)
class Equation:
    """An einsum equation in parts; an ellipsis is kept as "..." among the letters.

    Example:
        >>> Equation.read("ij, jk")
        Equation(text='ij, jk', operands=(('i', 'j'), ('j', 'k')), output=('i', 'k'))
    """

    text: str
    operands: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> "Equation":
        """Split a text; without an arrow, the output is what NumPy makes it.

        Raises:
            EinsumError: if the text cannot be read, or an output letter is repeated or on no
                operand.
        """
        left, arrow, right = text.partition("->")
        operands = []
        start = 0
        for part in left.split(","):
            operands.append(tuple(token for token, _ in _tokens(text, part, start)))
            start += len(part) + 1
        if not arrow:
            return cls(text, tuple(operands), _implicit_output(operands))
        output = _tokens(text, right, len(left) + len(arrow))
        _check_output(text, operands, output)
        return cls(text, tuple(operands), tuple(token for token, _ in output))

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters of the operands, each once, in order of appearance."""
        letters = dict.fromkeys(letter for operand in self.operands for letter in operand)
        return tuple(letter for letter in letters if letter != ELLIPSIS)

    @property
    def has_ellipsis(self) -> bool:
        """Whether an operand has an ellipsis."""
        return any(ELLIPSIS in operand for operand in self.operands)


def complaint(text: str, problem: str, position: int | None = None) -> EinsumError:
    """An error about an equation, and the letter that is at fault."""
    error = EinsumError(f"Einsum {text!r}: {problem}")
    error.position = position
    return error


def _tokens(text: str, part: str, start: int) -> list[Token]:
    """What one operand or the output is made of; it begins at position `start` of the text."""
    tokens: list[Token] = []
    place = 0
    while place < len(part):
        position = start + place
        if part.startswith(ELLIPSIS, place):
            if any(token == ELLIPSIS for token, _ in tokens):
                problem = f"second ellipsis at position {position}; one is allowed."
                raise complaint(text, problem, position)
            tokens.append((ELLIPSIS, position))
            place += len(ELLIPSIS)
            continue
        if not part[place].isspace():
            tokens.append((_letter(text, part[place], position), position))
        place += 1
    return tokens


def _letter(text: str, character: str, position: int) -> str:
    if character.isalpha():
        return character
    hints = {
        ".": "an ellipsis is three dots",
        "-": "the arrow is written '->', once",
        ">": "the arrow is written '->', once",
        ",": "the output is one group of letters",
    }
    hint = hints.get(character, "indices are letters")
    problem = f"cannot read {character!r} at position {position}; {hint}."
    raise complaint(text, problem, position)


def _implicit_output(operands: list[tuple[str, ...]]) -> tuple[str, ...]:
    counts = Counter(letter for operand in operands for letter in operand)
    ellipsis = (ELLIPSIS,) if counts.pop(ELLIPSIS, 0) else ()
    return (*ellipsis, *sorted(letter for letter, number in counts.items() if number == 1))


def _check_output(text: str, operands: list[tuple[str, ...]], output: list[Token]) -> None:
    on_operands = dict.fromkeys(letter for operand in operands for letter in operand)
    seen: dict[str, int] = {}
    for letter, position in output:
        if letter != ELLIPSIS and letter not in on_operands:
            known = ", ".join(name for name in on_operands if name != ELLIPSIS) or "none"
            raise complaint(
                text,
                f"output letter {letter!r} is on no operand (position {position}); "
                f"the operands have: {known}.",
                position,
            )
        if seen.setdefault(letter, position) != position:
            raise complaint(
                text,
                f"output letter {letter!r} is repeated (positions {seen[letter]} and {position}); "
                "it may stand once.",
                position,
            )


Shapes = Sequence[Sequence[int]]


def from_einsum(
    equation: str,
    *,
    shapes: Shapes | None = None,
    sizes: Mapping[str, int] | None = None,
    parameters: Collection[int] = (),
    names: Sequence[str] | None = None,
    name: str | None = None,
) -> Diagram:
    """Read an equation as NumPy, PyTorch and opt_einsum write it.

    An ellipsis becomes the batch indices batch1, batch2, …, which needs `shapes`; a size of 1
    there is repeated along the other operands, as in NumPy.

    Args:
        equation: for example "ij,jk->ik", with any letters; without an arrow the output is the
            letters that stand once, in alphabetical order.
        shapes: one per operand.
        sizes: of letters.
        parameters: positions (from 0) of the operands that are learned; the others are data.
        names: of the operands, by default A, B, C, ….
        name: of the diagram, by default "einsum".

    Example:
        >>> from_einsum("ij,jk->ik", sizes={"j": 3}).nodes[1].indices
        ('j', 'k')

    Raises:
        EinsumError: if the equation cannot be read, or the arguments do not fit it.
        SizeError: if a letter has two sizes, or one that is not a positive integer.
    """
    read = Equation.read(equation)
    node_names = _node_names(read, names)
    _check_parameters(read, parameters)
    _check_shapes(read, node_names, shapes)
    read = _without_ellipsis(read, node_names, shapes)
    known = _sizes(read, node_names, shapes, sizes or {})
    nodes = tuple(
        Node(
            node_name,
            held,
            Role.PARAMETER if place in parameters else Role.DATA,
            _node_label(node_name),
        )
        for place, (node_name, held) in enumerate(zip(node_names, read.operands, strict=True))
    )
    indices = tuple(_index(letter, known.get(letter)) for letter in read.letters)
    return Diagram(name or "einsum", indices, nodes, read.output, title=equation)


def to_einsum(diagram: Diagram) -> str:
    """Write a diagram as one equation; names of one letter (a-z, A-Z) are kept.

    Example:
        >>> to_einsum(from_einsum("ij, jk"))
        'ij,jk->ik'

    Raises:
        EinsumError: if it has regions, convolutions, or no nodes.
    """
    for region in diagram.regions:
        raise EinsumError(
            f"Diagram {diagram.name!r} has the region {region.name!r} ({region.function.name}), "
            "which one einsum cannot hold; use einsum_program for one line per region."
        )
    for convolution in diagram.convolutions:
        raise EinsumError(
            f"Diagram {diagram.name!r} has the convolution {convolution.name!r}, which an einsum "
            "cannot hold; use to_source or to_module."
        )
    if not diagram.nodes:
        raise EinsumError(f"Diagram {diagram.name!r} has no nodes, an einsum needs at least one.")
    letter = letters(index for node in diagram.nodes for index in node.indices)
    operands = ("".join(letter[index] for index in node.indices) for node in diagram.nodes)
    return f"{','.join(operands)}->{''.join(letter[index] for index in diagram.output)}"


def _node_names(equation: Equation, names: Sequence[str] | None) -> tuple[str, ...]:
    wanted = len(equation.operands)
    if names is None:
        rounds = (divmod(place, 26) for place in range(wanted))
        return tuple(chr(ord("A") + letter) + (str(lap) if lap else "") for lap, letter in rounds)
    if len(names) != wanted:
        raise complaint(equation.text, f"{wanted} operands but {len(names)} names, {list(names)}.")
    return tuple(names)


def _node_label(node_name: str) -> str:
    """Bold, with a trailing number as a subscript."""
    match = re.fullmatch(r"([^\W\d_])(\d+)", node_name)
    if match:
        return rf"\mathbf{{{match[1]}}}_{{{match[2]}}}"
    escaped = node_name.replace("_", r"\_")
    return rf"\mathbf{{{escaped}}}"


def _check_parameters(equation: Equation, parameters: Collection[int]) -> None:
    for position in parameters:
        if not 0 <= position < len(equation.operands):
            raise complaint(
                equation.text,
                f"no operand {position} to mark as a parameter; "
                f"they are counted from 0 to {len(equation.operands) - 1}.",
            )


def _check_shapes(equation: Equation, node_names: Sequence[str], shapes: Shapes | None) -> None:
    if shapes is None:
        return
    if len(shapes) != len(equation.operands):
        raise complaint(
            equation.text, f"{len(equation.operands)} operands but {len(shapes)} shapes."
        )
    for place, (held, shape) in enumerate(zip(equation.operands, shapes, strict=True)):
        num_letters = len(held) - held.count(ELLIPSIS)
        if len(shape) < num_letters or (len(shape) > num_letters and ELLIPSIS not in held):
            raise complaint(
                equation.text,
                f"operand {place} ({node_names[place]}) is {''.join(held)!r}, "
                f"{num_letters} letters, but its shape {tuple(shape)} has order {len(shape)}.",
            )


def _without_ellipsis(
    equation: Equation, node_names: Sequence[str], shapes: Shapes | None
) -> Equation:
    """Replace each ellipsis by batch indices, the last ones if it stands for fewer."""
    if shapes is None:
        if equation.has_ellipsis:
            raise complaint(
                equation.text,
                f"the ellipsis at position {equation.text.index(ELLIPSIS)} stands for as many "
                "indices as the shapes say; give shapes, or write letters.",
                equation.text.index(ELLIPSIS),
            )
        covered: list[tuple[int, ...]] = [() for _ in equation.operands]
    else:
        covered = [_ellipsis_sizes(*pair) for pair in zip(equation.operands, shapes, strict=True)]
    batch = [f"batch{place + 1}" for place in range(max(map(len, covered)))]
    operands = []
    for node_name, held, sizes in zip(node_names, equation.operands, covered, strict=True):
        stretch = [
            # An index of its own, of size 1 and summed, is what repeating along a batch means.
            f"{name}_{node_name}" if size == 1 and _is_long(covered, place) else name
            for place, (name, size) in enumerate(zip(batch[::-1], sizes[::-1], strict=False))
        ]
        operands.append(_replace_ellipsis(held, stretch[::-1]))
    return replace(
        equation, operands=tuple(operands), output=_replace_ellipsis(equation.output, batch)
    )


def _ellipsis_sizes(letters: tuple[str, ...], shape: Sequence[int]) -> tuple[int, ...]:
    """The sizes that an operand's ellipsis stands for."""
    if ELLIPSIS not in letters:
        return ()
    start = letters.index(ELLIPSIS)
    return tuple(shape)[start : start + len(shape) - len(letters) + 1]


def _is_long(covered: list[tuple[int, ...]], place: int) -> bool:
    """Whether some operand has more than one entry there, counted from the last batch index."""
    return any(sizes[-1 - place] != 1 for sizes in covered if len(sizes) > place)


def _replace_ellipsis(letters: tuple[str, ...], batch: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        name for letter in letters for name in (batch if letter == ELLIPSIS else (letter,))
    )


def _sizes(
    equation: Equation,
    node_names: Sequence[str],
    shapes: Shapes | None,
    sizes: Mapping[str, int],
) -> dict[str, int]:
    known: dict[str, tuple[int, str]] = {}
    for letter, size in sizes.items():
        if letter not in equation.letters:
            letters = ", ".join(equation.letters) or "none"
            raise SizeError(
                f"Einsum {equation.text!r}: a size for {letter!r}, which is on no operand; "
                f"the operands have: {letters}."
            )
        known[letter] = (check_size(f"letter {letter!r}", size), "in sizes")
    for operand, shape in enumerate(shapes or ()):
        for place, (letter, size) in enumerate(zip(equation.operands[operand], shape, strict=True)):
            where = f"on operand {operand} ({node_names[operand]}), position {place}"
            check_size(f"letter {letter!r} {where}", size)
            first, origin = known.setdefault(letter, (size, where))
            if first != size:
                raise SizeError(
                    f"Einsum {equation.text!r}: letter {letter!r} has two sizes: {first} {origin}, "
                    f"and {size} {where}."
                )
    return {letter: size for letter, (size, _) in known.items()}


def _index(name: str, size: int | None) -> Index:
    if len(name) == 1:
        return Index(name, size)
    number = re.fullmatch(r"batch(\d+)", name)
    # An index that only repeats one operand has size 1, and says so.
    label = rf"B_{{{number[1]}}}" if number else "1"
    return Index(name, size, kind=IndexKind.BATCH, label=label)
