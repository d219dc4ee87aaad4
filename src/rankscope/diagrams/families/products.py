"""Products of matrices and vectors: matrix product, outer product, pure tensors and their sums."""

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.families.legs import names, sites
from rankscope.diagrams.families.settings import Sizes, resolve_order, spread
from rankscope.diagrams.network import Sum, Term
from rankscope.diagrams.parts import Index, Node
from rankscope.errors import FamilyError


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
