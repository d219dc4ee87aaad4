"""Chains of cores: tensor train, tensor-train matrix and tensor ring."""

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.families.legs import bonds, names, sites
from rankscope.diagrams.families.settings import Sizes, resolve_order, spread
from rankscope.diagrams.parts import Index, Node


def tensor_train(
    *, order: int | None = None, sizes: Sizes = None, bond_dimensions: Sizes = None
) -> Diagram:
    r"""A tensor train; the first and last core have no outer bond.

    .. math:: T_{i_1 \dots i_n} = \sum_{r} G^1_{i_1 r_1} G^2_{r_1 i_2 r_2} \cdots G^n_{r_{n-1} i_n}

    Example:
        >>> tensor_train(order=3).node_by_name["G2"].indices
        ('r1', 'i2', 'r2')

    Raises:
        FamilyError: if a list of sizes has another length than the train has sites or bonds.
    """
    order = resolve_order(order, sizes, default=5, family="tensor-train")
    legs = sites(spread(sizes, order, what="tensor-train: size", each="site"))
    joints = _inner_bonds("tensor-train", order, bond_dimensions)
    return Diagram(
        "tensor-train",
        (*legs, *joints),
        _cores(tuple((leg,) for leg in legs), (None, *joints, None)),
        names(legs),
        title=f"Tensor train of order {order}",
    )


def tensor_train_matrix(
    *,
    order: int | None = None,
    sizes: Sizes = None,
    out_sizes: Sizes = None,
    bond_dimensions: Sizes = None,
) -> Diagram:
    r"""A matrix in tensor-train form: rows are split into `sizes`, columns into `out_sizes`.

    .. math:: M_{(i_1 \dots i_n), (j_1 \dots j_n)} = \sum_r G^1_{i_1 j_1 r_1} \cdots
              G^n_{r_{n-1} i_n j_n}

    Example:
        >>> tensor_train_matrix(order=2).output
        ('i1', 'i2', 'j1', 'j2')

    Raises:
        FamilyError: if a list of sizes has another length than the train has sites or bonds.
    """
    known = sizes if isinstance(sizes, tuple) else out_sizes
    order = resolve_order(order, known, default=4, family="tt-matrix")
    rows = sites(spread(sizes, order, what="tt-matrix: size", each="core"))
    columns = sites(spread(out_sizes, order, what="tt-matrix: out", each="core"), letter="j")
    joints = _inner_bonds("tt-matrix", order, bond_dimensions)
    return Diagram(
        "tt-matrix",
        (*rows, *columns, *joints),
        _cores(tuple(zip(rows, columns, strict=True)), (None, *joints, None)),
        (*names(rows), *names(columns)),
        title=f"Tensor-train matrix of order {order}",
    )


def tensor_ring(
    *, order: int | None = None, sizes: Sizes = None, bond_dimensions: Sizes = None
) -> Diagram:
    r"""A tensor ring; bond n joins the last core to the first.

    .. math:: T_{i_1 \dots i_n} = \sum_{r} G^1_{r_n i_1 r_1} G^2_{r_1 i_2 r_2} \cdots
              G^n_{r_{n-1} i_n r_n}

    Example:
        >>> tensor_ring(order=3).node_by_name["G1"].indices
        ('r3', 'i1', 'r1')

    Raises:
        FamilyError: if a list of sizes has another length than the ring has cores.
    """
    order = resolve_order(order, sizes, default=5, family="tensor-ring")
    legs = sites(spread(sizes, order, what="tensor-ring: size", each="site"))
    ranks = spread(bond_dimensions, order, what="tensor-ring: rank (bond dimensions)", each="bond")
    joints = bonds(ranks)
    return Diagram(
        "tensor-ring",
        (*legs, *joints),
        _cores(tuple((leg,) for leg in legs), (joints[-1], *joints)),
        names(legs),
        title=f"Tensor ring of order {order}",
    )


def _inner_bonds(family: str, order: int, bond_dimensions: Sizes) -> tuple[Index, ...]:
    what = f"{family}: rank (bond dimensions)"
    return bonds(spread(bond_dimensions, order - 1, what=what, each="bond"))


def _cores(
    legs: tuple[tuple[Index, ...], ...], joints: tuple[Index | None, ...]
) -> tuple[Node, ...]:
    """One core per group of legs, with a bond before and after it where there is one."""
    cores = []
    for place, group in enumerate(legs, 1):
        around = (joints[place - 1], *group, joints[place])
        held = tuple(leg.name for leg in around if leg is not None)
        cores.append(Node(f"G{place}", held, label=rf"\mathcal{{G}}_{{{place}}}"))
    return tuple(cores)
