"""The page in the system's chromium: the three minutes, by mouse and by keys; and the one file."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.page.conftest import Served, until

from rankscope.auditing import Audit
from rankscope.cli.main import main
from rankscope.page import audit_to_html

pytest.importorskip("playwright.sync_api", reason="pip install 'rankscope[dev]'")

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

SLOW = 120_000  # milliseconds, for machines that do other things
pytestmark = pytest.mark.slow
expect.set_options(timeout=SLOW)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that may not complain, and asks this machine only."""
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, reduced_motion="reduce", accept_downloads=True
    )
    page = context.new_page()
    page.set_default_timeout(SLOW)
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    yield page
    assert complaints == []
    local = ("http://127.0.0.1:", "file:", "data:", "blob:")
    assert all(url.startswith(local) for url in requests)
    context.close()


def serious(page: Page) -> list[Any]:
    found = Axe().run(page).response["violations"]
    return [
        (each["id"], [n["target"] for n in each["nodes"]][:3])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


def test_the_three_minutes(page: Page, llama: Served, folder: Path) -> None:
    page.goto(llama.address)
    see_the_ranks(page)
    move_the_slider(page)
    look_at_a_layer(page)
    save_and_reload(page, folder)


def see_the_ranks(page: Page) -> None:
    """Verdict and heat map at once, from shapes; the weights follow."""
    expect(page.locator(".headline")).to_be_visible()
    cells = page.locator("table.heat button")
    assert cells.count() >= 3 * 7
    expect(page.locator("table.heat .pending")).to_have_count(0)
    heads = page.locator("table.heat thead th").all_inner_texts()
    assert heads[1:] == ["0", "1", "2"]


def move_the_slider(page: Page) -> None:
    keep = page.get_by_role("slider", name="Share of the model to keep")
    expect(page.get_by_text("Exact: no other choice")).to_be_visible()
    total = page.locator(".totals tr").first
    before = total.text_content()
    keep.focus()
    for _ in range(30):
        page.keyboard.press("ArrowLeft")
    expect(page.locator(".keep-line output")).to_have_text("65.0 %")
    expect(page.get_by_text("Exact: no other choice")).to_be_visible()
    # The plan before may still be shown, exact as it was.
    expect(total).not_to_have_text(before or "")
    page.get_by_label("Kind of rank").select_option("plan")


def look_at_a_layer(page: Page) -> None:
    """Spectrum, cut, dense beside factored, pin, figure."""
    page.get_by_role("button", name=re.compile("layers.1.mlp.up_proj")).first.click()
    panel = page.get_by_role("region", name="model.layers.1.mlp.up_proj.weight")
    expect(panel.locator("svg .cut-line")).to_have_count(1)
    expect(panel.locator(".pair svg.rankscope")).to_have_count(2)
    cut = panel.locator("text.cut-name").text_content() or ""
    error = panel.get_by_role("slider", name="Error of this layer")
    error.press("End")
    expect(panel.locator("text.cut-name")).not_to_have_text(cut)
    panel.get_by_role("button", name="Pin this choice").click()
    expect(page.locator(".pins li")).to_have_count(1)
    assert serious(page) == []
    with page.expect_download() as download:
        panel.get_by_role("button", name="SVG").last.click()
    assert download.value.suggested_filename == "layer.svg"
    with page.expect_download() as download:
        panel.get_by_role("button", name="SVG").first.click()
    assert download.value.suggested_filename == "spectrum.svg"
    with page.expect_download() as download:
        page.get_by_role("group", name="Figure of this map").get_by_text("TikZ").click()
    assert download.value.suggested_filename == "plan-ranks.tikz"
    page.keyboard.press("Escape")


def save_and_reload(page: Page, folder: Path) -> None:
    page.get_by_role("textbox", name="Name of the folder").fill("tour")
    page.get_by_role("button", name="Save this model").click()
    page.reload()
    expect(page.get_by_text("Saved as tour")).to_be_visible()
    # The same when all is told before the view of the model is there.
    held: list[Route] = []
    page.route("**/static/table.js", lambda route: held.append(route))
    with page.expect_request("**/api/events*"):
        page.reload()
    while not held:
        page.wait_for_timeout(50)
    held[0].continue_()
    expect(page.get_by_text("Saved as tour")).to_be_visible()
    assert (folder / "output" / "tour" / "config.json").is_file()
    assert "from_pretrained" in page.locator(".save pre").inner_text()


def test_a_split_is_marked_cut_measured_and_its_certificate_verified(
    page: Page, llama: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page.goto(f"{llama.address}#split")
    marks = page.locator("button.mark")
    expect(marks).to_have_count(5)
    expect(page.locator(".split-figure svg")).to_be_visible()
    page.get_by_role("button", name="left and right").click()
    expect(page.locator(".cut-value strong")).to_have_text("2")
    marks.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    expect(marks.nth(1)).to_have_attribute("aria-pressed", "false")
    expect(page.locator(".cut-value strong")).to_have_text("4")
    assert serious(page) == []
    page.get_by_role("button", name="Measure the exact rank").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the certificate").click()
    path = tmp_path / "certificate.json"
    download.value.save_as(path)
    assert main(["verify", str(path)]) == 0
    assert "PROVED" in capsys.readouterr().out


def test_candidates_are_shown_whose_event_came_before_the_page_listened(
    page: Page, llama: Served
) -> None:
    until(lambda: llama.ask("/model")["candidates"])
    first = [True]

    def answer(route: Route) -> None:
        model = route.fetch().json()
        if first.pop() if first else False:
            model["candidates"] = None
        route.fulfill(json=model)

    page.route("**/api/model", answer)
    page.goto(llama.address)
    expect(page.get_by_text("Exact: no other choice")).to_be_visible()


def test_candidates_of_an_event_are_not_lost_to_an_older_answer(page: Page, llama: Served) -> None:
    until(lambda: llama.ask("/model")["is_complete"])
    candidates = until(lambda: llama.ask("/model")["candidates"])
    event = json.dumps({"kind": "candidates", "candidates": candidates, "problem": None})
    asked: list[Route] = []
    shown: list[bool] = []

    def answer(route: Route) -> None:
        asked.append(route)
        if len(asked) == 1:  # before there are candidates; what is asked later waits
            route.fulfill(json=route.fetch().json() | {"candidates": None})

    def tell(route: Route) -> None:
        if not shown:
            route.fulfill(body=f"{event}\n")

    page.route("**/api/model", answer)
    page.route("**/api/events*", tell)
    page.goto(llama.address)
    expect(page.locator(".keep-line")).to_be_visible()
    shown.append(True)
    while len(asked) < 2:
        page.wait_for_timeout(50)
    # The second answer was also made before, and comes after the event.
    asked[1].fulfill(json=asked[1].fetch().json() | {"candidates": None})
    expect(page.locator("#say")).to_have_text("All weights are read.")
    page.get_by_role("slider", name="Share of the model to keep").press("ArrowLeft")
    expect(page.locator(".keep-line output")).to_have_text("79.5 %")
    expect(page.get_by_text(re.compile("Exact: no other|The best that was found"))).to_be_visible()
    assert page.locator(".side-column .alert:visible").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["model", "split", "diagrams"])
def test_nothing_serious_is_found_on_any_view(
    page: Page, llama: Served, view: str, scheme: Any
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{llama.address}#{view}")
    loaded = {"model": ".totals", "split": ".split-figure svg", "diagrams": ".workspace"}[view]
    expect(page.locator(f"#view-{view} {loaded}").first).to_be_visible()
    assert serious(page) == []


def test_views_are_reached_by_keys_and_a_hostile_name_is_a_name(page: Page, llama: Served) -> None:
    page.goto(llama.address)
    page.get_by_role("tab", name="Model").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("tab", name="Split")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowRight")
    page.get_by_label("Filter").fill("up_proj layers.2")
    expect(page.locator("table.tensors tbody tr")).to_have_count(1)
    page.locator("table.tensors tbody button").press("Enter")
    expect(page.locator(".layer h2")).to_have_text("model.layers.2.mlp.up_proj.weight")


@pytest.mark.parametrize("width", [400, 768])
def test_narrow_windows_need_no_sideways_scrolling(page: Page, llama: Served, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    for view in ("model", "split"):
        page.goto("about:blank")
        page.goto(f"{llama.address}#{view}")
        expect(page.locator(f"#view-{view} .card").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


# --- The one file ---------------------------------------------------------------------------------


def opened(page: Page, audit: Audit, tmp_path: Path) -> Page:
    path = tmp_path / "audit.html"
    path.write_text(audit_to_html(audit), encoding="utf-8")
    page.goto(path.as_uri())
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_file_shows_the_same_view(
    page: Page, transformer: Audit, tmp_path: Path, scheme: Any
) -> None:
    page.emulate_media(color_scheme=scheme)
    opened(page, transformer, tmp_path)
    expect(page.locator(".headline")).to_be_visible()
    first = page.locator("table.heat button").first
    matrix = transformer.tensors[1].matrices[0]
    assert first.inner_text() == str(round(100 * matrix.effective_rank / 48))
    page.get_by_label("Kind of rank").select_option("stable")
    first = page.locator("table.heat button").first
    assert first.inner_text() == str(round(100 * matrix.stable_rank / 48))
    first.click()
    panel = page.get_by_role("region", name="model.layers.0.self_attn.q_proj.weight")
    assert panel.locator("svg path.values").count() == 1
    assert panel.locator("svg circle.outlier").count() == matrix.outliers
    panel.get_by_role("button", name="head 2: query-key").click()
    assert panel.locator(".diagram svg").count() == 1
    assert serious(page) == []
    page.keyboard.press("Escape")
    assert page.locator(".layer").count() == 0
    page.get_by_role("columnheader", name="Stable").get_by_role("button").click()
    found = page.eval_on_selector_all(
        "table.tensors tbody tr td:nth-child(6)", "cells => cells.map(c => Number(c.textContent))"
    )
    assert found == sorted(found)


def test_the_file_is_printed_whole_in_light_and_without_buttons(
    page: Page, transformer: Audit, tmp_path: Path
) -> None:
    opened(page, transformer, tmp_path)
    page.emulate_media(media="print")
    for hidden in (".top", ".command button", "#filter", "select"):
        assert not page.locator(hidden).first.is_visible(), hidden
    assert page.locator("table.heat").is_visible()
    assert page.locator(".headline").is_visible()


def test_the_command_is_copied_and_the_theme_is_switched_and_kept(
    page: Page, transformer: Audit, tmp_path: Path
) -> None:
    opened(page, transformer, tmp_path)
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    button = page.locator("button.copy").first
    button.click()
    expect(button).to_have_text(re.compile("Copied|Selected"))
    colors = [background(page)]
    page.get_by_role("button", name="Switch between light and dark").click()
    colors.append(background(page))
    assert colors[0] != colors[1]
    page.reload()
    assert background(page) == colors[1]


def background(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_the_file_fits_the_narrowest_telephone(
    page: Page, transformer: Audit, tmp_path: Path
) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    opened(page, transformer, tmp_path)
    page.locator("table.heat button").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_names_and_zeros_in_a_file_are_shown_as_they_are(
    page: Page, transformer: Audit, tmp_path: Path
) -> None:
    hostile = '</script><img src=x onerror="throw 1"> ß 張 \u202e'
    zero = replace(
        transformer.tensors[0].matrices[0],
        singular_values=(0.0,) * 48,
        largest=0.0,
        random_edge=0.0,
    )
    rows = (
        replace(transformer.tensors[0], name=hostile),
        replace(transformer.tensors[2], matrices=(zero,)),
    )
    opened(page, replace(transformer, tensors=rows), tmp_path)
    page.locator("table.tensors tbody button").first.click()
    assert page.locator(".layer h2").text_content() == hostile
    assert page.locator("img").count() == 0
    page.locator("table.tensors tbody button").nth(1).click()
    assert "All singular values are zero." in page.locator(".layer").inner_text()
