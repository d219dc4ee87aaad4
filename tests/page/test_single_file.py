"""The page without a server: one file that asks for nothing."""

import json
import re
import subprocess
import sys
from base64 import b64encode
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing import Audit
from rankscope.page import audit_to_html
from rankscope.page.shell import STATIC
from rankscope.page.single_file import bundled, embedded_json

VOID = {"meta", "link", "input", "br", "wbr", "img"}


class Outline(HTMLParser):
    """Checks that every element is closed where it was opened; keeps ids and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.addresses += [v or "" for n, v in attrs if n in ("src", "href", "srcset", "action")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def data_of(page: str) -> Any:
    return json.loads(re.findall(r'id="data">(.*?)</script>', page, re.DOTALL)[0])


@pytest.mark.parametrize("name", ["transformer", "convolutional", "shape_only"])
def test_pages_are_well_formed_and_may_ask_for_nothing(
    name: str, request: pytest.FixtureRequest
) -> None:
    page = audit_to_html(request.getfixturevalue(name))
    found = Outline()
    found.feed(page)
    assert found.open == []
    assert set(found.addresses) == {"data:,"}
    assert "default-src 'none'" in page
    assert "connect-src" not in page


def test_only_the_one_script_may_run(transformer: Audit) -> None:
    page = audit_to_html(transformer)
    (script,) = re.findall(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page.replace("&#39;", "'")


def test_modules_are_put_together_each_once_after_what_it_needs() -> None:
    script = bundled("file.js")
    assert not re.search(r"^(import|export) ", script, re.MULTILINE)
    names = re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", script, re.MULTILINE)
    repeated = [name for name, count in Counter(names).items() if count > 1]
    assert repeated == []
    assert script.index("function h(") < script.index("function heatMap(")


def test_every_module_imports_in_the_one_form_that_can_be_put_together() -> None:
    for path in STATIC.glob("*.js"):
        for line in path.read_text("utf-8").splitlines():
            if line.startswith("import "):
                assert re.fullmatch(r'import (\{[^}]*\} from )?"\./[\w.]+";', line), (path, line)


def test_the_page_holds_the_whole_audit(transformer: Audit) -> None:
    data = data_of(audit_to_html(transformer))
    names = [row.name for row in transformer.tensors]
    assert [row["name"] for row in data["overview"]["tensors"]] == names
    assert set(data["spectra"]) == {row.name for row in transformer.tensors if row.matrices}
    assert len(data["pictures"]) == 5
    assert set(data["diagrams"].values()) == set(data["pictures"])


def test_a_hostile_name_stays_a_name(transformer: Audit) -> None:
    hostile = '</script><script>alert("1")</script><!-- \u2028 ß 張 {{ 7 * 7 }} \ud800'
    rows = tuple(replace(row, name=hostile, same_as=hostile) for row in transformer.tensors)
    page = audit_to_html(replace(transformer, source=hostile, tensors=rows))
    page.encode()
    assert page.count("<script") == 2
    assert {row["name"] for row in data_of(page)["overview"]["tensors"]} == {hostile}


@settings(deadline=None)
@given(st.text())
def test_any_text_survives_and_cannot_end_the_script(text: str) -> None:
    written = embedded_json({"name": text})
    assert json.loads(written) == {"name": text}
    assert "<" not in written


def test_two_hundred_tensors_fit_in_five_megabytes(transformer: Audit) -> None:
    # As wide as spectra get: 256 values each.
    wide = replace(
        transformer.tensors[0].matrices[0], singular_values=tuple(1 / (n + 3) for n in range(256))
    )
    thin = replace(wide, singular_values=wide.singular_values[:128])
    heads = tuple(replace(thin, name=f"head {number}: query-key") for number in range(8))
    row = replace(transformer.tensors[0], matrices=(wide, *heads))
    rows = [replace(row, name=f"layers.{place}.weight") for place in range(20)]
    ten, twenty = (
        len(audit_to_html(replace(transformer, tensors=tuple(rows[:count]))).encode())
        for count in (10, 20)
    )
    # Equal rows need equal room; one byte more where a number of a row has one digit more.
    assert ten + 19 * (twenty - ten + 10 * 10) <= 5 * 10**6


def test_a_page_about_a_configuration_loads_neither_torch_nor_matplotlib() -> None:
    code = (
        "import sys; from rankscope.page.single_file import audit_to_html;"
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
