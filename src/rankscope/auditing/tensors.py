"""What an audit says about the weights: one row for every tensor. Loads no torch."""

from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class MatrixRow:
    """One matrix seen in a tensor, and its spectrum.

    Args:
        name: "" for the tensor itself; otherwise which part, such as "query", "head 3: query-key",
            "input gate" or "operator" (a convolution on an image, with its true singular values).
        shape: rows, columns; of an operator the size of its blocks.
        num_values: how many singular values there are.
        singular_values: descending; at most 256 of them, evenly spread, for pictures.
        largest: the largest one, the spectral norm.
        frobenius: root of the sum of all squares.
        numeric_rank: those above rounding.
        stable_rank: sum of squares over the largest square.
        effective_rank: exponential of the entropy of the squares' shares.
        entropy: of the shares of the squares, over the logarithm of their number, in 0..1.
        rank_at: how many hold 50, 90, 95 and 99 percent of the squares.
        random_edge: upper Marchenko-Pastur edge: the largest singular value of a random matrix of
            the same shape and size of entries (for the products of a head: of two such factors).
        outliers: how many singular values lie above that edge.
        random_distance: largest distance of the two cumulative distributions of singular values
            (Kolmogorov-Smirnov), 0 for a random matrix.
    """

    name: str
    shape: tuple[int, int]
    num_values: int
    singular_values: tuple[float, ...]
    largest: float
    frobenius: float
    numeric_rank: int
    stable_rank: float
    effective_rank: float
    entropy: float
    rank_at: dict[str, int]
    random_edge: float
    outliers: int
    random_distance: float

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class TensorRow:
    """One tensor of a model.

    Args:
        name: as in the file.
        part: embedding, attention, feed_forward, normalization, head or other.
        shape: its shape.
        dtype: such as "float32" or "bfloat16".
        matrices: what was seen in it; empty if there is a reason.
        reason: why it has no spectrum, such as "a vector", or None.
        same_as: the first tensor with the same content (tied or copied), or None.
        layer: number of the block it belongs to, or None.
    """

    name: str
    part: str
    shape: tuple[int, ...]
    dtype: str
    matrices: tuple[MatrixRow, ...] = field(default=())
    reason: str | None = None
    same_as: str | None = None
    layer: int | None = None

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return asdict(self)
