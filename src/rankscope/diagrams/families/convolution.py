"""The Tucker-2 convolution layer: two channel matrices around a small convolution."""

from dataclasses import dataclass

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.families.settings import Sizes, Value, spread
from rankscope.diagrams.parts import Convolution, Index, IndexKind, Node, Role


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
