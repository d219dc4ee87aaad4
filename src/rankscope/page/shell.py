"""The page itself: one template, one style sheet, and the modules in `static/`."""

import json
import math
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankscope.extras import package
from rankscope.page.words import diagram_colors, page_colors

if TYPE_CHECKING:
    from rankscope.page.session import Session

HERE = Path(str(files("rankscope.page")))
STATIC = HERE / "static"


def page_html(session: "Session") -> str:
    """The page with its navigation; its modules fill the views."""
    name = session.model or "the embedded transformer"
    text: str = (
        templates()
        .get_template("page.html")
        .render(name=name, folder=session.output.name, version=version("rankscope"))
    )
    return text


@cache
def templates() -> Any:
    """The templates, whose every value is escaped.

    Raises:
        MissingExtraError: if jinja2 is not installed.
    """
    jinja2 = package("jinja2", what="The page", extra="open")
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def stylesheet() -> str:
    """One style sheet: colours of both themes, as the drawings have them, then the rules."""
    rules = (STATIC / "page.css").read_text("utf-8")
    return f":root {{\n{page_colors()}\n}}\n{diagram_colors()}\n{rules}"


def finite(value: object) -> object:
    """Plain data without NaN and infinities, for which JSON has no word.

    Example:
        >>> finite({"ranks": (1.0, float("nan"))})
        {'ranks': [1.0, None]}
    """
    match value:
        case float():
            return value if math.isfinite(value) else None
        case list() | tuple():
            return [finite(entry) for entry in value]
        case Mapping():
            return {key: finite(entry) for key, entry in value.items()}
        case _:
            return value


def encoded(document: object) -> bytes:
    """JSON in ASCII, so that names which are no text are written too; what is no number is null."""
    return json.dumps(finite(document), separators=(",", ":"), allow_nan=False).encode()
