"""The sizes of a transformer."""

from dataclasses import dataclass

from rankscope.architectures.sequence_models.attention_forms import AttentionForm
from rankscope.errors import SizeError


@dataclass(frozen=True)
class TransformerShape:
    """How deep and wide a transformer is, and of what attention.

    Args:
        depth: number of blocks; of an encoder and a decoder, in each.
        width: of the residual stream.
        attention: of every block.
        num_positions: tokens that fit into one sequence.
        embedding_rank: tokens and positions are vectors of this size, times a matrix to the width;
            None for vectors of the width itself.
        expansion: hidden width of the feed-forward parts over the width.

    Raises:
        SizeError: if a size is not positive, or the rank exceeds the width.
    """

    depth: int
    width: int
    attention: AttentionForm
    num_positions: int
    embedding_rank: int | None = None
    expansion: int = 4

    def __post_init__(self) -> None:
        for name in ("depth", "width", "num_positions", "expansion"):
            if getattr(self, name) < 1:
                raise SizeError(
                    f"TransformerShape: {name} must be at least 1, got {getattr(self, name)}."
                )
        if self.attention.num_channels < 1:
            raise SizeError(
                "TransformerShape: attention needs at least 1 channel, got "
                f"{self.attention.num_channels}."
            )
        if self.embedding_rank is not None and not 1 <= self.embedding_rank <= self.width:
            raise SizeError(
                f"TransformerShape: the embedding rank must lie in 1..{self.width}, the width; got "
                f"{self.embedding_rank}."
            )

    @property
    def squares(self) -> int:
        """Weights of the matrices of all blocks without cross-attention: 12 L d² if R = d."""
        attention = 4 * self.width * self.attention.num_channels
        return self.depth * (attention + 2 * self.expansion * self.width**2)
