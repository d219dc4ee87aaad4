"""Formats: ways to write a weight as small tensors, and to apply it without the weight.

`WeightShape` and `Window` describe what is to be written and how it is used; a `Format` turns a
weight into named cores, cores into a weight, and cores and inputs into outputs; the layers
(`FactorizedLinear`, `FactorizedConv2d`, ...) hold the cores as parameters.

    cores = format.decompose(linear.weight, (8,))
    format.apply(inputs, cores, shape, Window())       # never builds the weight
    format.to_dense(cores, shape)                      # builds it, by another route

A format names the indices of its cores, and everything else follows from the names: shapes, and
three diagrams. `diagram` is the weight; `chain` is a layer with that weight; `row_chain` looks rows
of it up. A format costs what `rankscope.diagrams.cost` counts for these, contracted in order.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from rankscope.diagrams.cost import CostFormula, Polynomial, cost_formula
from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.parts import Convolution, Index, IndexKind, Node, Role
from rankscope.diagrams.search import IN_ORDER, InOrder
from rankscope.errors import LayerError
from rankscope.factorize.formats.errors import interpolated_errors

Ranks = tuple[int, ...]
Cores = Mapping[str, Tensor]
Legs = dict[str, tuple[str, ...]]

KERNEL = ("h", "w")
UNIT = "x"  # an index of size 1 that a core stores and no diagram shows
BATCH, GROUP = "n", "g"
_ENTERING, _LEAVING = ("y_in", "x_in"), ("y_out", "x_out")
BACKWARD = InOrder(is_backward=True)


@dataclass(frozen=True)
class WeightShape:
    """A weight (out_size, in_size, *kernel): a matrix has no kernel, a convolution one or two.

    Of a convolution in groups it is the weight of one group.

    Example:
        >>> WeightShape(64, 32, (3, 3)).num_parameters
        18432
    """

    out_size: int
    in_size: int
    kernel: tuple[int, ...] = ()

    @classmethod
    def of(cls, weight: Tensor) -> "WeightShape":
        """The shape of a weight as PyTorch stores it."""
        out_size, in_size, *kernel = weight.shape
        return cls(out_size, in_size, tuple(kernel))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes in PyTorch's order."""
        return (self.out_size, self.in_size, *self.kernel)

    @property
    def num_parameters(self) -> int:
        """Number of entries of the weight itself, without a bias."""
        return math.prod(self.sizes)

    @property
    def single(self) -> list[int]:
        """Positions of the kernel with one place, where it only strides and pads."""
        return [place for place, size in enumerate(self.kernel) if size == 1]


@dataclass(frozen=True)
class Window:
    """Stride, padding and dilation of a kernel; a matrix has none.

    Args:
        stride: one for each position of the kernel.
        padding: before the input, one number for each position.
        dilation: one for each position.
        groups: cores then hold those of all groups, one after the other along their first position.
        padding_after: behind the input; None: as much as before it.
        padding_mode: "zeros", "circular", "reflect" or "replicate".
    """

    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1
    padding_after: tuple[int, ...] | None = None
    padding_mode: str = "zeros"

    @property
    def margins(self) -> tuple[tuple[int, int], ...]:
        """Padding before and after, along each position."""
        after = self.padding if self.padding_after is None else self.padding_after
        return tuple(zip(self.padding, after, strict=True))

    def output_sizes(self, input_sizes: Sequence[int], kernel: Sequence[int]) -> tuple[int, ...]:
        """The size of the output along each position."""
        steps = zip(input_sizes, kernel, self.stride, self.margins, self.dilation, strict=True)
        return tuple((n + sum(p) - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in steps)

    def paddings(self, along: Sequence[int]) -> tuple[list[int], list[int]]:
        """How to pad some positions: amounts for `pad` beforehand, and for a convolution itself."""
        margins = [m if place in along else (0, 0) for place, m in enumerate(self.margins)]
        if self.padding_mode == "zeros" and all(before == after for before, after in margins):
            return [], [before for before, _ in margins]
        amounts = [size for margin in reversed(margins) for size in margin]
        return (amounts if any(amounts) else []), [0] * len(margins)

    def pad(self, inputs: Tensor, amounts: list[int]) -> Tensor:
        """Inputs (batch, channels, *positions) with amounts from `paddings` around them."""
        if not amounts:
            return inputs
        mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
        return functional.pad(inputs, amounts, mode=mode)


class Format(ABC):
    """A way to write a weight as small tensors. Subclasses are frozen dataclasses."""

    name: ClassVar[str]  # as the command line says it: "svd", "r-tensor-train", ...

    # What a subclass says: the indices of the cores, how to fit them, and how to use them.

    @abstractmethod
    def legs(self, shape: WeightShape) -> Legs:
        """The index names of each core, in the order of its positions and of the chain."""

    @abstractmethod
    def bonds(self, shape: WeightShape) -> tuple[str, ...]:
        """The index names whose sizes are the ranks, in their order."""

    @abstractmethod
    def open_legs(self, shape: WeightShape) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The index names of the outputs, and those of the inputs."""

    @abstractmethod
    def open_sizes(self, shape: WeightShape) -> dict[str, int]:
        """The size of every index that is no bond."""

    @abstractmethod
    def refusal(self, shape: WeightShape) -> str | None:
        """Why a weight of this shape cannot be written so; None if it can."""

    @abstractmethod
    def full_ranks(self, shape: WeightShape) -> Ranks:
        """Ranks with which every weight can be written exactly (of CP: that surely suffice)."""

    @abstractmethod
    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> Mapping[str, Tensor]:
        """The cores of `decompose`, of any norm and dtype; bonds may be smaller than the ranks."""

    @abstractmethod
    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """The relative Frobenius error at each of several ranks, cheaper than one by one.

        Formats without an optimal truncation may interpolate from a few fits (then an estimate).
        """

    @abstractmethod
    def apply(
        self,
        inputs: Tensor,
        cores: Cores,
        shape: WeightShape,
        window: Window,
        bias: Tensor | None = None,
    ) -> Tensor:
        """The outputs, core by core as in `chain`: the weight is never built.

        Inputs are (..., in_size) for a matrix, (batch, groups * in_size, *positions) otherwise. A
        bias, one number for each output channel, is added by the last core where that is possible.
        """

    def rows(self, cores: Cores, shape: WeightShape, numbers: Tensor) -> Tensor:
        """Rows of a matrix, by their numbers (...), as (..., in_size); the matrix is never built.

        Raises:
            LayerError: if the format has no such way.
        """
        raise LayerError(
            f"{self.name}: a row of a matrix {shape.sizes} cannot be looked up from {len(cores)} "
            "cores without building the matrix; use svd or r-tensor-train."
        )

    def max_ranks(self, shape: WeightShape) -> Ranks:
        """Ranks above which nothing is gained; those that `check` allows."""
        return self.full_ranks(shape)

    def is_useful(self, shape: WeightShape, ranks: Ranks) -> bool:
        """Whether no rank is larger than the others leave any use for."""
        return True

    def index(self, leg: str, size: int) -> Index:
        """An index of the cores as diagrams show it."""
        return Index(leg, size, kind=IndexKind.RANK)

    @property
    def input_core(self) -> tuple[str, int] | None:
        """The core, and its position, that alone carries `in_size`; None if it is cut in factors.

        A weight whitened by the inputs' covariance is decomposed as it is, and only this core is
        multiplied back.
        """
        return None

    @property
    def output_core(self) -> str | None:
        """The core whose first position alone carries `out_size`; None if it is cut in factors."""
        return None

    # What follows from it.

    def estimated_errors(
        self, shape: WeightShape, ladder: Sequence[Ranks], fit: Callable[[Ranks], float]
    ) -> list[float]:
        """Errors along a ladder, interpolated from a few fits, each of which returns its error."""
        return interpolated_errors(
            [self.num_parameters(shape, ranks) for ranks in ladder],
            lambda place: fit(ladder[place]),
            num_entries=shape.num_parameters,
        )

    def check(self, shape: WeightShape, ranks: Ranks) -> None:
        """Refuse a weight that cannot be written so, and ranks that do not fit it.

        Raises:
            LayerError: with the reason, or with the ranks given and the largest ones.
        """
        refusal = self.refusal(shape)
        if refusal is not None:
            raise LayerError(f"{self.name}: a weight of shape {shape.sizes} is refused: {refusal}")
        largest = self.max_ranks(shape)
        fits = len(ranks) == len(largest) and all(
            1 <= rank <= limit for rank, limit in zip(ranks, largest, strict=True)
        )
        if not fits:
            raise LayerError(
                f"{self.name}: a weight of shape {shape.sizes} needs {len(largest)} rank(s), "
                f"from 1 to {largest}, got {ranks}."
            )

    def sizes(self, shape: WeightShape, ranks: Ranks) -> dict[str, int]:
        """The size of every index.

        Raises:
            LayerError: if the format refuses the shape, or the ranks do not fit.
        """
        self.check(shape, ranks)
        return self.open_sizes(shape) | dict(zip(self.bonds(shape), ranks, strict=True))

    def core_shapes(self, shape: WeightShape, ranks: Ranks) -> dict[str, tuple[int, ...]]:
        """The shape of each core, in the order in which `apply` uses them."""
        sizes = self.sizes(shape, ranks)
        return {name: tuple(sizes[leg] for leg in held) for name, held in self.legs(shape).items()}

    def decompose(self, weight: Tensor, ranks: Ranks, *, seed: int = 0) -> dict[str, Tensor]:
        """The cores, all of the same norm and of the weight's dtype.

        They are computed in float64 (float32 for large weights).
        """
        shapes = self.core_shapes(WeightShape.of(weight), ranks)
        return even_cores(self.fit(weight, ranks, seed=seed), shapes, weight.dtype)

    def to_dense(self, cores: Cores, shape: WeightShape) -> Tensor:
        """The weight (out_size, in_size, *kernel) of one group, by one einsum over the cores."""
        legs = self.legs(shape)
        # Index numbers instead of letters: names may be longer than one.
        numbers: dict[str, int] = {}
        operands: list[Tensor | list[int]] = []
        for name, held in legs.items():
            operands += [cores[name], [numbers.setdefault(leg, len(numbers)) for leg in held]]
        weight = torch.einsum(*operands, [numbers[leg] for leg in self._weight_legs(shape)])
        return weight.reshape(shape.sizes)

    def num_parameters(self, shape: WeightShape, ranks: Ranks) -> int:
        """Number of entries of all cores, for one group."""
        self.check(shape, ranks)
        return _value(_weight_cost(self, shape).parameters, ranks)

    def flops(
        self,
        shape: WeightShape,
        ranks: Ranks,
        window: Window,
        input_sizes: tuple[int, ...],
        batch: int = 1,
    ) -> int:
        """Operations of `apply`, a multiply-add counted as two: those of `chain` in order."""
        self.check(shape, ranks)
        return _value(_chain_cost(self, shape, window, input_sizes).flops, (*ranks, batch))

    def row_flops(self, shape: WeightShape, ranks: Ranks, count: int = 1) -> int:
        """Operations of `rows` for so many numbers: those of `row_chain`, backwards."""
        self.check(shape, ranks)
        return _value(_row_cost(self, shape).flops, (*ranks, count))

    def intermediates(
        self, shape: WeightShape, ranks: Ranks, window: Window, input_sizes: tuple[int, ...]
    ) -> int:
        """Numbers that `apply` writes between the cores, on one sample."""
        self.check(shape, ranks)
        return _value(_chain_cost(self, shape, window, input_sizes).intermediates, (*ranks, 1))

    def largest_ranks(self, shape: WeightShape, num_parameters: int) -> Ranks | None:
        """Ranks as equal as possible, none of which could be one larger for so many parameters.

        None if not even ranks of one have so few.
        """
        parameters = _weight_cost(self, shape).parameters
        return largest_balanced_ranks(
            lambda ranks: _value(parameters, ranks),
            self.max_ranks(shape),
            num_parameters,
            is_useful=lambda ranks: self.is_useful(shape, ranks),
        )

    def diagram(self, shape: WeightShape, ranks: Ranks) -> Diagram:
        """The weight as a network of its cores; open indices are those of the weight."""
        named = self._named(shape, ranks)
        nodes = [_core(name, legs, named) for name, legs in self.legs(shape).items()]
        output = tuple(named[leg].name for leg in self._weight_legs(shape))
        return self._assembled(named.values(), nodes, output)

    def chain(
        self,
        shape: WeightShape,
        ranks: Ranks,
        window: Window,
        input_sizes: tuple[int, ...],
        batch: int = 1,
    ) -> Diagram:
        """Inputs `x` and the cores of a layer, one after the other; contracted in order by `apply`.

        Inputs are (batch, groups, inputs, *positions), outputs likewise; there is no index of
        groups if there is only one. A core reads the array of its name, in groups if there are
        several. A position of the kernel with one place belongs to the first core whichever core
        stores it: the sooner it is strided over, the less is left to compute.
        """
        positions = range(len(shape.kernel))
        after = window.output_sizes(input_sizes, shape.kernel) if shape.kernel else ()
        named = self._named(shape, ranks)
        named |= {KERNEL[p]: _place(KERNEL[p], shape.kernel[p]) for p in positions}
        ahead = (GROUP,) if window.groups > 1 else ()
        outputs, inputs = (tuple(named[leg].name for leg in legs) for legs in self.open_legs(shape))
        entering, leaving = (names[: len(positions)] for names in (_ENTERING, _LEAVING))
        nodes = [Node("x", (BATCH, *ahead, *inputs, *entering), Role.DATA)]
        for name, legs in self._moved_legs(shape).items():
            core = _core(name, legs, named)
            nodes.append(replace(core, indices=(*ahead, *core.indices)))
        indices = (
            Index(BATCH, batch, kind=IndexKind.BATCH),
            Index(GROUP, window.groups),
            *named.values(),
            *map(_place, (*entering, *leaving), (*input_sizes, *after)),
        )
        convolutions = tuple(self._convolution(window, place) for place in positions)
        return self._assembled(indices, nodes, (BATCH, *ahead, *outputs, *leaving), convolutions)

    def row_chain(self, shape: WeightShape, ranks: Ranks, count: int = 1) -> Diagram:
        """Rows of a matrix, looked up in every core that holds outputs; contracted backwards.

        The integers are `x`, or `x_1`, `x_2`, ... where the outputs are cut in factors: the digits
        of the row's number.
        """
        named, (outputs, inputs) = self._named(shape, ranks), self.open_legs(shape)
        nodes: list[Node] = []
        for name, legs in self.legs(shape).items():
            for place, leg in enumerate(outputs, start=1):
                if leg in legs:
                    digit = "x" if len(outputs) == 1 else f"x_{place}"
                    picked = (BATCH, named[leg].name)
                    nodes.append(Node(digit, picked, Role.DATA, is_one_hot=True))
            nodes.append(_core(name, legs, named))
        indices = (Index(BATCH, count, kind=IndexKind.BATCH), *named.values())
        return self._assembled(indices, nodes, (BATCH, *(named[leg].name for leg in inputs)))

    def _named(self, shape: WeightShape, ranks: Ranks) -> dict[str, Index]:
        """Every index of the cores as diagrams show it."""
        sizes = self.sizes(shape, ranks)
        return {leg: self.index(leg, size) for leg, size in sizes.items() if leg != UNIT}

    def _assembled(
        self,
        indices: Iterable[Index],
        nodes: Sequence[Node],
        output: tuple[str, ...],
        convolutions: tuple[Convolution, ...] = (),
    ) -> Diagram:
        """A diagram with those of the indices that something holds."""
        held = {name for node in nodes for name in node.indices}
        held |= {name for convolution in convolutions for name in convolution.indices}
        shown = tuple(index for index in indices if index.name in held)
        return Diagram(self.name, shown, tuple(nodes), output, convolutions)

    def _weight_legs(self, shape: WeightShape) -> tuple[str, ...]:
        """Outputs, inputs, and positions of the kernel that some core holds."""
        outputs, inputs = self.open_legs(shape)
        held = {leg for core in self.legs(shape).values() for leg in core}
        kernel = [
            leg for leg in self.open_sizes(shape) if leg in held and self.kernel_legs(leg, shape)
        ]
        return (*outputs, *inputs, *kernel)

    def _moved_legs(self, shape: WeightShape) -> Legs:
        """The legs of the cores as a window moves them: kernel legs one by one, single ones first.

        A core that stores all positions of the kernel in one index is read with one for each.
        """
        single = [KERNEL[place] for place in shape.single]
        held: Legs = {}
        for number, (name, core) in enumerate(self.legs(shape).items()):
            moved = [] if number else [*single]
            # In the place of the index that they are stored in, so that nothing is rearranged.
            stored = [
                position
                for leg in core
                for position in self.kernel_legs(leg, shape) or (leg,)
                if leg != UNIT and position not in single
            ]
            held[name] = (*stored, *moved)
        return held

    def kernel_legs(self, leg: str, shape: WeightShape) -> tuple[str, ...]:
        """The positions of the kernel that an index of a core runs over; none for other indices."""
        return (leg,) if leg in KERNEL[: len(shape.kernel)] else ()

    def _convolution(self, window: Window, place: int) -> Convolution:
        return Convolution(
            ("rows", "columns")[place],
            _ENTERING[place],
            KERNEL[place],
            _LEAVING[place],
            window.stride[place],
            window.margins[place],
            window.dilation[place],
            window.padding_mode,
        )


# Index names do not change with the ranks, so that one plan, at ranks of one, serves all of them.


@lru_cache(maxsize=4096)
def _weight_cost(format: Format, shape: WeightShape) -> CostFormula:
    diagram = format.diagram(shape, _ones(format, shape))
    return cost_formula(diagram, format.bonds(shape), IN_ORDER)


@lru_cache(maxsize=4096)
def _chain_cost(
    format: Format, shape: WeightShape, window: Window, input_sizes: tuple[int, ...]
) -> CostFormula:
    chain = format.chain(shape, _ones(format, shape), window, input_sizes)
    return cost_formula(chain, (*format.bonds(shape), BATCH), IN_ORDER)


@lru_cache(maxsize=4096)
def _row_cost(format: Format, shape: WeightShape) -> CostFormula:
    chain = format.row_chain(shape, _ones(format, shape))
    return cost_formula(chain, (*format.bonds(shape), BATCH), BACKWARD)


def _value(polynomial: Polynomial, sizes: tuple[int, ...]) -> int:
    return sum(factor * math.prod([sizes[n] for n in places]) for factor, places in polynomial)


def _ones(format: Format, shape: WeightShape) -> Ranks:
    return (1,) * len(format.max_ranks(shape))


def _core(name: str, legs: tuple[str, ...], named: Mapping[str, Index]) -> Node:
    return Node(name, tuple(named[leg].name for leg in legs if leg != UNIT), Role.CORE)


def _place(name: str, size: int) -> Index:
    return Index(name, size, kind=IndexKind.SPACE)


def even_cores(
    cores: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Cores of the shapes and the dtype wanted, all of the same norm.

    Bonds that a decomposition has no use for are filled up with zeros. Equal norms train and round
    best, and the product stays what it is.

    Example:
        >>> cores = {"a": torch.full((1, 1), 8.0), "b": torch.ones(1, 4)}
        >>> even = even_cores(cores, {"a": (1, 2), "b": (2, 4)}, torch.float32)
        >>> even["a"], even["b"]
        (tensor([[4., 0.]]), tensor([[2., 2., 2., 2.],
                [0., 0., 0., 0.]]))
    """
    norms = {name: float(torch.linalg.vector_norm(core)) for name, core in cores.items()}
    if not all(norms.values()):
        return {name: core.new_zeros(shapes[name], dtype=dtype) for name, core in cores.items()}
    # By logarithms: the product of the norms could overflow.
    share = math.exp(sum(map(math.log, norms.values())) / len(norms))
    return {
        name: functional.pad(core * (share / norms[name]), _missing(core, shapes[name]))
        .to(dtype)
        .contiguous()
        for name, core in cores.items()
    }


def _missing(core: Tensor, shape: tuple[int, ...]) -> list[int]:
    """What a core lacks, as `pad` takes it: before and after, last position first."""
    pairs = zip(reversed(shape), reversed(core.shape), strict=True)
    return [count for wanted, size in pairs for count in (0, wanted - size)]


def largest_balanced_ranks(
    count: Callable[[Ranks], int],
    limits: Ranks,
    num_parameters: int,
    *,
    is_useful: Callable[[Ranks], bool] = lambda _: True,
) -> Ranks | None:
    """Ranks as equal as possible, none of which could be one larger; None if ones are too many.

    Args:
        count: parameters at given ranks, growing with each of them.
        limits: the largest useful rank of each kind.
        num_parameters: not to be exceeded.
        is_useful: whether a rank is not larger than the others leave any use for.

    Example:
        >>> largest_balanced_ranks(lambda ranks: 10 * sum(ranks), (2, 9), 70)
        (2, 5)
    """
    if count((1,) * len(limits)) > num_parameters:
        return None
    low, high = 1, max(limits)
    while low < high:
        middle = (low + high + 1) // 2
        if count(_cap_ranks(middle, limits)) <= num_parameters:
            low = middle
        else:
            high = middle - 1
    ranks = _cap_ranks(low, limits)
    while True:
        fitting = (
            larger
            for larger in _one_more(ranks, limits)
            if count(larger) <= num_parameters and is_useful(larger)
        )
        larger = next(fitting, None)
        if larger is None:
            return ranks
        ranks = larger


def _cap_ranks(rank: int, limits: Ranks) -> Ranks:
    return tuple(min(rank, limit) for limit in limits)


def _one_more(ranks: Ranks, limits: Ranks) -> Iterator[Ranks]:
    """One added to a rank, the smallest first."""
    for rank, place in sorted((rank, place) for place, rank in enumerate(ranks)):
        if rank < limits[place]:
            yield (*ranks[:place], rank + 1, *ranks[place + 1 :])
