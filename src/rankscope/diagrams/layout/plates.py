"""Plates: an index that merely repeats the whole picture is a dotted frame, not a wire."""

from dataclasses import replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.layout.placement import View
from rankscope.diagrams.layout.tensors import WIRE_FONT
from rankscope.diagrams.layout.wording import index_text
from rankscope.diagrams.parts import IndexKind, Role
from rankscope.diagrams.pictures.mathtext import place_label
from rankscope.diagrams.pictures.scene import Label, Scene, Shape, ShapeKind

PADDING, FOOT = 20.0, 16.0


def plate_indices(diagram: Diagram) -> tuple[str, ...]:
    """Indices that every data tensor (at least two), the open legs, and nothing else carry.

    Where all tensors are data, as in a plain einsum, only batch indices count: there an index
    on every operand is an elementwise product, which deserves its dot.
    """
    data = [node.name for node in diagram.nodes if node.role is Role.DATA]
    is_all_data = len(data) == len(diagram.nodes)
    used = [index for region in diagram.regions for index in (*region.over, *(region.causal or ()))]
    found = []
    for index in diagram.output:
        owners = diagram.structure.owners[index]
        is_batch = diagram.index_by_name[index].kind is IndexKind.BATCH
        if (
            len(owners) >= 2
            and sorted(owners) == sorted(data)
            and index not in used
            and (is_batch or not is_all_data)
        ):
            found.append(index)
    return tuple(found)


def without_indices(diagram: Diagram, indices: tuple[str, ...]) -> Diagram:
    """What stands inside the plates."""
    if not indices:
        return diagram
    return replace(
        diagram,
        indices=tuple(index for index in diagram.indices if index.name not in indices),
        nodes=tuple(
            replace(node, indices=tuple(index for index in node.indices if index not in indices))
            for node in diagram.nodes
        ),
        output=tuple(index for index in diagram.output if index not in indices),
    )


def with_plate(scene: Scene, diagram: Diagram, index_name: str, view: View) -> Scene:
    """A picture inside a dotted frame that says how often it is repeated."""
    index = diagram.index_by_name[index_name]
    left, top, right, bottom = scene.box
    left, top, right, bottom = left - PADDING, top - PADDING, right + PADDING, bottom + PADDING
    bottom += FOOT
    frame = Shape(
        index_name,
        ShapeKind.FRAME,
        (left + right) / 2,
        (top + bottom) / 2,
        right - left,
        bottom - top,
        "plate",
        f"repeated for every {index_name}",
    )
    text = rf"$\times\,{index_text(index, view)[1:]}"
    label = place_label(
        text, (right - FOOT, bottom - 12.0), size=WIRE_FONT, style="on-plate", anchor="rb"
    )
    owned = Label(label.text, label.x, label.y, label.size, label.style, label.box, index_name)
    return replace(scene, frames=(frame, *scene.frames), labels=(*scene.labels, owned))
