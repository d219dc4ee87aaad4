"""The page without a server: one file that opens from a folder, with its data in it.

The same modules and the same style sheet as `rankscope open`. A browser does not load modules from
a folder, so they are put together into one script, whose hash is the only one that may run.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from rankscope.auditing.auditor import Audit
from rankscope.page.layer_diagrams import LayerDiagrams, layer_diagrams
from rankscope.page.model_data import overview, spectrum_data
from rankscope.page.shell import STATIC, finite, stylesheet, templates

if TYPE_CHECKING:
    from rankscope.compression.plan import Plan
    from rankscope.robust.certification import Certification

ENTRY = "file.js"
_IMPORT = re.compile(r'^import (?:\{[^}]*\} from )?"\./([\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function |const |let |class )", re.MULTILINE)


def audit_to_html(
    audit: Audit, *, plan: "Plan | None" = None, certification: "Certification | None" = None
) -> str:
    """Write the page of an audit: verdict, heat map, tensors, and on a click a spectrum.

    It opens from a folder, in light and dark, in narrow windows and on paper.

    Args:
        audit: of the model.
        plan: that was carried out on it, shown beside.
        certification: of the model, shown above.
    """
    diagrams = layer_diagrams(audit) if audit.tensors else LayerDiagrams()
    pictures = dict(diagrams.pictures)
    keys = zip(audit.tensors, diagrams.keys, strict=False)
    data = {
        "overview": overview(audit, is_complete=True),
        "spectra": {row.name: spectrum_data(row) for row in audit.tensors if row.matrices},
        "diagrams": {row.name: key for row, key in keys if key is not None},
        "pictures": pictures,
        "problem": diagrams.problem,
        "plan": None if plan is None else plan.to_dict(),
        "certification": None if certification is None else _certified(certification),
    }
    script = bundled(ENTRY)
    digest = b64encode(sha256(f"\n{script}\n".encode()).digest()).decode()
    text: str = (
        templates()
        .get_template("file.html")
        .render(
            name=str(data["overview"]["name"]),  # type: ignore[index]
            style=stylesheet(),
            script=script,
            digest=digest,
            data=embedded_json(data),
            version=version("rankscope"),
        )
    )
    # A lone surrogate has no UTF-8; names come from files that anyone may have written.
    return text.encode("utf-8", "replace").decode("utf-8")


def _certified(found: "Certification") -> dict[str, object]:
    document: Mapping[str, Any] = found.to_dict()
    return dict(document)


@cache
def bundled(entry: str) -> str:
    """A module with everything it imports as one script, each after what it needs.

    All top-level names of the modules are different; a test sees to it.
    """
    done: dict[str, str] = {}

    def add(name: str) -> None:
        if name in done:
            return
        text = (STATIC / name).read_text("utf-8")
        done[name] = ""  # so that a circle ends
        for needed in _IMPORT.findall(text):
            add(needed)
        del done[name]
        done[name] = _EXPORT.sub("", _IMPORT.sub("", text))

    add(entry)
    return "\n".join(done.values())


def embedded_json(value: object) -> str:
    r"""JSON for a script element: the text cannot end it, and numbers that JSON lacks are null.

    Example:
        >>> embedded_json({"name": "</script>", "rank": float("nan")})
        '{"name":"\\u003c/script>","rank":null}'
    """
    return json.dumps(finite(value), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
