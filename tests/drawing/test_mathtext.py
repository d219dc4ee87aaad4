import matplotlib as mpl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.drawing import outline, place_label, text_width
from rankscope.drawing import typesetting as mathtext
from rankscope.errors import DiagramError, MissingExtraError

PLACES = st.floats(-500, 500)


def test_text_that_is_not_tex_is_refused_by_name() -> None:
    with pytest.raises(DiagramError, match=r"Label '\$\\nonsense\{x\}\$' is not TeX that mathtext"):
        outline(r"$\nonsense{x}$", 20.0)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mathtext, "find_spec", lambda name: None)
    with pytest.raises(
        MissingExtraError, match=r"Drawing labels needs matplotlib.*rankscope\[draw\]"
    ):
        outline("$never before$", 20.0)


def test_labels_leave_the_settings_of_matplotlib_alone() -> None:
    before = dict(mpl.rcParams)
    outline(r"$\mathcal{U}^{2}_{3}$", 21.0)
    assert dict(mpl.rcParams) == before


def test_nothing_to_see_has_an_empty_box() -> None:
    assert outline(r"$\,$", 20.0).commands == ()
    assert text_width(r"$\,$", 20.0) == 0


@settings(deadline=None)
@given(x=PLACES, y=PLACES)
def test_an_anchor_is_put_on_the_point(x: float, y: float) -> None:
    def placed(anchor: str) -> tuple[float, float, float, float]:
        return place_label("$R_1$", (x, y), size=20.0, style="wire-rank", anchor=anchor).box

    left, top, _, _ = placed("lt")
    _, _, right, bottom = placed("rb")
    middle = placed("mm")
    assert (left, top, right, bottom) == pytest.approx((x, y, x, y), abs=1e-9)
    assert (middle[0] + middle[2]) / 2 == pytest.approx(x, abs=1e-9)
    assert (middle[1] + middle[3]) / 2 == pytest.approx(y, abs=1e-9)


def test_capitals_are_centred_on_their_own_height() -> None:
    plain = place_label("$X$", (0.0, 0.0), size=25.0, style="on-data", anchor="mc")
    raised = place_label("$X^{2}$", (0.0, 0.0), size=25.0, style="on-data", anchor="mc")
    centred = place_label("$X^{2}$", (0.0, 0.0), size=25.0, style="on-data", anchor="mm")
    assert abs(raised.y - plain.y) < abs(centred.y - plain.y)
