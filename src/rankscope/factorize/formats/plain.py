"""Plain formats: the weight as it is, used as a chain of convolutions.

The indices of a core are t outputs, s inputs, h and w positions of the kernel, every other name a
bond.

    svd     right (r, s, h)   left (t, r, w)
    tucker  input (p, s)      kernel (q, p, h, w)   output (t, q)

Grouped convolutions need nothing of their own: the first position of a core are the outputs of its
step, so that the cores of all groups, one after the other, are the weight of a grouped convolution.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from rankscope.diagrams.parts import Index, IndexKind
from rankscope.factorize.cp import CPOptions, decompose_cp
from rankscope.factorize.formats.errors import tails, with_middle_cut
from rankscope.factorize.formats.format import (
    KERNEL,
    Cores,
    Format,
    Legs,
    Ranks,
    WeightShape,
    Window,
)
from rankscope.factorize.svd import decompose_svd
from rankscope.factorize.tensor_ring import decompose_tensor_ring, limited_ring_bonds
from rankscope.factorize.tensor_train import decompose_tensor_train, limited_bonds
from rankscope.factorize.truncation import Bonds, MaxBond
from rankscope.factorize.tucker import TuckerEnergy, decompose_tucker, tucker_energy

WEIGHT = ("t", "s", *KERNEL)

# Below, a call costs more than the arrangement saves.
LEAST_NUMBERS = 2**16


def channels_last(state: Tensor) -> Tensor:
    """A state (batch, channels, height, width), if it is large, with its channels side by side.

    Convolutions of few channels are faster so, most of all the one back to many: 2.7 instead of
    29 ms for 14 -> 64 channels of 64 x 32 x 32 places. It is done after the first core, where
    channels are few; the inputs themselves would cost more than is gained.
    """
    if torch.compiler.is_compiling() or state.ndim != 4 or state.numel() < LEAST_NUMBERS:
        return state  # a traced graph is arranged by its compiler, and may not know its sizes
    return state.contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class Move:
    """One core of the chain, used as a convolution under a window.

    Args:
        core: its name.
        num_outputs: how many of the core's first positions are the outputs of the move.
        riding: a bond of the state that the core does not have, and that stays as it is.
        kernel: its sizes; 1 where the core has no index of that position.
        stride: along each position.
        margins: what is padded beforehand, as `Window.pad` takes it.
        padding: what the convolution pads itself.
        dilation: along each position.
        groups: of the window.
        is_depthwise: whether nothing but places is summed over.
    """

    core: str
    num_outputs: int
    riding: str | None
    kernel: list[int]
    stride: list[int]
    margins: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int
    is_depthwise: bool

    def convolve(
        self, state: Tensor, core: Tensor, riding_size: int, bias: Tensor | None = None
    ) -> Tensor:
        """The next state (batch, channels, *positions); the last move of a chain has no riding."""
        outputs = math.prod(core.shape[: self.num_outputs])
        weight = core.reshape(outputs, -1, *self.kernel)
        groups = outputs if self.is_depthwise else self.groups
        beside = _to_batch(state, self.groups, riding_size) if self.riding else state
        convolution = functional.conv1d if len(self.stride) == 1 else functional.conv2d
        result = convolution(beside, weight, bias, self.stride, self.padding, self.dilation, groups)
        return _from_batch(result, self.groups, riding_size) if self.riding else result


class PlainFormat(Format):
    """A format of the weight as it is, used as a chain of convolutions."""

    def open_legs(self, shape: WeightShape) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return ("t",), ("s",)

    def open_sizes(self, shape: WeightShape) -> dict[str, int]:
        return dict(zip(WEIGHT, shape.sizes, strict=False))

    def index(self, leg: str, size: int) -> Index:
        kind = IndexKind.FEATURE if leg in ("t", "s") else IndexKind.RANK
        return Index(leg, size, kind=IndexKind.SPACE if leg in KERNEL else kind)

    def refusal(self, shape: WeightShape) -> str | None:
        """Kernels with one or two positions, and more than one place, can be written so."""
        if len(shape.kernel) > 2:
            return f"its kernel has {len(shape.kernel)} positions, and at most two are supported."
        if math.prod(shape.kernel) == 1:
            return f"without a kernel, {self.name} is svd in disguise; use svd."
        return None

    def moves(self, shape: WeightShape, window: Window) -> list[Move]:
        """The chain under a window, core by core from the inputs to the outputs."""
        # Lists and no generators: those lose their place in a traced graph.
        places = range(len(shape.kernel))
        # A position of size one is only strided over: the sooner, the less is left to compute.
        single = shape.single
        taken, moves = single, []
        state: tuple[str, ...] = ("s",)
        for name, held in self.legs(shape).items():
            kernel = [leg for leg in held if leg in KERNEL]
            inputs = [leg for leg in held[1:] if leg in state]
            outputs = [leg for leg in held if leg not in (*kernel, *inputs)]
            # A bond on a depthwise core (its first and only one) is input and output at once.
            riding = [leg for leg in state if leg not in held]
            own = [KERNEL.index(leg) for leg in kernel]
            along = [*taken, *[place for place in own if place not in single]]
            margins, padding = window.paddings(along)
            moves.append(
                Move(
                    name,
                    len(outputs),
                    riding[0] if riding else None,
                    [shape.kernel[p] if KERNEL[p] in kernel else 1 for p in places],
                    [window.stride[p] if p in along else 1 for p in places],
                    margins,
                    padding,
                    [window.dilation[p] if p in along else 1 for p in places],
                    window.groups,
                    not inputs,
                )
            )
            taken, state = [], (*riding, *outputs)
        return moves

    def apply(
        self,
        inputs: Tensor,
        cores: Cores,
        shape: WeightShape,
        window: Window,
        bias: Tensor | None = None,
    ) -> Tensor:
        state = inputs
        if not shape.kernel:
            *first, last = self.legs(shape)
            for name in first:
                state = functional.linear(state, cores[name])
            return functional.linear(state, cores[last], bias)
        tracing = torch.compiler.is_compiling()
        moves = self.moves(shape, window) if tracing else _moves(self, shape, window)
        for number, move in enumerate(moves):
            state = channels_last(state) if number else state
            state = window.pad(state, move.margins)
            riding_size = self._riding_size(move.riding, cores, shape) if move.riding else 1
            # In the same pass over the outputs: adding it afterwards takes a third of the time.
            added = bias if number == len(moves) - 1 else None
            state = move.convolve(state, cores[move.core], riding_size, added)
        return state

    def _riding_size(self, riding: str, cores: Cores, shape: WeightShape) -> int:
        """The size of the bond that rides along, read from a core that has it."""
        for name, held in self.legs(shape).items():
            if riding in held[1:]:
                return cores[name].shape[held.index(riding)]
        return 1


@lru_cache(maxsize=1024)
def _moves(format: PlainFormat, shape: WeightShape, window: Window) -> list[Move]:
    return format.moves(shape, window)


def _to_batch(state: Tensor, groups: int, riding_size: int) -> Tensor:
    """(batch, groups * riding * channels, ...) to (batch * riding, groups * channels, ...)."""
    batch, channels, *places = state.shape
    split = state.reshape(batch, groups, riding_size, channels // (groups * riding_size), *places)
    moved = split.transpose(1, 2).reshape(batch * riding_size, channels // riding_size, *places)
    return _arranged_like(moved, state)


def _from_batch(state: Tensor, groups: int, riding_size: int) -> Tensor:
    """The way back."""
    rows, channels, *places = state.shape
    split = state.reshape(rows // riding_size, riding_size, groups, channels // groups, *places)
    return _arranged_like(split.transpose(1, 2).flatten(1, 3), state)


def _arranged_like(moved: Tensor, state: Tensor) -> Tensor:
    """Use channels-last memory if the state did: convolutions are fastest there."""
    if state.ndim == 4 and state.is_contiguous(memory_format=torch.channels_last):
        return moved.contiguous(memory_format=torch.channels_last)
    return moved


@dataclass(frozen=True)
class DenseFormat(PlainFormat):
    """The weight itself, as one core: what the others are measured against."""

    name: ClassVar[str] = "dense"

    def legs(self, shape: WeightShape) -> Legs:
        return {"weight": WEIGHT[: len(shape.sizes)]}

    def bonds(self, shape: WeightShape) -> tuple[str, ...]:
        return ()

    def refusal(self, shape: WeightShape) -> str | None:
        """Every matrix and every kernel can be written so."""
        return None

    def full_ranks(self, shape: WeightShape) -> Ranks:
        return ()

    def largest_ranks(self, shape: WeightShape, num_parameters: int) -> Ranks | None:
        return () if shape.num_parameters <= num_parameters else None

    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        return {"weight": weight}

    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        return [0.0] * len(ladder)

    def rows(self, cores: Cores, shape: WeightShape, numbers: Tensor) -> Tensor:
        return functional.embedding(numbers, cores["weight"])


DENSE = DenseFormat()


@dataclass(frozen=True)
class SVDFormat(PlainFormat):
    r"""The truncated singular value decomposition of one matrix.

    .. math:: K_{t s h w} = \sum_r L_{t r w} R_{r s h}

    with `left` L and `right` R, the singular values split evenly between them. The matrix is
    (out_size w) x (in_size h): a kernel becomes an h x 1 convolution and then a 1 x w one. A matrix
    has neither h nor w, a kernel with one position only h.

    Reference:
        Jaderberg, Vedaldi & Zisserman (2014), Sec. 2.1 (scheme 2), arXiv:1405.3866.
    """

    name: ClassVar[str] = "svd"

    def legs(self, shape: WeightShape) -> Legs:
        inner, outer = KERNEL[:1][: len(shape.kernel)], KERNEL[1 : len(shape.kernel)]
        return {"right": ("r", "s", *inner), "left": ("t", "r", *outer)}

    def bonds(self, shape: WeightShape) -> tuple[str, ...]:
        return ("r",)

    def refusal(self, shape: WeightShape) -> str | None:
        """Matrices, and kernels with one or two positions, can be written so."""
        if len(shape.kernel) > 2:
            return f"its kernel has {len(shape.kernel)} positions, and at most two are supported."
        return None

    def full_ranks(self, shape: WeightShape) -> Ranks:
        inner, outer = shape.kernel[:1], shape.kernel[1:]
        return (min(shape.in_size * math.prod(inner), shape.out_size * math.prod(outer)),)

    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        shape = WeightShape.of(weight)
        made = decompose_svd(_matrix(weight), MaxBond(ranks[0]))
        roots = made.singular_values.sqrt()
        left = (made.left * roots).reshape(shape.out_size, *shape.kernel[1:], ranks[0])
        right = (roots[:, None] * made.right).reshape(ranks[0], shape.in_size, *shape.kernel[:1])
        return {"right": right, "left": left.movedim(-1, 1)}

    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """Exact, from one spectrum: the discarded singular values."""
        tail = tails(_matrix(weight))
        return [float(tail[rank]) for (rank,) in ladder]

    def rows(self, cores: Cores, shape: WeightShape, numbers: Tensor) -> Tensor:
        return functional.embedding(numbers, cores["left"]) @ cores["right"]

    @property
    def input_core(self) -> tuple[str, int]:
        return ("right", 1)

    @property
    def output_core(self) -> str:
        return "left"


def _matrix(weight: Tensor) -> Tensor:
    """(out_size w) x (in_size h)."""
    matrix = weight.movedim(3, 1) if weight.ndim == 4 else weight
    return matrix.reshape(math.prod(matrix.shape[: max(1, weight.ndim - 2)]), -1)


# The best sum of few components is often one of huge ones that cancel: on kernels of a ResNet-32 up
# to 10 times as large as the kernel, for 0.001 of the error. Such a layer hardly trains.
LARGEST_COMPONENT = 1.0


@dataclass(frozen=True)
class CPFormat(PlainFormat):
    r"""A CP decomposition of order 3: inputs, outputs, and all positions of the kernel in one.

    .. math:: K_{t s h w} = \sum_r O_{t r} G_{r h w} I_{r s}

    with `input` I, `kernel` G, `output` O: a 1 x 1 convolution, a depthwise one, and a 1 x 1
    convolution. The three parts of a component have the same norm.

    Reference:
        Astrid & Lee (2017), CP-decomposition with tensor power method for convolutional neural
        networks compression, arXiv:1701.07148.
    """

    name: ClassVar[str] = "cp"

    def legs(self, shape: WeightShape) -> Legs:
        kernel = KERNEL[: len(shape.kernel)]
        return {"input": ("r", "s"), "kernel": ("r", *kernel), "output": ("t", "r")}

    def bonds(self, shape: WeightShape) -> tuple[str, ...]:
        return ("r",)

    def full_ranks(self, shape: WeightShape) -> Ranks:
        """Surely enough: fibres along the largest position, one for each place of the others."""
        sizes = (shape.in_size, shape.out_size, math.prod(shape.kernel))
        return (math.prod(sizes) // max(sizes),)

    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        options = CPOptions(seed=seed, max_component_norm=LARGEST_COMPONENT)
        made = decompose_cp(_three_way(weight), MaxBond(ranks[0]), options=options)
        inputs, outputs, places = balanced_components(made.factors)
        kernel = places.mT.reshape(-1, *weight.shape[2:])
        return {"input": inputs.mT, "kernel": kernel, "output": outputs}

    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """Estimates, interpolated from a few short fits; `decompose` looks longer."""
        shape, tensor = WeightShape.of(weight), _three_way(weight)
        options = CPOptions(num_starts=1, max_sweeps=10, max_iterations=0, seed=seed)
        return self.estimated_errors(
            shape,
            ladder,
            lambda ranks: decompose_cp(tensor, MaxBond(ranks[0]), options=options).relative_error,
        )

    @property
    def input_core(self) -> tuple[str, int]:
        return ("input", 1)

    @property
    def output_core(self) -> str:
        return "output"


def _three_way(weight: Tensor) -> Tensor:
    """(in_size, out_size, places)."""
    return weight.flatten(2).transpose(0, 1)


def balanced_components(factors: Sequence[Tensor]) -> list[Tensor]:
    """Each component's norm, shared evenly between its vectors."""
    norms = [torch.linalg.vector_norm(factor, dim=0) for factor in factors]
    share = torch.stack(norms).prod(dim=0) ** (1 / len(factors))
    return [
        factor * (share / norm.clamp_min(torch.finfo(norm.dtype).tiny))
        for factor, norm in zip(factors, norms, strict=True)
    ]


@dataclass(frozen=True)
class TuckerFormat(PlainFormat):
    r"""Tucker-2: only the channels are compressed, the kernel stays in the core.

    .. math:: K_{t s h w} = \sum_{p q} O_{t q} G_{q p h w} I_{p s}

    with `input` I, `kernel` G, `output` O and ranks (p, q): a 1 x 1 convolution, a small one with
    the whole kernel, and a 1 x 1 convolution.

    Reference:
        Kim, Park, Yoo, Choi, Yang & Shin (2016), Sec. 3.1, arXiv:1511.06530.
    """

    name: ClassVar[str] = "tucker"

    def legs(self, shape: WeightShape) -> Legs:
        kernel = KERNEL[: len(shape.kernel)]
        return {"input": ("p", "s"), "kernel": ("q", "p", *kernel), "output": ("t", "q")}

    def bonds(self, shape: WeightShape) -> tuple[str, ...]:
        return ("p", "q")

    def full_ranks(self, shape: WeightShape) -> Ranks:
        places = math.prod(shape.kernel)
        return (
            min(shape.in_size, shape.out_size * places),
            min(shape.out_size, shape.in_size * places),
        )

    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        made = decompose_tucker(weight, Bonds(ranks[::-1]), positions=(0, 1))
        return {"input": made.factors[1].mT, "kernel": made.core, "output": made.factors[0]}

    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """Errors of the projection onto singular bases; `decompose` is never worse."""
        energy = tucker_energy(weight, positions=(0, 1))
        return [energy.relative_error(ranks[::-1]) for ranks in ladder]

    @property
    def input_core(self) -> tuple[str, int]:
        return ("input", 1)

    @property
    def output_core(self) -> str:
        return "output"


@dataclass(frozen=True)
class TensorTrainFormat(PlainFormat):
    r"""A tensor train over inputs, height, width and outputs, in this order.

    .. math:: K_{t s h w} = \sum_{p q r} O_{t r} W_{r q w} H_{q p h} I_{p s}

    with `input` I, `height` H, `width` W, `output` O and ranks (p, q, r): convolutions 1 x 1,
    h x 1, 1 x w, 1 x 1. A kernel with one position has no W and no r; it is Tucker-2.

    Reference:
        Oseledets (2011), Tensor-train decomposition, Thm. 2.2 and Cor. 2.4,
        doi:10.1137/090752286.
    """

    name: ClassVar[str] = "tensor-train"

    def legs(self, shape: WeightShape) -> Legs:
        if len(shape.kernel) == 1:
            return {"input": ("p", "s"), "height": ("q", "p", "h"), "output": ("t", "q")}
        return {
            "input": ("p", "s"),
            "height": ("q", "p", "h"),
            "width": ("r", "q", "w"),
            "output": ("t", "r"),
        }

    def bonds(self, shape: WeightShape) -> tuple[str, ...]:
        return ("p", "q", "r")[: len(shape.kernel) + 1]

    def full_ranks(self, shape: WeightShape) -> Ranks:
        sizes = (shape.in_size, *shape.kernel, shape.out_size)
        cuts = range(1, len(sizes))
        return tuple(min(math.prod(sizes[:cut]), math.prod(sizes[cut:])) for cut in cuts)

    def is_useful(self, shape: WeightShape, ranks: Ranks) -> bool:
        sizes = (shape.in_size, *shape.kernel, shape.out_size)
        forth, back = limited_bonds(sizes, ranks), limited_bonds(sizes[::-1], ranks[::-1])
        return forth == ranks == back[::-1]

    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        made = decompose_tensor_train(weight.movedim(0, -1), Bonds(ranks))
        first, *middle, last = made.cores
        turned = (first[0].mT, *(core.permute(2, 0, 1) for core in middle), last[..., 0].mT)
        return dict(zip(self.legs(WeightShape.of(weight)), turned, strict=True))

    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """Errors of trains whose outer bonds are truncated before the middle one.

        Their squared error has orthogonal parts, together at most the tails of all bonds: the bound
        that also holds for `decompose`, which cuts from left to right. The two differ by little.
        """
        energy = tucker_energy(weight, positions=(0, 1))
        return [_train_error(energy, ranks) for ranks in ladder]

    @property
    def input_core(self) -> tuple[str, int]:
        return ("input", 1)

    @property
    def output_core(self) -> str:
        return "output"


def _train_error(energy: TuckerEnergy, ranks: Ranks) -> float:
    outer = energy.relative_error((ranks[-1], ranks[0]))
    if len(ranks) == 2:
        return outer
    return with_middle_cut(outer, energy.core[: ranks[-1], : ranks[0]].movedim(0, -1), ranks[1])


_TRAIN = TensorTrainFormat()

_SHORT_SWEEPS = 2  # of a fit that only estimates an error


@dataclass(frozen=True)
class TensorRingFormat(PlainFormat):
    r"""A tensor ring over inputs, height, width and outputs, in this order, and back.

    .. math:: K_{t s h w} = \sum_{p q r u} O_{t u r} W_{r q w} H_{q p h} I_{u p s}

    with `input` I, `height` H, `width` W, `output` O and ranks (p, q, r, u), of which u closes the
    ring. A kernel with one position has no W and no r. In the chain, u stays with the state: H and
    W see u samples for each one.

    Reference:
        Zhao, Zhou, Xie, Zhang & Cichocki (2016), Tensor ring decomposition, arXiv:1606.05535;
        Wang, Sun, Eriksson, Wang & Aggarwal (2018), Wide compression: tensor ring nets,
        arXiv:1802.09052.
    """

    name: ClassVar[str] = "tensor-ring"

    def legs(self, shape: WeightShape) -> Legs:
        train = _TRAIN.legs(shape)
        last = train["output"][1]
        return {**train, "input": ("u", "p", "s"), "output": ("t", "u", last)}

    def bonds(self, shape: WeightShape) -> tuple[str, ...]:
        return (*_TRAIN.bonds(shape), "u")

    def full_ranks(self, shape: WeightShape) -> Ranks:
        """Full ranks of a train, which needs no closing bond."""
        return (*_TRAIN.full_ranks(shape), 1)

    def max_ranks(self, shape: WeightShape) -> Ranks:
        train = _TRAIN.full_ranks(shape)
        return (*train, max(train))

    def is_useful(self, shape: WeightShape, ranks: Ranks) -> bool:
        return limited_ring_bonds((shape.in_size, *shape.kernel, shape.out_size), ranks) == ranks

    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        made = decompose_tensor_ring(weight.movedim(0, -1), Bonds(ranks), seed=seed)
        first, *middle, last = made.cores
        turned = (
            first.permute(0, 2, 1),
            *(core.permute(2, 0, 1) for core in middle),
            last.permute(1, 2, 0),
        )
        return dict(zip(self.legs(WeightShape.of(weight)), turned, strict=True))

    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """Estimates, interpolated from a few short fits; `decompose` looks longer."""
        shape, tensor = WeightShape.of(weight), weight.movedim(0, -1)
        return self.estimated_errors(
            shape, ladder, lambda ranks: short_ring_error(tensor, ranks, seed=seed)
        )

    @property
    def input_core(self) -> tuple[str, int]:
        return ("input", 2)

    @property
    def output_core(self) -> str:
        return "output"


def short_ring_error(tensor: Tensor, ranks: Ranks, *, seed: int) -> float:
    """The error of a fit that is cut short; a longer one has at most that."""
    ring = decompose_tensor_ring(tensor, Bonds(ranks), sweeps=_SHORT_SWEEPS, seed=seed)
    return ring.relative_error
