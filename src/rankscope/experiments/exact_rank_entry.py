"""One row of a table of exact separation ranks: attention without softmax, of a small shape."""

from dataclasses import dataclass

from rankscope.architectures.attention.self_attention import SelfAttention
from rankscope.architectures.measuring import measure_rank
from rankscope.experiments.experiment import Entry, Row, Workplace
from rankscope.separation.partition import Partition


@dataclass(frozen=True)
class ExactRankEntry(Entry):
    """The separation rank of softmax-free attention for almost all weights, between two halves.

    Args:
        depth: number of layers.
        width: of a token.
        heads: of each layer.
        head_size: of each head; need not be the width over the heads.
        embedding_rank: None for that of the width.
        num_tokens: half of them on each side.
    """

    depth: int
    width: int
    heads: int = 1
    head_size: int | None = None
    embedding_rank: int | None = None
    num_tokens: int = 4

    @property
    def name(self) -> str:
        """The sizes."""
        text = f"exact-L{self.depth}-d{self.width}-H{self.heads}"
        text += "" if self.head_size is None else f"-a{self.head_size}"
        return text if self.embedding_rank is None else f"{text}-r{self.embedding_rank}"

    def run(self, place: Workplace) -> Row:
        """The measured rank, which is a certified lower bound, and the bound above it."""
        network = SelfAttention(
            depth=self.depth,
            width=self.width,
            heads=self.heads,
            head_size=self.head_size,
            num_tokens=self.num_tokens,
            embedding_rank=self.embedding_rank,
        )
        partition = Partition.interleaved(self.num_tokens)
        found = measure_rank(network, partition)
        upper = network.upper_bound(partition)
        return {
            "shape": f"{self.depth} x {self.width}",
            "depth": self.depth,
            "width": self.width,
            "attention": "softmax-free",
            "heads": self.heads,
            "head size": network.head_size,
            "channels over width": self.heads * network.head_size / self.width,
            "embedding rank": self.embedding_rank or self.width,
            "exact rank": found.lower,
            "rank at most": None if upper is None else upper.value,
        }
