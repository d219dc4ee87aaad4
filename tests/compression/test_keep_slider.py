"""The keep slider of notebooks: Python solves, the page shows."""

import json
import shutil
from typing import Any

import pytest
from torch import nn

pytest.importorskip("anywidget", reason="pip install 'rankscope[notebook]'")

from rankscope.compression import keep_slider
from rankscope.errors import CompressionError

MODEL = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))


def test_the_plan_follows_the_slider() -> None:
    slider = keep_slider(MODEL, keep=0.5)
    dense = slider.plan.dense.parameters
    for share in (0.8, 0.4, 0.25):
        slider.keep = share
        assert slider.plan.kept.parameters <= share * dense
        assert slider.summary == slider.plan.summary
        assert [row["name"] for row in slider.rows] == ["0", "2"]
    before = slider.plan
    slider.keep = 0.001  # cannot be met: it says so, and the plan stays
    assert "0.001" in slider.summary
    assert slider.plan is before


def test_a_share_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(CompressionError, match=r"1\.5"):
        keep_slider(MODEL, keep=1.5)


@pytest.mark.slow
def test_the_page_sends_the_share_and_shows_the_rows() -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if chromium is None:
        pytest.skip("no chromium is installed: apt-get install chromium")
    slider = keep_slider(MODEL, keep=0.5)
    values: dict[str, Any] = {
        name: getattr(slider, name) for name in ("keep", "smallest", "rows", "summary")
    }
    script = """async ([source, values]) => {
        const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
        const widget = (await import(url)).default;
        const listeners = [];
        window.sent = null;
        const model = {
            get: (name) => values[name], set: (name, value) => { values[name] = value; },
            save_changes: () => { window.sent = values.keep; },
            on: (name, listener) => listeners.push(listener),
        };
        widget.render({ model, el: document.body });
    }"""
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium)
        page = browser.new_page()
        page.evaluate(script, [slider._esm, json.loads(json.dumps(values))])
        assert page.locator("tr").count() == 3
        page.get_by_label("Share of the parameters to keep").fill("0.3")
        page.get_by_label("Share of the parameters to keep").dispatch_event("change")
        page.wait_for_function("window.sent === 0.3")
        browser.close()
