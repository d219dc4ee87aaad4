"""What the plain formats share: everything that follows from the index names of their cores.

A plain format names the indices of each core: t outputs, s inputs, h and w positions of the kernel,
every other name a bond. Shapes, the weight, the picture, and the chain of convolutions with its
counts are read off the names.

    svd     right (r, s, h)   left (t, r, w)
    tucker  input (p, s)      kernel (q, p, h, w)   output (t, q)

Grouped convolutions need nothing of their own: the first position of a core are the outputs of its
step, so that the cores of all groups, one after the other, are the weight of a grouped convolution.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.layers.formats.arrangement import channels_last
from rankscope.layers.formats.balanced_ranks import largest_balanced_ranks
from rankscope.layers.formats.finishing import finished
from rankscope.layers.formats.format import Cores, Format, Ranks, WeightShape, Window

Legs = dict[str, tuple[str, ...]]

WEIGHT = ("t", "s", "h", "w")
KERNEL = ("h", "w")
_KINDS = {leg: IndexKind.SPACE if leg in KERNEL else IndexKind.FEATURE for leg in WEIGHT}


@dataclass(frozen=True)
class Step:
    """One core of the chain, used as a convolution.

    Args:
        core: its name.
        outputs: index names of the outputs, the first positions of the core.
        inputs: index names that are summed over; none if the core is depthwise.
        kernel: index names of positions, the last of the core.
        riding: a bond of the state that the core does not have, and that stays as it is.
        along: positions over which the window moves in this step.
    """

    core: str
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    kernel: tuple[str, ...]
    riding: str | None
    along: tuple[int, ...]

    def under(self, window: Window, kernel: Sequence[int]) -> "Move":
        """The step as a convolution of a kernel under a window."""
        places = range(len(window.stride))
        return Move(
            self.core,
            len(self.outputs),
            self.riding,
            [kernel[p] if KERNEL[p] in self.kernel else 1 for p in places],
            [window.stride[p] if p in self.along else 1 for p in places],
            [window.padding[p] if p in self.along else 0 for p in places],
            [window.dilation[p] if p in self.along else 1 for p in places],
            window.groups,
            not self.inputs,
        )


@dataclass(frozen=True)
class Move:
    """A step under a window: found once, since finding it takes as long as a small sample."""

    core: str
    num_outputs: int
    riding: str | None
    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int
    is_depthwise: bool

    def convolve(
        self, state: Tensor, core: Tensor, riding_size: int, bias: Tensor | None = None
    ) -> Tensor:
        """The next state (batch, channels, *positions); the last step of a chain has no riding."""
        outputs = math.prod(core.shape[: self.num_outputs])
        weight = core.reshape(outputs, -1, *self.kernel)
        groups = outputs if self.is_depthwise else self.groups
        beside = _to_batch(state, self.groups, riding_size) if self.riding else state
        convolution = functional.conv1d if len(self.stride) == 1 else functional.conv2d
        result = convolution(beside, weight, bias, self.stride, self.padding, self.dilation, groups)
        return _from_batch(result, self.groups, riding_size) if self.riding else result


class PlainFormat(Format):
    """A format of the weight as it is, used as a chain of convolutions."""

    @abstractmethod
    def legs(self, shape: WeightShape) -> Legs:
        """The index names of each core, in the order of its positions and of the chain."""

    @abstractmethod
    def bonds(self, shape: WeightShape) -> tuple[str, ...]:
        """The index names whose sizes are the ranks, in their order."""

    @abstractmethod
    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> Mapping[str, Tensor]:
        """The cores of `decompose`, in any dtype; bonds may be smaller than the ranks."""

    def refusal(self, shape: WeightShape) -> str | None:
        """Kernels with one or two positions, and more than one place, can be written so."""
        if len(shape.kernel) > 2:
            return f"its kernel has {len(shape.kernel)} positions, and at most two are supported."
        if math.prod(shape.kernel) == 1:
            return f"without a kernel, {self.name} is svd in disguise; use svd."
        return None

    def is_useful(self, shape: WeightShape, ranks: Ranks) -> bool:
        """Whether no rank is larger than the others leave any use for."""
        return True

    def sizes(self, shape: WeightShape, ranks: Ranks) -> dict[str, int]:
        """The size of every index.

        Raises:
            LayerError: if the format refuses the shape, or the ranks do not fit.
        """
        self.check(shape, ranks)
        open_sizes = dict(zip(WEIGHT, shape.sizes, strict=False))
        return open_sizes | dict(zip(self.bonds(shape), ranks, strict=True))

    def core_shapes(self, shape: WeightShape, ranks: Ranks) -> dict[str, tuple[int, ...]]:
        sizes = self.sizes(shape, ranks)
        return {name: tuple(sizes[leg] for leg in held) for name, held in self.legs(shape).items()}

    def decompose(self, weight: Tensor, ranks: Ranks, *, seed: int = 0) -> dict[str, Tensor]:
        """See `Format.decompose`; all cores get the same norm."""
        shapes = self.core_shapes(WeightShape.of(weight), ranks)
        return finished(self.fit(weight, ranks, seed=seed), shapes, weight.dtype)

    def to_dense(self, cores: Cores, shape: WeightShape) -> Tensor:
        legs = self.legs(shape)
        # Index numbers instead of letters: names may be longer than one.
        numbers = {leg: number for number, leg in enumerate((*WEIGHT, *self.bonds(shape)))}
        operands: list[Tensor | list[int]] = []
        for name, held in legs.items():
            operands += [cores[name], [numbers[leg] for leg in held]]
        return torch.einsum(*operands, [numbers[leg] for leg in WEIGHT[: len(shape.sizes)]])

    def steps(self, shape: WeightShape) -> list[Step]:
        """From the inputs to the outputs, core by core."""
        # Lists and no generators: those lose their place in a traced graph.
        # A position of size one is only strided over: the sooner, the less is left to compute.
        single = [place for place, size in enumerate(shape.kernel) if size == 1]
        taken, steps = single, []
        state: tuple[str, ...] = ("s",)
        for name, held in self.legs(shape).items():
            kernel = tuple([leg for leg in held if leg in KERNEL])
            inputs = tuple([leg for leg in held[1:] if leg in state])
            outputs = tuple([leg for leg in held if leg not in (*kernel, *inputs)])
            # A bond on a depthwise core (its first and only one) is input and output at once.
            riding = [leg for leg in state if leg not in held]
            own = [KERNEL.index(leg) for leg in kernel]
            along = (*taken, *[place for place in own if place not in single])
            steps.append(Step(name, outputs, inputs, kernel, riding[0] if riding else None, along))
            taken, state = [], (*riding, *outputs)
        return steps

    def moves(self, shape: WeightShape, window: Window) -> list[Move]:
        """The steps under a window."""
        return [step.under(window, shape.kernel) for step in self.steps(shape)]

    def apply(
        self,
        inputs: Tensor,
        cores: Cores,
        shape: WeightShape,
        window: Window,
        bias: Tensor | None = None,
    ) -> Tensor:
        state = inputs
        tracing = torch.compiler.is_compiling()
        moves = self.moves(shape, window) if tracing else _moves(self, shape, window)
        for number, move in enumerate(moves):
            state = channels_last(state) if number else state
            riding_size = self._riding_size(move.riding, cores, shape) if move.riding else 1
            # In the same pass over the outputs: adding it afterwards takes a third of the time.
            added = bias if number == len(moves) - 1 else None
            state = move.convolve(state, cores[move.core], riding_size, added)
        return state

    def multiplications(
        self, shape: WeightShape, ranks: Ranks, window: Window, input_sizes: Sequence[int]
    ) -> int:
        return sum(count for count, _ in self._counts(shape, ranks, window, input_sizes))

    def activations(
        self, shape: WeightShape, ranks: Ranks, window: Window, input_sizes: Sequence[int]
    ) -> int:
        """Numbers that `apply` writes between the cores, on one sample."""
        return sum(count for _, count in self._counts(shape, ranks, window, input_sizes)[:-1])

    def diagram(self, shape: WeightShape, ranks: Ranks) -> Diagram:
        sizes, legs = self.sizes(shape, ranks), self.legs(shape)
        return Diagram(
            self.name,
            tuple(
                Index(leg, size, kind=_KINDS.get(leg, IndexKind.RANK))
                for leg, size in sizes.items()
            ),
            tuple(Node(name, held, Role.CORE) for name, held in legs.items()),
            output=WEIGHT[: len(shape.sizes)],
        )

    def largest_ranks(self, shape: WeightShape, num_parameters: int) -> Ranks | None:
        """As equal as possible, none of which could be one larger."""
        return largest_balanced_ranks(
            lambda ranks: self.num_parameters(shape, ranks),
            self.max_ranks(shape),
            num_parameters,
            is_useful=lambda ranks: self.is_useful(shape, ranks),
        )

    def _riding_size(self, riding: str, cores: Cores, shape: WeightShape) -> int:
        """The size of the bond that rides along, read from a core that has it."""
        for name, held in self.legs(shape).items():
            if riding in held[1:]:
                return cores[name].shape[held.index(riding)]
        return 1

    def _counts(
        self, shape: WeightShape, ranks: Ranks, window: Window, input_sizes: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Of each step: its multiply-adds, and the numbers that it writes."""
        sizes = self.sizes(shape, ranks)
        places = list(input_sizes)
        after = window.output_sizes(input_sizes, shape.kernel) if shape.kernel else ()
        counts = []
        for step in self.steps(shape):
            for place in step.along:
                places[place] = after[place]
            each = window.groups * math.prod(places) * (sizes[step.riding] if step.riding else 1)
            written = each * math.prod(sizes[leg] for leg in step.outputs)
            summed = math.prod(sizes[leg] for leg in (*step.inputs, *step.kernel))
            counts.append((written * summed, written))
        return counts


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
    """In channels-last memory if the state was, where convolutions are fastest."""
    if state.ndim == 4 and state.is_contiguous(memory_format=torch.channels_last):
        return moved.contiguous(memory_format=torch.channels_last)
    return moved
