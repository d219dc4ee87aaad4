"""Small edits of whole diagrams: a batch index on the data, a causal mask on the scores."""

from dataclasses import replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.parts import Index, IndexKind, Role
from rankscope.errors import DiagramError


def with_batch(diagram: Diagram, *, batch_size: int | None = None) -> Diagram:
    """Put a batch index b, of size B, first on every data node and on the output.

    Example:
        >>> from rankscope.diagrams.families import multi_head
        >>> with_batch(multi_head()).output
        ('b', 'n', 'o')

    Raises:
        DiagramError: if no node is data, or an index is already called b.
    """
    if not any(node.role is Role.DATA for node in diagram.nodes):
        raise DiagramError(
            f"Diagram {diagram.name!r} has no data node that could carry a batch index."
        )
    return replace(
        diagram,
        indices=(*diagram.indices, Index("b", batch_size, "B", IndexKind.BATCH)),
        nodes=tuple(
            replace(node, indices=("b", *node.indices)) if node.role is Role.DATA else node
            for node in diagram.nodes
        ),
        output=("b", *diagram.output),
    )


def with_causal_mask(diagram: Diagram, *, query: str = "n", key: str = "m") -> Diagram:
    """Mask every region that normalizes over `key`: no query looks at a later key.

    Example:
        >>> from rankscope.diagrams.families import multi_head
        >>> with_causal_mask(multi_head()).regions[0].causal
        ('n', 'm')

    Raises:
        DiagramError: if no region normalizes over `key`, or `query` does not leave one that does.
    """
    if not any(key in region.over for region in diagram.regions):
        raise DiagramError(
            f"Diagram {diagram.name!r} has no region that normalizes over index {key!r}, "
            "so there is nothing to mask."
        )
    return replace(
        diagram,
        regions=tuple(
            replace(region, causal=(query, key)) if key in region.over else region
            for region in diagram.regions
        ),
    )
