"""The search for outer products: where it starts, which solvers it tries, and what wins."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy
import torch

from rankscope.decompositions.alternating import Sweeps, alternate
from rankscope.decompositions.cp_candidates import Candidate, Solver, without_search
from rankscope.decompositions.factors import Factors, Reals
from rankscope.decompositions.fit import FitOptions, fit_cp
from rankscope.decompositions.gauss_newton import Stopping, descend
from rankscope.decompositions.matrix_free import matrix_free_equations
from rankscope.decompositions.starts import random_start
from rankscope.decompositions.svd import left_singular_vectors
from rankscope.decompositions.truncation import Bonds
from rankscope.decompositions.tucker_form import decompose_tucker, matricized
from rankscope.errors import DecompositionError

# Near enough to stop, and what float64 can promise.
_EXACT = 1e-12
# Larger tensors are searched in a core, this many times as wide as the number of components.
_MAX_WHOLE_ENTRIES = 2**16
_CORE_WIDTH = 1.5
# Sweeps on the whole tensor after a search in a core.
_LAST_SWEEPS = 5
# Alternating least squares ends near a minimum, where a step needs little damping.
_DAMPING = 0.01
# Where penalties begin, for a tensor of norm 1, and how they grow.
_FIRST_PENALTY = 1e-5
_PENALTY_GROWTH = 4.0


@dataclass(frozen=True)
class CPOptions:
    """How long to look for outer products, and what is not wanted.

    Args:
        num_starts: the first one is made of singular vectors, the others are random.
        max_sweeps: of alternating least squares from each start.
        max_iterations: of Gauss-Newton from where those ended; 0 leaves it out.
        least_gain: both also end when they lower the error by less than this share of it.
        max_component_norm: largest Frobenius norm of a component over that of the tensor, at
            least 1. Larger components cancel each other, the mark of a tensor without a best sum;
            a penalty keeps them small, at the price of a larger error. None lets them grow.
        max_dense_unknowns: larger problems are solved without forming the normal equations, whose
            time grows with the cube.
        seed: of the random starts.
    """

    num_starts: int = 2
    max_sweeps: int = 200
    max_iterations: int = 100
    least_gain: float = 1e-5
    max_component_norm: float | None = None
    max_dense_unknowns: int = 1024
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"num_starts": 1, "max_sweeps": 1, "max_iterations": 0}
        for name, bound in {**least, "least_gain": 0, "max_dense_unknowns": 0, "seed": 0}.items():
            if getattr(self, name) < bound:
                raise DecompositionError(
                    f"CPOptions: {name} must be at least {bound}, got {getattr(self, name)}."
                )
        if self.max_component_norm is not None and not self.max_component_norm >= 1:
            raise DecompositionError(
                f"CPOptions: max_component_norm must be at least 1, got {self.max_component_norm}."
            )

    def allows(self, candidate: Candidate) -> bool:
        """Whether its components are small enough."""
        return (
            self.max_component_norm is None
            or candidate.largest_component_norm <= self.max_component_norm
        )


DEFAULT_CP = CPOptions()


def search_cp(tensor: Reals, num_components: int, options: CPOptions = DEFAULT_CP) -> Candidate:
    """The best sum of outer products that can be found for a tensor of Frobenius norm 1.

    Matrices, and tensors that have an exact sum for want of size, need no search. A large tensor
    is searched in its leading singular bases, then swept as a whole.

    Reference:
        Bro & Andersson (1998), Improving the speed of multiway algorithms II: compression,
        doi:10.1016/S0169-7439(98)00011-2; Phan, Tichavský & Cichocki (2013), arXiv:1205.2584.
    """
    found = without_search(tensor, num_components)
    if found is not None:
        return found
    core, bases = _compressed(tensor, num_components)
    candidates: list[Candidate] = []
    for start in _starts(core, num_components, options):
        candidates.extend(_descents(core, start, options))
        if candidates[-1].error <= _EXACT:
            break
    best = _best(core, candidates, options)
    factors = tuple(basis @ factor for basis, factor in zip(bases, best.factors, strict=True))
    found = Candidate.of(tensor, factors, best.solver)
    if core.shape == tensor.shape:
        return found
    swept = alternate(tensor, factors, Sweeps(_LAST_SWEEPS, options.least_gain))
    better = Candidate.of(tensor, swept, best.solver)
    return better if options.allows(better) and better.error < found.error else found


def _best(core: Reals, candidates: list[Candidate], options: CPOptions) -> Candidate:
    """The least error, or the least of those whose components are small enough."""
    best = min(candidates, key=lambda candidate: candidate.error)
    if options.allows(best):
        return best
    allowed = [candidate for candidate in candidates if options.allows(candidate)]
    allowed.append(_penalized(core, best.factors, options))
    return min(allowed, key=lambda candidate: candidate.error)


def _compressed(tensor: Reals, num_components: int) -> tuple[Reals, Factors]:
    """A smaller core with almost the same sums, and its bases.

    What is longer than all other positions together loses nothing; others only in a large tensor.
    """
    width = math.ceil(_CORE_WIDTH * num_components)
    sizes = {position: min(n, tensor.size // n) for position, n in enumerate(tensor.shape)}
    if tensor.size > _MAX_WHOLE_ENTRIES:
        sizes = {position: min(size, width) for position, size in sizes.items()}
    fewer = {place: size for place, size in sizes.items() if size < tensor.shape[place]}
    bases = [numpy.eye(size) for size in tensor.shape]
    if not fewer:
        return tensor, tuple(bases)
    found = decompose_tucker(
        torch.from_numpy(tensor), Bonds(tuple(fewer.values())), positions=tuple(fewer), sweeps=0
    )
    for position, factor in found.factors.items():
        bases[position] = factor.double().numpy()
    return numpy.ascontiguousarray(found.core.double().numpy()), tuple(bases)


def _starts(core: Reals, num_components: int, options: CPOptions) -> Iterator[Factors]:
    for number in range(options.num_starts):
        generator = numpy.random.default_rng([options.seed, num_components, number])
        start = random_start(core.shape, num_components, generator)
        yield start if number else _with_singular_vectors(core, start)


def _with_singular_vectors(core: Reals, start: Factors) -> Factors:
    """The start, its first vectors replaced by the leading singular ones of their length."""
    replaced = []
    for position, factor in enumerate(start):
        left, _ = left_singular_vectors(matricized(torch.from_numpy(core), position))
        count = min(left.shape[1], factor.shape[1])
        vectors = left[:, :count].numpy() * numpy.linalg.norm(factor[:, :count], axis=0)
        replaced.append(numpy.hstack([vectors, factor[:, count:]]))
    return tuple(replaced)


def _descents(core: Reals, start: Factors, options: CPOptions) -> Iterator[Candidate]:
    """What alternating least squares ends with, and what Gauss-Newton makes of it."""
    factors = alternate(core, start, Sweeps(options.max_sweeps, options.least_gain))
    yield Candidate.of(core, factors, Solver.ALTERNATING)
    if options.max_iterations == 0:
        return
    most = options.max_component_norm or math.inf
    if sum(factor.size for factor in factors) <= options.max_dense_unknowns:
        fit_options = FitOptions(
            relative_error=_EXACT,
            max_component_norm=most,
            max_iterations=options.max_iterations,
            least_gain=options.least_gain,
            num_restarts=0,
            max_unknowns=options.max_dense_unknowns,
        )
        refined = fit_cp(core, factors[0].shape[1], fit_options, start=factors).factors
    else:
        stopping = Stopping(_EXACT, most, options.max_iterations, options.least_gain)
        refined = descend(
            core, factors, stopping, equations=matrix_free_equations, damping=_DAMPING
        ).factors
    yield Candidate.of(core, refined, Solver.GAUSS_NEWTON)


def _penalized(core: Reals, factors: Factors, options: CPOptions) -> Candidate:
    """Sweeps with a penalty that grows until components are small enough."""
    penalty = _FIRST_PENALTY
    while True:
        sweeps = Sweeps(options.max_sweeps, options.least_gain, penalty)
        factors = alternate(core, factors, sweeps)
        found = Candidate.of(core, factors, Solver.PENALIZED)
        if options.allows(found):
            return found
        penalty *= _PENALTY_GROWTH
