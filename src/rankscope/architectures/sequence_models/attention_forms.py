"""Which attention a transformer is built of, as plain data."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from rankscope.layers.attention import FactorizedMultiheadAttention
from rankscope.layers.cp_attention import CPAttention
from rankscope.layers.projected_attention import (
    AttentionOptions,
    ProjectedAttention,
    fresh_projections,
)
from rankscope.layers.softmax_free_attention import SoftmaxFreeAttention
from rankscope.layers.tunable_attention import DenseCore, TunableAttention

_BATCH_FIRST = AttentionOptions(batch_first=True)


class AttentionForm(ABC):
    """A kind of attention with its own sizes; subclasses are frozen dataclasses."""

    @abstractmethod
    def build(self, width: int) -> ProjectedAttention:
        """A fresh layer from vectors of a width to the same, batches first."""

    @property
    @abstractmethod
    def num_heads(self) -> int:
        """H, the number of heads; of a tunable core, those that it starts as."""

    @property
    @abstractmethod
    def features(self) -> int:
        """D, of each head."""

    @property
    def num_channels(self) -> int:
        """R = D H: channels of the projected queries, keys and values."""
        return self.num_heads * self.features

    @property
    @abstractmethod
    def name(self) -> str:
        """Letters, digits and hyphens."""


@dataclass(frozen=True)
class MultiHead(AttentionForm):
    """Heads of a softmax each; their sizes need not add up to the width."""

    heads: int
    head_size: int

    def build(self, width: int) -> ProjectedAttention:
        projections = fresh_projections(width, self.num_channels)
        return FactorizedMultiheadAttention(projections, self.heads, _BATCH_FIRST)

    @property
    def num_heads(self) -> int:
        return self.heads

    @property
    def features(self) -> int:
        return self.head_size

    @property
    def name(self) -> str:
        return "multi-head"


@dataclass(frozen=True)
class SoftmaxFree(MultiHead):
    """The same heads without a softmax: scores are averaged over the keys in sight."""

    def build(self, width: int) -> ProjectedAttention:
        projections = fresh_projections(width, self.num_channels)
        return SoftmaxFreeAttention(projections, self.heads, _BATCH_FIRST)

    @property
    def name(self) -> str:
        return "softmax-free"


@dataclass(frozen=True)
class TunableCore(MultiHead):
    """A free matrix in place of heads, which starts as these heads.

    Args:
        heads: H.
        head_size: D.
        max_entries: see `TunableAttention`.
    """

    max_entries: int | None = None

    def build(self, width: int) -> ProjectedAttention:
        core = DenseCore.of_heads(self.heads, self.head_size)
        projections = fresh_projections(width, self.num_channels)
        return TunableAttention(
            projections,
            core,
            scale=self.head_size**-0.5,
            options=_BATCH_FIRST,
            max_entries=self.max_entries,
        )

    @property
    def name(self) -> str:
        return "tunable-core"


@dataclass(frozen=True)
class CPForm(AttentionForm):
    """Every channel a head of its own: R = D H for as many weights as heads, or R = H for 1 / D."""

    heads: int

    def build(self, width: int) -> ProjectedAttention:
        return CPAttention(fresh_projections(width, self.heads), self.heads, _BATCH_FIRST)

    @property
    def num_heads(self) -> int:
        return self.heads

    @property
    def features(self) -> int:
        return 1

    @property
    def name(self) -> str:
        return f"cp-{self.heads}"
