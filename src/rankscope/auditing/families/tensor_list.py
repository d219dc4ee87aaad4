"""The tensors that a model must hold: names, shapes, and the part of the model they belong to."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from rankscope.auditing.configuration import Parameters


class Part(StrEnum):
    """Where a tensor is counted; the fields of `Parameters`."""

    EMBEDDING = "embedding"
    ATTENTION = "attention"
    FEED_FORWARD = "feed_forward"
    NORMALIZATION = "normalization"
    HEAD = "head"
    OTHER = "other"


@dataclass(frozen=True)
class ExpectedTensor:
    """One tensor that follows from a configuration.

    Args:
        name: as in the family's own checkpoints.
        shape: as in the family's own checkpoints, transposed where the family transposes.
        part: where it is counted.
        is_tied: whether it only repeats an earlier tensor; then it is not counted, and a file
            may leave it out.
        head_axis: which index of an attention matrix or bias runs over heads x head size (grouped
            or fused: a multiple of the head size), or None.
    """

    name: str
    shape: tuple[int, ...]
    part: Part
    is_tied: bool = False
    head_axis: int | None = None

    @property
    def size(self) -> int:
        """Number of its entries."""
        return math.prod(self.shape)


def linear(
    name: str,
    shape: tuple[int, int],
    part: Part,
    *,
    bias: bool = False,
    head_axis: int | None = None,
) -> Iterator[ExpectedTensor]:
    """The weight of an affine map of shape (outputs, inputs), and its bias if it has one."""
    yield ExpectedTensor(f"{name}.weight", shape, part, head_axis=head_axis)
    if bias:
        along_heads = 0 if head_axis == 0 else None
        yield ExpectedTensor(f"{name}.bias", shape[:1], part, head_axis=along_heads)


def transposed(tensors: Iterable[ExpectedTensor]) -> Iterator[ExpectedTensor]:
    """The same, each matrix stored as (inputs, outputs)."""
    for tensor in tensors:
        axis = tensor.head_axis
        flipped = axis if axis is None else len(tensor.shape) - 1 - axis
        yield ExpectedTensor(tensor.name, tensor.shape[::-1], tensor.part, tensor.is_tied, flipped)


def table(name: str, num_rows: int, size: int) -> ExpectedTensor:
    """One vector per token, position or type."""
    return ExpectedTensor(f"{name}.weight", (num_rows, size), Part.EMBEDDING)


def norm(name: str, size: int, *, bias: bool) -> Iterator[ExpectedTensor]:
    """The scale of a normalization, and its shift if it has one."""
    yield ExpectedTensor(f"{name}.weight", (size,), Part.NORMALIZATION)
    if bias:
        yield ExpectedTensor(f"{name}.bias", (size,), Part.NORMALIZATION)


def count_parameters(tensors: Iterable[ExpectedTensor]) -> Parameters:
    """Exact numbers by part; tied tensors are counted where they stand first.

    Example:
        >>> count_parameters([table("embed", 10, 4), *norm("norm", 4, bias=True)]).to_dict()[
        ...     "total"
        ... ]
        48
    """
    counts = dict.fromkeys(Part, 0)
    for tensor in tensors:
        if not tensor.is_tied:
            counts[tensor.part] += tensor.size
    return Parameters(**{part.value: count for part, count in counts.items()})


def count_beyond_width(
    tensors: Iterable[ExpectedTensor], *, attention_width: int, width: int
) -> int:
    r"""Parameters of attention that smaller heads would save, if heads x head size were the width.

    .. math:: \sum_W |W|\,\bigl(1 - \mathrm{width} / (H d_a)\bigr),\quad H d_a > \mathrm{width}

    over all matrices and biases with an index along heads x head size, grouped keys and values
    shrinking alike; rounded down where the width is no multiple of the number of heads.
    """
    along_heads = sum(tensor.size for tensor in tensors if tensor.head_axis is not None)
    return along_heads * max(0, attention_width - width) // attention_width
