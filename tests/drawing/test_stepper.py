import json
import re
from dataclasses import dataclass, replace
from html.parser import HTMLParser

import pytest

from rankscope.diagrams import Diagram, Index, Node, Role, Sum, Term
from rankscope.drawing import DARK, LIGHT, PRINT, Theme, to_html
from rankscope.errors import SizeError


def chain(*, title: str = "Chain") -> Diagram:
    indices = tuple(Index(name, size) for name, size in zip("ijkl", (2, 3, 4, 5), strict=True))
    nodes = (
        Node("A", ("i", "j"), Role.DATA),
        Node("B", ("j", "k")),
        Node("C", ("k", "l")),
    )
    return Diagram("chain", indices, nodes, ("i", "l"), title=title)


class Page(HTMLParser):
    """Tags with their attributes, and the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            self.scripts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self.open.append(f"/{tag}")

    def found(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_every_frame_is_a_figure_and_only_the_first_is_shown() -> None:
    page = Page(to_html(chain()))
    figures = page.found("figure")
    assert len(figures) == 3
    assert ["hidden" in figure for figure in figures] == [False, True, True]
    assert len(page.found("svg")) == 3


def test_nothing_is_loaded_from_elsewhere() -> None:
    text = to_html(chain())
    page = Page(text)
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed")
        assert not {"src", "href", "xlink:href"} & set(attributes), tag
    addresses = set(re.findall(r"https?://[^\s\"'<]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}
    policies = [meta["content"] for meta in page.found("meta") if "http-equiv" in meta]
    assert [str(policy).startswith("default-src 'none'") for policy in policies] == [True]


def test_ids_are_unique() -> None:
    identifiers = [
        attributes["id"] for _, attributes in Page(to_html(chain())).tags if "id" in attributes
    ]
    assert len(set(identifiers)) == len(identifiers)


@dataclass(frozen=True)
class Told:
    text: str
    moves: tuple[tuple[str, float, float], ...]


def steps(text: str) -> list[Told]:
    return [
        Told(step["text"], tuple((m["name"], m["dx"], m["dy"]) for m in step["moves"]))
        for step in json.loads(Page(text).scripts[0])
    ]


def test_every_step_is_spoken_and_tells_how_far_tensors_move() -> None:
    start, first, second = steps(to_html(chain()))
    assert start.moves == ()
    assert start.text.startswith("start;")
    assert first.text.endswith("48 FLOP, 8 values.")
    (a, a_right, a_down), (b, b_right, b_down) = first.moves
    assert (a, b) == ("A", "B")
    assert a_right == -b_right > 0
    assert a_down == b_down == 0
    assert [name for name, _, _ in second.moves] == ["T1", "C"]


def test_controls_have_names_and_the_caption_is_live() -> None:
    page = Page(to_html(chain()))
    assert [button.get("aria-label") for button in page.found("button")] == [
        "Previous step",
        None,
        "Next step",
    ]
    (slider,) = page.found("input")
    assert slider["max"] == "2"
    assert slider["aria-label"] == "Step"
    assert [p["aria-live"] for p in page.found("p") if "aria-live" in p] == ["polite"]
    assert "prefers-reduced-motion" in to_html(chain())


def test_the_total_cost_is_shown() -> None:
    total = 2 * 2 * 3 * 4 + 2 * 2 * 4 * 5
    assert f"2 steps: {total} FLOP, largest intermediate 10 values" in to_html(chain())


@pytest.mark.parametrize(("theme", "scheme"), [(LIGHT, "light"), (DARK, "dark"), (PRINT, "light")])
def test_the_page_has_the_colours_of_the_theme(theme: Theme, scheme: str) -> None:
    text = to_html(chain(), theme=theme)
    assert f"color-scheme: {scheme};" in text
    assert f"--background: {theme.background};" in text


def test_text_from_outside_cannot_leave_its_place() -> None:
    evil = "</script><script>alert(1)</script> @frames@ & \"'"
    diagram = replace(chain(title=evil), name=evil)
    nodes = (replace(diagram.nodes[0], name="</script><b>"), *diagram.nodes[1:])
    text = to_html(replace(diagram, nodes=nodes))
    assert "alert(1)</script>" not in text.replace("&lt;", "<!").replace("&gt;", "!>")
    assert "<title>&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt; @frames@ &amp;" in text
    page = Page(text)
    assert len(page.found("script")) == 2
    assert not page.found("b")


def test_all_chapters_of_a_sum_follow_each_other() -> None:
    total = Sum("sum", (Term(chain()), Term(chain())))
    found = steps(to_html(total))
    assert len(found) == 6
    assert found[3].text.startswith("term 2 of 2: start;")
    assert found[3].moves == ()


def test_the_same_diagram_gives_the_same_page() -> None:
    assert to_html(chain()) == to_html(chain())


def test_a_diagram_without_sizes_has_no_best_order() -> None:
    with pytest.raises(SizeError, match="i"):
        to_html(Diagram("unsized", (Index("i"),), (Node("A", ("i",)), Node("B", ("i",))), ()))
