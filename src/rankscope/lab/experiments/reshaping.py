"""`reshaping`: when do the reshaped forms of a kernel beat the plain ones at equal size?

Where channels repeat with a period, or are modulated copies of each other, the reshaped forms
must win; on random kernels they must not. Errors are relative Frobenius errors of the kernel,
and every form gets the largest ranks whose counted parameters stay within the same share. The
win on periodic kernels is one of size: with more parameters (4 % in the table) plain CP writes
the tile as well.

Reference:
    Su, Li, Bhattacharjee & Huang (2018), arXiv:1805.10352.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from rankscope.factorize.formats.catalogue import FORMATS
from rankscope.factorize.formats.channel_factors import balanced_factors
from rankscope.factorize.formats.format import Format, WeightShape
from rankscope.lab.experiments.claims import Claims, Statement, Verdict
from rankscope.lab.experiments.experiment import Entry, Experiment, Row, RunContext
from rankscope.lab.experiments.figure_dots import DotFigure
from rankscope.lab.experiments.figure_parts import Panel
from rankscope.progress import Progress

# Kernels whose structure is known, because it was planted.
#
# The channels t of the outputs and s of the inputs are each cut in two, t = (t₁, t₂), s = (s₁,
# s₂). A tile P[t₂, s₂] of small kernels, mixtures of two patterns of positions, is laid side by
# side along t₁ and s₁.


_PATTERNS = 2  # of positions, that the kernels of a tile are mixed from
_COMPONENTS = 3  # of a kernel of low rank
_NOISE = 0.01  # relative to the kernel: nothing real is exact


class Structure(StrEnum):
    """The structure that is planted in a random kernel.

    Periodic: the tile is repeated as it is (plain Tucker can write that too, as soon as its ranks
    reach the channels of the tile). Modulated: every copy of the tile is multiplied by a number of
    its own. Low rank: a sum of three products of vectors over t, s and the positions, what the
    plain forms are made for. Random: nothing.
    """

    PERIODIC = "periodic"
    MODULATED = "modulated"
    LOW_RANK = "low rank"
    RANDOM = "random"


def planted_kernel(
    structure: Structure, shape: WeightShape, *, seed: int = 0, noise: float = _NOISE
) -> Tensor:
    """A float64 kernel (out_size, in_size, *kernel) with a structure, and noise on top.

    Example:
        >>> shape = WeightShape(9, 4, (3, 3))
        >>> kernel = planted_kernel(Structure.PERIODIC, shape, noise=0.0)
        >>> torch.equal(kernel[:3, :2], kernel[3:6, 2:])
        True
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator, dtype=torch.float64)

    copies_out, tile_out = balanced_factors(shape.out_size, 2)
    copies_in, tile_in = balanced_factors(shape.in_size, 2)
    if structure is Structure.RANDOM:
        return normal(*shape.sizes)
    if structure is Structure.LOW_RANK:
        sides = normal(shape.out_size, _COMPONENTS), normal(shape.in_size, _COMPONENTS)
        kernel = torch.einsum("tr,sr,r...->ts...", *sides, normal(_COMPONENTS, *shape.kernel))
    else:
        mixing = normal(tile_out, tile_in, _PATTERNS)
        tile = torch.einsum("cdr,r...->cd...", mixing, normal(_PATTERNS, *shape.kernel))
        is_periodic = structure is Structure.PERIODIC
        copies = normal(copies_out, copies_in)
        copies = torch.ones_like(copies) if is_periodic else copies
        kernel = torch.einsum("ab,cd...->acbd...", copies, tile).reshape(shape.sizes)
    disturbance = normal(*shape.sizes)
    share = noise * float(kernel.norm() / disturbance.norm())
    return kernel + share * disturbance


MARGIN = 0.95  # a form wins if its error is below this share of the other's


@dataclass(frozen=True)
class PlantedKernelEntry(Entry):
    """All forms on one planted kernel.

    Args:
        structure: that is planted.
        shape: of the kernel.
        keep: share of its parameters that each form may have.
        seed: of the kernel and of the fits.
    """

    structure: Structure
    shape: WeightShape
    keep: float
    seed: int = 0

    @property
    def name(self) -> str:
        """Structure, channels and share."""
        sizes = f"{self.shape.in_size}-to-{self.shape.out_size}"
        return f"{self.structure.replace(' ', '-')}-{sizes}-at-{100 * self.keep:g}"

    def run(self, context: RunContext) -> Row:
        """Errors of all forms, the best of the plain and of the reshaped, and who wins."""
        kernel = planted_kernel(self.structure, self.shape, seed=self.seed)
        limit = int(self.keep * self.shape.num_parameters)
        errors: dict[str, float | None] = {}
        for number, (name, format) in enumerate(FORMATS.items()):
            context.report(Progress(name, number, len(FORMATS)))
            errors[name] = error_within(kernel, format, limit, seed=self.seed)
        plain = _least(errors, is_reshaped=False)
        reshaped = _least(errors, is_reshaped=True)
        return {
            "structure": str(self.structure),
            "channels": f"{self.shape.in_size} -> {self.shape.out_size}",
            "parameters": limit,
            **errors,
            "best plain": plain,
            "best reshaped": reshaped,
            "winner": winner(plain, reshaped),
        }


def error_within(kernel: Tensor, format: Format, limit: int, *, seed: int = 0) -> float | None:
    """The relative error of a format with at most so many parameters; None if it has more."""
    shape = WeightShape.of(kernel)
    if format.refusal(shape) is not None:
        return None
    ranks = format.largest_ranks(shape, limit)
    if ranks is None:
        return None
    cores = format.decompose(kernel, ranks, seed=seed)
    return float((format.to_dense(cores, shape) - kernel).norm() / kernel.norm())


def winner(plain: float, reshaped: float) -> str:
    """The format with the clearly smaller error.

    Example:
        >>> winner(0.5, 0.1), winner(0.5, 0.49), winner(0.1, 0.5)
        ('reshaped', 'neither', 'plain')
    """
    if reshaped < MARGIN * plain:
        return "reshaped"
    return "plain" if plain < MARGIN * reshaped else "neither"


def _least(errors: dict[str, float | None], *, is_reshaped: bool) -> float:
    results = [
        error
        for name, error in errors.items()
        if error is not None and name.startswith("r-") == is_reshaped
    ]
    return min(results, default=1.0)  # a form without parameters is the zero kernel


def _winners(rows: Sequence[Row]) -> tuple[Statement, ...]:
    """How often each family has the clearly smaller error, for each kind of kernel."""
    statements = []
    for structure in dict.fromkeys(str(row["structure"]) for row in rows):
        winners = Counter(str(row["winner"]) for row in rows if row["structure"] == structure)
        detail = ", ".join(f"{name} {count}" for name, count in winners.most_common())
        subject = f"{structure.capitalize()} kernels, smaller error by 5 %, cases"
        statements.append(Statement(subject, Verdict.FACT, detail))
    return tuple(statements)


KEPT = (0.012, 0.025, 0.04)

RESHAPING = Experiment(
    name="reshaping",
    title="Relative error of planted kernels at equal parameters, plain and reshaped forms",
    entries=tuple(
        PlantedKernelEntry(structure, shape, keep)
        for shape in (WeightShape(64, 64, (3, 3)), WeightShape(64, 32, (3, 3)))
        for structure in Structure
        for keep in KEPT
    ),
    quick=tuple(
        PlantedKernelEntry(structure, WeightShape(16, 16, (3, 3)), 0.06) for structure in Structure
    ),
    claims=Claims("For which kernels are reshaped forms better than plain ones?", facts=_winners),
    figure=DotFigure(
        ("best plain", "best reshaped"),
        is_logarithmic=True,
        panels=tuple(
            Panel(f"{structure.capitalize()} kernels", f"{structure.replace(' ', '-')}-(.+)")
            for structure in Structure
        ),
        labels={
            f"{into}-to-64-at-{100 * keep:g}": f"{into} to 64 channels, {100 * keep:g} % kept"
            for into in (32, 64)
            for keep in KEPT
        }
        | {
            "best plain": "relative error of the best plain form",
            "best reshaped": "of the best reshaped form",
        },
        shares_axis=True,
    ),
)
