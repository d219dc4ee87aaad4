"""A table of vectors that is kept as small cores."""

import torch
from torch import Tensor, nn

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Network
from rankscope.errors import LayerError
from rankscope.layers.cores import CoreStore, checked_cores
from rankscope.layers.formats.format import Cores, Format, Ranks, WeightShape
from rankscope.layers.layer_diagram import layer_steps, row_indices


class FactorizedEmbedding(nn.Module):
    """Used like `nn.Embedding`: vectors by their numbers; the table is never built.

    The table is a weight (num_embeddings, embedding_dim), written by a format that can look up a
    row (`Format.rows`): svd, r-tensor-train.

    Args:
        cores: of the table.
        shape: of the table.
        format: how it is written.
        ranks: of the format.
        padding_idx: number of a vector that is kept beside the cores and does not train.

    Example:
        >>> from rankscope.layers.formats.catalogue import FORMATS
        >>> FactorizedEmbedding.from_dense(nn.Embedding(1000, 64), FORMATS["svd"], (8,))
        FactorizedEmbedding(
          1000 x 64, svd at ranks (8,): 8,512 of 64,000 weights (13.3 %)
          (cores): CoreStore(right (8, 64), left (1000, 8))
        )

    Raises:
        LayerError: if the format cannot look up rows, or shapes, ranks or cores do not fit.
    """

    def __init__(
        self,
        cores: Cores,
        shape: WeightShape,
        format: Format,
        ranks: Ranks,
        *,
        padding_idx: int | None = None,
    ) -> None:
        super().__init__()
        self.format, self.ranks, self.shape = format, ranks, shape
        self.padding_idx = padding_idx
        self.cores = CoreStore(checked_cores(format, shape, ranks, cores))
        first = next(iter(cores.values()))
        padding = torch.zeros(shape.in_size, dtype=first.dtype, device=first.device)
        self.padding_vector = (
            None if padding_idx is None else nn.Parameter(padding, requires_grad=False)
        )
        # A format that cannot look up rows is refused now, not when the layer is first used.
        device = next(iter(self.cores.parameters())).device
        self.forward(torch.zeros(1, dtype=torch.long, device=device))

    @classmethod
    def from_dense(
        cls, embedding: nn.Embedding, format: Format, ranks: Ranks, *, seed: int = 0
    ) -> "FactorizedEmbedding":
        """Decompose the table of a layer.

        Raises:
            LayerError: if it has `max_norm`, `sparse` or `scale_grad_by_freq`, or if the format or
                the ranks do not fit.
            DecompositionError: if the table is not finite.
        """
        _check_settings(embedding)
        table = embedding.weight.detach()
        shape = WeightShape.of(table)
        format.check(shape, ranks)
        cores = format.decompose(table, ranks, seed=seed)
        layer = cls(cores, shape, format, ranks, padding_idx=embedding.padding_idx)
        if layer.padding_vector is not None:
            layer.padding_vector.copy_(table[layer.padding_idx])
        return layer.train(embedding.training)

    @property
    def num_embeddings(self) -> int:
        """How many vectors there are."""
        return self.shape.out_size

    @property
    def embedding_dim(self) -> int:
        """The size of a vector."""
        return self.shape.in_size

    def forward(self, numbers: Tensor) -> Tensor:
        """Numbers (...) to vectors (..., embedding_dim)."""
        vectors = self.format.rows(self.cores.tensors(), self.shape, numbers)
        if self.padding_idx is None or self.padding_vector is None:
            return vectors
        is_padding = (numbers == self.padding_idx)[..., None]
        return torch.where(is_padding, self.padding_vector, vectors)

    def to_dense(self) -> nn.Embedding:
        """The table that it stands for, by one einsum over the cores."""
        table = self.format.to_dense(self.cores.tensors(), self.shape).detach().clone()
        if self.padding_vector is not None:
            table[self.padding_idx] = self.padding_vector
        embedding = nn.Embedding(
            self.num_embeddings, self.embedding_dim, self.padding_idx, device="meta"
        )
        embedding.weight = nn.Parameter(table)
        return embedding.train(self.training)

    def quantize(self, bits: int) -> None:
        """Keep the cores in 8 or 4 bits from now on; they no longer train.

        Raises:
            LayerError: if `bits` is neither, or they are quantized already.
        """
        self.cores.quantize(bits)

    def weight_diagram(self) -> Diagram:
        """The table as a network of its cores."""
        return self.format.diagram(self.shape, self.ranks)

    def diagram(self, *rows: int) -> Network:
        """The layer on numbers `x` (*rows); arrays are named as parameters are.

        Of a format that cuts the numbers in factors, the inputs are the digits `x_1`, `x_2`, ...
        of the numbers (`ReshapedFormat.digits`).

        Raises:
            LayerError: if there is a padding vector, which no diagram can say.
        """
        if self.padding_idx is not None:
            raise LayerError(
                f"FactorizedEmbedding: the vector of number {self.padding_idx} of "
                f"{self.num_embeddings} (padding_idx) is kept beside the cores, which cannot be "
                "drawn as a diagram; draw the table alone by weight_diagram()."
            )
        chain = self.format.row_chain(self.shape, self.ranks)
        steps = layer_steps("y", chain, "x", rows=row_indices(rows), prefix="cores.", bias=None)
        return Network("embedding", steps)

    def extra_repr(self) -> str:
        """Sizes, format, ranks, and what is kept."""
        kept, whole = self.cores.num_parameters, self.shape.num_parameters
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return (
            f"{self.num_embeddings} x {self.embedding_dim}{padding}, "
            f"{self.format.name} at ranks {self.ranks}: "
            f"{kept:,} of {whole:,} weights ({100 * kept / whole:.1f} %)"
        )


def _check_settings(embedding: nn.Embedding) -> None:
    refused = {
        "max_norm": embedding.max_norm is not None,
        "sparse": embedding.sparse,
        "scale_grad_by_freq": embedding.scale_grad_by_freq,
    }
    for name, is_set in refused.items():
        if is_set:
            raise LayerError(
                f"FactorizedEmbedding: {name}={getattr(embedding, name)} changes single vectors, "
                f"which the cores share; only embeddings without it can be factorized."
            )
