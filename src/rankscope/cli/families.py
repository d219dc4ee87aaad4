"""`rankscope families`: the diagrams that can be drawn and priced by name."""

from rankscope.cli import console
from rankscope.cli.options import Json


def run(as_json: Json = False) -> None:
    """List the families and their settings."""
    from rankscope.diagrams.families.catalogue import FAMILIES

    document = {
        name: {
            "title": family.title,
            "summary": family.summary,
            "settings": [setting.name for setting in family.settings],
        }
        for name, family in FAMILIES.items()
    }
    if as_json:
        console.print_json(document)
        return
    rows = [("family", "settings", "what it is")]
    for name, family in FAMILIES.items():
        settings = " ".join(setting.name for setting in family.settings)
        rows.append((name, settings, family.summary))
    console.print_columns(rows)
