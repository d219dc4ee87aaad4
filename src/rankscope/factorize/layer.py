"""The base of factorized linear layers and convolutions: their cores, and how to apply them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Step, Sum, Term
from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.errors import LayerError
from rankscope.factorize.cores import CoreStore
from rankscope.factorize.formats.format import BATCH, Cores, Format, Ranks, WeightShape, Window
from rankscope.factorize.formats.plain import DENSE
from rankscope.factorize.paths import MergedWeight, Path, choose_path, wants_gradients

# --- A factorized layer as steps of a network of diagrams, from the chain of its format -----------


Indices = tuple[Index, ...]


def layer_steps(
    name: str,
    chain: Diagram,
    source: str,
    *,
    rows: Indices,
    prefix: str,
    bias: str | None,
) -> tuple[Step, ...]:
    """The contraction of a chain, and the sum with the bias if there is one.

    Inputs of the whole network have one index of channels, and so do its outputs, whatever a
    format or groups make of them: a step before and the sum behind read them so.

    Args:
        name: of the array that the last step makes, (rows, channels, positions).
        chain: of a format, see `Format.chain` and `Format.row_chain`.
        source: array of the inputs, (rows, channels, positions).
        rows: the indices of inputs and outputs that stand for the index `n` of the chain.
        prefix: of the cores' arrays.
        bias: its array, if there is one.
    """
    given = chain.nodes[0]
    entering = _features(chain, given.indices) if given.role is Role.DATA else ()
    steps: tuple[Step, ...] = ()
    if len(entering) > 1 and not given.is_one_hot:
        positions = _positions(chain, given.indices)
        whole = _read(f"{name} input", source, (*rows, _merged_index(entering), *positions))
        steps, source = (Step(whole.name, whole),), whole.name
    product = replace(_on_rows(chain, rows, source, prefix), name=f"{name} product")
    leaving = _features(chain, chain.output)
    if bias is None and len(leaving) == 1:
        return *steps, Step(name, product)
    first = Step(product.name, product, rf"\mathbf{{{name}}}_{{0}}")
    positions = _positions(chain, chain.output)
    read = _read(name, first.name, (*rows, _merged_index(leaving), *positions))
    terms = [Term(read)]
    if bias is not None:
        # The same bias in every row and place: ones times it.
        beside = tuple(index.name for index in (*rows, *positions))
        ones = (Node("ones", beside, Role.CONSTANT, r"\mathbf{1}"),) if beside else ()
        node = Node("b", ("t",), label=r"\mathbf{b}", array=bias)
        terms.append(Term(replace(read, name="bias", nodes=(*ones, node))))
    return *steps, first, Step(name, Sum(name, tuple(terms)))


def row_indices(sizes: Sequence[int]) -> Indices:
    """Indices n, n2, n3, ... for the rows of inputs."""
    names = (BATCH if place == 1 else f"{BATCH}{place}" for place in range(1, len(sizes) + 1))
    return tuple(
        Index(name, size, kind=IndexKind.BATCH) for name, size in zip(names, sizes, strict=True)
    )


def _on_rows(chain: Diagram, rows: Indices, source: str, prefix: str) -> Diagram:
    """The chain with other rows; its inputs and cores read the arrays of the layer."""

    def legs(indices: tuple[str, ...]) -> tuple[str, ...]:
        names = tuple(index.name for index in rows)
        return tuple(leg for own in indices for leg in (names if own == BATCH else (own,)))

    nodes = tuple(
        replace(
            node, indices=legs(node.indices), array=source + node.name[1:], name=node.name.upper()
        )
        if node.role is Role.DATA
        else replace(node, indices=legs(node.indices), array=f"{prefix}{node.name}")
        for node in chain.nodes
    )
    others = tuple(index for index in chain.indices if index.name != BATCH)
    return replace(chain, indices=(*rows, *others), nodes=nodes, output=legs(chain.output))


def _features(chain: Diagram, legs: tuple[str, ...]) -> Indices:
    held = [chain.index_by_name[leg] for leg in legs if leg != BATCH]
    return tuple(index for index in held if index.kind is not IndexKind.SPACE)


def _positions(chain: Diagram, legs: tuple[str, ...]) -> Indices:
    held = [chain.index_by_name[leg] for leg in legs]
    return tuple(index for index in held if index.kind is IndexKind.SPACE)


def _merged_index(features: Indices) -> Index:
    return Index("t", math.prod(index.size or 1 for index in features), kind=IndexKind.FEATURE)


def _read(name: str, source: str, indices: Indices) -> Diagram:
    """An array as it is."""
    legs = tuple(index.name for index in indices)
    return Diagram(name, indices, (Node("X", legs, Role.DATA, array=source),), legs)


# --- The components of a CP layer as unit vectors, each with its weight, largest first ------------


class CPComponents(NamedTuple):
    r"""A weight as a sum of outer products of unit vectors, largest first.

    .. math:: K_{o s h w} = \sum_r \lambda_r \, b_{r o} \, a_{r s} \, C_{r h w},
              \qquad \lVert a_r \rVert = \lVert b_r \rVert = \lVert C_r \rVert_F = 1

    Args:
        weights: λ (components), descending and not negative.
        inputs: a (components, in_size).
        outputs: b (components, out_size).
        kernels: C (components, *kernel); of a matrix a one for each component.
    """

    weights: Tensor
    inputs: Tensor
    outputs: Tensor
    kernels: Tensor

    @property
    def shape(self) -> WeightShape:
        """Shape of the weight that the components stand for."""
        return WeightShape(
            self.outputs.shape[1], self.inputs.shape[1], tuple(self.kernels.shape[1:])
        )

    def taken(self, numbers: Tensor | slice) -> "CPComponents":
        """Some of the components, in the order given."""
        return CPComponents(*(part[numbers] for part in self))

    def scaled_outputs(self, scale: Tensor) -> tuple["CPComponents", Tensor]:
        """Components of the weight with scaled outputs, and the former number of each of them.

        Args:
            scale: (out_size), as inference batch normalization scales channels.
        """
        return sorted_components(
            self.inputs, self.outputs * scale, self.kernels * _along(self.weights, self.kernels)
        )

    def to_dense(self) -> Tensor:
        """The weight (out_size, in_size, *kernel)."""
        flat = self.kernels.reshape(len(self.weights), -1)
        weight = torch.einsum("r,ro,rs,rp->osp", self.weights, self.outputs, self.inputs, flat)
        return weight.reshape(self.shape.sizes)


def sorted_components(
    inputs: Tensor, outputs: Tensor, kernels: Tensor
) -> tuple[CPComponents, Tensor]:
    """Unit vectors and weights, largest first, and the number that each component had before.

    Components of weight zero keep zero vectors; of equal ones the earlier comes first.
    """
    parts, norms = [inputs, outputs, kernels], []
    for place, part in enumerate(parts):
        norm = torch.linalg.vector_norm(part.reshape(len(part), -1), dim=1)
        norms.append(norm)
        parts[place] = part / _along(norm.where(norm > 0, norm.new_ones(())), part)
    weights = norms[0] * norms[1] * norms[2]
    order = torch.sort(weights, descending=True, stable=True).indices
    return CPComponents(weights, *parts).taken(order), order


def cp_components(
    name: str, cores: Cores, shape: WeightShape, groups: int = 1
) -> tuple[CPComponents, Tensor]:
    """Read the cores of CP, or of the SVD where there is no kernel, as components.

    Args:
        name: of the format.
        cores: as the layer holds them.
        shape: of the weight of one group.
        groups: of the convolution.

    Returns:
        The components, and the number of each among the cores.

    Raises:
        LayerError: if the weight is written in another way, or in groups.
    """
    if not is_cp(name, shape) or groups != 1:
        raise LayerError(
            f"normalized: a weight {shape.sizes} as {name} in {groups} group(s) is no sum of outer "
            "products; wanted cp, or svd of a matrix, in one group."
        )
    return sorted_components(*_parts(cores, shape))


def is_cp(name: str, shape: WeightShape) -> bool:
    """Whether a weight so written is a sum of outer products."""
    return name == "cp" or (name == "svd" and math.prod(shape.kernel) == 1)


def _parts(cores: Cores, shape: WeightShape) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, outputs and kernels, one row for each component."""
    if "kernel" in cores:
        return cores["input"], cores["output"].T, cores["kernel"]
    right, left = cores["right"].flatten(1), cores["left"].flatten(1)
    return right, left.T, right.new_ones(len(right), *shape.kernel)


def cores_of(components: CPComponents) -> Mapping[str, Tensor]:
    """Cores of CP, or of the SVD where there is no kernel; all parts of a component alike long."""
    shape = components.shape
    is_matrix = math.prod(shape.kernel) == 1
    share = components.weights ** (1 / 2 if is_matrix else 1 / 3)
    inputs, outputs = components.inputs * share[:, None], (components.outputs * share[:, None]).T
    if not is_matrix:
        kernels = components.kernels * _along(share, components.kernels)
        return {"input": inputs, "kernel": kernels, "output": outputs}
    inner, outer = shape.kernel[:1], shape.kernel[1:]
    signs = components.kernels.reshape(-1, 1)  # a kernel of one place is +1 or -1
    return {
        "right": (inputs * signs).reshape(*inputs.shape, *inner),
        "left": outputs.reshape(*outputs.shape, *outer),
    }


def _along(numbers: Tensor, like: Tensor) -> Tensor:
    return numbers.reshape(-1, *[1] * (like.ndim - 1))


# What a traced graph is made for: sizes may be unknown then, and one path must serve them all.
TRACED_PLACES = 16
TRACED_BATCH = 16
_Layer = TypeVar("_Layer", bound="FactorizedLayer")


class FactorizedLayer(nn.Module):
    """A layer whose weight is what a format makes of its cores.

    Args:
        format: how the weight is written.
        ranks: of the format, the same for all groups.
        shape: of the weight of one group.
        window: how its kernel moves; that of a matrix is empty.
        cores: of all groups, one after the other along the first position of each.
        bias: one number for each output channel, or None.
        path: how outputs are computed; None lets the cost model choose for each batch.
    """

    def __init__(
        self,
        format: Format,
        ranks: Ranks,
        shape: WeightShape,
        window: Window,
        cores: Mapping[str, Tensor],
        bias: Tensor | None,
        path: Path | None = None,
    ) -> None:
        super().__init__()
        self.format, self.ranks, self.shape, self.path = format, ranks, shape, path
        self.cores = CoreStore(cores)
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        self._window = window
        # A kernel must fit on the image for which the path is chosen beforehand.
        places = tuple(
            max(TRACED_PLACES, dilation * (size - 1) + 1)
            for size, dilation in zip(shape.kernel, window.dilation, strict=True)
        )
        self._traced_path = choose_path(
            format, shape, ranks, window, places, TRACED_BATCH, training=True
        )
        self._merged = MergedWeight()

    def outputs(self, inputs: Tensor) -> Tensor:
        """Apply the layer by the path asked for, or by the one estimated to be fastest."""
        path = self._path_for(inputs)
        if path is Path.CHAIN:
            cores = self.cores.tensors()
            return self.format.apply(inputs, cores, self.shape, self._window, self.bias)
        held = (*self.cores.parameters(), *self.cores.buffers())
        rebuilds = path is Path.REBUILT
        weight = self.rebuilt() if rebuilds else self._merged.of(held, self.rebuilt)
        return DENSE.apply(inputs, {"weight": weight}, self.shape, self._window, self.bias)

    def rebuilt(self) -> Tensor:
        """The weight as PyTorch stores it, all groups, by one einsum over the cores of each."""
        cores, groups = self.cores.tensors(), self._window.groups
        if groups == 1:
            return self.format.to_dense(cores, self.shape)
        parts = {name: core.chunk(groups) for name, core in cores.items()}
        weights = [
            self.format.to_dense({name: part[group] for name, part in parts.items()}, self.shape)
            for group in range(groups)
        ]
        return torch.cat(weights)

    @property
    def weight(self) -> Tensor:
        """The dense weight, computed from the cores at every call: for code that reads it."""
        return self.rebuilt()

    def quantize(self, bits: int) -> None:
        """Keep the cores in 8 or 4 bits from now on; they no longer train.

        Raises:
            LayerError: if `bits` is neither, or they are quantized already.
        """
        self.cores.quantize(bits)

    def normalized(self) -> CPComponents:
        """Components of a cp (or matrix svd) layer as weights and unit vectors, largest first.

        Raises:
            LayerError: if the format is another one, or there are groups.
        """
        name, cores = self.format.name, self.cores.tensors()
        return cp_components(name, cores, self.shape, self._window.groups)[0]

    def weight_diagram(self) -> Diagram:
        """The weight of one group as a network of its cores."""
        return self.format.diagram(self.shape, self.ranks)

    def train(self: _Layer, mode: bool = True) -> _Layer:
        """See `nn.Module.train`; a merged weight is forgotten."""
        self._merged.clear()
        super().train(mode)
        return self

    def _path_for(self, inputs: Tensor) -> Path:
        """The path asked for or estimated; merged weights are rebuilt where they cannot be kept."""
        tracing = torch.compiler.is_compiling()
        keeps = not (tracing or self.training or wants_gradients(self.cores.parameters()))
        if self.path is not None:
            return Path.REBUILT if self.path is Path.MERGED and not keeps else self.path
        if tracing:
            return self._traced_path
        places = tuple(inputs.shape[2:]) if self.shape.kernel else ()
        channels = self._window.groups * self.shape.in_size
        rows = inputs.numel() // max(channels * math.prod(places), 1)
        # Batches of about the same size share an estimate.
        batch = 1 << (max(rows, 1) - 1).bit_length()
        return choose_path(
            self.format, self.shape, self.ranks, self._window, places, batch, training=not keeps
        )
