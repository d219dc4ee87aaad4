"""The documentation site: built without the network, and every link of it leads somewhere."""

import importlib.util
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("zensical", reason="zensical is not installed: pip install 'rankscope[site]'")

ROOT = Path(__file__).parents[1]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_site", ROOT / "docs" / "make_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Page(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if values.get("rel") == "canonical":
            return
        links = [values[name] for name in ("href", "src") if values.get(name)]
        self.links += links
        if tag in ("script", "link", "img", "iframe"):
            self.loaded += links


@pytest.mark.slow
def test_the_site_is_whole_and_needs_no_network(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    script().main(folder)
    pages = {path.resolve(): Page(path) for path in folder.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        assert not [link for link in page.loaded if urlsplit(link).netloc], path
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchors = pages[target].anchors if target in pages else {parts.fragment}
            is_found = parts.fragment in (*anchors, "") or parts.fragment.startswith("__")
            if not target.is_file() or not is_found:
                broken.append((str(path.relative_to(folder.resolve())), link))
    assert broken == []
    start = (folder / "index.html").read_text(encoding="utf-8")
    assert "Rankscope computes the rank between two groups" in start
    reference = (folder / "reference" / "rankscope.rank.html").read_text(encoding="utf-8")
    assert "measure_rank" in reference


def test_every_facade_has_a_page_of_reference() -> None:
    made = script()
    packages = {
        ".".join(("rankscope", *stub.parent.relative_to(ROOT / "src" / "rankscope").parts))
        for stub in (ROOT / "src" / "rankscope").rglob("__init__.pyi")
    }
    assert packages <= set(made.PACKAGES)
    for package in made.PACKAGES:
        assert made.public_names(package), package


def test_every_page_is_in_the_navigation() -> None:
    config = script().configuration()
    for page in (ROOT / "docs").glob("*.md"):
        assert f'"{page.name}"' in config, page.name
    for folder in ("questions", "experiments"):
        for page in (ROOT / "docs" / folder).glob("*.md"):
            assert f'"{folder}/{page.name}"' in config, page.name
