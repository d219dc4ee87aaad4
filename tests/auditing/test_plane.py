"""The depth-width plane in files and on pages."""

import sys
import warnings
import xml.etree.ElementTree as tree
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing import (
    LEVINE,
    Configuration,
    Parameters,
    PlacedModel,
    Plan,
    draw_plan,
    place_model,
    plan,
    plane_of_plan,
)
from rankscope.auditing.plan_picture import _figure
from rankscope.auditing.plane import to_svg
from rankscope.errors import MissingExtraError, OutputError

PAGE, FILE = (520.0, 320.0), (560.0, 470.0)
SHAPES = {
    "Small": (12, 768),
    "Same place": (12, 768),
    "Medium": (24, 1024),
    "Large": (24, 1536),
    "XL": (24, 2048),
    "175B": (96, 12288),
}


def model(depth: int, width: int) -> Configuration:
    blocks = 12 * depth * width**2
    counts = Parameters(attention=blocks // 3, feed_forward=blocks - blocks // 3)
    return Configuration("gpt2", depth, width, 1, width, 1, 4 * width, 100, width, counts)


def compared() -> Plan:
    return plan(1.739e11, compare={name: model(*shape) for name, shape in SHAPES.items()})


def marks(planned: Plan, role: str) -> list[Any]:
    """What stands in the picture for one role, in order."""
    drawn = plane_of_plan(planned).marks(FILE, font_size=8.0)
    return [mark for mark in drawn if role in mark.role.split()]


def placed(depth: int, width: int) -> PlacedModel:
    result = place_model(model(depth, width))
    assert result is not None
    return result


@pytest.mark.parametrize(
    ("ending", "start"), [(".svg", b"<?xml"), (".pdf", b"%PDF"), (".png", b"\x89PNG")]
)
def test_the_ending_chooses_the_format_and_the_bytes_repeat(
    ending: str, start: bytes, tmp_path: Path
) -> None:
    planned = plan(1.3e9)
    first = draw_plan(planned, tmp_path / f"first{ending}").read_bytes()
    assert first.startswith(start)
    assert draw_plan(planned, str(tmp_path / f"second{ending}")).read_bytes() == first


@pytest.mark.parametrize(
    "planned",
    [compared(), plan(1.3e8), plan(1.3e9, vocabulary=256), plan(49_152)],
    ids=["compared", "small", "deep", "least"],
)
def test_all_text_lies_inside_the_picture_and_none_on_another(planned: Plan) -> None:
    figure = _figure(plane_of_plan(planned))
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    extents = [text.get_window_extent(renderer) for text in figure.axes[0].texts]
    for first, second in combinations(extents, 2):
        assert not first.overlaps(second)
    for extent in extents:
        assert extent.x0 >= 0
        assert extent.y0 >= 0
        assert extent.x1 <= figure.bbox.x1
        assert extent.y1 <= figure.bbox.y1


def test_every_model_is_a_named_point() -> None:
    planned = compared()
    assert [label.text for label in marks(planned, "mark")] == ["80 x 13,440", *SHAPES]
    axes = plane_of_plan(planned).axes(FILE)
    places = [mark.place for mark in marks(planned, "compared") if not hasattr(mark, "text")]
    assert places == [axes.place(*shape) for shape in SHAPES.values()]


def test_the_sides_of_the_law_are_named_on_their_side() -> None:
    for planned in (compared(), plan(1.3e8), plan(1.3e9, vocabulary=256)):
        along = [place for line in marks(planned, "law") for place in line.places]
        sides = marks(planned, "regime")
        assert sides
        for side in sides:
            x, y = side.place
            nearest = min(along, key=lambda place, y=y: abs(place[1] - y))  # type: ignore[misc]
            assert side.text == (
                "shallower than the law: deepen" if x < nearest[0] else "deeper than the law: widen"
            )


def test_a_label_far_from_its_point_is_joined_to_it() -> None:
    crowd = {f"one of many models {number}": model(12, 768) for number in range(20)}
    assert marks(plan(1.3e9, compare=crowd), "leader")


def test_settings_of_matplotlib_stay_as_they_were(tmp_path: Path) -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_plan(plan(1.3e9), tmp_path / "plan.svg")
    assert dict(mpl.rcParams) == before


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"a plan writes .svg, .pdf, .png, got 'plan.gif'"):
        draw_plan(plan(1.3e9), tmp_path / "plan.gif")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"Drawing a plan needs matplotlib.*\[draw\]"):
        draw_plan(plan(1.3e9), tmp_path / "plan.svg")


def circles(result: PlacedModel) -> dict[str, tuple[float, float]]:
    svg = tree.fromstring(to_svg(result.plane, PAGE, result.description))
    return {
        circle.attrib["class"]: (float(circle.attrib["cx"]), float(circle.attrib["cy"]))
        for circle in svg.iter("circle")
    }


@settings(deadline=None, max_examples=40)
@given(depth=st.integers(1, 200), width=st.integers(1, 30_000))
def test_on_a_page_both_points_lie_in_the_picture(depth: int, width: int) -> None:
    points = circles(placed(depth, width))
    assert set(points) == {"best", "model"}
    for x, y in points.values():
        assert 0 < x < PAGE[0]
        assert 0 < y < PAGE[1]


def test_deeper_models_stand_further_right_and_wider_ones_higher() -> None:
    points = circles(placed(96, 12288))
    # GPT-3 175B: the law says 80 and 13461.
    assert points["best"][0] < points["model"][0]
    assert points["best"][1] < points["model"][1]


def test_the_caption_gives_the_depth_with_its_uncertainty_and_the_data() -> None:
    result = placed(96, 12288)
    assert "depth is 80.5 (78.3 to 82.7" in result.caption
    assert LEVINE.data in result.caption
    assert "the law: 80 × 13,461" in to_svg(result.plane, PAGE, result.description)
    assert "this model: depth 96" in result.description.lower()


def test_a_model_without_blocks_has_no_plane() -> None:
    assert place_model(replace(model(1, 1), parameters=Parameters())) is None


@pytest.mark.parametrize(("depth", "is_logarithmic"), [(80, False), (9000, True)])
def test_axes_are_linear_in_depth_until_it_is_large_and_logarithmic_in_width(
    depth: int, is_logarithmic: bool
) -> None:
    axes = placed(depth, 256).plane.axes(PAGE)
    if is_logarithmic:
        assert axes.x(100.0) - axes.x(1.0) == pytest.approx(axes.x(1e4) - axes.x(100.0))
    else:
        assert axes.x(40.0) - axes.x(0.0) == pytest.approx(axes.x(80.0) - axes.x(40.0))
    first, last = axes.narrowest, axes.widest
    middle = (first * last) ** 0.5
    assert axes.y(first) - axes.y(middle) == pytest.approx(axes.y(middle) - axes.y(last))
    assert axes.y(2 * last) == axes.y(last)
