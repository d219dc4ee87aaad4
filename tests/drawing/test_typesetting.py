import sys
from concurrent.futures import ThreadPoolExecutor

import matplotlib as mpl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from rankscope.drawing import Outline, Typesetter, typesetter
from rankscope.drawing.typesetting import full_primes, is_swappable

NUMBERS = st.integers(0, 99999).map(str)
# Everything that a diagram writes: bonds, cores, sizes, parameters of modules, powers, products.
TEMPLATES = (
    "$R_{%s}$",
    "$I_%s$",
    r"$\mathcal{G}_{%s}$",
    r"$\mathcal{W}^{(%s)}$",
    r"$\mathbf{A}_{%s}$",
    r"$\mathbf{A}^{%s}$",
    r"$\mathbf{W%s}$",
    r"$\mathrm{ReLU%s}$",
    r"$\mathbf{layers.%s.weight}$",
    r"$\mathit{x%s}$",
    "$F=%s$",
    "$F{=}%s$",
    r"$\times %s$",
    r"$\sigma_{%s}$",
    r"$\mathbf{X}_{%s,k}$",
    r"$x_{k_{%s}}$",
    r"$F\!=\!%s$",
    r"$\mathrm{x\_in%s}$",
    r"$R_{%s}'$",
    r"step %s: $R$",
    # Not of the safe kind, so that mathtext must set them itself.
    r"$\mathcal{W}^{Q}_{%s}$",
    r"$\sqrt{%s}$",
    r"$\frac{%s}{R}$",
    r"$\mathbf{W%s}_{k}$",
    r"$\hat{%s}$",
    r"$\mathbb{%s}$",
)
LETTERS = st.sampled_from(
    (
        "$X$",
        r"$\mathbf{X}$",
        r"$\mathcal{W}^{\,Q}$",
        r"$\mathrm{softmax}_M(\,\cdot\,/\sqrt{D}\,)$",
        r"$\frac{a}{b}$",
        r"$\ast$",
        r"$\sum_i x_i$",
        "plain text",
        "text and $x$",
        r"\$ 5",
        r"$\,$",
        r"$\overline{AB}$",
    )
)


def as_mathtext_has_it(text: str, size: float) -> list[tuple[float, float]]:
    """All vertices of matplotlib's own path, y down."""
    font = FontProperties(family="STIXGeneral", math_fontfamily="stix")
    path = TextPath((0, 0), text, size=size, prop=font)
    kept = path.codes != path.CLOSEPOLY
    return [(float(x), -float(y)) for x, y in path.vertices[kept]]


def points(outline: Outline) -> list[tuple[float, float]]:
    return [
        point
        for _, values in outline.commands
        for point in zip(values[::2], values[1::2], strict=True)
    ]


@settings(deadline=None, max_examples=60)
@given(template=st.sampled_from(TEMPLATES), number=NUMBERS, size=st.sampled_from((17.0, 25.0)))
def test_labels_with_numbers_are_set_as_mathtext_sets_them(
    template: str, number: str, size: float
) -> None:
    text = template % number
    found = points(typesetter().typeset(text, size))
    expected = as_mathtext_has_it(full_primes(text), size)
    # Mathtext rounds heights up to whole hundredths of the size, which shifts the baseline.
    shift = expected[0][1] - found[0][1]
    assert abs(shift) <= 0.01 * size
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours[0], ours[1] + shift) == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize(
    "template", ["$R_{%s}$", r"$\mathbf{A}^{%s}$", r"$\mathbf{W%s}$", "$F=%s$"]
)
def test_any_two_digits_may_be_swapped(template: str) -> None:
    fresh = Typesetter()
    for number in range(100):
        text = template % f"{number:02d}"
        swapped, parsed = fresh.layout(text), fresh.parse(text)
        assert [placed.glyph for placed in swapped.glyphs] == [
            placed.glyph for placed in parsed.glyphs
        ]
        for ours, theirs in zip(swapped.glyphs, parsed.glyphs, strict=True):
            assert (ours.x, ours.y, ours.scale) == pytest.approx(
                (theirs.x, theirs.y, theirs.scale), abs=1e-9
            )


@settings(deadline=None)
@given(text=LETTERS, size=st.floats(5, 60), share=st.floats(0.1, 3))
def test_a_label_grows_in_proportion_to_its_size(text: str, size: float, share: float) -> None:
    small, large = typesetter().typeset(text, size), typesetter().typeset(text, size * share)
    assert large.box == pytest.approx([share * edge for edge in small.box], abs=1e-9)


@settings(deadline=None)
@given(text=LETTERS)
def test_the_box_is_around_the_ink(text: str) -> None:
    outline = typesetter().typeset(text, 20.0)
    if not outline.commands:
        assert outline.box == (0.0, 0.0, 0.0, 0.0)
        return
    left, top, right, bottom = outline.box
    ends = [values[-2:] for _, values in outline.commands if values]
    assert all(left - 1e-9 <= x <= right + 1e-9 for x, _ in ends)
    assert all(top - 1e-9 <= y <= bottom + 1e-9 for _, y in ends)


def test_labels_of_a_row_stand_level() -> None:
    """The lowest point of the letter is the same, whatever its script is."""
    lowest = [
        max(y for _, y in points(typesetter().typeset(text, 25.0))[:20])
        for text in ("$R$", "$R_{2}$", "$R_{4}$", "$R_{17}$")
    ]
    assert lowest == pytest.approx([lowest[0]] * 4, abs=1e-9)


def test_a_pattern_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    fresh = Typesetter()
    parse = fresh.parse

    def counted(text: str) -> object:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(fresh, "parse", counted)
    for number in range(10, 100):
        fresh.typeset(rf"$\mathcal{{G}}_{{{number}}}$", 25.0)
    assert [text for text in parsed if "mathcal" in text] == [r"$\mathcal{G}_{00}$"]


def test_what_is_measured_by_its_height_is_not_swapped() -> None:
    safe = [is_swappable(full_primes(template % "17")) for template in TEMPLATES[:20]]
    unsafe = [is_swappable(full_primes(template % "17")) for template in TEMPLATES[20:]]
    assert all(safe)
    assert not any(unsafe)
    assert not is_swappable("$R$")


@pytest.mark.parametrize("text", ["$H'$", r"$H^{\prime}$", r"$H^\prime$"])
def test_a_prime_is_the_character_and_not_a_script_of_it(text: str) -> None:
    assert typesetter().typeset(text, 20.0) == typesetter().typeset("$H′$", 20.0)


def test_apostrophes_in_text_and_double_primes_are_kept() -> None:
    assert full_primes("it's $x''$") == r"it's $x\prime \prime $"
    assert full_primes(r"$x^{\prime\prime}$") == r"$x\prime \prime $"
    assert full_primes(r"\$' $\primes$") == r"\$' $\primes$"


def test_a_font_without_zeros_of_its_own_is_left_to_mathtext() -> None:
    with mpl.rc_context({"mathtext.default": "sf"}):
        fresh = Typesetter()
        assert is_swappable("$R_{12}$")
        assert fresh.layout("$R_{12}$") == fresh.parse("$R_{12}$")


def test_typesetters_of_several_threads_do_not_disturb_each_other() -> None:
    """The page sets labels ahead in a thread while the first picture is drawn."""

    def made(_: int) -> list[Outline]:
        own = Typesetter()
        return [own.typeset(template % 7, 12.0) for template in TEMPLATES[:8]]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(made, range(2))
    finally:
        sys.setswitchinterval(interval)
    assert first == second == made(0)
