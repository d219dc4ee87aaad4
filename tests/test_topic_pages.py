"""The committed pages of topics are what docs/make_topics.py makes."""

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rankscope.lab.experiments import TOPICS, find_topic

DOCS = Path(__file__).parents[1] / "docs"
specification = importlib.util.spec_from_file_location("make_topics", DOCS / "make_topics.py")
assert specification is not None
assert specification.loader is not None
making = importlib.util.module_from_spec(specification)
specification.loader.exec_module(making)


DRAWN = ("softmax", "layer-normalization", "attention-lookup", "skip-connections")


@pytest.mark.slow
@pytest.mark.parametrize("name", TOPICS)
def test_a_page_is_what_its_topic_shows(name: str, tmp_path: Path) -> None:
    topic = find_topic(name)
    result = topic.run()
    committed = (DOCS / "topics" / f"{name}.md").read_text(encoding="utf-8")
    wanted = making.page(topic, result)
    assert making.comparable(committed) == making.comparable(wanted), "run `make topics`"
    for key in result.measured:
        assert f"| {key} |" in committed, "run `make topics`"
    for picture in result.pictures:
        root = ElementTree.parse(DOCS / "topics" / f"{name}-{picture}.svg").getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
    if name in DRAWN:
        paths = topic.draw(result, tmp_path / "new" / "folder")
        assert set(paths) == set(result.pictures)
        for picture, path in paths.items():
            assert path.name == f"{name}-{picture}.svg"
            assert path.stat().st_size > 500


def test_there_is_no_page_without_a_topic() -> None:
    pages = {path.stem for path in (DOCS / "topics").glob("*.md")}
    assert pages == {*TOPICS, "README"}
    index = (DOCS / "topics" / "README.md").read_text(encoding="utf-8")
    assert index == making.index(), "run `make topics`"
