"""The diagram workspace in a real browser: by keyboard only, and judged by axe."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("starlette")
pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

from playwright.sync_api import Browser, Page, Route, expect  # noqa: E402
from tests.page.conftest import Served, serve_in_thread  # noqa: E402

from rankscope.page import Session  # noqa: E402

pytestmark = pytest.mark.slow
PATIENCE = 120_000  # milliseconds: a machine may be busy
expect.set_options(timeout=PATIENCE)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Served]:
    yield from serve_in_thread(Session(None, tmp_path / "output"))


@pytest.fixture
def page(browser: Browser, own: Served) -> Iterator[Page]:
    complaints: list[str] = []
    made = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    made.set_default_timeout(PATIENCE)
    made.on("console", lambda message: complaints.append(message.text))
    made.on("pageerror", lambda error: complaints.append(str(error)))
    made.goto(f"{own.address}#diagrams")
    made.wait_for_selector(".workspace")
    yield made
    made.context.close()
    assert complaints == []


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(120):
        if page.evaluate("s => document.activeElement.matches(s)", selector):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab never reaches {selector}")


def serious(page: Page) -> list[str]:
    results: Any = axe.Axe().run(page)
    return [
        f"{found['id']}: {found['nodes'][0]['html']}"
        for found in results.response["violations"]
        if found["impact"] in ("serious", "critical")
    ]


def test_attention_from_the_template_by_keyboard_only(page: Page, tmp_path: Path) -> None:
    """Template, sizes, export; the source runs and equals PyTorch's own layer; undo to nothing."""
    tab_to(page, "[data-template=multi-head]")
    page.keyboard.press("Enter")
    page.wait_for_selector("#field-N")
    for name, size in {"N": 5, "M": 5, "F": 8, "H": 2, "D": 4}.items():
        tab_to(page, f"#field-{name}")
        page.keyboard.press("Control+A")
        page.keyboard.type(str(size))
        page.keyboard.press("Tab")
        expect(page.locator(f"#field-{name}")).to_have_value(str(size))
    expect(page.locator("#diagram-code")).to_contain_text("Takes query (5, 8), memory (5, 8)")
    tab_to(page, "#export-python")
    with page.expect_download() as saved:
        page.keyboard.press("Enter")
    path = tmp_path / saved.value.suggested_filename
    saved.value.save_as(path)
    space: dict[str, Any] = {}
    exec(compile(path.read_text(encoding="utf-8"), path.name, "exec"), space)
    module = space["MultiHead"]()
    layer = nn.MultiheadAttention(8, 2, bias=False, batch_first=True)
    parts = [getattr(module, name).permute(2, 1, 0).reshape(8, 8) for name in ("WQ", "WK", "WV")]
    layer.in_proj_weight.data = torch.cat(parts)
    layer.out_proj.weight.data = module.WO.permute(0, 2, 1).reshape(8, 8)
    inputs = torch.randn(5, 8)
    expected, _ = layer(inputs[None], inputs[None], inputs[None])
    torch.testing.assert_close(module(inputs, inputs), expected[0])
    page.locator("#diagram-canvas").focus()
    for _ in range(6):
        page.keyboard.press("Control+z")
        page.wait_for_timeout(50)
    expect(page.locator("#diagram-canvas .nothing")).to_be_visible()
    expect(page.locator("#tool-undo")).to_be_disabled()


def test_no_edit_is_lost_while_the_server_is_slow(page: Page) -> None:
    """Sizes typed and undone while the first edit is under way all arrive, in their order."""
    page.locator("[data-template=multi-head]").click()
    page.wait_for_selector("#field-N")
    held: list[Route] = []
    page.route("**/diagrams/edit", lambda route: held.append(route), times=1)
    for name, size in {"N": 5, "M": 6, "F": 8}.items():
        page.locator(f"#field-{name}").fill(str(size))
        page.locator(f"#field-{name}").press("Tab")
    page.locator("#tool-undo").click()
    expect(page.locator("#field-F")).to_have_value("8")
    held[0].continue_()
    expect(page.locator("#diagram-code")).to_contain_text("Takes query (5, 768), memory (6, 768)")


def test_a_diagram_is_built_by_keys(page: Page) -> None:
    """Two tensors, connected, walked along, behind a barrier, and moved."""
    canvas = page.locator("#diagram-canvas")
    canvas.focus()
    page.keyboard.press("t")
    expect(page.locator(".canvas .tensor")).to_have_count(1)
    page.keyboard.press("t")
    expect(page.locator(".canvas .tensor")).to_have_count(2)
    page.locator(".canvas .tensor").first.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+Enter")
    expect(page.locator(".canvas .tensor.selected")).to_have_count(2)
    page.keyboard.press("c")
    expect(page.locator("#diagram-einsum")).to_have_value("ij,jl->il")
    page.keyboard.press("x")
    expect(page.locator("#diagram-program")).to_contain_text("softmax")
    page.get_by_role("button", name="Barrier R1: softmax").click()
    page.locator("#field-barrier-function").select_option("relu")
    expect(page.locator("#diagram-program")).to_contain_text("relu")
    first = page.locator(".canvas .tensor").first
    before = first.bounding_box()
    first.focus()
    for _ in range(4):
        page.keyboard.press("Shift+ArrowUp")
    expect(page.locator("#tool-undo")).to_be_enabled()
    page.wait_for_function(
        "y => document.querySelector('.canvas .tensor').getBoundingClientRect().y != y",
        arg=before and before["y"],
    )


def test_a_typo_points_at_its_letter_and_the_picture_stays(page: Page) -> None:
    field = page.locator("#diagram-einsum")
    field.fill("ij,jk->ik")
    expect(page.locator(".canvas .tensor")).to_have_count(2)
    field.fill("ij,j?->ik")
    mark = page.locator("#diagram-typo mark")
    expect(mark).to_have_text("?")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(page.locator(".canvas .tensor")).to_have_count(2)
    field.fill("ij,jk,kl->il")
    expect(page.locator(".canvas .tensor")).to_have_count(3)
    expect(page.locator("#diagram-typo")).to_be_hidden()


def test_picture_equations_code_and_steps_are_linked(page: Page) -> None:
    page.locator("[data-template=multi-head]").click()
    page.wait_for_selector(".canvas .tensor")
    expect(page.locator("#diagram-code [data-tensor=WQ]").first).to_be_attached()
    page.locator(".canvas .tensor[data-tensor=WQ]").hover()
    for place in ("#diagram-program", "#diagram-code", "#diagram-tensors", "#diagram-timeline"):
        assert page.locator(f"{place} .linked").count() > 0, place
    page.locator("#diagram-program [data-wire=h]").first.hover()
    assert page.locator(".canvas .wire.linked").count() > 0


def test_steps_factors_comparison_and_dragging(page: Page) -> None:
    page.locator("#diagram-einsum").fill("ijk->ijk")
    tensor = page.locator(".canvas .tensor")
    expect(tensor).to_have_count(1)
    page.locator("#tool-compare").click()
    expect(page.locator("#diagram-compared svg")).to_be_visible()
    tensor.first.click()
    page.locator("#field-factor-form").select_option("train")
    page.get_by_role("button", name="Factor", exact=True).click()
    expect(tensor).to_have_count(3)
    expect(page.locator("#diagram-cost")).to_contain_text("New: A1, A2, A3. Gone: A.")
    page.locator("#diagram-step").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".canvas .caption")).to_contain_text("FLOP")
    page.keyboard.press("ArrowLeft")
    expect(tensor).to_have_count(3)
    box = tensor.nth(1).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + 90, steps=4)
    page.mouse.up()
    page.wait_for_function(
        "y => document.querySelectorAll('.canvas .tensor')[1].getBoundingClientRect().y > y + 10",
        arg=box["y"],
    )


def middle(page: Page, wire: str) -> tuple[float, float]:
    box = page.locator(f".canvas .grip[data-wire={wire}]").first.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_a_leg_is_dragged_onto_another_and_repeats_are_collapsed(page: Page) -> None:
    page.locator("#diagram-einsum").fill("ij,kl->ijkl")
    expect(page.locator(".canvas .tensor")).to_have_count(2)
    page.mouse.move(*middle(page, "j"))
    page.mouse.down()
    page.mouse.move(*middle(page, "k"), steps=6)
    page.mouse.up()
    expect(page.locator("#diagram-einsum")).to_have_value("ij,jl->il")
    page.locator("[data-template=tensor-train]").click()
    page.wait_for_selector("#field-order")
    page.locator("#field-order").fill("12")
    page.locator("#field-order").press("Tab")
    expect(page.locator(".canvas .tensor")).to_have_count(12)
    page.locator("#tool-collapse").click()
    expect(page.locator(".canvas .tensor")).to_have_count(3)
    page.locator("#tool-collapse").click()
    expect(page.locator(".canvas .tensor")).to_have_count(12)


def test_nothing_serious_is_found_and_nothing_is_too_wide(page: Page) -> None:
    assert serious(page) == []
    page.locator("[data-template=multi-head]").click()
    page.wait_for_selector(".canvas .tensor")
    page.locator(".canvas .tensor").first.click()
    page.wait_for_selector("#field-tensor-role")
    for width, scheme in ((1440, "light"), (768, "dark"), (400, "light"), (400, "dark")):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.set_viewport_size({"width": width, "height": 900})
        assert serious(page) == [], (width, scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
