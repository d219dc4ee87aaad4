r"""Setting TeX mathematics in STIX through matplotlib, as fast as its parser allows.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from matplotlib.cbook import is_math_text
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextPath, TextToPath

from rankscope.diagrams.pictures.scene import Box, Command, Outline, union

DIGITS = "0123456789"
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


@lru_cache(maxsize=1)
def typesetter() -> "Typesetter":
    """The one that remembers what it has set before."""
    return Typesetter()


class Typesetter:
    """Sets labels, and keeps the glyphs and the layouts that it needed."""

    def __init__(self) -> None:
        # The font is passed, never set globally: importing us must not change anyone's figures.
        self._font = FontProperties(family="STIXGeneral", math_fontfamily="stix")
        self._engine = TextToPath()
        self._paths: dict[str, Path] = {}
        self._glyphs: dict[str, Outline] = {}
        self._patterns: dict[str, Layout] = {}
        self._digits: dict[str, str] = {}

    def typeset(self, text: str, size: float) -> Outline:
        """The outline of a label.

        Raises:
            ValueError: if mathtext cannot read it.
        """
        if not is_math_text(text):
            return _outline(TextPath((0, 0), text, size=size, prop=self._font))
        layout = self.layout(full_primes(text))
        share = size / self._engine.FONT_SCALE
        commands: list[Command] = []
        boxes: list[Box] = []
        for placed in layout.glyphs:
            glyph = self._glyph(placed.glyph)
            commands += _moved(glyph.commands, placed, share)
            boxes += [_moved_box(glyph.box, placed, share)] if glyph.commands else []
        for left, low, right, high in layout.rules:
            box = (left * share, -high * share, right * share, -low * share)
            commands += _rule(box)
            boxes.append(box)
        return Outline(tuple(commands), union(boxes))

    def layout(self, text: str) -> Layout:
        """Where the glyphs of a label stand; numbers of safe labels are swapped in."""
        if not is_swappable(text):
            return self.parse(text)
        pattern = re.sub("[0-9]", "0", text)
        if pattern not in self._patterns:
            self._patterns[pattern] = self.parse(pattern)
        layout = self._patterns[pattern]
        wanted = [character for character in text if character in DIGITS]
        zeros = [placed for placed in layout.glyphs if self._is_zero(placed.glyph)]
        if len(zeros) != len(wanted):
            # A font without zeros of its own drew them as something else.
            return self.parse(text)
        found = iter(wanted)
        glyphs = tuple(
            Placed(self._digits[placed.glyph + next(found)], placed.x, placed.y, placed.scale)
            if self._is_zero(placed.glyph)
            else placed
            for placed in layout.glyphs
        )
        return Layout(glyphs, layout.rules)

    def parse(self, text: str) -> Layout:
        """Let mathtext set a label."""
        # The full stop stands on the baseline, which mathtext does not tell otherwise.
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
            for font in DIGIT_FONTS:
                names = [placed.glyph for placed in self.parse(f"${font}{{{DIGITS}}}$").glyphs]
                self._digits |= {
                    names[0] + digit: name for digit, name in zip(DIGITS, names, strict=True)
                }
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


def _raised_already(found: re.Match[str]) -> str:
    count = found[0].count("'") + found[0].count("prime")
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


def _outline(path: Path) -> Outline:
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


def _moved(commands: tuple[Command, ...], placed: Placed, share: float) -> Iterator[Command]:
    scale, shifts = placed.scale, (placed.x, -placed.y)
    for letter, values in commands:
        moved = [(value * scale + shifts[place % 2]) * share for place, value in enumerate(values)]
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
