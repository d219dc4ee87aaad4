"""Results show themselves: one short line, and safe HTML or SVG for notebooks."""

from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

import rankscope
from rankscope import Partition, SelfAttention
from rankscope.diagrams import Diagram, Index, Node, Sum, Term
from rankscope.display import LONGEST_TABLE, Table, fragment

SHORT = 300  # characters
EVIL = "<script>alert(1)</script>"


class Tags(HTMLParser):
    """Every tag of a text, and whether all are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def results() -> list[object]:
    network, partition = SelfAttention(depth=2, width=2, heads=1), Partition.interleaved(4)
    measured = rankscope.measure_rank(network, partition)
    certificate = rankscope.certify_rank(network, partition, measured)
    compressed = rankscope.compress(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), keep=0.5)
    layer = rankscope.diagrams.family("tensor-train", order=3, size=3, rank=2)
    return [
        rankscope.audit(),
        rankscope.plan(1_300_000_000),
        compressed,
        compressed.plan,
        measured,
        measured.upper,
        certificate,
        rankscope.verify(certificate),
        rankscope.cost(layer),
    ]


@pytest.mark.parametrize("result", results(), ids=lambda result: type(result).__name__)
def test_a_result_is_one_short_line_and_a_piece_of_html(result: object) -> None:
    assert len(repr(result)) < SHORT
    assert "\n" not in repr(result)
    assert repr(result).startswith(f"<{type(result).__name__}")
    tags = Tags(result._repr_html_())  # type: ignore[attr-defined]
    assert tags.open == []
    assert set(tags.names) <= {"div", "p", "table", "thead", "tbody", "tr", "th", "td"}


def test_pictures_of_diagrams_sums_and_networks_are_svg() -> None:
    product = rankscope.diagrams.from_einsum("ij,jk->ik")
    total = Sum("total", (Term(product), Term(product, 2.0)))
    network = rankscope.from_module(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), (2, 3))
    for drawable, text in (
        (product, "<Diagram einsum: 2 tensors, open legs i, k>"),
        (total, "<Sum total: 2 terms>"),
        (network, None),
    ):
        assert text is None or repr(drawable) == text
        assert len(repr(drawable)) < SHORT
        picture = drawable._repr_svg_()
        assert picture is not None
        assert ElementTree.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"


def test_without_the_extra_there_is_no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("rankscope.display.import_module", missing)
    assert rankscope.diagrams.from_einsum("ij,jk->ik")._repr_svg_() is None


def test_names_of_strangers_are_text() -> None:
    audit = replace(rankscope.audit(nn.Linear(2, 3)), source=EVIL)
    assert "<script" not in audit._repr_html_()
    model = nn.Module()
    model.add_module(EVIL, nn.Linear(8, 8))
    plan = rankscope.compress(model, keep=0.9).plan
    assert "<script" not in plan._repr_html_()
    diagram = Diagram(EVIL, (Index("i"),), (Node(EVIL, ("i",), label="x"),), output=("i",))
    assert "<script" not in (diagram._repr_svg_() or "")
    assert "\n" not in repr(replace(diagram, name="a\nb"))


def test_a_long_table_says_how_many_rows_are_left_out() -> None:
    shown = fragment("long", table=Table(("one",), [(str(row),) for row in range(100)]))
    assert Tags(shown).names.count("tr") == LONGEST_TABLE + 1
    assert f"{100 - LONGEST_TABLE} more rows are not shown." in shown


def test_robustness_shows_every_radius() -> None:
    layer = nn.Linear(2, 2, bias=False)
    nn.init.eye_(layer.weight)
    corners = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    proved = rankscope.certify_robustness(layer, (corners, torch.tensor([0, 1])), [0.25, 0.5])
    assert Tags(proved._repr_html_()).names.count("tr") == 3
