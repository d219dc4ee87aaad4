"""Certificates as JSON files: written whole, read with suspicion."""

import base64
import binascii
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.errors import CertificateError, DocumentError, PartitionError, PrimeError
from rankscope.files import write_atomically
from rankscope.separation.certificates.certificate import (
    FORMAT,
    MAX_DETERMINANT,
    MAX_POINT,
    MAX_SIZE,
    VERSION,
    Certificate,
    CertifiedMinor,
    DrawnWeights,
    GivenArray,
    GivenWeights,
)
from rankscope.separation.partition import Partition
from rankscope.strict_json import (
    Anything,
    Exactly,
    Integer,
    ListOf,
    Numbers,
    Object,
    Optional,
    Reader,
    Text,
    Values,
    inside,
    parse_document,
    read_as,
    read_document,
)

MAX_BYTES = 2**25
_MAX_SEED = 2**63 - 1
_MAX_SETTING = 2**31 - 1
_MAX_MINORS = 2**12
_MAX_POSITIONS = 2**12
_MAX_ARRAYS = 2**12
_MAX_WEIGHTS = 2**21


def to_json(certificate: Certificate) -> str:
    """The text of a certificate file."""
    document = certificate.claims()
    for entry, minor in zip(document["minors"], certificate.minors, strict=True):
        encoded = [base64.b64encode(answer).decode("ascii") for answer in minor.answers or ()]
        entry["answers"] = None if minor.answers is None else encoded
    return json.dumps(document, allow_nan=False) + "\n"


def write_certificate(path: Path | str, certificate: Certificate) -> None:
    """Write a certificate to a file, whole or not at all.

    Raises:
        CertificateError: if it is too long to be read again.
        OutputError: if the file cannot be written.
    """
    data = to_json(certificate).encode("ascii")
    if len(data) > MAX_BYTES:
        raise CertificateError(
            f"The certificate has {len(data):,} bytes, over the limit of {MAX_BYTES:,}. "
            f"Certify random weights, which are given by their seed, or a smaller network."
        )
    write_atomically(path, data)


def read_certificate(path: Path | str) -> Certificate:
    """Read a certificate from a file; nothing in it is believed or executed.

    Raises:
        CertificateError: if the file is no well-formed certificate.
    """
    document = read_document(
        path, error=CertificateError, max_bytes=MAX_BYTES, numbers=Numbers.INTEGERS
    )
    return _read(document)


def parse_certificate(data: bytes) -> Certificate:
    """Read a certificate from bytes.

    Raises:
        CertificateError: if they are no well-formed certificate.
    """
    return _read(
        parse_document(data, who="The text", error=CertificateError, numbers=Numbers.INTEGERS)
    )


def _read(document: object) -> Certificate:
    try:
        return read_as(_Document(), document, who="Certificate", error=CertificateError)
    except (PartitionError, PrimeError) as error:
        raise CertificateError(f"Certificate: {error}") from error


class _Document(Reader[Certificate]):
    def read(self, data: Any) -> Certificate:
        fields = _CERTIFICATE.read(data)
        left, right = fields["partition"]["left"], fields["partition"]["right"]
        certificate = Certificate(
            family=fields["network"]["family"],
            settings=fields["network"]["settings"],
            partition=Partition(left, right),
            weights=fields["weights"],
            points_seed=fields["points"]["seed"],
            prime=fields["prime"],
            lower=fields["lower"],
            minors=fields["minors"],
        )
        inside("statement", Exactly(certificate.statement).read, fields["statement"])
        return certificate

    def __str__(self) -> str:
        return "a certificate"


@dataclass(frozen=True)
class _Setting(Reader[Any]):
    """An integer, true, false, null, or lists of them; lists become tuples."""

    nesting: int = 3

    def read(self, data: Any) -> Any:
        if data is None or isinstance(data, bool):
            return data
        if self.nesting and isinstance(data, list):
            return ListOf(_Setting(self.nesting - 1), _MAX_POSITIONS).read(data)
        return Integer(0, _MAX_SETTING).read(data)

    def __str__(self) -> str:
        return "a setting"


@dataclass(frozen=True)
class _Ascending(Reader[tuple[int, ...]]):
    """A list of integers in 0..high, ascending."""

    at_most: int
    high: int

    def read(self, data: Any) -> tuple[int, ...]:
        numbers = ListOf(Integer(0, self.high), self.at_most).read(data)
        if list(numbers) != sorted(set(numbers)):
            raise DocumentError(f"wanted numbers in ascending order, got {ascii(numbers[:8])[:60]}")
        return numbers

    def __str__(self) -> str:
        return f"at most {self.at_most} integers in ascending order"


class _Weights(Reader[DrawnWeights | GivenWeights]):
    def read(self, data: Any) -> DrawnWeights | GivenWeights:
        if isinstance(data, dict) and "values" in data:
            values = Object({"values": Values(_Array(), _MAX_ARRAYS)}).read(data)["values"]
            return GivenWeights(values)
        return DrawnWeights(_SEED.read(data)["seed"])

    def __str__(self) -> str:
        return "a seed or values"


class _Array(Reader[GivenArray]):
    def read(self, data: Any) -> GivenArray:
        sizes, numbers = ListOf(Integer(0, _MAX_WEIGHTS), 8), ListOf(_Float(), _MAX_WEIGHTS)
        parts = Object({"shape": sizes, "float64": numbers}).read(data)
        shape, values = parts["shape"], parts["float64"]
        if math.prod(shape) != len(values):
            raise DocumentError(
                f"wanted a list of {math.prod(shape)} numbers as float64, got {len(values)}"
            )
        return GivenArray(shape, values)

    def __str__(self) -> str:
        return "an array"


class _Float(Reader[float]):
    """A finite number in the form that `float.hex` writes, and in no other."""

    def read(self, data: Any) -> float:
        text = Text().read(data)
        try:
            value = float.fromhex(text)
        except (ValueError, OverflowError) as error:
            raise self.refusal(text) from error
        if not math.isfinite(value) or value.hex() != text:
            raise self.refusal(text)
        return value

    def __str__(self) -> str:
        return "a finite hexadecimal float64 as float.hex writes it"


class _Minor(Reader[CertifiedMinor]):
    def read(self, data: Any) -> CertifiedMinor:
        parts = _MINOR.read(data)
        answers, at_most = parts["answers"], MAX_DETERMINANT
        if answers is not None:
            # A short file must not ask for a long list of numbers.
            at_most = min(MAX_SIZE, max(map(len, answers), default=0) // 4)
        rows, columns = (
            inside(side, _Ranges(at_most).read, parts[side]) for side in ("rows", "columns")
        )
        return CertifiedMinor(parts["grade"], rows, columns, answers)

    def __str__(self) -> str:
        return "a minor"


@dataclass(frozen=True)
class _Ranges(Reader[tuple[int, ...]]):
    """Numbers as a list of [start, stop], ascending and with gaps between them."""

    at_most: int

    def read(self, data: Any) -> tuple[int, ...]:
        numbers: list[int] = []
        for at, ends in enumerate(ListOf(_Ascending(2, MAX_POINT + 1), self.at_most).read(data)):
            inside(at, self._add, (ends, numbers))
        return tuple(numbers)

    def _add(self, ends_and_numbers: tuple[tuple[int, ...], list[int]]) -> None:
        ends, numbers = ends_and_numbers
        first_allowed = numbers[-1] + 2 if numbers else 0
        if len(ends) != 2 or ends[0] < first_allowed:
            raise DocumentError(
                f"wanted [start, stop] with start at least {first_allowed}, got {list(ends)}"
            )
        if len(numbers) + ends[1] - ends[0] > self.at_most:
            raise DocumentError(
                f"wanted at most {self.at_most} numbers, as it is answered, "
                f"got {len(numbers) + ends[1] - ends[0]:,}"
            )
        numbers.extend(range(*ends))

    def __str__(self) -> str:
        return f"a list of at most {self.at_most}, each [start, stop]"


class _Residues(Reader[bytes]):
    def read(self, data: Any) -> bytes:
        text = Text().read(data)
        try:
            decoded = base64.b64decode(text.encode("ascii"), validate=True)
        except (binascii.Error, ValueError) as error:
            raise self.refusal(text) from error
        if base64.b64encode(decoded).decode("ascii") != text:
            raise self.refusal(text)
        return decoded

    def __str__(self) -> str:
        return "residues in base 64"


_SEED = Object({"seed": Integer(0, _MAX_SEED)})
_SIDE = _Ascending(_MAX_POSITIONS, _MAX_POSITIONS)
_MINOR = Object(
    {
        "grade": Optional(Integer(0, _MAX_MINORS)),
        "rows": Anything(),  # how long they may be, the answers say
        "columns": Anything(),
        "answers": Optional(ListOf(_Residues(), 128)),
    }
)
_CERTIFICATE = Object(
    {
        "format": Exactly(FORMAT),
        "version": Exactly(VERSION),
        "statement": Anything(),  # follows from the rest
        "network": Object({"family": Text(), "settings": Values(_Setting(), 64)}),
        "partition": Object({"left": _SIDE, "right": _SIDE}),
        "weights": _Weights(),
        "points": _SEED,
        "prime": Integer(2, 2**31 - 1),
        "lower": Integer(0, _MAX_MINORS * MAX_SIZE),
        "minors": ListOf(_Minor(), _MAX_MINORS),
    }
)
