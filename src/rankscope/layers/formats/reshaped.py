"""What the four reshaped formats share: everything that follows from the indices of their cores.

A reshaped format names the indices of each core by letters: i, j, k are the factors of the inputs,
a, b, c those of the outputs, z the positions of the kernel (all in one), every other letter a bond.
Rebuilding the weight, running core by core, counting and drawing are read off the letters.

    r-cp            ria rjb rz
    r-tensor-train  xiap pjbq qkcr rz        (x has size 1)
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.layers.formats.balanced_ranks import largest_balanced_ranks
from rankscope.layers.formats.channel_factors import ChannelFactors, splitting_refusal
from rankscope.layers.formats.format import Cores, Format, Ranks, WeightShape, Window
from rankscope.layers.formats.reshaped_steps import KERNEL, Step, subsample

IN, OUT = "ijk", "abc"


POINT = Window((1,), (0,), (1,))  # how a matrix moves, seen as a kernel of size 1


@dataclass(frozen=True)
class ReshapedFormat(Format):
    """A format of the weight with its channels cut in factors."""

    num_factors: ClassVar[int]
    reverses_outputs: ClassVar[bool]

    @abstractmethod
    def legs(self, shape: WeightShape) -> dict[str, str]:
        """The letters of each core, in the order of its positions."""

    @abstractmethod
    def bonds(self, shape: WeightShape) -> str:
        """The letters whose sizes are the ranks, in their order."""

    @abstractmethod
    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        """The cores, in any dtype and of any norms; bonds may be smaller than the ranks."""

    def factors(self, shape: WeightShape) -> ChannelFactors:
        """How the channels are cut."""
        return ChannelFactors.of(shape, self.num_factors, reversed_outputs=self.reverses_outputs)

    def paired_sizes(self, shape: WeightShape) -> tuple[int, ...]:
        """Of the paired tensor (S₁T₁, ..., SₘTₘ, kernel), the kernel only if it has many places."""
        kernel = (math.prod(shape.kernel),) if has_kernel(shape) else ()
        return (*self.factors(shape).pairs, *kernel)

    def paired(self, weight: Tensor) -> Tensor:
        """A weight as the paired tensor."""
        shape = WeightShape.of(weight)
        return self.factors(shape).pair(weight.detach()).reshape(self.paired_sizes(shape))

    def unpaired(self, cores: Sequence[Tensor], shape: WeightShape) -> dict[str, Tensor]:
        """Cores of the paired tensor, each (left_bond, S_l T_l, right_bond), with their names."""
        legs, factors = self.legs(shape), self.factors(shape)
        pairs = [*zip(factors.in_factors, factors.out_factors, strict=True), (-1,)]
        named = {}
        for (name, letters), core, sizes in zip(legs.items(), cores, pairs, strict=False):
            parts = core.reshape(core.shape[0], *sizes, core.shape[2])
            named[name] = parts if len(letters) == parts.ndim else parts.squeeze(-1)
        return named

    def refusal(self, shape: WeightShape) -> str | None:
        """Channels that do not split, and kernels with three positions."""
        if len(shape.kernel) > 2:
            return f"its kernel has {len(shape.kernel)} positions, and at most two are supported."
        return splitting_refusal(shape, self.num_factors)

    def sizes(self, shape: WeightShape, ranks: Ranks) -> dict[str, int]:
        """The size of every letter.

        Raises:
            LayerError: if the format refuses the shape, or the ranks do not fit.
        """
        self.check(shape, ranks)
        factors = self.factors(shape)
        return {
            **dict(zip(IN, factors.in_factors, strict=False)),
            **dict(zip(OUT, factors.out_factors, strict=False)),
            KERNEL: math.prod(shape.kernel),
            "x": 1,
            **dict(zip(self.bonds(shape), ranks, strict=True)),
        }

    def core_shapes(self, shape: WeightShape, ranks: Ranks) -> dict[str, tuple[int, ...]]:
        sizes = self.sizes(shape, ranks)
        return {
            name: tuple(sizes[letter] for letter in letters)
            for name, letters in self.legs(shape).items()
        }

    def decompose(self, weight: Tensor, ranks: Ranks, *, seed: int = 0) -> dict[str, Tensor]:
        """See `Format.decompose`; all cores get the same norm, which trains and rounds best."""
        shapes = self.core_shapes(WeightShape.of(weight), ranks)
        cores = self.fit(weight, ranks, seed=seed)
        norms = [float(torch.linalg.vector_norm(core)) for core in cores.values()]
        norm = math.prod(norms) ** (1 / len(norms))
        scales = [norm / each if each else 0.0 for each in norms]
        return {
            name: filled(core * scale, sizes).to(weight.dtype)
            for (name, core), scale, sizes in zip(
                cores.items(), scales, shapes.values(), strict=True
            )
        }

    def to_dense(self, cores: Cores, shape: WeightShape) -> Tensor:
        legs = self.legs(shape)
        kernel = KERNEL if has_kernel(shape) else ""
        count = self.num_factors
        equation = f"{','.join(legs.values())}->{OUT[:count]}{IN[:count]}{kernel}"
        return torch.einsum(equation, *(cores[name] for name in legs)).reshape(shape.sizes)

    def steps(self, shape: WeightShape) -> list[Step]:
        """From the inputs to the outputs, core by core."""
        steps = []  # no generator: it would lose its place in a traced graph
        legs = list(self.legs(shape).values())
        state, outputs = IN[: self.num_factors], OUT[: self.num_factors]
        for place, core in enumerate(legs):
            later = set("".join(legs[place + 1 :])) | set(outputs)
            last = place == len(legs) - 1
            kept = [x for x in dict.fromkeys(core + state) if x in later]
            after = outputs if last else "".join(kept)
            steps.append(Step(state, core, after))
            state = after
        return steps

    def apply(
        self,
        inputs: Tensor,
        cores: Cores,
        shape: WeightShape,
        window: Window,
        bias: Tensor | None = None,
    ) -> Tensor:
        """See `Format.apply`; between the cores, tensors are larger than the inputs by a bond."""
        if not shape.kernel:
            rows = inputs.reshape(math.prod(inputs.shape[:-1]), shape.in_size, 1)
            outputs = self.apply(rows, cores, replace(shape, kernel=(1,)), POINT, bias)
            return outputs.reshape(*inputs.shape[:-1], shape.out_size)
        state = inputs if has_kernel(shape) else subsample(inputs, window)
        places: Sequence[int] = state.shape[2:]
        groups, in_factors = window.groups, self.factors(shape).in_factors
        state = state.reshape(inputs.shape[0], groups, *in_factors, math.prod(places))
        steps = self.steps(shape) if torch.compiler.is_compiling() else _steps(self, shape)
        for step, name in zip(steps, self.legs(shape), strict=True):
            first, *rest = cores[name].shape
            core = cores[name].reshape(groups, first // groups, *rest)
            if step.is_convolution:
                state, places = step.convolve(state, core, window, places, shape.kernel)
            else:
                state = torch.einsum(step.equation, state, core)
        outputs = state.reshape(inputs.shape[0], groups * shape.out_size, *places)
        return outputs if bias is None else outputs + bias.reshape(-1, *[1] * len(places))

    def multiplications(
        self, shape: WeightShape, ranks: Ranks, window: Window, input_sizes: Sequence[int]
    ) -> int:
        return sum(count for count, _ in self._costs(shape, ranks, window, input_sizes))

    def activations(
        self, shape: WeightShape, ranks: Ranks, window: Window, input_sizes: Sequence[int]
    ) -> int:
        """Numbers written between the cores, for one sample."""
        return sum(count for _, count in self._costs(shape, ranks, window, input_sizes)[:-1])

    def _costs(
        self, shape: WeightShape, ranks: Ranks, window: Window, input_sizes: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Of each step: its multiply-adds, and the numbers that it writes."""
        sizes = self.sizes(shape, ranks)
        after = math.prod(window.output_sizes(input_sizes, shape.kernel)) if shape.kernel else 1
        places = math.prod(input_sizes) if has_kernel(shape) else after
        costs = []
        for step in self.steps(shape):
            places = after if step.is_convolution else places
            each = window.groups * places
            counts = (set(step.before + step.core), step.after)
            costs.append(tuple(each * math.prod(sizes[x] for x in letters) for letters in counts))
        return [(multiplied, written) for multiplied, written in costs]

    def largest_ranks(self, shape: WeightShape, num_parameters: int) -> Ranks | None:
        return largest_balanced_ranks(
            lambda ranks: self.num_parameters(shape, ranks), self.max_ranks(shape), num_parameters
        )

    def rows(self, cores: Cores, shape: WeightShape, numbers: Tensor) -> Tensor:
        """See `Format.rows`: each core is entered at one factor of the number of the row."""
        factors, count = self.factors(shape).out_factors, self.num_factors
        digits = dict(zip(OUT, torch.unravel_index(numbers.flatten(), factors), strict=False))
        operands, letters = [], []
        for name, core in self.legs(shape).items():
            out = next((x for x in core if x in digits), None)
            chosen = cores[name]
            if out is not None:
                chosen = chosen.index_select(core.index(out), digits[out])
            operands.append(chosen)
            letters.append(core.replace(out or "n", "n"))
        rows = torch.einsum(f"{','.join(letters)}->n{IN[:count]}", *operands)
        return rows.reshape(*numbers.shape, shape.in_size)

    def diagram(self, shape: WeightShape, ranks: Ranks) -> Diagram:
        """The weight as a network of its cores; open indices are the factors and the kernel."""
        sizes, legs = self.sizes(shape, ranks), self.legs(shape)
        letters = dict.fromkeys(x for x in "".join(legs.values()) if x != "x")
        named = {letter: _index_name(letter) for letter in letters}
        count = self.num_factors
        order = OUT[:count] + IN[:count] + (KERNEL if has_kernel(shape) else "")
        return Diagram(
            self.name,
            tuple(Index(named[x], sizes[x], kind=_index_kind(x)) for x in letters),
            tuple(
                Node(name, tuple(named[x] for x in core if x != "x"), Role.CORE)
                for name, core in legs.items()
            ),
            output=tuple(named[x] for x in order),
        )


def has_kernel(shape: WeightShape) -> bool:
    """Whether there is more than one place; a kernel of one place needs no core of its own."""
    return math.prod(shape.kernel) > 1


def filled(core: Tensor, sizes: Sequence[int]) -> Tensor:
    """A core with zeros where a bond came out smaller than its rank; contiguous."""
    missing = [wanted - size for wanted, size in zip(sizes, core.shape, strict=True)]
    margins = [size for gap in reversed(missing) for size in (0, gap)]
    return functional.pad(core, margins).contiguous()


@lru_cache(maxsize=1024)
def _steps(format: ReshapedFormat, shape: WeightShape) -> tuple[Step, ...]:
    return tuple(format.steps(shape))


def _index_name(letter: str) -> str:
    for letters, name in ((IN, "in"), (OUT, "out")):
        if letter in letters:
            return f"{name}_{letters.index(letter) + 1}"
    return "kernel" if letter == KERNEL else letter


def _index_kind(letter: str) -> IndexKind:
    if letter in IN + OUT:
        return IndexKind.FEATURE
    return IndexKind.SPACE if letter == KERNEL else IndexKind.RANK
