import re
import xml.etree.ElementTree as tree
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing.configuration import Configuration, Parameters
from rankscope.auditing.law import LEVINE
from rankscope.report.plane import HEIGHT, WIDTH, Axes, depth_width_plane


def model(depth: int, width: int) -> Configuration:
    blocks = 12 * depth * width**2
    counts = Parameters(attention=blocks // 3, feed_forward=blocks - blocks // 3)
    return Configuration("gpt2", depth, width, 1, width, 1, 4 * width, 100, width, counts)


def circles(figure: str) -> dict[str, tuple[float, float]]:
    svg = tree.fromstring(re.findall(r"<svg.*</svg>", figure, re.DOTALL)[0])
    return {
        circle.attrib["class"]: (float(circle.attrib["cx"]), float(circle.attrib["cy"]))
        for circle in svg.iter("circle")
    }


@settings(deadline=None)
@given(depth=st.integers(1, 200), width=st.integers(1, 30_000))
def test_both_points_lie_in_the_picture(depth: int, width: int) -> None:
    figure = depth_width_plane(model(depth, width))
    for x, y in circles(figure).values():
        assert 0 < x < WIDTH
        assert 0 < y < HEIGHT


def test_deeper_models_stand_further_right_and_wider_ones_higher() -> None:
    found = circles(depth_width_plane(model(96, 12288)))
    # GPT-3 175B: the law says 80 and 13461.
    assert found["best"][0] < found["model"][0]
    assert found["best"][1] < found["model"][1]


def test_the_caption_gives_the_depth_with_its_uncertainty_and_the_data() -> None:
    figure = depth_width_plane(model(96, 12288))
    assert "depth is 80.5 (78.3 to 82.7" in figure
    assert LEVINE.data in figure
    assert "the law: 80 × 13,461" in figure


def test_a_model_without_blocks_has_no_plane() -> None:
    assert depth_width_plane(replace(model(1, 1), parameters=Parameters())) == ""


def test_axes_are_linear_in_depth_and_logarithmic_in_width() -> None:
    axes = Axes(deepest=100.0, narrowest=16.0, widest=4096.0)
    assert axes.x(50.0) - axes.x(0.0) == pytest.approx(axes.x(100.0) - axes.x(50.0))
    assert axes.y(16.0) - axes.y(256.0) == pytest.approx(axes.y(256.0) - axes.y(4096.0))
    assert axes.y(1e9) == axes.y(4096.0)
