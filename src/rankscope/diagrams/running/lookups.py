"""Look-ups: a one-hot tensor times a table picks rows, and is never multiplied out."""

from collections.abc import Collection, Sequence

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.structure import Operand
from rankscope.errors import ContractionError


def one_hot_operands(diagram: Diagram, region: str | None) -> tuple[str, ...]:
    """Names of a region's one-hot nodes.

    Raises:
        ContractionError: if the last index of one is open, or does not meet exactly one tensor
            inside the region.
    """
    operands = diagram.structure.operands[region]
    nodes = [diagram.node_by_name.get(operand.name) for operand in operands]
    found = tuple(node for node in nodes if node is not None and node.is_one_hot)
    for node in found:
        value = node.indices[-1]
        others = list(diagram.structure.owners[value])
        others.remove(node.name)
        here = [o.name for o in operands if value in o.indices and o.name != node.name]
        if value in diagram.output or len(others) != 1 or len(here) != 1:
            raise ContractionError(
                f"One-hot node {node.name!r} picks along its last index {value!r}, which must be "
                f"closed and held by one other tensor of the same region, but it is held by "
                f"{others or 'none'}{' and open' if value in diagram.output else ''}."
            )
    return tuple(node.name for node in found)


def next_lookup(listed: Sequence[Operand], one_hot: Collection[str]) -> tuple[int, int]:
    """Positions of a one-hot operand and of the table it picks from.

    Raises:
        ContractionError: if one-hot operands only pick from each other.
    """
    for place, operand in enumerate(listed):
        if operand.name not in one_hot:
            continue
        table = next(
            other
            for other, held in enumerate(listed)
            if other != place and operand.indices[-1] in held.indices
        )
        if listed[table].name not in one_hot:
            return place, table
    raise ContractionError(
        f"One-hot nodes {', '.join(one_hot)} pick from each other; one of them must pick from a "
        "tensor of numbers."
    )


def picked_indices(one_hot: Operand, table: Operand) -> tuple[str, ...]:
    """Indices of what is picked: those of the integers, then what the table has besides."""
    held = dict.fromkeys(one_hot.indices[:-1])
    rest = [index for index in table.indices if index != one_hot.indices[-1]]
    return tuple(dict.fromkeys((*held, *rest)))
