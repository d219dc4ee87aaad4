"""Contraction orders: region by region, because no order may cross a barrier."""

import math
from collections.abc import Mapping, Sequence

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.plan import Contraction, Plan, RegionPlan
from rankscope.diagrams.running.lookups import next_lookup, one_hot_operands, picked_indices
from rankscope.diagrams.running.lowering import is_product_swapped
from rankscope.diagrams.search.methods import (
    AUTOMATIC,
    Automatic,
    Cotengra,
    Exhaustive,
    Greedy,
    InOrder,
    Method,
    find_path,
)
from rankscope.diagrams.search.problem import Merge, Problem, mask_of, members
from rankscope.diagrams.sizes import resolved_sizes
from rankscope.diagrams.structure import Operand
from rankscope.errors import ContractionError

__all__ = [
    "AUTOMATIC",
    "Automatic",
    "Cotengra",
    "Exhaustive",
    "Greedy",
    "InOrder",
    "Method",
    "plan_contraction",
]


def plan_contraction(diagram: Diagram, method: Method = AUTOMATIC) -> Plan:
    """Choose an order for every region, inner regions first.

    Operations are counted move by move as opt_einsum does (a multiplication and an addition are
    two); a convolution costs its outputs times its kernel, a look-up nothing.

    Example:
        >>> from rankscope.diagrams.parts import Index, Node
        >>> product = Diagram(
        ...     "product",
        ...     (Index("i", 2), Index("j", 3), Index("k", 4)),
        ...     (Node("A", ("i", "j")), Node("B", ("j", "k"))),
        ...     output=("i", "k"),
        ... )
        >>> plan = plan_contraction(product)
        >>> plan.regions[0].path, plan.flops
        (((0, 1),), 48)

    Raises:
        SizeError: if a size is missing; the message lists all that are.
        ContractionError: if no order can be carried out, or the method cannot treat a region.
    """
    sizes = resolved_sizes(diagram)
    regions = tuple(
        _RegionWalk(diagram, region, sizes).plan(method)
        for region in diagram.structure.evaluation_order
    )
    return Plan(regions, repr(method))


class _RegionWalk:
    """The list of operands of one region as it shrinks, and the moves made so far."""

    def __init__(self, diagram: Diagram, region: str | None, sizes: Mapping[str, int]) -> None:
        self.diagram, self.region, self.sizes = diagram, region, sizes
        self.listed = list(diagram.structure.operands[region])
        self.legs = diagram.structure.legs[region]
        self.moves: list[Contraction] = []
        self.where = f"Diagram {diagram.name!r}" + (f", region {region!r}" if region else "")
        if not self.listed:
            raise ContractionError(
                f"{self.where} holds no tensor, so there is nothing to contract."
            )
        _check_convolutions(self)

    def plan(self, method: Method) -> RegionPlan:
        operands = tuple(operand.name for operand in self.listed)
        one_hot = one_hot_operands(self.diagram, self.region)
        for _ in one_hot:
            self._look_up(next_lookup(self.listed, one_hot))
        self._contract(method)
        size = math.prod(self.sizes[leg] for leg in self.legs)
        return RegionPlan(self.region, operands, tuple(self.moves), size)

    def _look_up(self, positions: tuple[int, int]) -> None:
        one_hot, table = (self.listed[position] for position in positions)
        output = picked_indices(one_hot, table)
        self._replace(positions, output, ())

    def _contract(self, method: Method) -> None:
        names, problem = _as_problem(self)
        _check_operands(self, problem)
        try:
            path = find_path(problem, method)
        except ContractionError as error:
            raise ContractionError(f"{self.where}: {error}") from error
        unfired = problem.all_convolutions
        convolutions = self.diagram.structure.convolutions[self.region]
        for step, positions in enumerate(path):
            merge = self._merge(problem, names, positions, unfired)
            unfired &= ~merge.fired
            output = self._ordered(positions, [names[index] for index in members(merge.indices)])
            if step == len(path) - 1:
                output = self.legs
            fired = tuple(convolutions[number] for number in members(merge.fired))
            self._replace(positions, output, fired, merge.flops)

    def _merge(
        self, problem: Problem, names: Sequence[str], positions: tuple[int, ...], unfired: int
    ) -> Merge:
        number = {name: place for place, name in enumerate(names)}
        masks = [mask_of(number[index] for index in operand.indices) for operand in self.listed]
        outside = problem.output_mask
        for place, mask in enumerate(masks):
            outside |= 0 if place in positions else mask
        merge = problem.merge([masks[position] for position in positions], outside, unfired)
        if merge is None:
            names = " and ".join(repr(self.listed[position].name) for position in positions)
            raise ContractionError(
                f"{self.where}: PyTorch has no convolution that joins {names}, operands "
                f"{positions} of {len(self.listed)}; use Automatic(), which finds another order."
            )
        return merge

    def _ordered(self, positions: tuple[int, ...], kept: Sequence[str]) -> tuple[str, ...]:
        """Shared indices first, then those of the left factor: as a matrix product leaves them."""
        held = [self.listed[position].indices for position in positions]
        shared = [index for index in held[0] if all(index in other for other in held[1:])]
        if len(held) == 2 and is_product_swapped(tuple(held), kept, self.sizes):
            held.reverse()
        ordered = dict.fromkeys((*shared, *(index for one in held for index in one), *kept))
        return tuple(index for index in ordered if index in kept)

    def _replace(
        self,
        positions: tuple[int, ...],
        output: tuple[str, ...],
        convolutions: tuple[str, ...],
        flops: int | None = None,
    ) -> None:
        taken = [self.listed[position] for position in positions]
        result = f"{self.region or 'result'}#{len(self.moves)}"
        move = Contraction(
            positions=positions,
            operands=tuple(operand.name for operand in taken),
            inputs=tuple(operand.indices for operand in taken),
            result=result,
            output=output,
            convolutions=convolutions,
            flops=flops or 0,
            size=math.prod(self.sizes[index] for index in output),
            is_lookup=flops is None,
        )
        for position in sorted(positions, reverse=True):
            del self.listed[position]
        self.listed.append(Operand(result, output))
        self.moves.append(move)


def _as_problem(walk: _RegionWalk) -> tuple[tuple[str, ...], Problem]:
    """The region in numbers, counted in order of appearance so that equal regions are equal."""
    parts = walk.diagram.convolution_by_name
    convolutions = [parts[name] for name in walk.diagram.structure.convolutions[walk.region]]
    held = [index for operand in walk.listed for index in operand.indices]
    legs = [index for convolution in convolutions for index in convolution.indices]
    names = tuple(dict.fromkeys((*held, *legs)))
    number = {name: place for place, name in enumerate(names)}
    problem = Problem(
        tuple(tuple(number[index] for index in operand.indices) for operand in walk.listed),
        tuple(number[index] for index in walk.legs),
        tuple(walk.sizes[name] for name in names),
        tuple((number[c.input], number[c.kernel], number[c.output]) for c in convolutions),
    )
    return names, problem


def _check_operands(walk: _RegionWalk, problem: Problem) -> None:
    for operand, mask in zip(walk.listed, problem.masks, strict=True):
        number = problem.clash(mask, problem.all_convolutions)
        if number is not None:
            convolution = walk.diagram.structure.convolutions[walk.region][number]
            raise ContractionError(
                f"{walk.where}: convolution {convolution!r} needs its input, its kernel and its "
                f"output on different tensors, but {operand.name!r} with indices "
                f"{operand.indices} holds what leads to two of them."
            )


def _check_convolutions(walk: _RegionWalk) -> None:
    """Refuse convolutions whose legs begin nowhere in their own region."""
    parts = walk.diagram.convolution_by_name
    convolutions = [parts[name] for name in walk.diagram.structure.convolutions[walk.region]]
    begun = {index for operand in walk.listed for index in operand.indices}
    begun |= {convolution.output for convolution in convolutions}
    for convolution in convolutions:
        for leg in (convolution.input, convolution.kernel):
            if leg not in begun:
                raise ContractionError(
                    f"{walk.where}: leg {leg!r} of convolution {convolution.name!r} is on no "
                    "tensor of the same region, nor made by another convolution there."
                )
