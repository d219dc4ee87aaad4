"""A linear layer whose weight is kept as small cores, and what layers made of several need."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Network, Step
from rankscope.diagrams.parts import Index
from rankscope.errors import LayerError
from rankscope.layers.cores import CoreStore, checked_cores, random_cores
from rankscope.layers.cp_components import CPComponents, cp_components
from rankscope.layers.formats.format import Cores, Format, Ranks, WeightShape, Window
from rankscope.layers.formats.plain import DENSE
from rankscope.layers.layer_diagram import layer_steps, row_indices
from rankscope.layers.paths import MergedWeight, Path, choose_path, wants_gradients

_NO_WINDOW = Window()
# What a traced graph is made for: the number of rows may be unknown then.
_TRACED_ROWS = 16


class FactorizedLinear(nn.Module):
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
        >>> from rankscope.layers.formats.catalogue import FORMATS
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
        super().__init__()
        self.format, self.ranks = format, ranks
        self.shape = WeightShape(out_features, in_features)
        self.path: Path | None = None
        self.cores = CoreStore(random_cores(format, self.shape, ranks, device=device, dtype=dtype))
        self.bias: nn.Parameter | None = None
        if bias:
            self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype))
            nn.init.uniform_(self.bias, -(in_features**-0.5), in_features**-0.5)
        self._traced_path = self._estimated(_TRACED_ROWS, training=True)
        self._merged = MergedWeight()

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
        """Of the inputs."""
        return self.shape.in_size

    @property
    def out_features(self) -> int:
        """Of the outputs."""
        return self.shape.out_size

    def forward(self, inputs: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        path = self._path_for(inputs)
        if path is Path.CHAIN:
            cores = self.cores.tensors()
            return self.format.apply(inputs, cores, self.shape, _NO_WINDOW, self.bias)
        weight = {"weight": self._weight(path)}
        return DENSE.apply(inputs, weight, self.shape, _NO_WINDOW, self.bias)

    def to_dense(self) -> nn.Linear:
        """The linear layer that it stands for, by one einsum over the cores."""
        weight = self._rebuilt().detach()
        linear = nn.Linear(
            self.in_features, self.out_features, self.bias is not None, device="meta"
        )
        linear.weight = nn.Parameter(weight)
        if self.bias is not None:
            linear.bias = nn.Parameter(self.bias.detach().clone())
        return linear.train(self.training)

    def quantize(self, bits: int) -> None:
        """Keep the cores in 8 or 4 bits from now on; they no longer train.

        Raises:
            LayerError: if `bits` is neither, or they are quantized already.
        """
        self.cores.quantize(bits)

    def normalized(self) -> CPComponents:
        """Of the format svd: its components as weights and unit vectors, largest first.

        Raises:
            LayerError: if the format is another one.
        """
        return cp_components(self.format.name, self.cores.tensors(), self.shape)[0]

    def weight_diagram(self) -> Diagram:
        """The weight as a network of its cores."""
        return self.format.diagram(self.shape, self.ranks)

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

    def _path_for(self, inputs: Tensor) -> Path:
        """The path asked for or estimated; merged weights are rebuilt where they cannot be kept."""
        tracing = torch.compiler.is_compiling()
        keeps = not (tracing or self.training or wants_gradients(self.cores.parameters()))
        if self.path is not None:
            return Path.REBUILT if self.path is Path.MERGED and not keeps else self.path
        if tracing:
            return self._traced_path
        return self._estimated(inputs.numel() // self.in_features, training=not keeps)

    def _estimated(self, rows: int, *, training: bool) -> Path:
        # Batches of about the same size share an estimate.
        batch = 1 << (max(rows, 1) - 1).bit_length()
        return choose_path(
            self.format, self.shape, self.ranks, _NO_WINDOW, (), batch, training=training
        )

    def _weight(self, path: Path) -> Tensor:
        if path is Path.REBUILT:
            return self._rebuilt()
        return self._merged.of((*self.cores.parameters(), *self.cores.buffers()), self._rebuilt)

    def _rebuilt(self) -> Tensor:
        return self.format.to_dense(self.cores.tensors(), self.shape)


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
