"""`rankscope explain`: what the constructions show, one topic at a time."""

import textwrap
from pathlib import Path
from typing import Annotated

import typer

from rankscope.cli import console
from rankscope.cli.options import Json
from rankscope.files import require_writable

WIDTH = 88


def run(
    name: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="Without one, topics are listed.")
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Where pictures are written.")
    ] = Path(),
    as_json: Json = False,
) -> None:
    """Explain a topic: its statement, where it is from, a small run with numbers, and pictures."""
    if name is None:
        _list_topics(as_json=as_json)
        return
    from rankscope.lab.constructions.topic import format_value
    from rankscope.lab.experiments.catalogue import find_topic

    topic = find_topic(name)
    require_writable(output, is_folder=True)
    with console.working(f"running {name}"):
        result = topic.run()
    numbers = {**result.numbers, **result.measured}
    if as_json:
        console.print_json(
            {
                "topic": topic.name,
                "title": topic.title,
                "statement": topic.statement,
                "reference": topic.reference.to_dict(),
                "numbers": numbers,
                "measured": list(result.measured),
                "pictures": {key: str(path) for key, path in topic.draw(result, output).items()},
            }
        )
        return
    print(f"{topic.title}\n\n{textwrap.fill(topic.statement, WIDTH)}\n")
    console.print_text(f"Reference: {topic.reference}")
    if topic.reference.assumptions:
        console.print_text(f"Assumes: {'; '.join(topic.reference.assumptions)}")
    print()
    console.print_columns([(key, format_value(value)) for key, value in numbers.items()])
    print()
    for path in topic.draw(result, output).values():
        print(path)


def _list_topics(*, as_json: bool) -> None:
    from rankscope.lab.experiments.catalogue import TOPIC_GROUPS

    if as_json:
        groups = {
            group: {topic.name: topic.title for topic in topics}
            for group, topics in TOPIC_GROUPS.items()
        }
        console.print_json({"topics": groups})
        return
    for number, (group, topics) in enumerate(TOPIC_GROUPS.items()):
        print(f"\n{group}" if number else group)
        console.print_columns([(f"  {topic.name}", topic.title) for topic in topics])
