r"""Labels as LaTeX sets them: with amsmath and amssymb, and nothing that LaTeX would misread.

Mathtext reads a little more than LaTeX (other fonts, characters that pdflatex has no glyph for),
and prints characters that LaTeX takes for commands. What cannot be said in LaTeX is None here, and
is drawn as an outline.
"""

import re

from rankscope.diagrams.pictures.plain_text import ACCENTS, NAMED_FUNCTIONS, SYMBOLS

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
        found = _mathematics(piece) if place % 2 else _text(piece)
        if found is None:
            return None
        written.append(f"${found}$" if place % 2 else found)
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
