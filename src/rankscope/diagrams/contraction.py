"""Contraction orders as plain data, and the planner that finds one."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rankscope.diagrams.diagram import Diagram, Operand
from rankscope.diagrams.search import (
    AUTOMATIC,
    Automatic,
    Cotengra,
    Exhaustive,
    Greedy,
    InOrder,
    Merge,
    Method,
    Problem,
    find_path,
    mask_of,
    members,
)
from rankscope.diagrams.sizes import resolved_sizes
from rankscope.errors import ContractionError


@dataclass(frozen=True)
class Contraction:
    """One move: take some operands away, put their product at the end of the list.

    Args:
        positions: where the operands stand in the current list, as in opt_einsum's paths.
        operands: their names; results of earlier moves of region r are called "r#0", "r#1", ….
        inputs: their indices.
        result: name of the product.
        output: indices of the product.
        convolutions: names of the convolutions carried out in this move.
        flops: operations, a multiplication and an addition counted as two.
        size: entries of the product.
        is_lookup: the first operand is one-hot and picks rows of the second; nothing is multiplied.
    """

    positions: tuple[int, ...]
    operands: tuple[str, ...]
    inputs: tuple[tuple[str, ...], ...]
    result: str
    output: tuple[str, ...]
    convolutions: tuple[str, ...]
    flops: int
    size: int
    is_lookup: bool = False


@dataclass(frozen=True)
class RegionPlan:
    """The moves inside one region (None is the outermost), starting from `operands`.

    `size` is the number of entries of its value, which a lone operand has without any move.
    """

    region: str | None
    operands: tuple[str, ...]
    contractions: tuple[Contraction, ...]
    size: int

    @property
    def path(self) -> tuple[tuple[int, ...], ...]:
        """The moves as opt_einsum writes them."""
        return tuple(contraction.positions for contraction in self.contractions)


@dataclass(frozen=True)
class Plan:
    """Moves for a whole diagram, region by region, inner regions first; none crosses a barrier."""

    regions: tuple[RegionPlan, ...]
    method: str

    @property
    def contractions(self) -> tuple[Contraction, ...]:
        """All moves in order."""
        return tuple(move for region in self.regions for move in region.contractions)

    @property
    def flops(self) -> int:
        """Operations of all contractions; functions of regions are not counted."""
        return sum(move.flops for move in self.contractions)

    @property
    def largest_intermediate(self) -> int:
        """Entries of the largest product or value of a region; inputs are not counted."""
        values = (region.size for region in self.regions)
        return max((*values, *(move.size for move in self.contractions)))


# --- Contraction orders: region by region, because no order may cross a barrier -------------------


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
        _RegionPlanner(diagram, region, sizes).plan(method)
        for region in diagram.structure.evaluation_order
    )
    return Plan(regions, repr(method))


class _RegionPlanner:
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
        one_hot = _one_hot_operands(self.diagram, self.region)
        for _ in one_hot:
            self._look_up(_next_lookup(self.listed, one_hot))
        self._contract(method)
        size = math.prod(self.sizes[leg] for leg in self.legs)
        return RegionPlan(self.region, operands, tuple(self.moves), size)

    def _look_up(self, positions: tuple[int, int]) -> None:
        one_hot, table = (self.listed[position] for position in positions)
        output = _picked_indices(one_hot, table)
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
            fired = tuple(convolutions[number] for number in members(merge.fired))
            output = self._ordered(
                positions, [names[index] for index in members(merge.indices)], fired
            )
            if step == len(path) - 1:
                output = self.legs
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

    def _ordered(
        self, positions: tuple[int, ...], kept: Sequence[str], fired: Sequence[str]
    ) -> tuple[str, ...]:
        """Shared indices first, then those of the left factor: as a matrix product leaves them.

        A convolution leaves those of its input first.
        """
        held = [self.listed[position].indices for position in positions]
        shared = [index for index in held[0] if all(index in other for other in held[1:])]
        if fired:
            shared = []
            held.sort(key=lambda one: self.diagram.convolution_by_name[fired[0]].input not in one)
        elif len(held) == 2 and self._is_swapped(held[0], held[1], kept):
            held.reverse()
        ordered = dict.fromkeys((*shared, *(index for one in held for index in one), *kept))
        return tuple(index for index in ordered if index in kept)

    def _is_swapped(
        self, first: tuple[str, ...], second: tuple[str, ...], kept: Sequence[str]
    ) -> bool:
        """Whether the second operand makes the better left factor of a matrix product.

        That is quickest when the larger operand is not transposed: it should be on the left if
        its last index is summed, else on the right.
        """
        left = [index for index in dict.fromkeys(first) if index in (*kept, *second)]
        right = [index for index in dict.fromkeys(second) if index in (*kept, *first)]
        is_second_larger = self._entries(right) > self._entries(left)
        larger, other = (right, left) if is_second_larger else (left, right)
        is_own_last = bool(larger) and larger[-1] not in other
        return is_second_larger != is_own_last

    def _entries(self, indices: Sequence[str]) -> int:
        return math.prod(self.sizes[index] for index in indices)

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


def _as_problem(planner: _RegionPlanner) -> tuple[tuple[str, ...], Problem]:
    """The region in numbers, counted in order of appearance so that equal regions are equal."""
    parts = planner.diagram.convolution_by_name
    convolutions = [parts[name] for name in planner.diagram.structure.convolutions[planner.region]]
    held = [index for operand in planner.listed for index in operand.indices]
    legs = [index for convolution in convolutions for index in convolution.indices]
    names = tuple(dict.fromkeys((*held, *legs)))
    number = {name: place for place, name in enumerate(names)}
    problem = Problem(
        tuple(tuple(number[index] for index in operand.indices) for operand in planner.listed),
        tuple(number[index] for index in planner.legs),
        tuple(planner.sizes[name] for name in names),
        tuple((number[c.input], number[c.kernel], number[c.output]) for c in convolutions),
    )
    return names, problem


def _check_operands(planner: _RegionPlanner, problem: Problem) -> None:
    for operand, mask in zip(planner.listed, problem.masks, strict=True):
        number = problem.clash(mask, problem.all_convolutions)
        if number is not None:
            convolution = planner.diagram.structure.convolutions[planner.region][number]
            raise ContractionError(
                f"{planner.where}: convolution {convolution!r} needs its input, its kernel and its "
                f"output on different tensors, but {operand.name!r} with indices "
                f"{operand.indices} holds what leads to two of them."
            )


def _check_convolutions(planner: _RegionPlanner) -> None:
    """Refuse convolutions whose legs begin nowhere in their own region."""
    parts = planner.diagram.convolution_by_name
    convolutions = [parts[name] for name in planner.diagram.structure.convolutions[planner.region]]
    begun = {index for operand in planner.listed for index in operand.indices}
    begun |= {convolution.output for convolution in convolutions}
    for convolution in convolutions:
        for leg in (convolution.input, convolution.kernel):
            if leg not in begun:
                raise ContractionError(
                    f"{planner.where}: leg {leg!r} of convolution {convolution.name!r} is on no "
                    "tensor of the same region, nor made by another convolution there."
                )


def _one_hot_operands(diagram: Diagram, region: str | None) -> tuple[str, ...]:
    """Names of a region's one-hot nodes.

    Raises:
        ContractionError: if the last index of one is open, or does not meet exactly one tensor
            inside the region.
    """
    operands = diagram.structure.operands[region]
    nodes = [diagram.node_by_name.get(operand.name) for operand in operands]
    one_hot = tuple(node for node in nodes if node is not None and node.is_one_hot)
    for node in one_hot:
        value = node.indices[-1]
        others = list(diagram.structure.owners[value])
        others.remove(node.name)
        here = [o.name for o in operands if value in o.indices and o.name != node.name]
        if value in diagram.output or len(others) != 1 or len(here) != 1:
            raise ContractionError(
                f"One-hot node {node.name!r} picks along its last index {value!r}, which must be "
                f"closed and held by one other tensor of the same region, but it is held by "
                f"{others or 'none'}{' and open' if value in diagram.output else ''}."
            )
    return tuple(node.name for node in one_hot)


def _next_lookup(listed: Sequence[Operand], one_hot: Collection[str]) -> tuple[int, int]:
    """Positions of a one-hot operand and of the table it picks from.

    Raises:
        ContractionError: if one-hot operands only pick from each other.
    """
    for place, operand in enumerate(listed):
        if operand.name not in one_hot:
            continue
        table = next(
            other
            for other, held in enumerate(listed)
            if other != place and operand.indices[-1] in held.indices
        )
        if listed[table].name not in one_hot:
            return place, table
    raise ContractionError(
        f"One-hot nodes {', '.join(one_hot)} pick from each other; one of them must pick from a "
        "tensor of numbers."
    )


def _picked_indices(one_hot: Operand, table: Operand) -> tuple[str, ...]:
    """Indices of what is picked: those of the integers, then what the table has besides."""
    held = dict.fromkeys(one_hot.indices[:-1])
    rest = [index for index in table.indices if index != one_hot.indices[-1]]
    return tuple(dict.fromkeys((*held, *rest)))
