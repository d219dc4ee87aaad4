"""What a contraction order is, as plain data; `contraction.py` finds one."""

from dataclasses import dataclass


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
