"""Certificates of measured ranks: making them, and checking them without trusting their maker."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from rankscope.architectures.catalogue import build
from rankscope.architectures.given_weights import require_weights_of, weight_residues
from rankscope.architectures.network import PolynomialNetwork
from rankscope.errors import CertificateError, RankscopeError
from rankscope.progress import Report, ignore
from rankscope.separation.certificates.certificate import (
    MAX_DETERMINANT,
    Certificate,
    CertifiedMinor,
    DrawnWeights,
    GivenArray,
    GivenWeights,
    pack_answers,
)
from rankscope.separation.certificates.challenges import draw_challenges, soundness_log2
from rankscope.separation.certificates.checking import InPieces, MinorTiles, determinant_modulo
from rankscope.separation.certificates.verdict import Verdict
from rankscope.separation.exact.modular import solve_modulo
from rankscope.separation.measuring.measured import MeasuredRank
from rankscope.separation.measuring.split_function import Residues, SplitFunction
from rankscope.separation.partition import Partition

MAX_DEFINED = 2**20  # evaluations by the defining equations; more are taken by the fast way
# Numbers that a network may hold at once while it is evaluated on some pairs.
_NUMBERS_AT_ONCE = 2**26
_FAST_NUMBERS_AT_ONCE = 2**33

_DEFINED = "{}: determinants by FLINT, values by the defining equations"
_ANSWERED = "{}: answers to challenges, values by the defining equations"
_COMPARED = (
    "{}: answers to challenges, values by the fast evaluation; {:,} values compared with the \
defining equations"
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
        report: told of every finished tile.

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
    subject = _Subject(draft, network)
    matrices = MinorTiles(subject.fast, [draft.minors[n] for n in large]).matrices(report)
    minors, binding = list(draft.minors), draft.binding()
    for number, matrix in zip(large, matrices, strict=True):
        right_sides = draw_challenges(binding, number, len(matrix), draft.prime)
        answers = pack_answers(solve_modulo(matrix, right_sides, draft.prime))
        minors[number] = replace(minors[number], answers=answers)
    return replace(draft, minors=tuple(minors))


def verify(
    certificate: Certificate,
    report: Report = ignore,
    *,
    max_defined: int = MAX_DEFINED,
) -> Verdict:
    """Check a certificate by recomputing what is needed, and nothing else.

    Small minors are computed by the equations that define the network, and their determinants by
    FLINT: neither shares code with the measurement. For large ones the file must answer
    challenges (see `rankscope.separation.certificates.challenges`): all n^2 values are computed,
    but only some at a time, and nothing is eliminated.

    Args:
        certificate: as read from a file.
        report: told of every finished tile.
        max_defined: up to so many evaluations, challenges too are checked by the defining
            equations.

    Raises:
        CertificateError: if it speaks of a network, weights or points that do not exist, or a
            large minor has no answers.
    """
    started = time.perf_counter()
    try:
        network = build(certificate.family, certificate.settings)
        subject = _Subject(certificate, network)
        subject.require_existing_points()
        small = [n for n, minor in enumerate(certificate.minors) if minor.answers is None]
        large = [n for n, minor in enumerate(certificate.minors) if minor.answers is not None]
        reason, paths = None, []
        if small:
            paths.append(_DEFINED.format(_counted(small)))
            reason = subject.vanishing_determinant(small, report)
        if large and reason is None:
            path, reason = subject.wrong_answer(large, max_defined, report)
            paths.append(path)
    except RankscopeError as error:
        if isinstance(error, CertificateError):
            raise
        raise CertificateError(f"The certificate cannot be checked. {error}") from error
    return Verdict(
        is_proved=reason is None,
        statement=certificate.statement,
        lower=certificate.lower,
        reason=reason,
        soundness_log2=soundness_log2(certificate.prime) if large else None,
        num_minors=len(certificate.minors),
        paths=tuple(paths),
        seconds=time.perf_counter() - started,
    )


@dataclass(frozen=True)
class _Subject:
    """What a certificate speaks of, ready to be evaluated."""

    certificate: Certificate
    network: PolynomialNetwork

    @cached_property
    def defined(self) -> SplitFunction:
        """The function by the defining equations."""
        return self._in_pieces(self.network.reference_split, _NUMBERS_AT_ONCE)

    @cached_property
    def fast(self) -> SplitFunction:
        """The function as it was measured."""
        return self._in_pieces(self.network.split, _FAST_NUMBERS_AT_ONCE)

    def _in_pieces(self, split: Callable[..., SplitFunction], numbers_at_once: int) -> InPieces:
        certificate, network = self.certificate, self.network
        function = split(
            certificate.partition,
            seed=certificate.points_seed,
            prime=certificate.prime,
            weights=_residues(certificate, network),
        )
        # Whatever a layer computes for one pair has fewer entries than this.
        num_weights = sum(parameter.numel() for parameter in network.parameters())
        numbers_each = network.num_positions**2 * (network.input_size + num_weights)
        return InPieces(function, max(1, numbers_at_once // numbers_each))

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
        minors = [self.certificate.minors[number] for number in numbers]
        matrices = MinorTiles(self.defined, minors).matrices(report)
        for number, matrix in zip(numbers, matrices, strict=True):
            if determinant_modulo(matrix, self.certificate.prime) == 0:
                return (
                    f"minor {number}, of size {len(matrix)}, is 0 modulo {self.certificate.prime}."
                )
        return None

    def wrong_answer(
        self, numbers: list[int], max_defined: int, report: Report
    ) -> tuple[str, str | None]:
        """How the answers of the minors with these numbers were checked, and why they fail."""
        what = _counted(numbers)
        minors = [self.certificate.minors[number] for number in numbers]
        binding = self.certificate.binding()
        right_sides = [
            draw_challenges(binding, number, minor.size, self.certificate.prime)
            for number, minor in zip(numbers, minors, strict=True)
        ]
        slow = MinorTiles(self.defined, minors)
        rows, columns = slow.points()
        if len(rows) * len(columns) * slow.num_parts <= max_defined:
            path = _ANSWERED.format(what)
            return path, _first_wrong(numbers, slow.wrong_answers(right_sides, report))
        quick = MinorTiles(self.fast, minors)
        spots = slow.spots(binding)
        is_equal = quick.parts(*spots) == slow.parts(*spots)
        path = _COMPARED.format(what, is_equal.size)
        if not is_equal.all():
            differing = is_equal.size - int(is_equal.sum())
            return path, f"the fast evaluation differs from the definition {differing:,} times."
        return path, _first_wrong(numbers, quick.wrong_answers(right_sides, report))


def _first_wrong(numbers: list[int], num_wrong: list[int]) -> str | None:
    for number, count in zip(numbers, num_wrong, strict=True):
        if count:
            return f"the answers of minor {number} miss {count} equations."
    return None


def _counted(numbers: list[int]) -> str:
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
