"""Tensor diagrams of a model's layers: one for every kind of layer and size that it has."""

from dataclasses import dataclass

from rankscope.auditing.auditor import Audit
from rankscope.auditing.configuration import Configuration
from rankscope.auditing.tensors import TensorRow
from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.families.attention import grouped_query, multi_head
from rankscope.diagrams.parts import Convolution, Index, IndexKind, Node, Role
from rankscope.errors import MissingExtraError

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
