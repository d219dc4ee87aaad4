"""Setting TeX mathematics in STIX through matplotlib, as fast as its parser allows.

Parsing one label takes mathtext milliseconds, and a long tensor train has hundreds that differ in
their numbers only. The digits of a STIX font are equally wide and not kerned, so a number may be
swapped for another of the same length without moving anything, unless something is measured by
its height or depth (a root, an accent, a script on the number, a sub- under a superscript). Labels
of the safe kind are parsed once, with zeros; their own digits are put in afterwards.

Mathtext rounds the height of a label up to whole units, which moves its baseline by up to 1 % of
the size; here the baseline is at zero, so that labels of a row stand level. Primes are set once
raised, not twice.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from rankscope.drawing.scene import Box, Command, Label, Outline, union
from rankscope.errors import DiagramError, MissingExtraError, printable

# Matplotlib is optional and slow to import, and the texts of labels are needed without it.
if TYPE_CHECKING:
    from matplotlib.path import Path

DIGITS = "0123456789"
MOST_LAYOUTS = 16384  # that are kept
DIGIT_FONTS = (r"\mathrm", r"\mathbf", r"\mathit")
# Only commands that never measure what stands beside or inside them.
_SAFE = re.compile(
    r"(?:[\w ,.:;=+/()\[\]{}^$-]"
    r"|\\(?:[,!:;_ ]|(?:prime|mathbf|mathrm|mathcal|mathit|times|cdot"
    r"|alpha|beta|gamma|delta|lambda|mu|sigma|theta|Sigma|Lambda|Theta)(?![A-Za-z])))*",
    re.ASCII,
)
_DOLLAR = re.compile(r"(?<!\\)\$")
_PRIME = re.compile(r"'+|\^\\prime(?![A-Za-z])|\^\{(?:\\prime *)+\}")
_SCRIPT_AFTER_NUMBER = re.compile(r"[0-9].*[_^]")


@dataclass(frozen=True)
class Placed:
    """A glyph or a rule on the line: where its origin is, and by how much it is scaled."""

    glyph: str
    x: float
    y: float
    scale: float


@dataclass(frozen=True)
class Layout:
    """A label at the design size, y up, the baseline at zero: glyphs, and boxes of rules."""

    glyphs: tuple[Placed, ...]
    rules: tuple[Box, ...]


# Mathtext is not made for several threads, whichever typesetter they use.
_PARSING = Lock()


@lru_cache(maxsize=1)
def typesetter() -> "Typesetter":
    """The one that remembers what it has set before."""
    return Typesetter()


class Typesetter:
    """Sets labels, and keeps the glyphs and the layouts that it needed."""

    def __init__(self) -> None:
        from matplotlib.font_manager import FontProperties
        from matplotlib.textpath import TextToPath

        # The font is passed, never set globally: importing us must not change anyone's figures.
        self._font = FontProperties(family="STIXGeneral", math_fontfamily="stix")
        self._engine = TextToPath()
        self._paths: dict[str, Path] = {}
        self._glyphs: dict[str, Outline] = {}
        self._layouts: dict[str, Layout] = {}
        self._digits: dict[str, str] = {}

    def typeset(self, text: str, size: float) -> Outline:
        """The outline of a label.

        Raises:
            ValueError: if mathtext cannot read it.
        """
        from matplotlib.cbook import is_math_text
        from matplotlib.textpath import TextPath

        if not is_math_text(text):
            return _outline(TextPath((0, 0), text, size=size, prop=self._font))
        layout = self.layout(full_primes(text))
        share = size / self._engine.FONT_SCALE
        commands: list[Command] = []
        boxes: list[Box] = []
        for placed in layout.glyphs:
            glyph = self._glyph(placed.glyph)
            commands += _transform(glyph.commands, placed, share)
            boxes += [_moved_box(glyph.box, placed, share)] if glyph.commands else []
        for left, low, right, high in layout.rules:
            box = (left * share, -high * share, right * share, -low * share)
            commands += _rule(box)
            boxes.append(box)
        return Outline(tuple(commands), union(boxes))

    def layout(self, text: str) -> Layout:
        """Where the glyphs of a label stand; numbers of safe labels are swapped in."""
        if not is_swappable(text):
            return self._parsed(text)
        layout = self._parsed(re.sub("[0-9]", "0", text))
        wanted = [character for character in text if character in DIGITS]
        zeros = [placed for placed in layout.glyphs if self._is_zero(placed.glyph)]
        if len(zeros) != len(wanted):
            # A font without zeros of its own drew them as something else.
            return self._parsed(text)
        digits = iter(wanted)
        glyphs = tuple(
            Placed(self._digits[placed.glyph + next(digits)], placed.x, placed.y, placed.scale)
            if self._is_zero(placed.glyph)
            else placed
            for placed in layout.glyphs
        )
        return Layout(glyphs, layout.rules)

    def _parsed(self, text: str) -> Layout:
        layout = self._layouts.get(text)
        if layout is None:
            if len(self._layouts) >= MOST_LAYOUTS:
                self._layouts.clear()
            layout = self._layouts[text] = self.parse(text)
        return layout

    def parse(self, text: str) -> Layout:
        """Let mathtext set a label."""
        from matplotlib.path import Path

        # The full stop stands on the baseline, which mathtext does not tell otherwise.
        with _PARSING:
            glyphs, paths, rectangles = self._engine.get_glyphs_mathtext(self._font, text + ".")
        for name, (vertices, codes) in paths.items():
            self._paths.setdefault(name, Path(vertices, codes))
        *others, (_, _, baseline, _) = glyphs
        return Layout(
            tuple(
                Placed(name, float(x), float(y - baseline), float(scale))
                for name, x, y, scale in others
            ),
            tuple(_rectangle_box(vertices, float(baseline)) for vertices, _ in rectangles),
        )

    def _is_zero(self, glyph: str) -> bool:
        if not self._digits:
            digits: dict[str, str] = {}
            for font in DIGIT_FONTS:
                names = [placed.glyph for placed in self.parse(f"${font}{{{DIGITS}}}$").glyphs]
                digits |= {
                    names[0] + digit: name for digit, name in zip(DIGITS, names, strict=True)
                }
            self._digits = digits  # at once: other threads read it
        return glyph + "0" in self._digits

    def _glyph(self, name: str) -> Outline:
        if name not in self._glyphs:
            self._glyphs[name] = _outline(self._paths[name])
        return self._glyphs[name]


def full_primes(text: str) -> str:
    r"""Write primes as the character, which STIX has already raised and made small.

    Mathtext sets it as a superscript, smaller and higher once more, so that it can hardly be seen.

    Example:
        >>> full_primes("$H'$"), full_primes(r"it's $W^{\prime}$")
        ('$H\\prime $', "it's $W\\prime $")
    """
    pieces = _DOLLAR.split(text)
    for place in range(1, len(pieces), 2):
        pieces[place] = _PRIME.sub(_raised_already, pieces[place])
    return "$".join(pieces)


def _raised_already(match: re.Match[str]) -> str:
    count = match[0].count("'") + match[0].count("prime")
    return r"\prime " * count


def is_swappable(text: str) -> bool:
    r"""Whether the numbers of a label may be swapped without moving anything.

    Example:
        >>> is_swappable(r"$\mathcal{G}_{17}$"), is_swappable(r"$\sqrt{17}$")
        (True, False)
    """
    has_both_scripts = "_" in text and "^" in text
    return (
        any(digit in text for digit in DIGITS)
        and not has_both_scripts
        and _SCRIPT_AFTER_NUMBER.search(text) is None
        and _SAFE.fullmatch(text) is not None
    )


def _outline(path: "Path") -> Outline:
    """Commands and box of a matplotlib path, y turned down."""
    if len(np.asarray(path.vertices)) == 0:
        return Outline((), (0.0, 0.0, 0.0, 0.0))
    letters = {path.MOVETO: "M", path.LINETO: "L", path.CURVE3: "Q", path.CURVE4: "C"}
    commands: list[Command] = []
    for points, code in path.iter_segments(simplify=False, curves=True):
        if code == path.CLOSEPOLY:
            commands.append(("Z", ()))
            continue
        flipped = [
            -float(value) if place % 2 else float(value) for place, value in enumerate(points)
        ]
        commands.append((letters[code], tuple(flipped)))
    extents = path.get_extents()
    box = (float(extents.x0), -float(extents.y1), float(extents.x1), -float(extents.y0))
    return Outline(tuple(commands), box)


def _transform(commands: tuple[Command, ...], placed: Placed, share: float) -> Iterator[Command]:
    scale, x, y = placed.scale, placed.x, -placed.y
    for letter, values in commands:
        moved = [0.0] * len(values)
        moved[::2] = [(value * scale + x) * share for value in values[::2]]
        moved[1::2] = [(value * scale + y) * share for value in values[1::2]]
        yield (letter, tuple(moved))


def _moved_box(box: Box, placed: Placed, share: float) -> Box:
    scale, x, y = placed.scale, placed.x, placed.y
    left, top, right, bottom = box
    return (
        (left * scale + x) * share,
        (top * scale - y) * share,
        (right * scale + x) * share,
        (bottom * scale - y) * share,
    )


def _rectangle_box(vertices: Sequence[tuple[float | int, float | int]], baseline: float) -> Box:
    # The last vertex only closes the path, and is a pair of integers.
    across = [float(x) for x, _ in vertices[:-1]]
    up = [float(y) - baseline for _, y in vertices[:-1]]
    return (min(across), min(up), max(across), max(up))


def _rule(box: Box) -> list[Command]:
    left, top, right, bottom = box
    return [
        ("M", (left, bottom)),
        ("L", (left, top)),
        ("L", (right, top)),
        ("L", (right, bottom)),
        ("L", (left, bottom)),
        ("Z", ()),
    ]


# --- TeX mathematics as outlines, with exact boxes: the one place that measures text --------------


@lru_cache(maxsize=16384)
def outline(text: str, size: float) -> Outline:
    r"""Turn a line of TeX (mathematics between dollars) into an outline.

    Raises:
        DiagramError: if matplotlib's mathtext cannot read the text.
        MissingExtraError: if matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise MissingExtraError(what="Drawing labels", package="matplotlib", extra="draw")
    try:
        return typesetter().typeset(text, size)
    except (ValueError, RecursionError) as error:
        raise DiagramError(
            f"Label '{printable(text)}' is not TeX that mathtext can read."
        ) from error


def text_width(text: str, size: float) -> float:
    """Width of the ink."""
    box = outline(text, size).box
    return box[2] - box[0]


def place_label(
    text: str, point: tuple[float, float], *, size: float, style: str, anchor: str = "mm"
) -> Label:
    """A label with `anchor` at a point: l, m or r, then t, m, b or c.

    "c" centres capitals on their own height, so that a superscript does not push them down.
    """
    left, top, right, bottom = outline(text, size).box
    dx = {"l": -left, "m": -(left + right) / 2, "r": -right}[anchor[0]]
    dy = {
        "t": -top,
        "m": -(top + bottom) / 2,
        "b": -bottom,
        "c": -(0.72 * _capital_middle(size) + 0.28 * (top + bottom) / 2),
    }[anchor[1]]
    x, y = point[0] + dx, point[1] + dy
    return Label(text, x, y, size, style, (x + left, y + top, x + right, y + bottom))


def _capital_middle(size: float) -> float:
    _, top, _, bottom = outline("$X$", size).box
    return (top + bottom) / 2


# --- TeX labels as ordinary text: for screen readers, and for pictures with selectable labels -----


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
    r"""A label as it may be read aloud; fonts are left out.

    Example:
        >>> plain_text(r"$\mathcal{W}^{\,Q}$")
        'W^Q'
        >>> plain_text(r"$\mathrm{softmax}_M(\cdot/\sqrt{D})$")
        'softmax_M(·/√D)'
    """
    runs = _read(label, is_strict=False)
    texts = [run.sign + run.text for run in runs if run.text.strip() or not run.level]
    return " ".join(unicodedata.normalize("NFKC", "".join(texts)).split())


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
            above = _add_brackets(self._atom(style), style) if name == "frac" else []
            sign = _set("/" if name == "frac" else "√", style)
            return [*above, sign, *_add_brackets(self._atom(style), style)]
        return self._sign(name, style)

    def _sign(self, name: str, style: Run) -> list[Run]:
        if name in NAMED_FUNCTIONS:
            return [replace(style, text=name, font="upright")]
        sign = SYMBOLS.get(name) or _greek(name)
        if sign is None and name not in SYMBOLS:
            if self._is_strict:
                raise DiagramError(
                    f"Label {self._label!r} holds \\{name}, which has no character of its own; "
                    "draw labels as outlines."
                )
            sign = f" {name} "
        return [_set(sign, style)] if sign else []

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


def _add_brackets(runs: Iterable[Run], style: Run) -> list[Run]:
    listed = list(runs)
    if sum(len(run.text.strip()) for run in listed) <= 1:
        return listed
    return [_set("(", style), *listed, _set(")", style)]
