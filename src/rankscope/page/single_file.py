"""The page without a server: one file that opens from a folder, with its data in it.

The same modules and the same style sheet as `rankscope open`. A browser does not load modules from
a folder, so they are put together into one script, whose hash is the only one that may run.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from rankscope.auditing.auditor import Audit
from rankscope.auditing.configuration import Configuration
from rankscope.auditing.tensors import TensorRow
from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.families.attention import grouped_query, multi_head
from rankscope.diagrams.parts import Convolution, Index, IndexKind, Node, Role
from rankscope.errors import MissingExtraError
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


# --- Tensor diagrams of layers: one for every kind of layer and size ------------------------------


# Names of an input, kernel and output leg for each direction, and the symbols of input and output.
DIRECTIONS = (
    ("rows", ("h", "u", "y"), ("H", "H'", r"H^{\prime}")),
    ("columns", ("w", "v", "x"), ("W", "W'", r"W^{\prime}")),
    ("slices", ("d", "a", "z"), ("D", "D'", r"D^{\prime}")),
)


@dataclass(frozen=True)
class LayerDiagrams:
    """Pictures by key, the key of each tensor of the audit, and why there are no pictures."""

    keys: tuple[str | None, ...] = ()
    pictures: tuple[tuple[str, str], ...] = ()
    problem: str | None = None


def layer_diagrams(audit: Audit) -> LayerDiagrams:
    """Draw each diagram once; a page without matplotlib says that it has none, and why."""
    wanted = [layer_diagram(row, audit.configuration) for row in audit.tensors]
    different = {diagram: f"diagram{place}" for place, diagram in enumerate(_different(wanted))}
    keys = tuple(None if diagram is None else different[diagram] for diagram in wanted)
    try:
        pictures = tuple((key, _picture(diagram, key)) for diagram, key in different.items())
    except MissingExtraError as error:
        return LayerDiagrams(keys=(None,) * len(keys), problem=str(error))
    return LayerDiagrams(keys, pictures)


def layer_diagram(row: TensorRow, configuration: Configuration | None) -> Diagram | None:
    """What a layer does with a tensor, as a diagram; None for vectors and what has no spectrum."""
    if not row.matrices:
        return None
    is_kernel = len(row.shape) > 2 and row.shape[0] > 1 and not _holds_experts(row)
    if is_kernel:
        return _convolution(row.shape) if len(row.shape) <= 2 + len(DIRECTIONS) else None
    if row.part == "attention" and configuration is not None:
        return _attention(configuration)
    return _embedding(row.shape) if row.part == "embedding" else _linear(row, configuration)


def _holds_experts(row: TensorRow) -> bool:
    return row.matrices[0].name.startswith("expert")


def _different(wanted: list[Diagram | None]) -> dict[Diagram, None]:
    return dict.fromkeys(diagram for diagram in wanted if diagram is not None)


def _picture(diagram: Diagram, key: str) -> str:
    # Imported here: a page about a configuration alone draws nothing, and must be quick.
    from rankscope.drawing.layout.placement import View
    from rankscope.drawing.page import compose
    from rankscope.drawing.svg import to_svg

    return to_svg(compose(diagram, view=View(show_sizes=True)), prefix=f"{key}-")


def _attention(shape: Configuration) -> Diagram:
    if shape.key_value_heads == shape.heads:
        return multi_head(
            num_features=shape.width, num_heads=shape.heads, head_size=shape.head_size
        )
    return grouped_query(
        num_features=shape.width,
        num_heads=shape.heads,
        head_size=shape.head_size,
        num_groups=shape.key_value_heads,
    )


def _linear(row: TensorRow, configuration: Configuration | None) -> Diagram:
    # The tensor may hold several maps side by side, or one map for each expert.
    rows, columns = row.matrices[0].shape if len(row.shape) > 2 else row.shape
    if configuration is not None and configuration.family == "gpt2" and ".c_" in row.name:
        rows, columns = columns, rows  # GPT-2 stores (inputs, outputs)
    return Diagram(
        "linear",
        (
            Index("n", None, "N", IndexKind.SEQUENCE),
            Index("i", columns, "I", IndexKind.FEATURE),
            Index("o", rows, "O", IndexKind.FEATURE),
        ),
        (Node("X", ("n", "i"), Role.DATA), Node("W", ("o", "i"))),
        output=("n", "o"),
        title="Linear map",
    )


def _embedding(shape: tuple[int, ...]) -> Diagram:
    return Diagram(
        "embedding",
        (
            Index("n", None, "N", IndexKind.SEQUENCE),
            Index("v", shape[-2], "V", IndexKind.FEATURE),
            Index("f", shape[-1], "F", IndexKind.FEATURE),
        ),
        (Node("X", ("n", "v"), Role.DATA, is_one_hot=True), Node("E", ("v", "f"))),
        output=("n", "f"),
        title="Embedding",
    )


def _convolution(shape: tuple[int, ...]) -> Diagram:
    directions = DIRECTIONS[: len(shape) - 2]
    indices = [
        Index("s", shape[1], "S", IndexKind.FEATURE),
        Index("t", shape[0], "T", IndexKind.FEATURE),
    ]
    # One symbol says that all directions have one size.
    is_cubic = len(set(shape[2:])) == 1
    for (_, (into, kernel, out), (symbol, after, label)), size in zip(
        directions, shape[2:], strict=True
    ):
        indices += [
            Index(into, None, symbol, IndexKind.SPACE),
            Index(kernel, size, "k" if is_cubic else f"k_{symbol.lower()}", IndexKind.SPACE),
            Index(out, None, after, IndexKind.SPACE, label),
        ]
    legs = [legs for _, legs, _ in directions]
    return Diagram(
        "convolution",
        tuple(indices),
        (
            Node("X", ("s", *(into for into, _, _ in legs)), Role.DATA, r"\mathcal{X}"),
            Node("K", ("t", "s", *(kernel for _, kernel, _ in legs)), label=r"\mathcal{K}"),
        ),
        output=("t", *(out for _, _, out in legs)),
        convolutions=tuple(Convolution(name, *window) for name, window, _ in directions),
        title="Convolution",
    )
