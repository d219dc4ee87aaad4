"""Factorized linear layers and embeddings, and what layers made of several of them need."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Network, Step
from rankscope.diagrams.parts import Index
from rankscope.errors import LayerError
from rankscope.factorize.cores import CoreStore, checked_cores, random_cores
from rankscope.factorize.formats.format import Cores, Format, Ranks, WeightShape, Window
from rankscope.factorize.formats.plain import DENSE
from rankscope.factorize.layer import FactorizedLayer, layer_steps, row_indices

_NO_WINDOW = Window()


class FactorizedLinear(FactorizedLayer):
    """Used like `nn.Linear`; its weight is what the format makes of the cores.

    Args:
        in_features: of the inputs (..., in_features).
        out_features: of the outputs (..., out_features).
        format: how the weight is written.
        ranks: of the format.
        bias: whether there is one.
        device: of the parameters.
        dtype: of the parameters.

    Attributes:
        path: how outputs are computed; None lets the cost model choose for each batch.

    Example:
        >>> from rankscope.factorize.formats.catalogue import FORMATS
        >>> FactorizedLinear.from_dense(nn.Linear(100, 50), FORMATS["svd"], (4,))
        FactorizedLinear(
          100 -> 50, bias=True, svd at ranks (4,): 600 of 5,000 weights (12.0 %)
          (cores): CoreStore(right (4, 100), left (50, 4))
        )

    Raises:
        LayerError: if the format refuses the shape, or the ranks do not fit.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        format: Format,
        ranks: Ranks,
        *,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        shape = WeightShape(out_features, in_features)
        cores = random_cores(format, shape, ranks, device=device, dtype=dtype)
        start = torch.empty(out_features, device=device, dtype=dtype) if bias else None
        if start is not None:
            nn.init.uniform_(start, -(in_features**-0.5), in_features**-0.5)
        super().__init__(format, ranks, shape, _NO_WINDOW, cores, start)

    @classmethod
    def from_dense(
        cls, linear: nn.Linear, format: Format, ranks: Ranks, *, seed: int = 0
    ) -> "FactorizedLinear":
        """Decompose the weight of a layer; its bias is copied.

        Raises:
            LayerError: if the format refuses the shape, or the ranks do not fit.
            DecompositionError: if the weight is not finite.
        """
        shape = WeightShape.of(linear.weight)
        format.check(shape, ranks)
        cores = format.decompose(linear.weight.detach(), ranks, seed=seed)
        return cls.from_cores(cores, shape, format, ranks, bias=linear.bias).train(linear.training)

    @classmethod
    def from_cores(
        cls,
        cores: Cores,
        shape: WeightShape,
        format: Format,
        ranks: Ranks,
        *,
        bias: Tensor | None = None,
    ) -> "FactorizedLinear":
        """A layer with given cores, which are copied.

        Raises:
            LayerError: if the weight is no matrix, or cores or bias do not have the right shapes.
        """
        if shape.kernel:
            raise LayerError(f"FactorizedLinear needs a matrix, got a weight {shape.sizes}.")
        if bias is not None and tuple(bias.shape) != (shape.out_size,):
            raise LayerError(
                f"FactorizedLinear: a bias for {shape.out_size} outputs is needed, "
                f"got one of shape {tuple(bias.shape)}."
            )
        checked = checked_cores(format, shape, ranks, cores)
        # On "meta" nothing is allocated or drawn at random before the parameters are replaced.
        layer = cls(shape.in_size, shape.out_size, format, ranks, bias=False, device="meta")
        layer.cores = CoreStore(checked)
        layer.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        return layer

    @property
    def in_features(self) -> int:
        """Number of features of the inputs."""
        return self.shape.in_size

    @property
    def out_features(self) -> int:
        """Number of features of the outputs."""
        return self.shape.out_size

    def forward(self, inputs: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        return self.outputs(inputs)

    def to_dense(self) -> nn.Linear:
        """The linear layer that it stands for, by one einsum over the cores."""
        weight = self.rebuilt().detach()
        linear = nn.Linear(
            self.in_features, self.out_features, self.bias is not None, device="meta"
        )
        linear.weight = nn.Parameter(weight)
        if self.bias is not None:
            linear.bias = nn.Parameter(self.bias.detach().clone())
        return linear.train(self.training)

    def diagram(self, *rows: int) -> Network:
        """The layer on inputs `x` (*rows, in_features); arrays are named as parameters are."""
        return Network("linear", linear_steps("y", self, "x", rows=row_indices(rows)))

    def extra_repr(self) -> str:
        """Sizes, format, ranks, and what is kept."""
        kept, whole = self.cores.num_parameters, self.shape.num_parameters
        return (
            f"{self.in_features} -> {self.out_features}, bias={self.bias is not None}, "
            f"{self.format.name} at ranks {self.ranks}: "
            f"{kept:,} of {whole:,} weights ({100 * kept / whole:.1f} %)"
        )


LinearLayer = nn.Linear | FactorizedLinear


def linear_of(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A linear layer with copies of a weight and a bias."""
    # On "meta" nothing is allocated or drawn at random before the parameters are replaced.
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    linear.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        linear.bias = nn.Parameter(bias.detach().clone())
    return linear


def dense_linear(module: LinearLayer) -> nn.Linear:
    """The dense layer that a linear layer, dense or factorized, stands for."""
    return module if isinstance(module, nn.Linear) else module.to_dense()


def check_names(who: str, given: Mapping[str, object], known: tuple[str, ...]) -> None:
    """Refuse a choice for a weight that there is not.

    Raises:
        LayerError: with the first unknown name.
    """
    for name in given:
        if name not in known:
            raise LayerError(f"{who} has no weight {name!r}; choose among {', '.join(known)}.")


def prepared(module: LinearLayer) -> Callable[[Tensor], Tensor]:
    """The layer as a function that reads its cores once for all steps, and never builds them."""
    if isinstance(module, nn.Linear):
        return module
    cores, bias = module.cores.tensors(), module.bias

    def apply(inputs: Tensor) -> Tensor:
        outputs = module.format.apply(inputs, cores, module.shape, _NO_WINDOW)
        return outputs if bias is None else outputs + bias

    return apply


def linear_steps(
    name: str, layer: LinearLayer, source: str, *, rows: tuple[Index, ...] = (), prefix: str = ""
) -> tuple[Step, ...]:
    """A linear layer, dense or factorized, as steps of a network of diagrams.

    Args:
        name: of the array that the last step makes, (*rows, out_features).
        layer: whose cores, or whose weight, are drawn.
        source: array of the inputs, (*rows, in_features).
        rows: the indices of the inputs besides their features.
        prefix: of the layer's arrays, which are named as its parameters are.
    """
    if isinstance(layer, nn.Linear):
        chain = DENSE.chain(WeightShape.of(layer.weight), (), _NO_WINDOW, ())
        cores = prefix
    else:
        chain = layer.format.chain(layer.shape, layer.ranks, _NO_WINDOW, ())
        cores = f"{prefix}cores."
    bias = None if layer.bias is None else f"{prefix}bias"
    return layer_steps(name, chain, source, rows=rows, prefix=cores, bias=bias)


# --- A table of vectors that is kept as small cores -----------------------------------------------


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
        >>> from rankscope.factorize.formats.catalogue import FORMATS
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
        """Number of vectors."""
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

    @property
    def weight(self) -> Tensor:
        """The dense table, computed from the cores at every call: for code that reads it."""
        table = self.format.to_dense(self.cores.tensors(), self.shape)
        if self.padding_vector is None:
            return table
        numbers = torch.arange(self.num_embeddings, device=table.device)
        is_padding = numbers.eq(self.padding_idx or 0)[:, None]
        return torch.where(is_padding, self.padding_vector, table)

    def to_dense(self) -> nn.Embedding:
        """The table that it stands for, by one einsum over the cores."""
        table = self.weight.detach().clone()
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


# --- One weight that several layers share ---------------------------------------------------------


def layer_sharing(
    module: nn.Linear | nn.Embedding, source: FactorizedLinear | FactorizedEmbedding
) -> FactorizedLinear | FactorizedEmbedding:
    """A layer in the place of a dense one that is tied to another, with the cores of that other.

    The cores stay those of `source` and stand in no state dict a second time; the bias of a linear
    layer and the padding vector of an embedding are its own.

    Args:
        module: dense, whose weight is also that of the dense layer behind `source`.
        source: that holds the cores.

    Example:
        >>> from rankscope.factorize.formats.catalogue import FORMATS
        >>> table = nn.Embedding(100, 8)
        >>> head = nn.Linear(8, 100, bias=False)
        >>> head.weight = table.weight
        >>> small = FactorizedEmbedding.from_dense(table, FORMATS["svd"], (2,))
        >>> layer_sharing(head, small).cores is small.cores
        True
    """
    format, ranks, shape = source.format, source.ranks, source.shape
    dtype = next(iter(source.cores.tensors().values())).dtype
    blank = {
        name: torch.empty(sizes, device="meta", dtype=dtype)
        for name, sizes in format.core_shapes(shape, ranks).items()
    }
    layer: FactorizedLinear | FactorizedEmbedding
    if isinstance(module, nn.Linear):
        layer = FactorizedLinear.from_cores(blank, shape, format, ranks, bias=module.bias)
    else:
        layer = FactorizedEmbedding(blank, shape, format, ranks, padding_idx=module.padding_idx)
        if layer.padding_vector is not None:
            padding = module.weight.detach()[layer.padding_idx].clone()
            layer.padding_vector = nn.Parameter(padding, requires_grad=False)
    del layer.cores
    layer.__dict__["cores"] = source.cores  # a reference, and no module of its own
    return layer.train(module.training)
