"""Families of tensor networks: chains, decompositions, products, perceptrons, convolutions."""

from dataclasses import dataclass, replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.families.settings import (
    Sizes,
    Value,
    bonds,
    names,
    resolve_order,
    sites,
    spread,
)
from rankscope.diagrams.network import Sum, Term
from rankscope.diagrams.parts import Convolution, Function, Index, IndexKind, Node, Region, Role
from rankscope.errors import DiagramError, FamilyError

# --- Chains of cores: tensor train, tensor-train matrix and tensor ring ---------------------------


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


# --- Decompositions around a centre: CP, Tucker and hierarchical Tucker ---------------------------


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


# --- Products of matrices and vectors: matrix product, outer product, pure tensors and their sums


def matrix_product(
    *, num_rows: int | None = None, num_inner: int | None = None, num_columns: int | None = None
) -> Diagram:
    r"""The product of two matrices.

    .. math:: C_{ik} = \sum_j A_{ij} B_{jk}

    with I = `num_rows`, J = `num_inner`, K = `num_columns`.
    """
    return Diagram(
        "matrix-product",
        (Index("i", num_rows, "I"), Index("j", num_inner, "J"), Index("k", num_columns, "K")),
        (Node("A", ("i", "j")), Node("B", ("j", "k"))),
        output=("i", "k"),
        title="Matrix product",
    )


def outer_product(*, num_rows: int | None = None, num_columns: int | None = None) -> Diagram:
    r"""The outer (tensor) product of two vectors.

    .. math:: C_{ij} = a_i b_j

    with I = `num_rows`, J = `num_columns`.
    """
    return Diagram(
        "outer-product",
        (Index("i", num_rows, "I"), Index("j", num_columns, "J")),
        (Node("a", ("i",)), Node("b", ("j",))),
        output=("i", "j"),
        title="Outer product",
    )


def pure_tensor(*, order: int | None = None, sizes: Sizes = None) -> Diagram:
    r"""A pure (rank-one) tensor: the outer product of `order` vectors.

    .. math:: T_{i_1 \dots i_n} = a^1_{i_1} \cdots a^n_{i_n}
    """
    order = resolve_order(order, sizes, default=3, family="pure-tensor")
    legs = sites(spread(sizes, order, what="pure-tensor: size", each="vector"))
    vectors = tuple(
        Node(f"a{place}", (leg.name,), label=rf"\mathbf{{a}}_{{{place}}}")
        for place, leg in enumerate(legs, 1)
    )
    return Diagram("pure-tensor", legs, vectors, names(legs), title=f"Pure tensor of order {order}")


def sum_of_pure_tensors(
    *, num_terms: int | None = None, order: int | None = None, sizes: Sizes = None
) -> Sum:
    r"""A sum of pure tensors: every tensor is one, and the fewest terms are its CP rank.

    .. math:: T_{i_1 \dots i_n} = \sum_t a^{1t}_{i_1} \cdots a^{nt}_{i_n}

    Raises:
        FamilyError: if there is no term, or `sizes` are not one or `order` many.
    """
    num_terms = 2 if num_terms is None else num_terms
    if num_terms < 1:
        raise FamilyError(
            f"sum-of-pure-tensors: count must be a positive integer, got {num_terms}."
        )
    order = resolve_order(order, sizes, default=3, family="sum-of-pure-tensors")
    legs = sites(spread(sizes, order, what="sum-of-pure-tensors: size", each="vector"))
    terms = []
    for term in range(1, num_terms + 1):
        vectors = tuple(
            Node(f"a{place}_{term}", (leg.name,), label=rf"\mathbf{{a}}_{{{place}}}^{{({term})}}")
            for place, leg in enumerate(legs, 1)
        )
        terms.append(Term(Diagram(f"pure-tensor-{term}", legs, vectors, names(legs))))
    title = f"Sum of {num_terms} pure tensors of order {order}"
    return Sum("sum-of-pure-tensors", tuple(terms), title)


# --- Multilayer perceptrons: matrices with a ReLU barrier after each but the last -----------------


def multilayer_perceptron(
    *, widths: Sizes = None, num_features: int | None = None, batch_size: int = 1
) -> Diagram:
    r"""A perceptron without biases for a batch of one; without `widths`, two layers F, 4F, F.

    .. math:: Y = \sigma(\cdots \sigma(\sigma(X W_1) W_2) \cdots) W_L

    Example:
        >>> multilayer_perceptron(widths=(784, 256, 10)).regions[0].members
        ('X', 'W1')

    Raises:
        FamilyError: if there are fewer than two widths, or both widths and `num_features`.
    """
    if widths is not None and (isinstance(widths, int) or len(widths) < 2):
        raise FamilyError(
            "mlp: widths must be at least 2 integers, those of the input and of every layer, "
            f"got {widths}."
        )
    if widths is not None and num_features is not None:
        raise FamilyError(
            f"mlp: F (number of features) gives the widths F, 4F, F, but widths are {widths}; "
            "set one of them."
        )
    legs = _default_legs(num_features) if widths is None else _legs(widths)
    depth = len(legs) - 1
    weights = tuple(
        Node(f"W{layer}", (f"w{layer - 1}", f"w{layer}"), label=rf"\mathbf{{W}}_{{{layer}}}")
        for layer in range(1, depth + 1)
    )
    barriers = tuple(
        Region(
            f"H{layer}",
            ("X" if layer == 1 else f"H{layer - 1}", f"W{layer}"),
            Function("relu"),
        )
        for layer in range(1, depth)
    )
    return Diagram(
        "mlp",
        (Index("b", batch_size, "B", IndexKind.BATCH), *legs),
        (Node("X", ("b", "w0"), Role.DATA), *weights),
        output=("b", f"w{depth}"),
        regions=barriers,
        title=f"Perceptron with {depth} layer{'s' if depth > 1 else ''}",
    )


def _default_legs(num_features: int | None) -> tuple[Index, ...]:
    hidden = None if num_features is None else 4 * num_features
    return (
        Index("w0", num_features, "F", IndexKind.FEATURE),
        Index("w1", hidden, "4F", IndexKind.FEATURE),
        Index("w2", num_features, "F", IndexKind.FEATURE),
    )


def _legs(widths: tuple[int, ...]) -> tuple[Index, ...]:
    return tuple(
        Index(f"w{place}", width, f"F_{place}", IndexKind.FEATURE, f"F_{{{place}}}")
        for place, width in enumerate(widths)
    )


# --- The Tucker-2 convolution layer: two channel matrices around a small convolution --------------


@dataclass(frozen=True)
class ConvolutionSizes:
    """Sizes of a Tucker-2 layer; what is not known stays a symbol.

    Args:
        in_channels: S.
        out_channels: T.
        kernel_size: k, one for both directions or (height, width).
        in_rank: R1, channels that enter the core.
        out_rank: R2, channels that leave it.
        height: H of the input.
        width: W of the input.
        stride: one for both directions or (height, width).
        padding: zeros on either side, one for both directions or (height, width).
        batch_size: B, by default one example.
    """

    in_channels: int | None = None
    out_channels: int | None = None
    kernel_size: Sizes = None
    in_rank: int | None = None
    out_rank: int | None = None
    height: int | None = None
    width: int | None = None
    stride: Value = 1
    padding: Value = 0
    batch_size: int = 1


def tucker2_convolution(sizes: ConvolutionSizes) -> Diagram:
    r"""A convolution whose kernel is a Tucker decomposition over its two channel legs.

    .. math:: Y_{bt h' w'} = \sum X_{bshw} U^S_{sp} G_{pquv} U^T_{qt}, \qquad
              h = \text{stride}\, h' + u - \text{padding}, \quad
              w = \text{stride}\, w' + v - \text{padding}

    The sizes of h' and w' are computed when the input and kernel have sizes.

    Raises:
        FamilyError: if kernel, stride or padding are neither one nor two integers.
        SizeError: if the kernel does not fit the input.
    """
    rows, columns = _directions(sizes)
    return Diagram(
        "tucker2-conv",
        (
            Index("b", sizes.batch_size, "B", IndexKind.BATCH),
            Index("s", sizes.in_channels, "S", IndexKind.FEATURE),
            Index("t", sizes.out_channels, "T", IndexKind.FEATURE),
            Index("p", sizes.in_rank, "R1", IndexKind.RANK, "R_{1}"),
            Index("q", sizes.out_rank, "R2", IndexKind.RANK, "R_{2}"),
            *_space_legs(sizes, rows, columns),
        ),
        (
            Node("X", ("b", "s", "h", "w"), Role.DATA, r"\mathcal{X}"),
            Node("US", ("s", "p"), label=r"\mathbf{U}^{S}"),
            Node("G", ("p", "q", "u", "v"), Role.CORE, r"\mathcal{G}"),
            Node("UT", ("q", "t"), label=r"\mathbf{U}^{T}"),
        ),
        output=("b", "t", "y", "x"),
        convolutions=(rows, columns),
        title="Tucker-2 convolution layer",
    )


def _directions(sizes: ConvolutionSizes) -> tuple[Convolution, Convolution]:
    strides = _pair(sizes.stride, "stride")
    paddings = _pair(sizes.padding, "padding")
    rows, columns = (
        Convolution(name, *legs, stride=stride or 1, padding=(padding or 0, padding or 0))
        for name, legs, stride, padding in zip(
            ("rows", "columns"), (("h", "u", "y"), ("w", "v", "x")), strides, paddings, strict=True
        )
    )
    return rows, columns


def _pair(value: Sizes, setting: str) -> tuple[int | None, ...]:
    return spread(value, 2, what=f"tucker2-conv: {setting}", each="direction (height, width)")


def _space_legs(
    sizes: ConvolutionSizes, rows: Convolution, columns: Convolution
) -> tuple[Index, ...]:
    kernel_height, kernel_width = _pair(sizes.kernel_size, "k (kernel size)")
    # One symbol says that the kernel is square; two sizes need two symbols.
    names = ("k", "k") if kernel_height == kernel_width else ("k_h", "k_w")
    space = IndexKind.SPACE
    return (
        Index("h", sizes.height, "H", space),
        Index("w", sizes.width, "W", space),
        Index("u", kernel_height, names[0], space),
        Index("v", kernel_width, names[1], space),
        Index("y", _output_size(rows, sizes.height, kernel_height), "H'", space, r"H^{\prime}"),
        Index("x", _output_size(columns, sizes.width, kernel_width), "W'", space, r"W^{\prime}"),
    )


def _output_size(
    convolution: Convolution, input_size: int | None, kernel_size: int | None
) -> int | None:
    if input_size is None or kernel_size is None:
        return None
    size = convolution.output_size(input_size, kernel_size)
    # A kernel that does not fit is refused by the diagram, which can say why.
    return size if size > 0 else None


# --- Small edits of whole diagrams: a batch index on the data, a causal mask on the scores --------


def with_batch(diagram: Diagram, *, batch_size: int | None = None) -> Diagram:
    """Put a batch index b, of size B, first on every data node and on the output.

    Example:
        >>> from rankscope.diagrams.families.attention import multi_head
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
        >>> from rankscope.diagrams.families.attention import multi_head
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
