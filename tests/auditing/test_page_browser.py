"""The page in a real browser: the system's chromium, opened from a file."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.auditing.auditor import Audit
from rankscope.auditing.page.page import audit_to_html

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install 'rankscope[dev]'"
)
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
if CHROMIUM is None:
    pytest.skip("no chromium is installed: apt-get install chromium", allow_module_level=True)

from playwright.sync_api import Browser, Page, sync_playwright  # noqa: E402

NUM_ROWS = 26


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM)
        yield found
        found.close()


class Opened:
    """Pages in one browser, and all that they complained about or asked for."""

    def __init__(self, browser: Browser, folder: Path) -> None:
        self._browser = browser
        self._folder = folder
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def open(self, audit: Audit, *, width: int = 1280, scheme: str = "light") -> Page:
        path = self._folder / "audit.html"
        path.write_text(audit_to_html(audit), encoding="utf-8")
        context = self._browser.new_context(viewport={"width": width, "height": 800})
        page = context.new_page()
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(path.as_uri())
        return page


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Opened]:
    made = Opened(browser, tmp_path)
    yield made
    assert made.complaints == []
    assert all(url.startswith(("file:", "data:")) for url in made.requests)


def column(page: Page, number: int) -> list[float]:
    """Sorting values down a column of the table, without rows that have none."""
    found: list[float] = page.eval_on_selector_all(
        f"table.layers tbody tr td:nth-child({number})[data-value]",
        "cells => cells.map(cell => Number(cell.dataset.value))",
    )
    return found


def background(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_columns_sort_both_ways_and_rows_without_numbers_stay_last(
    opened: Opened, transformer: Audit
) -> None:
    page = opened.open(transformer)
    heading = page.get_by_role("columnheader", name="Stable")
    for order, is_descending in (("ascending", False), ("descending", True)):
        heading.get_by_role("button").press("Enter")
        assert heading.get_attribute("aria-sort") == order
        found = column(page, 5)
        assert len(found) == 20
        assert found == sorted(found, reverse=is_descending)
        last = page.locator("table.layers tbody tr").nth(NUM_ROWS - 1)
        assert "a vector" in last.inner_text()
    page.get_by_role("columnheader", name="Tensor").get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "none"
    assert page.locator("table.layers tbody tr").first.inner_text().startswith("lm_head.weight")


def test_the_filter_wants_every_word(opened: Opened, transformer: Audit) -> None:
    page = opened.open(transformer)
    assert page.get_by_role("status").inner_text() == "26 rows"
    page.get_by_label("Filter").fill("feed-forward layers.3.")
    assert page.locator("table.layers tbody tr:visible").count() == 2
    assert page.get_by_role("status").inner_text() == "2 of 26 rows"


def test_a_row_opens_its_spectrum_numbers_and_diagram(opened: Opened, transformer: Audit) -> None:
    page = opened.open(transformer)
    button = page.locator("table.layers button.open").nth(1)
    button.click()
    panel = page.get_by_role("region", name="model.layers.0.self_attn.q_proj.weight")
    assert button.get_attribute("aria-expanded") == "true"
    assert panel.locator("svg path.values").count() == 1
    assert panel.locator("svg path.twin").count() == 1
    seen = transformer.tensors[1].matrices[0]
    assert panel.locator("svg circle.outlier").count() == seen.outliers
    assert "Multi-head attention" in panel.locator(".diagram").inner_text()
    ranks = ", ".join(str(seen.rank_at[share]) for share in ("50", "90", "95", "99"))
    assert ranks in panel.locator(".numbers").inner_text()
    panel.get_by_role("button", name="head 2: query-key").click()
    assert panel.locator("h3").inner_text().endswith("q_proj.weight, head 2: query-key")
    page.keyboard.press("Escape")
    assert page.locator(".panel").count() == 0
    assert button.evaluate("button => button === document.activeElement")


def test_the_heat_map_is_walked_with_arrows_and_opens_below_itself(
    opened: Opened, transformer: Audit
) -> None:
    page = opened.open(transformer)
    first = page.locator("table.heat button").first
    first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    panel = page.locator("#heat .panel")
    assert panel.locator("h3").inner_text() == "model.layers.1.mlp.up_proj.weight"
    panel.get_by_role("button", name="Close").click()
    assert page.locator(".panel").count() == 0


def test_the_heat_map_shows_the_chosen_kind_of_rank(opened: Opened, transformer: Audit) -> None:
    page = opened.open(transformer)
    matrix = transformer.tensors[1].matrices[0]
    first = page.locator("table.heat button").first
    assert first.inner_text() == str(round(100 * matrix.effective_rank / 48))
    page.get_by_label("Kind of rank").select_option("stable")
    assert first.inner_text() == str(round(100 * matrix.stable_rank / 48))


def test_light_and_dark_follow_the_window_until_chosen(opened: Opened, transformer: Audit) -> None:
    page = opened.open(transformer, scheme="dark")
    dark = background(page)
    page.locator("#scheme").click()
    light = background(page)
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(11, 18, 32)")
    assert page.locator("#scheme").inner_text() == "Dark"


@pytest.mark.parametrize("name", ["transformer", "convolutional", "shape_only"])
def test_a_window_of_360_pixels_needs_no_sideways_scrolling(
    name: str, opened: Opened, request: pytest.FixtureRequest
) -> None:
    page = opened.open(request.getfixturevalue(name), width=360)
    for button in page.locator("table.layers button.open, table.heat button").all()[::9]:
        button.click()
        assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_on_paper_all_rows_are_there_and_controls_are_not(
    opened: Opened, transformer: Audit
) -> None:
    page = opened.open(transformer, scheme="dark")
    page.get_by_label("Filter").fill("lm_head")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("table.layers tbody tr:visible").count() == NUM_ROWS
    assert background(page) == "rgb(255, 255, 255)"
    for control in ("#scheme", "#filter", "#metric", "button.copy"):
        assert not page.locator(control).first.is_visible()


def test_commands_are_copied_or_selected(opened: Opened, transformer: Audit) -> None:
    page = opened.open(transformer)
    page.locator("button.copy").first.click()
    page.wait_for_function(
        "['Copied', 'Selected'].includes(document.querySelector('button.copy').textContent)"
    )


def test_hostile_names_are_shown_as_they_are(opened: Opened, transformer: Audit) -> None:
    hostile = '</script><img src=x onerror="throw 1"> ß 張 \u202e'
    rows = tuple(replace(row, name=hostile) for row in transformer.tensors[:2])
    page = opened.open(replace(transformer, tensors=rows))
    page.locator("table.layers button.open").first.click()
    assert page.locator(".panel h3").text_content() == hostile
    assert page.locator("img").count() == 0


def test_values_too_small_to_draw_are_mentioned(opened: Opened, transformer: Audit) -> None:
    row = transformer.tensors[0]
    values = (*row.matrices[0].singular_values[:-1], 0.0)
    short = replace(row, matrices=(replace(row.matrices[0], singular_values=values),))
    page = opened.open(replace(transformer, tensors=(row, short)))
    for number, is_mentioned in ((0, False), (1, True)):
        page.locator("table.layers button.open").nth(number).click()
        assert ("are not drawn" in page.locator(".spectrum").inner_text()) == is_mentioned


def test_a_zero_matrix_is_said_in_words(opened: Opened, transformer: Audit) -> None:
    zero = replace(
        transformer.tensors[0].matrices[0],
        singular_values=(0.0,) * 48,
        largest=0.0,
        random_edge=0.0,
        stable_rank=float("nan"),
    )
    page = opened.open(
        replace(transformer, tensors=(replace(transformer.tensors[0], matrices=(zero,)),))
    )
    page.locator("table.layers button.open").click()
    assert "All singular values are zero." in page.locator(".panel").inner_text()
