"""Make docs/topics, a page for each topic of `rankscope explain`: `make topics`.

Numbers that are the same on every machine are on the page as they are; those that depend on the
machine (times, what training ended with) stand between two comments, and no test compares them.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from rankscope.files import write_atomically
from rankscope.lab.constructions.topic import Topic, TopicResult, Value, format_value
from rankscope.lab.experiments.catalogue import TOPIC_GROUPS, TOPICS, find_topic

FOLDER = Path(__file__).parent / "topics"
_MEASURED = re.compile(r"<!-- measured -->\n.*?<!-- end of measured -->\n", re.DOTALL)


def page(topic: Topic, result: TopicResult) -> str:
    """One topic as Markdown."""
    reference = topic.reference
    lines = [f"# {topic.title}", "", topic.statement, "", f"Reference: {reference}."]
    if reference.assumptions:
        lines += ["", f"Assumes: {'; '.join(reference.assumptions)}."]
    lines += ["", "```", f"rankscope explain {topic.name}", "```", ""]
    lines += _table(result.numbers)
    if result.measured:
        lines += ["<!-- measured -->", "Measured on the machine that made this page:", ""]
        lines += [*_table(result.measured), "<!-- end of measured -->", ""]
    for name in result.pictures:
        lines += [f"![{topic.title}: {name}]({topic.name}-{name}.svg)", ""]
    return "\n".join(lines)


def _table(numbers: Mapping[str, Value]) -> list[str]:
    rows = [(_cell(name), _cell(format_value(value))) for name, value in numbers.items()]
    return ["| what | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows), ""]


def _cell(text: str) -> str:
    """Bars would end the cell."""
    return text.replace("|", r"\|")


def index() -> str:
    """The list of all pages."""
    lines = [
        "# Topics",
        "",
        "What networks are made of, one statement and one small run at a time.",
    ]
    lines += ["`rankscope explain TOPIC` makes the same numbers and pictures; these pages are made"]
    lines += ["by docs/make_topics.py.", ""]
    for group, topics in TOPIC_GROUPS.items():
        lines += [f"## {group}", ""]
        lines += [f"- [{topic.title}]({topic.name}.md)" for topic in topics]
        lines += [""]
    return "\n".join(lines)


def comparable(text: str) -> str:
    """A page without what depends on the machine."""
    return _MEASURED.sub("", text)


def main() -> None:
    """Run every topic, or those that are named, draw their pictures and write their pages."""
    FOLDER.mkdir(exist_ok=True)
    for topic in map(find_topic, sys.argv[1:] or TOPICS):
        result = topic.run()
        topic.draw(result, FOLDER)
        write_atomically(FOLDER / f"{topic.name}.md", page(topic, result).encode())
    write_atomically(FOLDER / "README.md", index().encode())


if __name__ == "__main__":
    main()
