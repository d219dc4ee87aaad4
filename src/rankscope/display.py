"""Results in a notebook: small pieces of HTML without scripts, whose every text is escaped.

A result says what it is in one line (`repr`) and shows itself as a title, facts and a table
(`_repr_html_`). Colours are those of the notebook, so light and dark need nothing here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module

LONGEST_TABLE = 40  # rows
_TITLE = "font-weight:600;margin:0 0 .4em"
_FACT = "margin:0 0 .3em;max-width:60em"
_CELL = "padding:.2em .8em .2em 0;text-align:{side};vertical-align:top"


@dataclass(frozen=True)
class Table:
    """Rows of text under a head.

    Args:
        head: one word or two for each column.
        rows: as many texts each.
        numbers: columns that stand to the right.
    """

    head: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    numbers: tuple[int, ...] = ()


def fragment(title: str, facts: Iterable[str] = (), table: Table | None = None) -> str:
    """A title, sentences below it, and a table of at most 40 rows that says how many are left out.

    Example:
        >>> print(fragment("<b>", ["one"]))
        <div class="rankscope">
        <p style="font-weight:600;margin:0 0 .4em">&lt;b&gt;</p>
        <p style="margin:0 0 .3em;max-width:60em">one</p>
        </div>
    """
    lines = [f'<p style="{_TITLE}">{escape(title)}</p>']
    lines += [f'<p style="{_FACT}">{escape(fact)}</p>' for fact in facts]
    if table is not None and table.rows:
        lines.append(_table(table))
        hidden = len(table.rows) - LONGEST_TABLE
        if hidden > 0:
            lines.append(f'<p style="{_FACT}">{hidden:,} more rows are not shown.</p>')
    return "\n".join(('<div class="rankscope">', *lines, "</div>"))


def _table(table: Table) -> str:
    head = _row(table.head, table.numbers, 'th scope="col"')
    body = "\n".join(_row(row, table.numbers, "td") for row in table.rows[:LONGEST_TABLE])
    return (
        f'<table style="border-collapse:collapse"><thead>\n{head}\n</thead>'
        f"<tbody>\n{body}\n</tbody></table>"
    )


def _row(cells: Sequence[str], numbers: tuple[int, ...], tag: str) -> str:
    name = tag.split()[0]
    written = (
        f'<{tag} style="{_CELL.format(side="right" if place in numbers else "left")}">'
        f"{escape(cell)}</{name}>"
        for place, cell in enumerate(cells)
    )
    return f"<tr>{''.join(written)}</tr>"


def picture(drawable: object) -> str | None:
    """The picture of a diagram, a sum or a network as SVG; None where nothing can draw it.

    The package that draws builds on the one that holds diagrams, so it is found by its name.
    """
    try:
        drawing = import_module("rankscope.drawing")
        return str(drawing.to_svg(drawing.compose(drawable)))
    except ImportError:  # the extra `draw` is not installed; the text stands for the picture
        return None


def counted(count: int, what: str) -> str:
    """A count with its noun.

    Example:
        >>> counted(1, "tensor"), counted(1200, "tensor")
        ('1 tensor', '1,200 tensors')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"
