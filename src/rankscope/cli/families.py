"""`rankscope families`: what can be drawn and priced by name."""

from rankscope.cli import console
from rankscope.cli.options import Json


def run(as_json: Json = False) -> None:
    """List the families and their settings."""
    from rankscope.diagrams.families import FAMILIES

    rows = {
        name: {
            "title": family.title,
            "summary": family.summary,
            "settings": [setting.name for setting in family.settings],
        }
        for name, family in FAMILIES.items()
    }
    if as_json:
        console.print_json(rows)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("family", "settings", "what it is"):
        table.add_column(heading)
    for name, family in FAMILIES.items():
        table.add_row(name, " ".join(s.name for s in family.settings), family.summary)
    Console(soft_wrap=True).print(table)
