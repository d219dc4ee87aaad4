"""`rankscope models`: every name that stands for a model, and which commands take it."""

from rankscope.cli import console
from rankscope.cli.options import Json


def run(as_json: Json = False) -> None:
    """List the names of the catalogue: built-in networks, exact networks, families of diagrams."""
    from rankscope.models import catalogue, open_model

    rows = {name: (entry.kind, open_model(name).commands) for name, entry in catalogue().items()}
    if as_json:
        console.print_json(
            {name: {"kind": kind, "commands": commands} for name, (kind, commands) in rows.items()}
        )
        return
    table = [(name, kind, " ".join(commands)) for name, (kind, commands) in rows.items()]
    console.print_columns([("model", "kind", "commands"), *table])
