import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.diagrams import IndexKind
from rankscope.drawing import DARK, LIGHT, PRINT, THEMES, Theme, channels, contrast
from rankscope.errors import LayoutError

ROLES = ("data", "parameter", "core", "constant", "result", "convolution")
FRAMES = ("barrier", "plate", "block")
SHAPES = (*ROLES, *FRAMES, "normalized", "passing", "tag", "cut")
LABELS = (*(f"on-{role}" for role in ROLES), "on-tag", "on-plate", "caption", "muted")
COLORS = st.integers(0, 2**24 - 1).map(lambda code: f"#{code:06X}")


def backgrounds(theme: Theme) -> list[str]:
    """What a wire, a tensor or a free label may lie on."""
    fills = [theme.shapes[frame].fill for frame in FRAMES]
    return [theme.background, *(fill for fill in fills if fill)]


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_every_theme_knows_every_style(theme: Theme) -> None:
    assert all(theme.shape(style) for style in SHAPES)
    assert all(theme.label(style) for style in LABELS)
    assert all(theme.wire(style) for style in ("cut", "rule"))
    for kind in IndexKind:
        assert theme.shape(f"junction-{kind}").fill == theme.wire(f"wire-{kind}").color
        assert theme.label(f"wire-{kind}")


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_text_has_a_contrast_of_at_least_4_5(theme: Theme) -> None:
    for role in (*ROLES, "tag"):
        fill = theme.shape(role).fill
        assert fill is not None
        assert contrast(theme.label(f"on-{role}"), fill) >= 4.5, role
    free = [style for style in theme.labels if style not in {f"on-{role}" for role in ROLES}]
    for style in free:
        for background in backgrounds(theme):
            assert contrast(theme.labels[style], background) >= 4.5, (style, background)


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_strokes_have_a_contrast_of_at_least_3(theme: Theme) -> None:
    for style, paint in theme.shapes.items():
        # The rim of a diamond only sets it off from the wire; the diamond itself is what is seen.
        seen = paint.fill if style == "normalized" else paint.stroke
        assert seen is not None
        for background in backgrounds(theme):
            assert contrast(seen, background) >= 3, (style, background)
    for style, stroke in theme.wires.items():
        for background in backgrounds(theme):
            assert contrast(stroke.color, background) >= 3, (style, background)


def test_print_has_greys_only_and_tells_roles_by_shape() -> None:
    colors = [paint.stroke for paint in PRINT.shapes.values()]
    colors += [paint.fill for paint in PRINT.shapes.values() if paint.fill]
    colors += [*PRINT.labels.values(), *(stroke.color for stroke in PRINT.wires.values())]
    assert all(len(set(channels(color))) == 1 for color in colors)
    assert len({PRINT.shapes[role] for role in ROLES}) == 1


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_batch_wires_and_plates_are_dotted_and_barriers_dashed(theme: Theme) -> None:
    assert theme.shape("barrier").dash == (7.0, 5.0)
    assert theme.shape("plate").dash[0] < 1
    dotted = [kind for kind in IndexKind if theme.wire(f"wire-{kind}").dash]
    assert dotted == [IndexKind.BATCH]


def test_light_has_the_colours_of_the_specification() -> None:
    assert LIGHT.shape("parameter").fill == "#DBEAFE"
    assert LIGHT.shape("core").stroke == "#92400E"
    assert LIGHT.wire("wire-rank").color == "#C2410C"
    assert LIGHT.wire("wire-head").color == "#0F766E"
    assert LIGHT.shape("barrier").stroke == "#A21C5B"


def test_dark_is_darker_than_its_ink() -> None:
    assert sum(channels(DARK.background)) < sum(channels(DARK.label("caption")))


@given(first=COLORS, second=COLORS)
def test_contrast_is_symmetric_and_between_1_and_21(first: str, second: str) -> None:
    assert contrast(first, second) == contrast(second, first)
    assert 1 <= contrast(first, second) <= 21 + 1e-9


@given(color=COLORS)
def test_a_colour_has_no_contrast_with_itself(color: str) -> None:
    assert contrast(color, color) == 1


def test_a_shape_style_that_is_unknown_is_refused() -> None:
    with pytest.raises(LayoutError, match=r"'light' has no style 'datum' for shapes; it has: data"):
        LIGHT.shape("datum")


def test_a_wire_style_that_is_unknown_is_refused() -> None:
    with pytest.raises(LayoutError, match=r"'dark' has no style 'wire' for wires; it has: wire-g"):
        DARK.wire("wire")


def test_a_label_style_that_is_unknown_is_refused() -> None:
    with pytest.raises(LayoutError, match=r"'print' has no style 'on' for labels; it has: on-data"):
        PRINT.label("on")
