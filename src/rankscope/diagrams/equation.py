"""Reading an einsum equation: letters, ellipses and the arrow; every complaint has a position."""

from collections import Counter
from dataclasses import dataclass

from rankscope.errors import EinsumError

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
        found = dict.fromkeys(letter for operand in self.operands for letter in operand)
        return tuple(letter for letter in found if letter != ELLIPSIS)

    @property
    def has_ellipsis(self) -> bool:
        """Whether an operand has an ellipsis."""
        return any(ELLIPSIS in operand for operand in self.operands)


def complaint(text: str, problem: str) -> EinsumError:
    """An error about an equation."""
    return EinsumError(f"Einsum {text!r}: {problem}")


def _tokens(text: str, part: str, start: int) -> list[Token]:
    """What one operand or the output is made of; it begins at position `start` of the text."""
    found: list[Token] = []
    place = 0
    while place < len(part):
        position = start + place
        if part.startswith(ELLIPSIS, place):
            if any(token == ELLIPSIS for token, _ in found):
                raise complaint(text, f"second ellipsis at position {position}; one is allowed.")
            found.append((ELLIPSIS, position))
            place += len(ELLIPSIS)
            continue
        if not part[place].isspace():
            found.append((_letter(text, part[place], position), position))
        place += 1
    return found


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
    raise complaint(text, f"cannot read {character!r} at position {position}; {hint}.")


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
            )
        if seen.setdefault(letter, position) != position:
            raise complaint(
                text,
                f"output letter {letter!r} is repeated (positions {seen[letter]} and {position}); "
                "it may stand once.",
            )
