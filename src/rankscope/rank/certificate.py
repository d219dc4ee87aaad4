"""Certificates of measured ranks: what one claims, the challenges that check it, the verdict."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from rankscope.display import fragment
from rankscope.errors import CertificateError
from rankscope.rank.partition import Partition
from rankscope.rank.residues import require_prime

# --- Right-hand sides that nobody can choose: a cheap proof that a large matrix is not singular


SECURITY_BITS = 100
_WORDS_EACH = 2  # 128 random bits for a residue below 2^31: even up to 2^-97


def num_challenges(prime: int) -> int:
    """The least c with p^c >= 2^100.

    Example:
        >>> num_challenges(16777213), num_challenges(2)
        (5, 100)
    """
    count = 1
    while prime**count < 2**SECURITY_BITS:
        count += 1
    return count


def soundness_log2(prime: int) -> float:
    """Logarithm to the base 2 of the probability that a false claim passes, for one try.

    All minors of a certificate must pass; if one of them is singular, its own challenges stop it.

    Example:
        >>> soundness_log2(2)
        -100.0
    """
    return -num_challenges(prime) * math.log2(prime)


def draw_challenges(binding: bytes, minor: int, size: int, prime: int) -> NDArray[numpy.int64]:
    """The right-hand sides (size, num_challenges) of a minor, by SHAKE-256.

    Args:
        binding: everything the certificate states, so that b depends on all of it.
        minor: the number of the minor in the certificate.
        size: of the minor.
        prime: below 2^31.

    Example:
        >>> draw_challenges(b"statement", 0, 3, 101).shape
        (3, 16)
    """
    columns = []
    for number in range(num_challenges(prime)):
        label = f"rankscope challenge {minor} {number} of {size} modulo {prime}\n".encode()
        stream = hashlib.shake_256(label + binding).digest(8 * _WORDS_EACH * size)
        high, low = numpy.frombuffer(stream, dtype="<u8").reshape(size, 2).T % numpy.uint64(prime)
        columns.append((high * numpy.uint64(2**64 % prime) + low) % numpy.uint64(prime))
    return numpy.stack(columns, axis=1).astype(numpy.int64)


# --- A certificate: a small file from which anyone can check a lower bound of a separation rank


FORMAT = "rankscope-certificate"
VERSION = 1
MAX_SIZE = 2**16  # of a minor
MAX_DETERMINANT = 500  # size of a minor that goes without answers
MAX_POINT = 2**31 - 1  # number of a sample point
_PRIME_LIMIT = 2**31
# Of a setting and of a side of the split, in print.
_SHORT_TEXT = 60
_SHORT_SIDE = 32


@dataclass(frozen=True)
class DrawnWeights:
    """Weights drawn from a seed; what holds for them holds for almost all."""

    seed: int


@dataclass(frozen=True)
class GivenArray:
    """A weight array in exact numbers, its entries in row-major order."""

    shape: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class GivenWeights:
    """The weights of one network, for instance a trained one."""

    arrays: Mapping[str, GivenArray]


@dataclass(frozen=True)
class CertifiedMinor:
    """Rows and columns whose minor is claimed not to be 0 modulo the prime.

    Args:
        grade: number of the graded part it belongs to, or None for the whole function.
        rows: numbers of sample points of the left side, ascending.
        columns: numbers of sample points of the right side, ascending.
        answers: one for each challenge, as little-endian 32-bit residues; None for a minor small
            enough for its determinant.
    """

    grade: int | None
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    answers: tuple[bytes, ...] | None = None

    def __post_init__(self) -> None:
        if not 0 < len(self.rows) == len(self.columns) <= MAX_SIZE:
            raise CertificateError(
                f"A minor needs equally many rows and columns, 1 to {MAX_SIZE}, "
                f"got {len(self.rows)} and {len(self.columns)}."
            )
        for name, numbers in (("rows", self.rows), ("columns", self.columns)):
            in_range = numbers[0] >= 0 and numbers[-1] <= MAX_POINT
            if not in_range or list(numbers) != sorted(set(numbers)):
                raise CertificateError(
                    f"The {name} of a minor must ascend within 0..{MAX_POINT}, got "
                    f"{len(numbers)} numbers from {numbers[0]} to {numbers[-1]}."
                )

    @property
    def size(self) -> int:
        """The rank it proves."""
        return len(self.rows)

    def solutions(self) -> NDArray[numpy.int64]:
        """The answers as columns (size, count)."""
        columns = [numpy.frombuffer(answer, dtype="<u4") for answer in self.answers or ()]
        return numpy.stack(columns, axis=1).astype(numpy.int64)


def pack_answers(solutions: NDArray[numpy.int64]) -> tuple[bytes, ...]:
    """Residues (size, count) as the answers of a minor.

    Example:
        >>> [answer.hex() for answer in pack_answers(numpy.array([[1, 2], [256, 0]]))]
        ['0100000000010000', '0200000000000000']
    """
    return tuple(column.astype("<u4").tobytes() for column in solutions.T)


@dataclass(frozen=True)
class Certificate:
    """Claims that the separation rank of a network over a partition is at least `lower`.

    Args:
        family: which network.
        settings: its arguments, plain data.
        partition: covers all its inputs.
        weights: drawn or given.
        points_seed: draws the sample points.
        prime: below 2^31.
        lower: the sum of the sizes of the minors.
        minors: one of the whole function, or one for each of several graded parts.
    """

    family: str
    settings: Mapping[str, Any]
    partition: Partition
    weights: DrawnWeights | GivenWeights
    points_seed: int
    prime: int
    lower: int
    minors: tuple[CertifiedMinor, ...]

    def __post_init__(self) -> None:
        require_prime(self.prime, below=_PRIME_LIMIT, who="Certificate")
        if self.prime == 2 and isinstance(self.weights, GivenWeights):
            raise CertificateError("Fractions of powers of 2 have no residue modulo the prime 2.")
        total = sum(minor.size for minor in self.minors)
        if self.lower != total:
            raise CertificateError(
                f"The minors of a certificate must add up to its lower bound {self.lower}, "
                f"got {total}."
            )
        grades = [minor.grade for minor in self.minors]
        if len(set(grades)) < len(grades) or (None in grades and len(grades) > 1):
            raise CertificateError(
                f"A certificate needs one minor, or minors of different grades, got {grades[:20]}."
            )
        for minor in self.minors:
            _require_answers(minor, self.prime)

    @property
    def statement(self) -> str:
        """What is proved if the certificate is true.

        Example:
            >>> Certificate(
            ...     family="shallow",
            ...     settings={"order": 2, "size": 1, "channels": 1},
            ...     partition=Partition((0,), (1,)),
            ...     weights=DrawnWeights(0),
            ...     points_seed=0,
            ...     prime=101,
            ...     lower=1,
            ...     minors=(CertifiedMinor(None, (0,), (0,)),),
            ... ).statement
            'For almost all weights, the separation rank of shallow(order=2, size=1, channels=1) \
over {0} | {1} is at least 1.'
        """
        return self._stated(repr, lambda side: ",".join(map(str, side)))

    @property
    def summary(self) -> str:
        """The statement with long settings and long sides cut short, for people."""
        return self._stated(_short_value, _short_side)

    def __repr__(self) -> str:
        return f"<Certificate: {self.summary}>"

    def _repr_html_(self) -> str:
        how = f"{len(self.minors):,} minors modulo {self.prime}, sample points of seed"
        return fragment(
            f"Certificate: {self.summary}",
            (f"{how} {self.points_seed}; rankscope.verify checks them.",),
        )

    def _stated(
        self, value_text: Callable[[Any], str], side_text: Callable[[tuple[int, ...]], str]
    ) -> str:
        settings = ", ".join(f"{name}={value_text(v)}" for name, v in self.settings.items())
        left, right = (side_text(side) for side in (self.partition.left, self.partition.right))
        where = (
            "For almost all weights"
            if isinstance(self.weights, DrawnWeights)
            else "For the weights given here"
        )
        return (
            f"{where}, the separation rank of {self.family}({settings}) "
            f"over {{{left}}} | {{{right}}} is at least {self.lower}."
        )

    def claims(self) -> dict[str, Any]:
        """All that is stated, as plain data: the document without the answers."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "statement": self.statement,
            "network": {"family": self.family, "settings": dict(self.settings)},
            "partition": {
                "left": list(self.partition.left),
                "right": list(self.partition.right),
            },
            "weights": _weights_document(self.weights),
            "points": {"seed": self.points_seed},
            "prime": self.prime,
            "lower": self.lower,
            "minors": [
                {
                    "grade": minor.grade,
                    "rows": to_ranges(minor.rows),
                    "columns": to_ranges(minor.columns),
                }
                for minor in self.minors
            ],
        }

    def binding(self) -> bytes:
        """A digest of all that is stated, from which the challenges are drawn."""
        text = json.dumps(self.claims(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha3_512(text.encode("ascii")).digest()


def _short_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHORT_TEXT else f"{text[:_SHORT_TEXT]}…"


def _short_side(side: tuple[int, ...]) -> str:
    if len(side) <= _SHORT_SIDE:
        return ",".join(map(str, side))
    first = ",".join(map(str, side[: _SHORT_SIDE // 2]))
    return f"{first},…,{side[-1]}: {len(side):,} positions"


def to_ranges(numbers: tuple[int, ...]) -> list[list[int]]:
    """Ascending numbers as ranges [start, stop], stop excluded.

    Example:
        >>> to_ranges((0, 1, 2, 5, 7, 8))
        [[0, 3], [5, 6], [7, 9]]
    """
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number:
            ranges[-1][1] += 1
        else:
            ranges.append([number, number + 1])
    return ranges


def _weights_document(weights: DrawnWeights | GivenWeights) -> dict[str, Any]:
    if isinstance(weights, DrawnWeights):
        return {"seed": weights.seed}
    return {
        "values": {
            name: {"shape": list(array.shape), "float64": [value.hex() for value in array.values]}
            for name, array in weights.arrays.items()
        }
    }


def _require_answers(minor: CertifiedMinor, prime: int) -> None:
    if minor.answers is None:
        return
    wanted = num_challenges(prime)
    if len(minor.answers) != wanted:
        raise CertificateError(
            f"A minor needs {wanted} answers modulo {prime}, got {len(minor.answers)}."
        )
    lengths = {len(answer) for answer in minor.answers}
    if lengths != {4 * minor.size}:
        raise CertificateError(
            f"The answers of a minor of size {minor.size} have {4 * minor.size} bytes each, "
            f"got {sorted(lengths)}."
        )
    largest = int(minor.solutions().max())
    if largest >= prime:
        raise CertificateError(f"Answers must be residues modulo {prime}, got {largest}.")


# --- What came of checking a certificate ----------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """The result of checking a certificate.

    Args:
        is_proved: whether everything in it is true.
        statement: what it claims.
        lower: the separation rank it claims at least.
        reason: why it failed; None if it did not.
        soundness_log2: logarithm to the base 2 of the probability that a false certificate passes,
            for every statement that a cheat tries; None if it is 0, as every determinant was
            computed.
        num_minors: how many were checked.
        paths: how.
        seconds: how long it took.
        conditions: what the soundness error rests on; none if every determinant was computed.
        summary: the statement with long lists cut short, for print; None if it is short.
    """

    is_proved: bool
    statement: str
    lower: int
    reason: str | None
    soundness_log2: float | None
    num_minors: int
    paths: tuple[str, ...]
    seconds: float
    conditions: tuple[str, ...] = ()
    summary: str | None = None

    @property
    def soundness(self) -> str:
        """The probability that a false certificate passes, rounded up."""
        if self.soundness_log2 is None:
            return "0"
        return f"2^{math.ceil(self.soundness_log2 * 10) / 10:.1f}"

    def __str__(self) -> str:
        statement = self.summary or self.statement
        if not self.is_proved:
            return f"FAILED: {self.reason}\nNot proved: {statement}"
        lines = [f"PROVED: {statement}", f"soundness error {self.soundness}"]
        conditions = [f"  provided that {condition}" for condition in self.conditions]
        return "\n".join([*lines, *conditions, *self.paths])

    def __repr__(self) -> str:
        return f"<Verdict: {str(self).splitlines()[0]}>"

    def _repr_html_(self) -> str:
        title, *facts = str(self).splitlines()
        return fragment(title, facts)

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "verdict": "PROVED" if self.is_proved else "FAILED",
            "statement": self.statement,
            "lower": self.lower,
            "reason": self.reason,
            "soundness": self.soundness,
            "conditions": list(self.conditions),
            "minors": self.num_minors,
            "paths": list(self.paths),
            "seconds": round(self.seconds, 3),
        }
