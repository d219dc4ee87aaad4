import sys
import warnings
from itertools import combinations
from pathlib import Path

import pytest

from rankscope.auditing.configuration import Configuration, Parameters
from rankscope.auditing.plan import Plan, plan
from rankscope.auditing.plan_labels import LEFT_SIDE, RIGHT_SIDE
from rankscope.auditing.plan_picture import _figure, draw_plan
from rankscope.errors import MissingExtraError, OutputError

SHAPES = {
    "Small": (12, 768),
    "Same place": (12, 768),
    "Medium": (24, 1024),
    "Large": (24, 1536),
    "XL": (24, 2048),
    "175B": (96, 12288),
}


def compared() -> Plan:
    models = {}
    for name, (depth, width) in SHAPES.items():
        counts = Parameters(feed_forward=12 * depth * width**2)
        models[name] = Configuration(
            "gpt2", depth, width, 12, 64, 12, 4 * width, 50257, width, counts
        )
    return plan(1.739e11, compare=models)


@pytest.mark.parametrize(
    ("ending", "start"), [(".svg", b"<?xml"), (".pdf", b"%PDF"), (".png", b"\x89PNG")]
)
def test_the_ending_chooses_the_format_and_the_bytes_repeat(
    ending: str, start: bytes, tmp_path: Path
) -> None:
    found = plan(1.3e9)
    first = draw_plan(found, tmp_path / f"first{ending}").read_bytes()
    assert first.startswith(start)
    assert draw_plan(found, str(tmp_path / f"second{ending}")).read_bytes() == first


@pytest.mark.parametrize(
    "found",
    [compared(), plan(1.3e8), plan(1.3e9, vocabulary=256), plan(49_152)],
    ids=["compared", "small", "deep", "least"],
)
def test_all_text_lies_inside_the_picture_and_no_name_on_another(found: Plan) -> None:
    figure = _figure(found)
    figure.draw_without_rendering()
    renderer, axes = figure.canvas.get_renderer(), figure.axes[0]
    names = [text.get_window_extent(renderer) for text in axes.texts]
    for first, second in combinations(names, 2):
        assert not first.overlaps(second)
    (legend,) = figure.legends
    for extent in (*names, legend.get_window_extent(renderer), axes.title.get_window_extent()):
        assert extent.x0 >= 0
        assert extent.x1 <= figure.bbox.x1


def test_every_model_is_a_named_point() -> None:
    figure = _figure(compared())
    written = [text.get_text() for text in figure.axes[0].texts]
    assert written == ["80 x 13,459", *SHAPES, LEFT_SIDE, RIGHT_SIDE]
    points = {
        (int(line.get_xdata()[0]), int(line.get_ydata()[0]))
        for line in figure.axes[0].get_lines()
        if len(line.get_xdata()) == 1
    }
    assert points == {(80, 13459), *SHAPES.values()}


def test_the_sides_of_the_law_are_named_on_their_side() -> None:
    for found in (compared(), plan(1.3e8), plan(1.3e9, vocabulary=256)):
        for text in _figure(found).axes[0].texts:
            depth, width = text.get_position()
            if text.get_text() in (LEFT_SIDE, RIGHT_SIDE):
                is_left = depth < found.law.depth_for_width(float(width))
                assert is_left == (text.get_text() == LEFT_SIDE)


def test_a_label_far_from_its_point_is_joined_to_it() -> None:
    model = compared().compared[0].configuration
    crowd = {f"one of many models {number}": model for number in range(20)}
    figure = _figure(plan(1.3e9, compare=crowd))
    leaders = [line for line in figure.axes[0].get_lines() if line.get_linewidth() == 0.7]
    assert leaders


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
