import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from rankscope.auditing.auditor import Audit
from rankscope.auditing.page.page import audit_to_html

VOID = {"meta", "link", "input", "br", "wbr", "img"}


class Outline(HTMLParser):
    """Checks that every element is closed where it was opened; keeps ids and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "srcset", "action"):
                self.addresses.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def outline(page: str) -> Outline:
    found = Outline()
    found.feed(page)
    found.close()
    return found


@pytest.mark.parametrize("name", ["transformer", "convolutional", "shape_only"])
def test_pages_are_well_formed_and_ask_for_nothing(
    name: str, request: pytest.FixtureRequest
) -> None:
    page = audit_to_html(request.getfixturevalue(name))
    found = outline(page)
    assert found.open == []
    assert len(set(found.ids)) == len(found.ids)
    assert set(found.addresses) == {"data:,"}
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|https?://(?!www\.w3\.org)", page)


def test_the_page_holds_the_whole_audit(transformer: Audit) -> None:
    page = audit_to_html(transformer)
    data = json.loads(re.findall(r'id="data">(.*?)</script>', page, re.DOTALL)[0])
    assert [row["name"] for row in data["tensors"]] == [row.name for row in transformer.tensors]
    assert "1 warning, 1 piece of advice, 1 note" in page
    assert page.count("<template data-diagram") == 5


def test_sections_stand_in_the_order_of_reading(transformer: Audit) -> None:
    page = audit_to_html(transformer)
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", page) == [
        "What was found",
        "Where the parameters are",
        "Depth against width",
        "Ranks across the model",
        "Every tensor",
    ]


def test_a_configuration_alone_says_that_there_are_no_weights(shape_only: Audit) -> None:
    page = audit_to_html(shape_only)
    assert "there are no weights to show" in page
    assert "<table" in page
    assert "Ranks across the model" not in page


def test_weights_alone_have_no_plane_and_no_findings(convolutional: Audit) -> None:
    page = audit_to_html(convolutional)
    assert "Depth against width" not in page
    assert "no findings" in page


def test_a_hostile_name_stays_a_name(transformer: Audit) -> None:
    hostile = '</script><script>alert("1")</script><!-- \u2028 ß 張 @data@'
    rows = tuple(replace(row, name=hostile, same_as=hostile) for row in transformer.tensors)
    page = audit_to_html(replace(transformer, source=hostile, tensors=rows))
    found = outline(page)
    assert found.open == []
    assert page.count("<script") == 2
    data = json.loads(re.findall(r'id="data">(.*?)</script>', page, re.DOTALL)[0])
    assert {row["name"] for row in data["tensors"]} == {hostile}


def test_two_hundred_tensors_fit_in_five_megabytes(transformer: Audit) -> None:
    # As wide as spectra get: 256 values each.
    wide = replace(
        transformer.tensors[0].matrices[0], singular_values=tuple(1 / (n + 3) for n in range(256))
    )
    thin = replace(wide, singular_values=wide.singular_values[:128])
    heads = tuple(replace(thin, name=f"head {number}: query-key") for number in range(8))
    row = replace(transformer.tensors[0], matrices=(wide, *heads))
    ten, twenty = (
        len(audit_to_html(replace(transformer, tensors=(row,) * count)).encode())
        for count in (10, 20)
    )
    # Equal rows need equal room; one byte more where a number of a row has one digit more.
    assert ten + 19 * (twenty - ten + 10 * 10) <= 5 * 10**6


def test_a_page_about_a_configuration_loads_neither_torch_nor_matplotlib() -> None:
    code = (
        "import sys; from rankscope.auditing.page.page import audit_to_html;"
        "from rankscope.auditing.auditor import Audit;"
        "from rankscope.auditing.configuration import Configuration, Parameters;"
        "counts = Parameters(attention=4 * 64**2, feed_forward=8 * 64**2);"
        "shape = Configuration('gpt2', 1, 64, 4, 16, 4, 256, 100, 64, counts);"
        "audit_to_html(Audit('config.json', shape, counts, ()));"
        "print([name for name in ('torch', 'numpy', 'numba', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"
