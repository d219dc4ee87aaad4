"""Make a certificate of a measured rank, and verify one by a path of its own."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from rankscope.budget import Deadline, readable_seconds, require_within
from rankscope.errors import BudgetError, CertificateError, RankscopeError
from rankscope.progress import Report, ignore
from rankscope.rank.certificate import (
    MAX_DETERMINANT,
    Certificate,
    CertifiedMinor,
    DrawnWeights,
    GivenArray,
    GivenWeights,
    Verdict,
    draw_challenges,
    pack_answers,
    soundness_log2,
)
from rankscope.rank.defining_equations import DefinedFunction
from rankscope.rank.elimination import solve_modulo
from rankscope.rank.measured import MeasuredRank, Residues, SplitFunction
from rankscope.rank.minors import (
    ENTRIES_AT_ONCE,
    SPOTS,
    InPieces,
    MinorTiles,
    Tile,
    determinant_modulo,
)
from rankscope.rank.networks.catalogue import build
from rankscope.rank.networks.given_weights import require_weights_of, weight_residues
from rankscope.rank.networks.network import PolynomialNetwork
from rankscope.rank.partition import Partition
from rankscope.workers import Workers

MAX_DEFINED = 2**20  # evaluations by the defining equations; more are taken by the fast way
# Numbers that a network may hold at once while it is evaluated on some pairs.
_FAST_NUMBERS_AT_ONCE = 2**33
# Entries of all minors whose determinants are taken, held together.
_MAX_DETERMINANT_ENTRIES = 2**27
_SECONDS_EACH_TILE = 1.0
_WORK = "The verification"

_DEFINED = "{}: determinants by FLINT, values by the defining equations"
_ANSWERED = "{}: answers to challenges, values by the defining equations"
_COMPARED = (
    "{}: answers to challenges, values by the fast evaluation; {:,} values compared with the \
defining equations"
)
_RANDOM_HASH = "SHAKE-256 behaves like a random function, and the maker tried one statement only"
_TRUSTED = (
    "the fast evaluation, compared in {:,} values, is right in all {:,} (--slow takes every value "
    "by the defining equations)"
)


def certify_rank(
    network: PolynomialNetwork,
    partition: Partition,
    measured: MeasuredRank,
    *,
    weights: Mapping[str, Tensor] | None = None,
    max_determinant: int = MAX_DETERMINANT,
    report: Report = ignore,
) -> Certificate:
    """Write down what proves the lower bound of a measured rank.

    Args:
        network: the one that was measured.
        partition: the split that was measured.
        measured: its best run is certified.
        weights: those it was measured at, if it was not at random ones.
        max_determinant: minors up to this size, at most 500, go without answers to challenges.
        report: called after every finished tile.

    Raises:
        CertificateError: if it was measured at other weights.
        FamilyError: if the network is none that `verify` can build again.
        MatrixError: if a minor is 0 modulo the prime, so that the measurement was of another
            network.
    """
    if measured.has_given_weights != (weights is not None):
        wanted = "at given weights: give them" if weights is None else "at random ones: give none"
        raise CertificateError(f"certify_rank: the rank was measured {wanted}.")
    build(network.family, network.settings)
    run = measured.best
    draft = Certificate(
        family=network.family,
        settings=network.settings,
        partition=partition,
        weights=DrawnWeights(run.seed) if weights is None else _written_down(weights),
        points_seed=run.seed,
        prime=run.prime,
        lower=run.matrix_rank,
        minors=tuple(
            CertifiedMinor(minor.grade, minor.rows, minor.columns)
            for minor in run.minors
            if minor.size
        ),
    )
    limit = min(max_determinant, MAX_DETERMINANT)
    large = [n for n, minor in enumerate(draft.minors) if minor.size > limit]
    if not large:
        return draft
    certified = _CertifiedFunction(draft, network)
    matrices = MinorTiles(certified.fast, [draft.minors[n] for n in large]).matrices(report)
    minors, binding = list(draft.minors), draft.binding()
    for number, matrix in zip(large, matrices, strict=True):
        right_sides = draw_challenges(binding, number, len(matrix), draft.prime)
        answers = pack_answers(solve_modulo(matrix, right_sides, draft.prime))
        minors[number] = replace(minors[number], answers=answers)
    return replace(draft, minors=tuple(minors))


@dataclass(frozen=True)
class Estimate:
    """What a verification will cost.

    Args:
        defined: evaluations by the defining equations.
        fast: evaluations by the fast way, whose time is measured before they begin.
        seconds: of the defined ones, on these workers, generously.
        workers: how many work at the same time.
    """

    defined: int
    fast: int
    seconds: float
    workers: int

    def __str__(self) -> str:
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        text = (
            f"{self.defined:,} evaluations by the defining equations, at most about "
            f"{readable_seconds(self.seconds)} on {workers}"
        )
        return f"{text}, and {self.fast:,} by the fast evaluation" if self.fast else text


def estimate_verification(
    certificate: Certificate,
    *,
    max_defined: int | None = MAX_DEFINED,
    workers: Workers | None = None,
) -> Estimate:
    """What `verify` with the same arguments will cost, without doing any of it.

    Raises:
        CertificateError: if it speaks of a network, weights or points that do not exist.
    """
    with _as_certificate_errors():
        function = _CertifiedFunction.of(certificate, workers or Workers(), None)
        return function.estimate(max_defined)


def verify(
    certificate: Certificate,
    report: Report = ignore,
    *,
    max_defined: int | None = MAX_DEFINED,
    max_seconds: float | None = None,
    workers: Workers | None = None,
) -> Verdict:
    """Check a certificate by recomputing what is needed, and nothing else.

    Small minors are computed by the equations that define the network, and their determinants by
    FLINT: neither shares code with the measurement. For large ones the file must answer
    challenges (see `rankscope.rank.certificate`): all n^2 values are computed,
    but only some at a time, and nothing is eliminated.

    Args:
        certificate: as read from a file.
        report: called after every finished tile.
        max_defined: up to so many evaluations, challenges too are checked by the defining
            equations; None for always.
        max_seconds: refused if it is estimated to take longer, and given up when it does.
        workers: who evaluates; all cores if None.

    Raises:
        CertificateError: if it speaks of a network, weights or points that do not exist, or a
            large minor has no answers.
        BudgetError: if it takes longer than it may.
    """
    started = time.perf_counter()
    deadline = Deadline(max_seconds)
    with _as_certificate_errors():
        certified = _CertifiedFunction.of(certificate, workers or Workers(), deadline)
        deadline.require_estimate(_WORK, certified.estimate(max_defined).seconds)
        small, large = certified.small, certified.large
        reason, paths, conditions = None, list[str](), list[str]()
        if small:
            paths.append(_DEFINED.format(_count_text(small)))
            reason = certified.vanishing_determinant(small, report)
        if large and reason is None:
            path, trusted, reason = certified.wrong_answer(large, max_defined, report)
            paths.append(path)
            conditions = [_RANDOM_HASH, *trusted]
    return Verdict(
        is_proved=reason is None,
        statement=certificate.statement,
        lower=certificate.lower,
        reason=reason,
        soundness_log2=soundness_log2(certificate.prime) if large else None,
        num_minors=len(certificate.minors),
        paths=tuple(paths),
        seconds=time.perf_counter() - started,
        conditions=tuple(conditions),
        summary=certificate.summary,
    )


@contextmanager
def _as_certificate_errors() -> Iterator[None]:
    """What a network refuses is wrong with the certificate that asks for it."""
    try:
        yield
    except (CertificateError, BudgetError):
        raise
    except RankscopeError as error:
        raise CertificateError(f"The certificate cannot be checked. {error}") from error


@dataclass(frozen=True)
class _CertifiedFunction:
    """The function that a certificate is about, ready to be evaluated."""

    certificate: Certificate
    network: PolynomialNetwork
    workers: Workers = field(default_factory=Workers)
    deadline: Deadline = field(default_factory=lambda: Deadline(None))

    @classmethod
    def of(
        cls, certificate: Certificate, workers: Workers, deadline: Deadline | None
    ) -> "_CertifiedFunction":
        """The function, its network built and all points known to exist."""
        network = build(certificate.family, certificate.settings)
        function = cls(certificate, network, workers, deadline or Deadline(None))
        function.require_existing_points()
        return function

    @property
    def small(self) -> list[int]:
        """Numbers of the minors whose determinants are taken."""
        return [n for n, minor in enumerate(self.certificate.minors) if minor.answers is None]

    @property
    def large(self) -> list[int]:
        """Numbers of the minors that are answered for."""
        return [n for n, minor in enumerate(self.certificate.minors) if minor.answers is not None]

    @cached_property
    def defined(self) -> DefinedFunction:
        """The function by the defining equations."""
        certificate = self.certificate
        self.network.require_covered(certificate.partition)
        function = DefinedFunction(
            self.network,
            certificate.partition,
            seed=certificate.points_seed,
            prime=certificate.prime,
            weights=_residues(certificate, self.network),
        )
        function.deadline = self.deadline
        return function

    @cached_property
    def fast(self) -> SplitFunction:
        """The function as it was measured."""
        certificate, network = self.certificate, self.network
        function = network.split(
            certificate.partition,
            seed=certificate.points_seed,
            prime=certificate.prime,
            weights=_residues(certificate, network),
        )
        # Whatever a layer computes for one pair has fewer entries than this.
        num_weights = sum(parameter.numel() for parameter in network.parameters())
        numbers_each = network.num_positions**2 * (network.input_size + num_weights)
        return InPieces(function, max(1, _FAST_NUMBERS_AT_ONCE // numbers_each))

    def tiles(self, numbers: list[int]) -> MinorTiles:
        """The minors with these numbers by the defining equations, in tiles of about a second."""
        entries = int(_SECONDS_EACH_TILE / self.defined.cost.seconds)
        return MinorTiles(
            self.defined,
            [self.certificate.minors[number] for number in numbers],
            self.workers,
            max(1, min(ENTRIES_AT_ONCE, entries)),
            self.deadline,
        )

    def estimate(self, max_defined: int | None) -> Estimate:
        """What will be evaluated, and how long that takes."""
        by_definition = self._evaluations(self.small)
        answered = self._evaluations(self.large)
        if max_defined is None or answered <= max_defined:
            by_definition, answered = by_definition + answered, 0
        else:
            by_definition += SPOTS**2 * self.tiles(self.large).num_parts
        workers = self.workers.num_local
        seconds = by_definition * self.defined.cost.seconds / workers
        return Estimate(by_definition, answered, seconds, workers)

    def _evaluations(self, numbers: list[int]) -> int:
        if not numbers:
            return 0
        tiles = self.tiles(numbers)
        rows, columns = tiles.points()
        return len(rows) * len(columns) * tiles.num_parts

    def require_existing_points(self) -> None:
        num_rows, num_columns = self.defined.num_points
        for minor in self.certificate.minors:
            if minor.grade is not None and minor.grade >= self.defined.num_grades:
                raise CertificateError(
                    f"The function has the grades 0..{self.defined.num_grades - 1}, "
                    f"the certificate names {minor.grade}."
                )
            for name, numbers, limit in (
                ("rows", minor.rows, num_rows),
                ("columns", minor.columns, num_columns),
            ):
                if limit is not None and numbers[-1] >= limit:
                    raise CertificateError(
                        f"There are {limit} {name}, the certificate names number {numbers[-1]}."
                    )
            if minor.answers is None and minor.size > MAX_DETERMINANT:
                raise CertificateError(
                    f"A minor of size {minor.size} needs answers to challenges; the determinant "
                    f"is taken up to {MAX_DETERMINANT}."
                )

    def vanishing_determinant(self, numbers: list[int], report: Report) -> str | None:
        """Why the minors with these numbers fail; None if they do not."""
        entries = sum(self.certificate.minors[number].size ** 2 for number in numbers)
        what = "entries of the minors without answers"
        require_within("verify", what, entries, _MAX_DETERMINANT_ENTRIES)
        matrices = self.tiles(numbers).matrices(report)
        for number, matrix in zip(numbers, matrices, strict=True):
            self.deadline.require(_WORK)
            if determinant_modulo(matrix, self.certificate.prime) == 0:
                return (
                    f"minor {number}, of size {len(matrix)}, is 0 modulo {self.certificate.prime}."
                )
        return None

    def wrong_answer(
        self, numbers: list[int], max_defined: int | None, report: Report
    ) -> tuple[str, list[str], str | None]:
        """How the answers of some minors were checked, what that trusts, and why they fail."""
        what = _count_text(numbers)
        minors = [self.certificate.minors[number] for number in numbers]
        binding = self.certificate.binding()
        right_sides = [
            draw_challenges(binding, number, minor.size, self.certificate.prime)
            for number, minor in zip(numbers, minors, strict=True)
        ]
        slow, count = self.tiles(numbers), self._evaluations(numbers)
        if max_defined is None or count <= max_defined:
            path = _ANSWERED.format(what)
            return path, [], _first_wrong(numbers, slow.wrong_answers(right_sides, report))
        quick = MinorTiles(self.fast, minors, self.workers, deadline=self.deadline)
        spots = slow.spots(binding)
        is_equal = quick.parts(*spots) == slow.parts(*spots)
        path = _COMPARED.format(what, is_equal.size)
        if not is_equal.all():
            differing = is_equal.size - int(is_equal.sum())
            return path, [], f"the fast evaluation differs from the definition {differing:,} times."
        self._require_time_for(quick, spots, count)
        trusted = [_TRUSTED.format(is_equal.size, count)]
        return path, trusted, _first_wrong(numbers, quick.wrong_answers(right_sides, report))

    def _require_time_for(self, quick: MinorTiles, spots: Tile, count: int) -> None:
        """Measure the fast evaluation, now that it is compiled, and refuse what takes too long."""
        started = time.perf_counter()
        measured = quick.parts(*spots).size
        seconds = (time.perf_counter() - started) * count / max(1, measured)
        self.deadline.require_estimate(_WORK, seconds / self.workers.num_local)


def _first_wrong(numbers: list[int], num_wrong: list[int]) -> str | None:
    for number, count in zip(numbers, num_wrong, strict=True):
        if count:
            return f"the answers of minor {number} miss {count} equations."
    return None


def _count_text(numbers: list[int]) -> str:
    return "1 minor" if len(numbers) == 1 else f"{len(numbers)} minors"


def _written_down(weights: Mapping[str, Tensor]) -> GivenWeights:
    return GivenWeights(
        {
            name: GivenArray(
                tuple(tensor.shape), tuple(tensor.detach().double().flatten().tolist())
            )
            for name, tensor in weights.items()
        }
    )


def _residues(certificate: Certificate, network: PolynomialNetwork) -> dict[str, Residues]:
    if isinstance(certificate.weights, DrawnWeights):
        return network.draw_weights(certificate.weights.seed, certificate.prime)
    weights = {
        name: torch.tensor(array.values, dtype=torch.float64).reshape(array.shape)
        for name, array in certificate.weights.arrays.items()
    }
    require_weights_of(network, weights)
    return weight_residues(weights, certificate.prime)
