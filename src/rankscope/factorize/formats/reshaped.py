"""Reshaped formats: the weight with its channels cut in factors.

The indices of a core are letters: i, j, k are the factors of the inputs, a, b, c those of the
outputs, z the positions of the kernel (all in one), every other letter a bond.

    r-cp            ria rjb rz
    r-tensor-train  xiap pjbq qkcr rz        (x has size 1)

While the cores are applied, a state has besides these the letters of samples (n), groups (g) and
places (y, all positions of the inputs in one).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from rankscope.diagrams.parts import Index, IndexKind
from rankscope.factorize.cp import CPOptions, decompose_cp
from rankscope.factorize.formats.channel_factors import ChannelFactors, splitting_refusal
from rankscope.factorize.formats.errors import with_middle_cut
from rankscope.factorize.formats.format import (
    KERNEL,
    UNIT,
    Cores,
    Format,
    Legs,
    Ranks,
    WeightShape,
    Window,
)
from rankscope.factorize.formats.plain import (
    LARGEST_COMPONENT,
    balanced_components,
    short_ring_error,
)
from rankscope.factorize.svd import decompose_svd
from rankscope.factorize.tensor_ring import decompose_tensor_ring
from rankscope.factorize.tensor_train import limited_bonds
from rankscope.factorize.truncation import Bonds, MaxBond
from rankscope.factorize.tucker import TuckerEnergy, decompose_tucker, tucker_energy

IN, OUT, PLACES = "ijk", "abc", "z"
POINT = Window((1,), (0,), (1,))  # how a matrix moves, seen as a kernel of size 1


@dataclass(frozen=True)
class Step:
    """One core's turn: the letters of the state before it, of the core, and of the state after."""

    before: str
    core: str
    after: str

    @property
    def is_convolution(self) -> bool:
        """Whether the core carries the kernel."""
        return PLACES in self.core

    @property
    def summed(self) -> str:
        """Letters of both the state and the core that end here."""
        return "".join(x for x in self.before if x in self.core and x not in self.after)

    @property
    def fresh(self) -> str:
        """Letters that come from the core."""
        return "".join(x for x in self.core if x in self.after and x not in self.before)

    @property
    def untouched(self) -> str:
        """Letters of the state that the core does not have."""
        return "".join(x for x in self.before if x not in self.core)

    @property
    def equation(self) -> str:
        """The step as an einsum, with samples, groups and places."""
        return f"ng{self.before}y,g{self.core}->ng{self.after}y"

    def convolve(
        self,
        state: Tensor,
        core: Tensor,
        window: Window,
        places: Sequence[int],
        kernel: Sequence[int],
    ) -> tuple[Tensor, Sequence[int]]:
        """The step of the kernel: letters the core does not touch are samples of a convolution."""
        sizes = dict(zip(f"ng{self.before}", state.shape, strict=False))
        sizes |= dict(zip(f"g{self.core}", core.shape, strict=True))
        # Lists and not generators, which a traced graph could not contain.
        rows = math.prod([sizes[x] for x in "n" + self.untouched])
        channels = math.prod([sizes[x] for x in "g" + self.summed])
        filters = math.prod([sizes[x] for x in "g" + self.fresh])
        state = torch.einsum(f"ng{self.before}y->n{self.untouched}g{self.summed}y", state)
        core = torch.einsum(f"g{self.core}->g{self.fresh}{self.summed}z", core)
        # Positions with one place were strided over before the first core.
        along = [place for place, size in enumerate(kernel) if size > 1]
        margins, padding = window.paddings(along)
        convolution = functional.conv1d if len(kernel) == 1 else functional.conv2d
        outputs = convolution(
            window.pad(state.reshape(rows, channels, *places), margins),
            core.reshape(filters, channels // window.groups, *kernel),
            None,
            [stride if place in along else 1 for place, stride in enumerate(window.stride)],
            padding,
            window.dilation,
            window.groups,
        )
        letters = f"n{self.untouched}g{self.fresh}"
        result = outputs.reshape(*(sizes[x] for x in letters), math.prod(outputs.shape[2:]))
        return torch.einsum(f"{letters}y->ng{self.after}y", result), outputs.shape[2:]


@dataclass(frozen=True)
class ReshapedFormat(Format):
    """A format of the weight with its channels cut in factors."""

    num_factors: ClassVar[int]
    reverses_outputs: ClassVar[bool]

    def factors(self, shape: WeightShape) -> ChannelFactors:
        """The factors that the channels are split into."""
        return ChannelFactors.of(shape, self.num_factors, reversed_outputs=self.reverses_outputs)

    def paired_sizes(self, shape: WeightShape) -> tuple[int, ...]:
        """Sizes of the paired tensor (S₁T₁, ..., SₘTₘ, kernel), without a kernel of one place."""
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

    def open_legs(self, shape: WeightShape) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return tuple(OUT[: self.num_factors]), tuple(IN[: self.num_factors])

    def open_sizes(self, shape: WeightShape) -> dict[str, int]:
        factors = self.factors(shape)
        return {
            **dict(zip(OUT, factors.out_factors, strict=False)),
            **dict(zip(IN, factors.in_factors, strict=False)),
            PLACES: math.prod(shape.kernel),
            UNIT: 1,
        }

    def index(self, leg: str, size: int) -> Index:
        for letters, name in ((IN, "in"), (OUT, "out")):
            if leg in letters:
                return Index(f"{name}_{letters.index(leg) + 1}", size, kind=IndexKind.FEATURE)
        if leg == PLACES:
            return Index("kernel", size, kind=IndexKind.SPACE)
        return Index(leg, size, kind=IndexKind.RANK)

    def kernel_legs(self, leg: str, shape: WeightShape) -> tuple[str, ...]:
        """All positions, in one index."""
        return KERNEL[: len(shape.kernel)] if leg == PLACES else ()

    def steps(self, shape: WeightShape) -> list[Step]:
        """Steps from the inputs to the outputs, core by core."""
        steps = []  # no generator: it would lose its place in a traced graph
        legs = ["".join(core) for core in self.legs(shape).values()]
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
        state = _stride(inputs, window, shape.single)
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

    def digits(self, shape: WeightShape, numbers: Tensor) -> tuple[Tensor, ...]:
        """The numbers of rows, in the base of the outputs' factors."""
        return torch.unravel_index(numbers, self.factors(shape).out_factors)

    def rows(self, cores: Cores, shape: WeightShape, numbers: Tensor) -> Tensor:
        """See `Format.rows`: each core is entered at one digit of the number of the row."""
        digits = dict(zip(OUT, self.digits(shape, numbers.flatten()), strict=False))
        legs = self.legs(shape)
        names, letters, state = [*legs], ["".join(core) for core in legs.values()], None
        held = ""
        # Backwards, as `row_chain` is counted: what was looked up is small, and comes last.
        for place in reversed(range(len(names))):
            core, chosen, own = letters[place], cores[names[place]], ""
            for out in [x for x in core if x in digits]:
                chosen = chosen.index_select(core.index(out), digits[out])
                core, own = core.replace(out, "n"), "n"
            if state is None:
                state, held = chosen.movedim(core.index("n"), 0), core.replace(own, "")
                continue
            earlier = set("".join(letters[:place])) | set(IN)
            kept = [x for x in dict.fromkeys(held + core) if x in earlier and x != "n"]
            after = IN[: self.num_factors] if place == 0 else "".join(kept)
            state = torch.einsum(f"n{held},{core}->n{after}", state, chosen)
            held = after
        assert state is not None  # there is a core
        return state.reshape(*numbers.shape, shape.in_size)


def has_kernel(shape: WeightShape) -> bool:
    """Whether there is more than one place; a kernel of one place needs no core of its own."""
    return math.prod(shape.kernel) > 1


@lru_cache(maxsize=1024)
def _steps(format: ReshapedFormat, shape: WeightShape) -> tuple[Step, ...]:
    return tuple(format.steps(shape))


def _letters(**cores: str) -> Legs:
    """The letters of each core that has any."""
    return {name: tuple(letters) for name, letters in cores.items() if letters}


def _stride(inputs: Tensor, window: Window, along: Sequence[int]) -> Tensor:
    """The places that a kernel with one place reads, along some positions."""
    margins = [m if place in along else (0, 0) for place, m in enumerate(window.margins)]
    amounts = [size for margin in reversed(margins) for size in margin]
    inputs = window.pad(inputs, amounts if any(amounts) else [])
    for place in along:
        if window.stride[place] > 1:
            before = (slice(None),) * (place + 2)
            inputs = inputs[(*before, slice(None, None, window.stride[place]))]
    return inputs


@dataclass(frozen=True)
class ReshapedCPFormat(ReshapedFormat):
    r"""Channels in two factors, a sum over r of two small matrices and a kernel.

    .. math:: K_{(ab)(ij)z} = \sum_r A_{ria} B_{rjb} C_{rz}

    with z all positions of the kernel. Of a matrix, or a kernel of one place, it is the nearest sum
    of Kronecker products, and as exact as a singular value decomposition.

    Reference:
        Su, Li, Bhattacharjee & Huang (2018), arXiv:1805.10352; Van Loan & Pitsianis (1993),
        doi:10.1007/978-94-015-8196-7_17, for matrices.
    """

    name: ClassVar[str] = "r-cp"
    num_factors: ClassVar[int] = 2
    reverses_outputs: ClassVar[bool] = False

    def legs(self, shape: WeightShape) -> Legs:
        return _letters(factor_1="ria", factor_2="rjb", kernel="rz" if has_kernel(shape) else "")

    def bonds(self, shape: WeightShape) -> tuple[str, ...]:
        return ("r",)

    def full_ranks(self, shape: WeightShape) -> Ranks:
        """Surely enough: fibres along the largest position, one for each place of the others."""
        sizes = self.paired_sizes(shape)
        return (math.prod(sizes) // max(sizes),)

    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        options = CPOptions(seed=seed, max_component_norm=LARGEST_COMPONENT)
        made = decompose_cp(self.paired(weight), MaxBond(ranks[0]), options=options)
        factors = balanced_components(made.factors)
        return self.unpaired([factor.mT[..., None] for factor in factors], WeightShape.of(weight))

    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """Estimates, interpolated from a few short fits; `decompose` looks longer."""
        shape, tensor = WeightShape.of(weight), self.paired(weight)
        options = CPOptions(num_starts=1, max_sweeps=10, max_iterations=0, seed=seed)
        return self.estimated_errors(
            shape,
            ladder,
            lambda ranks: decompose_cp(tensor, MaxBond(ranks[0]), options=options).relative_error,
        )


SPLIT_POSITIONS = (0, 1, 2, 3)  # S₁, S₂, T₁, T₂


@dataclass(frozen=True)
class ReshapedTuckerFormat(ReshapedFormat):
    r"""Channels in two factors, each with a matrix of its own around a core with the kernel.

    .. math:: K_{(ab)(ij)z} = \sum_{pqrs} P_{ip} Q_{jq} G_{pqrsz} U_{ar} V_{bs}

    with z all positions of the kernel; of a matrix, or a kernel of one place, the core has none.
    Ranks are those of S₁, S₂, T₁ and T₂.

    Reference:
        Su, Li, Bhattacharjee & Huang (2018), arXiv:1805.10352.
    """

    name: ClassVar[str] = "r-tucker"
    num_factors: ClassVar[int] = 2
    reverses_outputs: ClassVar[bool] = False

    def legs(self, shape: WeightShape) -> Legs:
        core = "pqrsz" if has_kernel(shape) else "pqrs"
        return _letters(in_1="ip", in_2="jq", core=core, out_1="ar", out_2="bs")

    def bonds(self, shape: WeightShape) -> tuple[str, ...]:
        return tuple("pqrs")

    def full_ranks(self, shape: WeightShape) -> Ranks:
        factors = self.factors(shape)
        return (*factors.in_factors, *factors.out_factors)

    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        made = decompose_tucker(self._tensor(weight), Bonds(ranks), positions=SPLIT_POSITIONS)
        in_1, in_2, out_1, out_2 = (made.factors[position] for position in SPLIT_POSITIONS)
        return {"in_1": in_1, "in_2": in_2, "core": made.core, "out_1": out_1, "out_2": out_2}

    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """An upper bound for all ranks from one table: sweeps come nearer, never less near."""
        energy = tucker_energy(self._tensor(weight), SPLIT_POSITIONS)
        return [energy.relative_error(ranks) for ranks in ladder]

    def _tensor(self, weight: Tensor) -> Tensor:
        shape = WeightShape.of(weight)
        tensor = self.factors(shape).split(weight.detach())
        return tensor if has_kernel(shape) else tensor.squeeze(-1)


@dataclass(frozen=True)
class ReshapedTensorTrainFormat(ReshapedFormat):
    r"""Channels in three factors, each pair (S_l, T_l) in one core of a train.

    .. math:: K_{(abc)(ijk)z} = \sum_{pqr} G^1_{iap} G^2_{pjbq} G^3_{qkcr} C_{rz}

    with z all positions of the kernel; of a matrix and of a kernel of one place, the third core is
    the last. Factors of the outputs run the other way, so that the products S_l T_l are balanced.

    The outer bonds are cut first, both in the paired tensor's own singular bases, then the middle
    one: the squared error is a sum of orthogonal parts, at most that of the tails of all cuts.

    Reference:
        Su, Li, Bhattacharjee & Huang (2018), arXiv:1805.10352; Novikov, Podoprikhin, Osokin &
        Vetrov (2015), Sec. 3 and 4, arXiv:1509.06569, for matrices.
    """

    name: ClassVar[str] = "r-tensor-train"
    num_factors: ClassVar[int] = 3
    reverses_outputs: ClassVar[bool] = True

    def legs(self, shape: WeightShape) -> Legs:
        if has_kernel(shape):
            return _letters(core_1="xiap", core_2="pjbq", core_3="qkcr", kernel="rz")
        return _letters(core_1="xiap", core_2="pjbq", core_3="qkc")

    def bonds(self, shape: WeightShape) -> tuple[str, ...]:
        return tuple("pqr" if has_kernel(shape) else "pq")

    def full_ranks(self, shape: WeightShape) -> Ranks:
        return train_bonds(self.paired_sizes(shape))

    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        energy = self._energy(weight)
        first, last = (factor for _, factor in sorted(energy.factors.items()))
        middle = _middle(energy, ranks)
        cores = (middle,) if middle.ndim == 3 else _halves(middle, ranks[1])
        ends = (first[None, :, : ranks[0]], last[:, : ranks[-1]].mT[..., None])
        return self.unpaired((ends[0], *cores, ends[1]), WeightShape.of(weight))

    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """Exactly those of `decompose`: what the outer bonds discard, and then the middle one."""
        energy = self._energy(weight)
        return [_train_error(energy, ranks) for ranks in ladder]

    def _energy(self, weight: Tensor) -> TuckerEnergy:
        tensor = self.paired(weight)
        return tucker_energy(tensor, positions=(0, tensor.ndim - 1))


def train_bonds(sizes: Sequence[int]) -> Ranks:
    """The bonds of a train that can be any tensor of these sizes."""
    return limited_bonds(sizes, (math.prod(sizes),) * (len(sizes) - 1))


def _middle(energy: TuckerEnergy, ranks: Ranks) -> Tensor:
    """What is left between the outer bonds, with one or two positions of its own."""
    return energy.core[: ranks[0], ..., : ranks[-1]]


def _halves(middle: Tensor, bond: int) -> tuple[Tensor, Tensor]:
    """(left_bond, size, size, right_bond) cut in the middle."""
    made = decompose_svd(middle.flatten(0, 1).flatten(1), MaxBond(bond))
    roots = made.singular_values.sqrt()
    left = (made.left * roots).reshape(*middle.shape[:2], -1)
    return left, (made.right * roots[:, None]).reshape(-1, *middle.shape[2:])


def _train_error(energy: TuckerEnergy, ranks: Ranks) -> float:
    outer = energy.relative_error((ranks[0], ranks[-1]))
    return outer if len(ranks) == 2 else with_middle_cut(outer, _middle(energy, ranks), ranks[1])


@dataclass(frozen=True)
class ReshapedTensorRingFormat(ReshapedFormat):
    r"""The train of `ReshapedTensorTrainFormat` with its ends joined by one more bond.

    .. math:: K_{(abc)(ijk)z} = \sum_{pqru} G^1_{uiap} G^2_{pjbq} G^3_{qkcr} C_{rzu}

    Ranks are the bonds behind each core; the last one, u, closes the ring.

    Reference:
        Su, Li, Bhattacharjee & Huang (2018), arXiv:1805.10352. Wang, Sun, Eriksson, Wang &
        Aggarwal (2018), arXiv:1802.09052, have one core for each S_l and each T_l: other weights.
    """

    name: ClassVar[str] = "r-tensor-ring"
    num_factors: ClassVar[int] = 3
    reverses_outputs: ClassVar[bool] = True

    def legs(self, shape: WeightShape) -> Legs:
        if has_kernel(shape):
            return _letters(core_1="uiap", core_2="pjbq", core_3="qkcr", kernel="rzu")
        return _letters(core_1="uiap", core_2="pjbq", core_3="qkcu")

    def bonds(self, shape: WeightShape) -> tuple[str, ...]:
        return tuple("pqru" if has_kernel(shape) else "pqu")

    def full_ranks(self, shape: WeightShape) -> Ranks:
        """Full ranks of the train: a ring without a closing bond is one."""
        return (*train_bonds(self.paired_sizes(shape)), 1)

    def max_ranks(self, shape: WeightShape) -> Ranks:
        """Largest ranks of the train, and the largest of these for the closing bond."""
        bonds = train_bonds(self.paired_sizes(shape))
        return (*bonds, max(bonds))

    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        ring = decompose_tensor_ring(self.paired(weight), Bonds(ranks), seed=seed)
        return self.unpaired(ring.cores, WeightShape.of(weight))

    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """Estimates, interpolated from a few short fits; `decompose` looks longer."""
        shape, tensor = WeightShape.of(weight), self.paired(weight)
        return self.estimated_errors(
            shape, ladder, lambda ranks: short_ring_error(tensor, ranks, seed=seed)
        )
