"""Certificates as JSON files: written whole, read with suspicion."""

import base64
import binascii
import json
import math
from pathlib import Path
from typing import Any

from rankscope.errors import CertificateError, DocumentError, PartitionError, PrimeError
from rankscope.files import plain_file, write_atomically
from rankscope.rank.certificate import (
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
from rankscope.rank.partition import Partition
from rankscope.strict_json import (
    Anything,
    Converted,
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
    refusal,
)

MAX_BYTES = 2**25
_MAX_SEED = 2**63 - 1
_MAX_SETTING = 2**31 - 1
_MAX_WORD = 32
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
    with plain_file(Path(path), error=CertificateError) as (file, size):
        if size > MAX_BYTES:
            raise CertificateError(
                f"{path} has {size:,} bytes; a certificate has at most {MAX_BYTES:,}."
            )
        data = file.read(MAX_BYTES)
    return _parsed(data, str(path))


def parse_certificate(data: bytes) -> Certificate:
    """Read a certificate from bytes.

    Raises:
        CertificateError: if they are no well-formed certificate.
    """
    return _parsed(data, "The text")


def _parsed(data: bytes, who: str) -> Certificate:
    # What was never meant to be one is told so; what claims to be one, what is wrong with it.
    if "format" not in parse_document(data, who=who, error=CertificateError, numbers=Numbers.ANY):
        raise CertificateError(
            f"{who} is no certificate: it names no format {FORMAT!r}. "
            "`rankscope rank … --certificate FILE` writes one."
        )
    document = parse_document(data, who=who, error=CertificateError, numbers=Numbers.INTEGERS)
    try:
        return read_as(_CERTIFICATE, document, who="Certificate", error=CertificateError)
    except (PartitionError, PrimeError) as error:
        raise CertificateError(f"Certificate: {error}") from error


def _certificate(fields: dict[str, Any]) -> Certificate:
    certificate = Certificate(
        family=fields["network"]["family"],
        settings=fields["network"]["settings"],
        partition=Partition(fields["partition"]["left"], fields["partition"]["right"]),
        weights=fields["weights"],
        points_seed=fields["points"]["seed"],
        prime=fields["prime"],
        lower=fields["lower"],
        minors=fields["minors"],
    )
    inside("statement", Exactly(certificate.statement).read, fields["statement"])
    return certificate


def _setting(data: Any, nesting: int = 3) -> Any:
    """An integer, true, false, null, or lists of them; lists become tuples."""
    if data is None or isinstance(data, bool):
        return data
    if nesting and isinstance(data, list):
        inner = Converted(Anything(), lambda item: _setting(item, nesting - 1))
        return ListOf(inner, _MAX_POSITIONS).read(data)
    if isinstance(data, str) and len(data) <= _MAX_WORD and data.isascii() and data.isalpha():
        return data  # whether the family knows the word is for the catalogue to say
    return Integer(0, _MAX_SETTING).read(data)


def _ascending(at_most: int, high: int) -> Reader[tuple[int, ...]]:
    def check(numbers: tuple[int, ...]) -> tuple[int, ...]:
        if list(numbers) != sorted(set(numbers)):
            raise DocumentError(f"wanted numbers in ascending order, got {ascii(numbers)[:60]}")
        return numbers

    return Converted(ListOf(Integer(0, high), at_most), check)


def _weights(data: Any) -> DrawnWeights | GivenWeights:
    if isinstance(data, dict) and "values" in data:
        return GivenWeights(_VALUES.read(data)["values"])
    return DrawnWeights(_SEED.read(data)["seed"])


def _array(parts: dict[str, Any]) -> GivenArray:
    shape, values = parts["shape"], parts["float64"]
    if math.prod(shape) != len(values):
        raise refusal(f"{math.prod(shape)} numbers as float64", values)
    return GivenArray(shape, values)


def _float(text: str) -> float:
    """A finite number in the form that `float.hex` writes, and in no other."""
    try:
        value = float.fromhex(text)
    except (ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value) or value.hex() != text:
        raise refusal("a finite hexadecimal float64 as float.hex writes it", text)
    return value


def _minor(parts: dict[str, Any]) -> CertifiedMinor:
    answers, at_most = parts["answers"], MAX_DETERMINANT
    if answers is not None:
        # A short file must not ask for a long list of numbers.
        at_most = min(MAX_SIZE, max(map(len, answers), default=0) // 4)
    ranges = Converted(
        ListOf(_ascending(2, MAX_POINT + 1), at_most), lambda pairs: _numbers(pairs, at_most)
    )
    rows, columns = (inside(side, ranges.read, parts[side]) for side in ("rows", "columns"))
    return CertifiedMinor(parts["grade"], rows, columns, answers)


def _numbers(pairs: tuple[tuple[int, ...], ...], at_most: int) -> tuple[int, ...]:
    """The numbers in ranges [start, stop], which ascend with gaps between them."""
    numbers: list[int] = []

    def add(ends: tuple[int, ...]) -> None:
        first_allowed = numbers[-1] + 2 if numbers else 0
        if len(ends) != 2 or ends[0] < first_allowed:
            raise DocumentError(
                f"wanted [start, stop] with start at least {first_allowed}, got {list(ends)}"
            )
        count = len(numbers) + ends[1] - ends[0]
        if count > at_most:
            raise refusal(f"at most {at_most} numbers, as it is answered", count)
        numbers.extend(range(*ends))

    for at, ends in enumerate(pairs):
        inside(at, add, ends)
    return tuple(numbers)


def _residues(text: str) -> bytes:
    try:
        decoded = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise refusal("residues in base 64", text) from error
    if base64.b64encode(decoded).decode("ascii") != text:
        raise refusal("residues in base 64", text)
    return decoded


_SEED = Object({"seed": Integer(0, _MAX_SEED)})
_ARRAY = Object(
    {
        "shape": ListOf(Integer(0, _MAX_WEIGHTS), 8),
        "float64": ListOf(Converted(Text(), _float), _MAX_WEIGHTS),
    }
)
_VALUES = Object({"values": Values(Converted(_ARRAY, _array), _MAX_ARRAYS)})
_SIDE = _ascending(_MAX_POSITIONS, _MAX_POSITIONS)
_MINOR = Object(
    {
        "grade": Optional(Integer(0, _MAX_MINORS)),
        "rows": Anything(),  # how long they may be, the answers say
        "columns": Anything(),
        "answers": Optional(ListOf(Converted(Text(), _residues), 128)),
    }
)
_SETTINGS = Values(Converted(Anything(), _setting), 64)
_DOCUMENT = Object(
    {
        "format": Exactly(FORMAT),
        "version": Exactly(VERSION),
        "statement": Anything(),  # follows from the rest
        "network": Object({"family": Text(), "settings": _SETTINGS}),
        "partition": Object({"left": _SIDE, "right": _SIDE}),
        "weights": Converted(Anything(), _weights),
        "points": _SEED,
        "prime": Integer(2, 2**31 - 1),
        "lower": Integer(0, _MAX_MINORS * MAX_SIZE),
        "minors": ListOf(Converted(_MINOR, _minor), _MAX_MINORS),
    }
)
_CERTIFICATE = Converted(_DOCUMENT, _certificate)
