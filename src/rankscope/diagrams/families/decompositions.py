"""Decompositions around a centre: CP, Tucker and hierarchical Tucker."""

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.families.legs import bonds, names, sites
from rankscope.diagrams.families.settings import Sizes, resolve_order, spread
from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.errors import FamilyError


def cp(*, order: int | None = None, sizes: Sizes = None, cp_rank: int | None = None) -> Diagram:
    r"""A CP decomposition: one rank index on every factor.

    .. math:: T_{i_1 \dots i_n} = \sum_r A^1_{i_1 r} \cdots A^n_{i_n r}

    Raises:
        FamilyError: if `sizes` are neither one nor `order` many.
    """
    order = resolve_order(order, sizes, default=3, family="cp")
    legs = sites(spread(sizes, order, what="cp: size", each="factor"))
    factors = tuple(
        Node(f"A{place}", (leg.name, "r"), label=rf"\mathbf{{A}}_{{{place}}}")
        for place, leg in enumerate(legs, 1)
    )
    joint = Index("r", cp_rank, "R", IndexKind.RANK)
    title = f"CP decomposition of order {order}"
    return Diagram("cp", (*legs, joint), factors, names(legs), title=title)


def tucker(*, order: int | None = None, sizes: Sizes = None, tucker_ranks: Sizes = None) -> Diagram:
    r"""A Tucker decomposition: a core, and one factor on each of its legs.

    .. math:: T_{i_1 \dots i_n} = \sum_{r} G_{r_1 \dots r_n} U^1_{i_1 r_1} \cdots U^n_{i_n r_n}

    Raises:
        FamilyError: if `sizes` or `tucker_ranks` are neither one nor `order` many.
    """
    order = resolve_order(order, sizes, default=3, family="tucker")
    legs = sites(spread(sizes, order, what="tucker: size", each="factor"))
    joints = bonds(spread(tucker_ranks, order, what="tucker: rank", each="factor"))
    core = Node("G", names(joints), Role.CORE, r"\mathcal{G}")
    title = f"Tucker decomposition of order {order}"
    nodes = (core, *_frames(legs, joints))
    return Diagram("tucker", (*legs, *joints), nodes, names(legs), title=title)


def hierarchical_tucker(
    *, order: int | None = None, sizes: Sizes = None, bond_dimensions: Sizes = None
) -> Diagram:
    r"""A hierarchical Tucker decomposition over a balanced binary tree.

    Positions a to b are split in the middle, the left half taking the odd one:

    .. math:: V^{a:b}_{i_a \dots i_b, r_{a:b}} = \sum B^{a:b}_{r_{a:m} r_{m+1:b} r_{a:b}}
              V^{a:m}_{i_a \dots i_m, r_{a:m}} V^{m+1:b}_{i_{m+1} \dots i_b, r_{m+1:b}}

    with V = U, a frame, where a = b; the root has no bond r upwards.

    Args:
        order: number of legs, at least 2.
        sizes: of the legs.
        bond_dimensions: one, or 2 * order - 2: those of the frames 1 to n, then those of the
            inner nodes, each after the ones below it, from left to right.

    Example:
        >>> hierarchical_tucker(order=3).node_by_name["B1_3"].indices
        ('r1_2', 'r3')

    Raises:
        FamilyError: if the order is 1, or a list of sizes has another length.
    """
    order = resolve_order(order, sizes, default=4, family="hierarchical-tucker")
    if order < 2:
        raise FamilyError(f"hierarchical-tucker: order must be at least 2, got {order}.")
    legs = sites(spread(sizes, order, what="hierarchical-tucker: size", each="frame"))
    splits = _splits(1, order)
    places = (*map(str, range(1, order + 1)), *(_place(a, b) for a, _, b in splits[:-1]))
    what = "hierarchical-tucker: rank (bond dimensions)"
    ranks = spread(bond_dimensions, len(places), what=what, each="bond")
    joints = tuple(_joint(place, rank) for place, rank in zip(places, ranks, strict=True))
    # The root comes first, as it is drawn on top.
    nodes = (*(_transfer(split, order) for split in reversed(splits)), *_frames(legs, joints))
    title = f"Hierarchical Tucker decomposition of order {order}"
    return Diagram("hierarchical-tucker", (*legs, *joints), nodes, names(legs), title=title)


def _frames(legs: tuple[Index, ...], joints: tuple[Index, ...]) -> tuple[Node, ...]:
    return tuple(
        Node(f"U{place}", (leg.name, joint.name), label=rf"\mathbf{{U}}_{{{place}}}")
        for place, (leg, joint) in enumerate(zip(legs, joints, strict=False), 1)
    )


def _splits(first: int, last: int) -> tuple[tuple[int, int, int], ...]:
    """(first, middle, last) of every inner node, those below before those above."""
    if first == last:
        return ()
    middle = (first + last) // 2
    return (*_splits(first, middle), *_splits(middle + 1, last), (first, middle, last))


def _place(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}_{last}"


def _joint(place: str, rank: int | None) -> Index:
    label = f"R_{{{place.replace('_', ':')}}}"
    return Index(f"r{place}", rank, f"R_{place}", IndexKind.RANK, label)


def _transfer(split: tuple[int, int, int], order: int) -> Node:
    first, middle, last = split
    held = [f"r{_place(first, middle)}", f"r{_place(middle + 1, last)}"]
    if (first, last) != (1, order):
        held.append(f"r{_place(first, last)}")
    label = rf"\mathcal{{B}}_{{{first}:{last}}}"
    return Node(f"B{_place(first, last)}", tuple(held), Role.CORE, label)
