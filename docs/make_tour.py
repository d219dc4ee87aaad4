"""The recorded tour of `rankscope open`: pictures of every step, and one that moves.

Usage: python docs/make_tour.py [MODEL] [--output FOLDER]

MODEL is a folder of Hugging Face, by default the embedded transformer; FOLDER keeps what the page
writes (candidates are computed once). Drives the system's chromium; writes docs/tour/*.webp, less
than a megabyte in all. The committed pictures are of SmolLM2-135M.
"""

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

TOUR = Path(__file__).parent / "tour"
SIZE = (1440, 900)
SHOWN = 1100  # pixels of width in the moving picture
PATIENCE = 40 * 60_000  # milliseconds: a large model on a busy machine
MILLISECONDS = 2200  # that each step of the moving picture is shown
START = "import sys; from rankscope.cli.entry import main; sys.exit(main())"


def main() -> None:
    """Record everything."""
    parser = argparse.ArgumentParser(description="The recorded tour of `rankscope open`.")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    TOUR.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        output = arguments.output or Path(folder)
        with served(arguments.model, output) as address, opened() as page:
            steps: dict[str, Callable[[], None]] = {
                "1-ranks": lambda: see_the_ranks(page, address),
                "2-slider": lambda: move_the_slider(page),
                "3-layer": lambda: open_a_layer(page),
                "4-saved": lambda: save(page),
                "5-split": lambda: split(page, address),
                "6-diagrams": lambda: draw(page, address),
            }
            pictures = []
            for name, take in steps.items():
                take()
                pictures.append(picture(page))
                write(pictures[-1], f"{name}-light")
                if name == "1-ranks":
                    page.emulate_media(color_scheme="dark")
                    write(picture(page), f"{name}-dark")
                    page.emulate_media(color_scheme="light")
                print(name, flush=True)
    height = round(SHOWN * SIZE[1] / SIZE[0])
    frames = [one.resize((SHOWN, height), Image.Resampling.LANCZOS) for one in pictures]
    frames[0].save(
        TOUR / "tour.webp", save_all=True, append_images=frames[1:], duration=MILLISECONDS,
        loop=0, quality=70, method=6,
    )  # fmt: skip
    total = sum(path.stat().st_size for path in TOUR.glob("*.webp"))
    print(f"{total:,} bytes in {TOUR}")


@contextmanager
def served(model: str | None, output: Path) -> Iterator[str]:
    """The address of a page that is served for a while."""
    words = [] if model is None else [model]
    command = [sys.executable, "-c", START, "open", *words, "--port", "0", "--no-browser"]
    with subprocess.Popen(
        [*command, "-o", str(output)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@contextmanager
def opened() -> Iterator[Page]:
    """An empty page of the system's chromium."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_context(
            viewport={"width": SIZE[0], "height": SIZE[1]}, reduced_motion="reduce"
        ).new_page()
        page.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)
        yield page
        browser.close()


def picture(page: Page) -> Image.Image:
    """What the window shows."""
    page.wait_for_timeout(300)
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def write(image: Image.Image, name: str) -> None:
    """A picture of one step."""
    image.save(TOUR / f"{name}.webp", quality=72, method=6)


# --- The steps ------------------------------------------------------------------------------------


def see_the_ranks(page: Page, address: str) -> None:
    """Verdict and heat map."""
    page.goto(address)
    expect(page.locator("#view-model .headline")).to_be_visible()
    expect(page.locator("table.heat .pending")).to_have_count(0)
    expect(
        page.get_by_text("Exact: no other").or_(page.get_by_text("The best that"))
    ).to_be_visible()


def move_the_slider(page: Page) -> None:
    """Keep 65 %, and show the ranks of the plan."""
    page.get_by_role("slider", name="Share of the model to keep").focus()
    for _ in range(30):
        page.keyboard.press("ArrowLeft")
    page.get_by_label("Kind of rank").select_option("plan")
    page.wait_for_timeout(6000)


def open_a_layer(page: Page) -> None:
    """The matrix of a block that the plan cuts most: spectrum, dense beside factored."""
    page.evaluate(
        """() => {
          const share = (each) => Number(each.style.getPropertyValue("--share") || 2);
          const cells = [...document.querySelectorAll("table.heat button")];
          cells.reduce((best, each) => (share(each) < share(best) ? each : best)).click();
        }"""
    )
    expect(page.locator(".pair svg.rankscope")).to_have_count(2)
    page.locator(".layer").evaluate("each => each.scrollIntoView({ block: 'start' })")


def save(page: Page) -> None:
    """Write the model, and show how it is opened."""
    page.keyboard.press("Escape")
    page.evaluate("scrollTo(0, 0)")
    page.get_by_role("button", name="Save this model").click()
    expect(page.locator(".save pre")).to_be_visible()
    page.locator(".save").evaluate("each => each.scrollIntoView({ block: 'end' })")


def split(page: Page, address: str) -> None:
    """Measure a split exactly."""
    page.goto("about:blank")
    page.goto(f"{address}#split")
    expect(page.locator(".split-figure svg")).to_be_visible()
    page.get_by_role("button", name="Measure the exact rank").click()
    expect(page.get_by_role("button", name="Download the certificate")).to_be_visible()


def draw(page: Page, address: str) -> None:
    """Multi-head attention from its template."""
    page.goto("about:blank")
    page.goto(f"{address}#diagrams")
    page.locator("[data-template=multi-head]").click()
    expect(page.locator(".canvas .tensor").first).to_be_visible()
    page.locator(".canvas .tensor[data-tensor=WQ]").click()
    page.wait_for_timeout(1500)


if __name__ == "__main__":
    main()
