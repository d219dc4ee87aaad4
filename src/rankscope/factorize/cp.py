"""Canonical polyadic (CP) decompositions: by alternating least squares, and searched."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from rankscope.errors import DecompositionError
from rankscope.factorize.cp_direct import (
    Candidate,
    Solver,
    sufficient_components,
    without_search,
)
from rankscope.factorize.cp_fit import FitOptions, Stopping, descend, fit_cp, matrix_free_equations
from rankscope.factorize.svd import left_singular_vectors
from rankscope.factorize.truncation import (
    Bonds,
    Factors,
    Reals,
    RelativeError,
    Scaled,
    Truncation,
    balance,
    bond_sizes,
    frobenius_norm,
    inner,
    multiply,
    outer_columns,
    random_start,
    to_scaled,
)
from rankscope.factorize.tucker import decompose_tucker, matricized

# --- Alternating least squares with line search on the factors of a sum of outer products ---------


# Relative to the mean of the diagonal: equations of nearly parallel vectors stay solvable.
_LEAST_RIDGE = 1e-13


@dataclass(frozen=True)
class Sweeps:
    """Stopping rule of alternating least squares, and its penalty on large factors.

    Args:
        max_sweeps: at most so many.
        least_gain: also ends when a sweep lowers the squared error by less than this share of it.
        penalty: of the factors' squared norms, beside the squared error of a tensor of norm 1.
    """

    max_sweeps: int
    least_gain: float = 1e-4
    penalty: float = 0.0


def alternate(tensor: Reals, start: Factors, sweeps: Sweeps) -> Factors:
    r"""Solve for one factor after the other; every other sweep also tries to go on further.

    Each factor is the best one for all others, of
    :math:`\|T - X\|^2 + \lambda \sum_k \|F^{(k)}\|^2`. The step that is tried beyond a sweep is
    its cube root's multiple of the last change, and is taken only if it lowers that sum.

    Reference:
        Rajih, Comon & Harshman (2008), Enhanced line search, Sec. 3, doi:10.1137/06065577;
        Kolda & Bader (2009), Sec. 3.4, doi:10.1137/07070111X.
    """
    square = inner(tensor, tensor)
    now, value = balance(start), math.inf
    for sweep in range(1, sweeps.max_sweeps + 1):
        before, value_before = now, value
        now, value = _sweep(tensor, now, square, sweeps.penalty)
        if not value_before - value > sweeps.least_gain * abs(value):
            break
        if sweep > 2 and sweep % 2 == 0:
            now, value = _further(tensor, (before, now), sweep, (square, value, sweeps.penalty))
    return now


def _sweep(tensor: Reals, factors: Factors, square: float, penalty: float) -> tuple[Factors, float]:
    """Every factor solved for once, balanced, and the sum that is lowered.

    The tensor is contracted twice only: with the second half of the factors for the first half,
    and the other way round.
    """
    middle = len(factors) // 2
    halves = [list(range(middle)), list(range(middle, len(factors)))]
    solved = list(factors)
    wanted = solved[-1]
    for half in halves:
        partial = _half_contracted(tensor, tuple(solved), half)
        for position in half:
            wanted = _contract_half(partial, [solved[other] for other in half], position - half[0])
            gram = _gram(solved[:position] + solved[position + 1 :])
            solved[position] = _solve_factor(gram, wanted, penalty)
    product = inner(wanted, solved[-1])
    balanced = balance(tuple(solved))
    return balanced, square - 2 * product + float(_gram(list(balanced)).sum()) + _cost(
        balanced, penalty
    )


def _further(
    tensor: Reals,
    pair: tuple[Factors, Factors],
    sweep: int,
    known: tuple[float, float, float],
) -> tuple[Factors, float]:
    """Step beyond the last of two points, along the line through both, if the cost is lower."""
    before, now = pair
    square, value, penalty = known
    step = sweep ** (1 / 3)
    tried = tuple(new + step * (new - old) for old, new in zip(before, now, strict=True))
    middle = len(tried) // 2
    partial = _half_contracted(tensor, tried, list(range(middle)))
    product = inner(partial, outer_columns(tried[:middle]))
    cost = square - 2 * product + float(_gram(list(tried)).sum()) + _cost(tried, penalty)
    return (tried, cost) if cost < value else (now, value)


def _half_contracted(tensor: Reals, factors: Factors, half: list[int]) -> Reals:
    """The tensor seen through all factors outside a half: (sizes of the half, component)."""
    middle = len(factors) // 2
    matrix = tensor.reshape(math.prod(tensor.shape[:middle]), -1)
    if half[0] == 0:
        return multiply(matrix, outer_columns(factors[middle:]))
    return multiply(matrix.T, outer_columns(factors[:middle]))


def _contract_half(partial: Reals, factors: list[Reals], place: int) -> Reals:
    """What is left of a half after all its factors but one are contracted."""
    size, count = factors[place].shape
    for factor in reversed(factors[place + 1 :]):
        partial = numpy.einsum("abs,bs->as", partial.reshape(-1, len(factor), count), factor)
    for factor in factors[:place]:
        partial = numpy.einsum("abs,as->bs", partial.reshape(len(factor), -1, count), factor)
    return partial.reshape(size, count)


def _gram(factors: list[Reals]) -> Reals:
    product = multiply(factors[0].T, factors[0])
    for factor in factors[1:]:
        product = product * multiply(factor.T, factor)
    return product


def _solve_factor(gram: Reals, wanted: Reals, penalty: float) -> Reals:
    ridge = _LEAST_RIDGE * max(float(gram.trace()) / len(gram), float(numpy.finfo(float).tiny))
    while True:
        damped = torch.from_numpy(gram + (penalty + ridge) * numpy.eye(len(gram)))
        lower, failed = torch.linalg.cholesky_ex(damped)
        if not failed:
            return torch.cholesky_solve(torch.from_numpy(wanted.T), lower).numpy().T
        ridge *= 10


def _cost(factors: Factors, penalty: float) -> float:
    return penalty * sum(inner(factor, factor) for factor in factors)


# --- The search for outer products: where it starts, which solvers it tries, and what wins --------


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
    """Options of a CP decomposition: how long to search, and how large components may be.

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
    exact = without_search(tensor, num_components)
    if exact is not None:
        return exact
    core, bases = _compress_core(tensor, num_components)
    candidates: list[Candidate] = []
    for start in _starts(core, num_components, options):
        candidates.extend(_descents(core, start, options))
        if candidates[-1].error <= _EXACT:
            break
    best = _best(core, candidates, options)
    factors = tuple(
        multiply(basis, factor) for basis, factor in zip(bases, best.factors, strict=True)
    )
    exact = Candidate.of(tensor, factors, best.solver)
    if core.shape == tensor.shape:
        return exact
    swept = alternate(tensor, factors, Sweeps(_LAST_SWEEPS, options.least_gain))
    better = Candidate.of(tensor, swept, best.solver)
    return better if options.allows(better) and better.error < exact.error else exact


def _best(core: Reals, candidates: list[Candidate], options: CPOptions) -> Candidate:
    """The least error, or the least of those whose components are small enough."""
    best = min(candidates, key=lambda candidate: candidate.error)
    if options.allows(best):
        return best
    allowed = [candidate for candidate in candidates if options.allows(candidate)]
    allowed.append(_fit_penalized(core, best.factors, options))
    return min(allowed, key=lambda candidate: candidate.error)


def _compress_core(tensor: Reals, num_components: int) -> tuple[Reals, Factors]:
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
    tucker = decompose_tucker(
        torch.from_numpy(tensor), Bonds(tuple(fewer.values())), positions=tuple(fewer), sweeps=0
    )
    for position, factor in tucker.factors.items():
        bases[position] = factor.double().numpy()
    return numpy.ascontiguousarray(tucker.core.double().numpy()), tuple(bases)


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
    """The result of alternating least squares, then its refinement by Gauss-Newton."""
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


def _fit_penalized(core: Reals, factors: Factors, options: CPOptions) -> Candidate:
    """Sweeps with a penalty that grows until components are small enough."""
    penalty = _FIRST_PENALTY
    while True:
        sweeps = Sweeps(options.max_sweeps, options.least_gain, penalty)
        factors = alternate(core, factors, sweeps)
        candidate = Candidate.of(core, factors, Solver.PENALIZED)
        if options.allows(candidate):
            return candidate
        penalty *= _PENALTY_GROWTH


# --- Tensors as few outer products, at the sizes of real weights ----------------------------------


@dataclass(frozen=True, eq=False)
class CP:
    """A sum of outer products of vectors, one column of each factor.

    Args:
        factors: one (size, num_components) for each position; the vectors of a component have
            one length.
        relative_error: Frobenius norm of the difference, measured entry by entry, over that of
            the tensor.
        largest_component_norm: Frobenius norm of the largest component over that of the tensor;
            far above 1, components cancel each other.
        solver: what found it.
    """

    factors: tuple[Tensor, ...]
    relative_error: float
    largest_component_norm: float
    solver: Solver

    @property
    def num_components(self) -> int:
        """Number of outer products."""
        return self.factors[0].shape[1]

    @property
    def bonds(self) -> tuple[int]:
        """The number of components, which join all factors."""
        return (self.num_components,)

    @property
    def num_parameters(self) -> int:
        """Number of entries of all factors."""
        return sum(factor.numel() for factor in self.factors)

    def to_dense(self) -> Tensor:
        """The sum as a tensor."""
        return component_sum(self.factors)


def decompose_cp(tensor: Tensor, truncation: Truncation, *, options: CPOptions = DEFAULT_CP) -> CP:
    r"""Approximate a tensor by a sum of outer products of vectors.

    .. math:: T_{j_1 \dots j_N} \approx \sum_{s=1}^{R} \prod_{k=1}^{N} F^{(k)}_{j_k s}

    No method finds the best sum for sure, and there may be none. From every start, alternating
    least squares with line search is followed by Gauss-Newton; what leaves the least error wins.
    There is one bond, R. For an error, R is doubled until it suffices, then halved between: a
    smaller one may exist that the search did not find.

    Args:
        tensor: of order 2 or more.
        truncation: of the number of components.
        options: of the search.

    Example:
        >>> from rankscope.factorize.truncation import MaxBond
        >>> candidate = decompose_cp(torch.ones(4, 5, 6), MaxBond(2))
        >>> [tuple(factor.shape) for factor in candidate.factors]
        [(4, 2), (5, 2), (6, 2)]

    Raises:
        DecompositionError: if the tensor is none of finite floating-point numbers, or the
            truncation does not fit.

    Reference:
        Kolda & Bader (2009), Sec. 3, doi:10.1137/07070111X; Phan, Tichavský & Cichocki (2013),
        arXiv:1205.2584; Sorber, Van Barel & De Lathauwer (2013), doi:10.1137/120868323.
    """
    scaled = to_scaled(tensor, truncation, who="decompose_cp", least_order=2)
    norm = frobenius_norm(scaled.unit)
    array: Reals = scaled.unit.double().cpu().numpy() / (norm or 1.0)
    if isinstance(truncation, RelativeError):
        candidate = _fewest(array, truncation.error, options)
    else:
        sizes = tuple(tensor.shape)
        (num_components,) = bond_sizes(
            truncation,
            (sufficient_components(sizes),),
            lambda bonds: bonds[0] * sum(sizes),
            num_entries=math.prod(sizes),
            who="decompose_cp",
        )
        candidate = _search(array, num_components, options)
    return _result(scaled, norm, candidate)


def component_sum(factors: tuple[Tensor, ...]) -> Tensor:
    """Add up the outer products of the factors' columns.

    Reference:
        Kolda & Bader (2009), Eq. 3.4, doi:10.1137/07070111X.
    """
    product = factors[0].new_ones(1, factors[0].shape[1])
    for factor in factors[:-1]:
        product = (product[:, None, :] * factor).flatten(0, 1)
    return (product @ factors[-1].T).reshape([len(factor) for factor in factors])


def _search(array: Reals, num_components: int, options: CPOptions) -> Candidate:
    if not array.any():
        zeros = tuple(numpy.zeros((size, num_components)) for size in array.shape)
        return Candidate(zeros, 0.0, Solver.FIBRES)
    return search_cp(array, num_components, options)


def _fewest(array: Reals, error: float, options: CPOptions) -> Candidate:
    most = sufficient_components(array.shape)
    too_few, enough = 0, 1
    candidate = _search(array, enough, options)
    while candidate.error > error and enough < most:
        too_few, enough = enough, min(2 * enough, most)
        candidate = _search(array, enough, options)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        tried = _search(array, middle, options)
        if tried.error <= error:
            candidate, enough = tried, middle
        else:
            too_few = middle
    return candidate


def _result(scaled: Scaled, norm: float, candidate: Candidate) -> CP:
    share = (scaled.scale * norm) ** (1 / len(candidate.factors))
    factors = [torch.from_numpy(factor * share) for factor in balance(candidate.factors)]
    return CP(
        tuple(factor.to(scaled.unit) for factor in factors),
        candidate.error,
        candidate.largest_component_norm,
        candidate.solver,
    )
