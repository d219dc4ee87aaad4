r"""Scenes as TikZ: named colours and plain `\draw`, for stock pdflatex with tikz and amsmath.

Coordinates are pixels of the scene, y down; one pixel is 0.75 bp, so that a picture is as large as
its PDF. Labels are LaTeX, set in the fonts of the document around them; the few that LaTeX
cannot set are drawn as outlines.
"""

import re

from rankscope.drawing.polygons import (
    BOX_KINDS,
    ROUND_KINDS,
    corner_radius,
    shape_path,
    view_box,
    wire_path,
)
from rankscope.drawing.scene import Command, Label, Point, Scene, Shape, Wire, decimal
from rankscope.drawing.themes import LIGHT, Theme
from rankscope.drawing.typesetting import ACCENTS, NAMED_FUNCTIONS, SYMBOLS, outline
from rankscope.errors import printable

# --- Labels as LaTeX sets them: with amsmath and amssymb, and nothing that LaTeX would misread ----


GREEK = (
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda",
    "mu", "nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
    "varepsilon", "vartheta", "varpi", "varrho", "varsigma", "varphi", "Gamma", "Delta", "Theta",
    "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega",
)  # fmt: skip
# What the argument of a font may hold: LaTeX sets anything else in another font, or as rubbish.
FONT_ARGUMENTS = {
    "mathbf": r"[A-Za-z0-9 .,:;=+()'/*-]|\\[,;: ]",
    "mathit": r"[A-Za-z0-9 .,:;=+()'/*-]|\\[,;: ]",
    "mathsf": r"[A-Za-z0-9 .,:;=+()'/*-]|\\[,;: ]",
    "mathtt": r"[A-Za-z0-9 .,:;=+()'/*-]|\\[,;: ]",
    "mathrm": r"[A-Za-z0-9 .,:;=+()'/*-]|\\[,;: ]",
    "operatorname": r"[A-Za-z0-9]",
    "mathcal": r"[A-Z]",
    "mathbb": r"[A-Z]",
    "mathfrak": r"[A-Za-z]",
}
_FONT = re.compile(rf"\\({'|'.join(FONT_ARGUMENTS)}) *(?:\{{([^{{}}]*)\}}|([A-Za-z0-9]))")
_TOKEN = re.compile(r"\\(?:[A-Za-z]+|.)|.", re.DOTALL)
_DOLLAR = re.compile(r"(?<!\\)\$")
_PLAIN = re.compile(r"[A-Za-z0-9 +*/=<>()\[\]|,.:;!?'{}_^-]")
_TEXT = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "%": r"\%", "#": r"\#",
    "&": r"\&", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$",
    ">": "$>$", "|": "$|$", "-": "{-}", '"': "{''}",
}  # fmt: skip
_COMMANDS = (*SYMBOLS, *ACCENTS, *NAMED_FUNCTIONS, *GREEK, "sqrt", "frac")
_SIGNS = {sign: rf"\{name} " for name, sign in SYMBOLS.items() if sign and not sign.isascii()}


def to_latex(label: str) -> str | None:
    r"""A label in LaTeX, or None if it holds something that LaTeX cannot set.

    Example:
        >>> to_latex(r"$\mathcal{W}^{Q}$ & co")
        '$\\mathcal{W}^{Q}$ \\& co'
        >>> to_latex(r"$\mathcal{w}$") is None
        True
    """
    pieces = _DOLLAR.split(label)
    if len(pieces) % 2 == 0:
        # As mathtext has it: without a pair of dollars there is no mathematics.
        pieces = [label]
    written: list[str] = []
    for place, piece in enumerate(pieces):
        latex = _mathematics(piece) if place % 2 else _text(piece)
        if latex is None:
            return None
        written.append(f"${latex}$" if place % 2 else latex)
    return "".join(written)


def _text(piece: str) -> str | None:
    characters = piece.replace(r"\$", "$")
    if not all(" " <= character <= "~" for character in characters):
        return None
    return "".join(_TEXT.get(character, character) for character in characters)


def _mathematics(piece: str) -> str | None:
    for font, group, letter in _FONT.findall(piece):
        if not re.fullmatch(f"(?:{FONT_ARGUMENTS[font]})+", group or letter):
            return None
    # Fonts that are understood are set aside; any other use of one is left, and not understood.
    fonts = _FONT.findall(piece)
    rest = _FONT.sub("\0", piece)
    written: list[str] = []
    for token in _TOKEN.findall(rest):
        if token == "\0":
            font, group, letter = fonts.pop(0)
            written.append(rf"\{font}{{{group or letter}}}")
        elif token in _SIGNS:
            written.append(_SIGNS[token])
        elif _PLAIN.fullmatch(token) or (token[0] == "\\" and token[1:] in _COMMANDS):
            written.append(token)
        else:
            return None
    return "".join(written)


BIG_POINTS_PER_PIXEL = 0.75
# TeX's font sizes are in points of 1/72.27 inch.
POINTS_PER_PIXEL = BIG_POINTS_PER_PIXEL * 72.27 / 72
# TeX has no number above 16383.99.
LARGEST = 16000.0
FONT_POINTS = 10.0
# Computer Modern, LaTeX's own font, is wider than the STIX that labels were measured in.
FONT_SCALE = 0.92


def to_tikz(scene: Scene, theme: Theme = LIGHT) -> str:
    r"""Write a scene as colours and one `tikzpicture`; it needs tikz, amsmath and amssymb.

    Pictures beyond TeX's largest number are drawn smaller, so that they fit.

    Raises:
        DiagramError: if a label cannot be read.
        LayoutError: if the theme does not know a style.
    """
    return _Writer(scene, theme).picture()


class _Writer:
    """Collects the colours of one picture while its lines are written."""

    def __init__(self, scene: Scene, theme: Theme) -> None:
        self._scene = scene
        self._theme = theme
        self._left, self._top, self._right, self._bottom = view_box(scene)
        longest = max(self._right - self._left, self._bottom - self._top)
        self._shrink = min(1.0, LARGEST / longest) if longest else 1.0
        self._colors: dict[str, str] = {}

    def picture(self) -> str:
        scene = self._scene
        corners = f"{self._at((self._left, self._top))} rectangle "
        corners += self._at((self._right, self._bottom))
        body = [
            rf"\path[use as bounding box,fill={self._color(self._theme.background)}] {corners};"
        ]
        body += [self._shape(shape) for shape in scene.frames]
        body += [self._wire(wire) for wire in scene.wires]
        body += [self._shape(shape) for shape in (*scene.shapes, *scene.marks)]
        body += [self._label(label) for label in scene.labels]
        # Half of a character outside Unicode's first plane could not be written to a file.
        title = (scene.title or scene.name).encode("utf-8", "replace").decode()
        # A comment: even there, nothing that looks like a command is repeated.
        name = printable(" ".join(title.split())).replace("\\", "/")
        return "\n".join(
            (
                f"% {name}",
                *(
                    rf"\definecolor{{{name}}}{{HTML}}{{{color}}}"
                    for color, name in self._colors.items()
                ),
                rf"\begin{{tikzpicture}}[x={BIG_POINTS_PER_PIXEL}bp,y=-{BIG_POINTS_PER_PIXEL}bp,",
                r"  every node/.style={inner sep=0pt,outer sep=0pt,anchor=base,",
                rf"    font=\fontsize{{{FONT_POINTS:g}}}{{12}}\selectfont}}]",
                *body,
                r"\end{tikzpicture}",
                "",
            )
        )

    def _shape(self, shape: Shape) -> str:
        paint = self._theme.shape(shape.style)
        fill = self._color(paint.fill) if paint.fill else "none"
        options = f"fill={fill},draw={self._color(paint.stroke)},line width="
        options += f"{self._length(paint.width)},line join=round{self._dash(paint.dash)}"
        if paint.dash and paint.dash[0] < 1:
            options += ",line cap=round"
        if shape.kind in ROUND_KINDS:
            radius = decimal(shape.width / 2 * self._shrink)
            return rf"\filldraw[{options}] {self._at((shape.x, shape.y))} circle[radius={radius}];"
        if shape.kind in BOX_KINDS:
            left, top, right, bottom = shape.box
            options += f",rounded corners={self._length(corner_radius(shape))}"
            return (
                rf"\filldraw[{options}] {self._at((left, top))} rectangle "
                rf"{self._at((right, bottom))};"
            )
        return rf"\filldraw[{options}] {self._path(shape_path(shape))};"

    def _wire(self, wire: Wire) -> str:
        stroke = self._theme.wire(wire.style)
        dash = self._dash(tuple(length * wire.width for length in stroke.dash))
        options = f"draw={self._color(stroke.color)},line width={self._length(wire.width)}"
        return (
            rf"\draw[{options},line cap=round,line join=round{dash}] {self._path(wire_path(wire))};"
        )

    def _label(self, label: Label) -> str:
        color = self._color(self._theme.label(label.style))
        text = to_latex(label.text)
        if text is None:
            commands = outline(label.text, label.size).commands
            return rf"\fill[{color}] {self._path(commands, (label.x, label.y))};"
        scale = FONT_SCALE * label.size * self._shrink * POINTS_PER_PIXEL / FONT_POINTS
        middle = ((label.box[0] + label.box[2]) / 2, label.y)
        return rf"\node[text={color},scale={decimal(scale, 4)}] at {self._at(middle)} {{{text}}};"

    def _path(self, commands: tuple[Command, ...], origin: Point = (0.0, 0.0)) -> str:
        written: list[str] = []
        here: Point = origin
        for letter, values in commands:
            points = [
                (x + origin[0], y + origin[1])
                for x, y in zip(values[::2], values[1::2], strict=True)
            ]
            if letter == "Q":
                points = _to_cubic(here, *points)
            match letter:
                case "Z":
                    written.append("-- cycle")
                case "M":
                    written.append(self._at(points[0]))
                case "L":
                    written.append(f"-- {self._at(points[0])}")
                case _:
                    first, second, end = (self._at(point) for point in points)
                    written.append(f".. controls {first} and {second} .. {end}")
            here = points[-1] if points else here
        return " ".join(written)

    def _at(self, point: Point) -> str:
        x = (point[0] - self._left) * self._shrink
        y = (point[1] - self._top) * self._shrink
        return f"({decimal(x)},{decimal(y)})"

    def _length(self, pixels: float) -> str:
        return f"{decimal(pixels * self._shrink * BIG_POINTS_PER_PIXEL, 3)}bp"

    def _dash(self, lengths: tuple[float, ...]) -> str:
        if not lengths:
            return ""
        on, off = (self._length(length) for length in lengths)
        return f",dash pattern=on {on} off {off}"

    def _color(self, color: str) -> str:
        code = color.removeprefix("#")
        return self._colors.setdefault(code, f"rankscope{code}")


def _to_cubic(start: Point, control: Point, end: Point) -> list[Point]:
    """The cubic controls and the end of a quadratic curve."""
    return [
        (start[0] + 2 / 3 * (control[0] - start[0]), start[1] + 2 / 3 * (control[1] - start[1])),
        (end[0] + 2 / 3 * (control[0] - end[0]), end[1] + 2 / 3 * (control[1] - end[1])),
        end,
    ]
