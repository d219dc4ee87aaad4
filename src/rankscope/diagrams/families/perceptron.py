"""Multilayer perceptrons: matrices with a ReLU barrier after each but the last."""

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.families.settings import Sizes
from rankscope.diagrams.functions import Function
from rankscope.diagrams.parts import Index, IndexKind, Node, Region, Role
from rankscope.errors import FamilyError


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
