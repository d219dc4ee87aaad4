r"""TeX labels as ordinary text: for screen readers, and for pictures with selectable labels.

Covers what labels of diagrams are made of (letters, fonts, scripts, Greek, roots, common signs).
Reading aloud never fails: an unknown command is read by its name. Drawing as text refuses it.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rankscope.errors import DiagramError

SYMBOLS: dict[str, str] = {
    "cdot": "·", "times": "×", "otimes": "⊗", "oplus": "⊕", "odot": "⊙", "ast": "∗", "star": "⋆",
    "circ": "∘", "bullet": "•", "pm": "±", "leq": "≤", "geq": "≥", "neq": "≠", "approx": "≈",
    "equiv": "≡", "sim": "∼", "in": "∈", "infty": "∞", "sum": "∑", "prod": "∏", "int": "∫",
    "partial": "∂", "nabla": "∇", "ldots": "…", "cdots": "⋯", "dots": "…", "to": "→",
    "rightarrow": "→", "leftarrow": "←", "mapsto": "↦", "top": "⊤", "bot": "⊥", "dagger": "†",
    "prime": "′", "ell": "ℓ", "langle": "⟨", "rangle": "⟩", "mid": "|", "parallel": "∥",
    "vert": "|", "Vert": "‖", "|": "‖", "{": "{", "}": "}", "%": "%", "$": "$", "#": "#",
    "&": "&", "_": "_", "varepsilon": "ε", "epsilon": "ϵ", "varphi": "φ", "phi": "ϕ",
    "vartheta": "ϑ", "varrho": "ϱ", "varsigma": "ς", "varpi": "ϖ", "lambda": "λ", "Lambda": "Λ",
    ",": "\u2009", ":": "\u2009", ";": "\u2005", " ": " ", "!": "", "quad": " ", "qquad": "  ",
    "left": "", "right": "", "displaystyle": "", "textstyle": "",
}  # fmt: skip
FONTS: dict[str, str] = {
    "mathbf": "bold", "mathrm": "upright", "mathcal": "script", "mathscr": "script",
    "mathit": "italic", "mathbb": "double-struck", "mathfrak": "fraktur", "mathsf": "upright",
    "mathtt": "monospace", "mathdefault": "italic", "mathregular": "upright",
    "mathnormal": "italic", "text": "upright", "operatorname": "upright", "boldsymbol": "bold",
}  # fmt: skip
ACCENTS: dict[str, str] = {
    "hat": "\u0302", "widehat": "\u0302", "tilde": "\u0303", "widetilde": "\u0303",
    "bar": "\u0304", "overline": "\u0305", "vec": "\u20d7", "dot": "\u0307", "ddot": "\u0308",
}  # fmt: skip
NAMED_FUNCTIONS = (
    "arg", "cos", "cosh", "det", "dim", "exp", "ker", "lim", "ln", "log", "max", "min", "sin",
    "sinh", "sup", "inf", "tan", "tanh",
)  # fmt: skip
ALPHABETS = ("script", "double-struck", "fraktur", "monospace")
_TOKEN = re.compile(r"\\(?:[A-Za-z]+|.)|.", re.DOTALL)
_DOLLAR = re.compile(r"(?<!\\)\$")


@dataclass(frozen=True)
class Run:
    """Text of one font ("italic", "bold" or "upright") at one height.

    Args:
        text: what is written.
        font: how.
        level: how deep in scripts.
        shift: how far above the baseline, in sizes of the label.
        sign: "_" or "^" where a script begins.
    """

    text: str
    font: str = "italic"
    level: int = 0
    shift: float = 0.0
    sign: str = ""


def plain_text(label: str) -> str:
    r"""A label as it may be read aloud; fonts are not told.

    Example:
        >>> plain_text(r"$\mathcal{W}^{\,Q}$")
        'W^Q'
        >>> plain_text(r"$\mathrm{softmax}_M(\cdot/\sqrt{D})$")
        'softmax_M(·/√D)'
    """
    runs = _read(label, is_strict=False)
    told = [run.sign + run.text for run in runs if run.text.strip() or not run.level]
    return " ".join(unicodedata.normalize("NFKC", "".join(told)).split())


def text_runs(label: str) -> tuple[Run, ...]:
    r"""A label as pieces of text to be set one after the other.

    Example:
        >>> [(run.text, run.font, run.level) for run in text_runs(r"$R_{17}$")]
        [('R', 'italic', 0), ('17', 'upright', 1)]

    Raises:
        DiagramError: if a command has no character of its own.
    """
    merged: list[Run] = []
    for run in _read(label, is_strict=True):
        if (
            merged
            and not run.sign
            and replace(merged[-1], text="", sign="") == replace(run, text="")
        ):
            merged[-1] = replace(merged[-1], text=merged[-1].text + run.text)
        else:
            merged.append(run)
    return tuple(merged)


def _read(label: str, *, is_strict: bool) -> list[Run]:
    pieces = _DOLLAR.split(label)
    if len(pieces) % 2 == 0 or len(pieces) == 1:
        # As mathtext has it: without a pair of dollars there is no mathematics.
        return [Run(label.replace(r"\$", "$"), "upright")]
    runs: list[Run] = []
    for place, piece in enumerate(pieces):
        if place % 2:
            runs += _Reader(label, piece, is_strict=is_strict).group(Run(""))
        elif piece:
            runs.append(Run(piece.replace(r"\$", "$"), "upright"))
    return runs


class _Reader:
    """Walks once over the tokens of one formula."""

    def __init__(self, label: str, formula: str, *, is_strict: bool) -> None:
        self._label = label
        self._tokens = _TOKEN.findall(formula)
        self._place = 0
        self._is_strict = is_strict

    def group(self, style: Run) -> list[Run]:
        """Everything up to the closing brace, or the end."""
        runs: list[Run] = []
        while self._place < len(self._tokens):
            if self._peek() == "}":
                self._place += 1
                break
            runs += self._atom(style)
        return runs

    def _peek(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _atom(self, style: Run) -> list[Run]:
        token = self._peek()
        self._place += 1
        if token in ("{", "_", "^"):
            return self.group(style) if token == "{" else self._script(token, style)
        if token.startswith("\\") and len(token) > 1:
            return self._command(token[1:], style)
        character = {"'": "′", " ": "", "": ""}.get(token, token)
        return [_set(character, style)] if character else []

    def _script(self, sign: str, style: Run) -> list[Run]:
        rise = (0.38 if sign == "^" else -0.18) * 0.7**style.level
        runs = self._atom(replace(style, level=style.level + 1, shift=style.shift + rise))
        begin = next((place for place, run in enumerate(runs) if run.text.strip()), None)
        if begin is not None:
            runs[begin] = replace(runs[begin], sign=sign)
        return runs

    def _command(self, name: str, style: Run) -> list[Run]:
        if name in FONTS:
            self._skip_spaces()
            return self._atom(replace(style, font=FONTS[name]))
        if name in ACCENTS:
            *before, last = self._atom(style) or [_set(" ", style)]
            return [*before, replace(last, text=last.text + ACCENTS[name])]
        if name in ("sqrt", "frac"):
            above = _bracketed(self._atom(style), style) if name == "frac" else []
            sign = _set("/" if name == "frac" else "√", style)
            return [*above, sign, *_bracketed(self._atom(style), style)]
        return self._sign(name, style)

    def _sign(self, name: str, style: Run) -> list[Run]:
        if name in NAMED_FUNCTIONS:
            return [replace(style, text=name, font="upright")]
        found = SYMBOLS.get(name) or _greek(name)
        if found is None and name not in SYMBOLS:
            if self._is_strict:
                raise DiagramError(
                    f"Label {self._label!r} holds \\{name}, which has no character of its own; "
                    "draw labels as outlines."
                )
            found = f" {name} "
        return [_set(found, style)] if found else []

    def _skip_spaces(self) -> None:
        while self._peek() == " ":
            self._place += 1


def _set(text: str, style: Run) -> Run:
    """Text in a style; letters of an alphabet of their own become its characters."""
    if style.font in ALPHABETS:
        return replace(style, text=_alphabet(text, style.font), font="upright")
    font = style.font if style.font != "italic" or text.isalpha() else "upright"
    return replace(style, text=text, font=font)


def _alphabet(letter: str, font: str) -> str:
    if not (letter.isascii() and letter.isalnum()):
        return letter
    case = "CAPITAL" if letter.isupper() else "SMALL"
    # Letters that were in Unicode before the alphabet came have names of their own.
    for name in (f"MATHEMATICAL {font} {case} {letter}", f"{font} {case} {letter}"):
        for spelled in (name, name.replace("fraktur", "black-letter")):
            try:
                return unicodedata.lookup(spelled.upper())
            except KeyError:
                continue
    return letter


def _greek(name: str) -> str | None:
    case = "CAPITAL" if name[:1].isupper() else "SMALL"
    try:
        return unicodedata.lookup(f"GREEK {case} LETTER {name.upper()}")
    except KeyError:
        return None


def _bracketed(runs: Iterable[Run], style: Run) -> list[Run]:
    found = list(runs)
    if sum(len(run.text.strip()) for run in found) <= 1:
        return found
    return [_set("(", style), *found, _set(")", style)]
