"""Certificates as JSON files: written whole, read with suspicion."""

import base64
import binascii
import json
import math
from pathlib import Path
from typing import Any

from rankscope.errors import CertificateError, PartitionError, PrimeError
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
from rankscope.separation.certificates.strict_json import (
    parse_json,
    read_integer,
    read_integers,
    read_json,
    read_list,
    read_object,
    read_text,
    read_values,
    refusal,
)
from rankscope.separation.partition import Partition

MAX_BYTES = 2**25
_MAX_SEED = 2**63 - 1
_MAX_SETTING = 2**31 - 1
_MAX_MINORS = 2**12
_MAX_POSITIONS = 2**12
_MAX_ARRAYS = 2**12
_MAX_WEIGHTS = 2**21
_MAX_NESTING = 3  # lists in settings


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
    return _read(read_json(path, max_bytes=MAX_BYTES))


def parse_certificate(data: bytes) -> Certificate:
    """Read a certificate from bytes.

    Raises:
        CertificateError: if they are no well-formed certificate.
    """
    return _read(parse_json(data, name="The text"))


def _read(document: Any) -> Certificate:
    keys = ("statement", "network", "partition", "weights", "points", "prime", "lower", "minors")
    checked = read_object(document, "top", ("format", "version", *keys))
    if checked["format"] != FORMAT:
        raise refusal("format", FORMAT, checked["format"])
    read_integer(checked["version"], "version", low=VERSION, high=VERSION)
    network = read_object(checked["network"], "network", ("family", "settings"))
    minors = read_list(checked["minors"], "minors", at_most=_MAX_MINORS)
    try:
        certificate = Certificate(
            family=read_text(network["family"], "network.family"),
            settings=read_values(network["settings"], "network.settings", _setting, at_most=64),
            partition=_partition(checked["partition"]),
            weights=_weights(checked["weights"]),
            points_seed=_seed(checked["points"], "points"),
            prime=read_integer(checked["prime"], "prime", low=2, high=2**31 - 1),
            lower=read_integer(checked["lower"], "lower", low=0, high=_MAX_MINORS * MAX_SIZE),
            minors=tuple(_minor(item, f"minors[{at}]") for at, item in enumerate(minors)),
        )
    except (PartitionError, PrimeError) as error:
        raise CertificateError(f"Certificate: {error}") from error
    if checked["statement"] != certificate.statement:
        raise refusal("statement", f"{certificate.statement!r}", checked["statement"])
    return certificate


def _setting(data: Any, place: str) -> Any:
    """An integer, true, false, null, or lists of them; lists become tuples."""
    return _nested(data, place, _MAX_NESTING)


def _nested(data: Any, place: str, depth: int) -> Any:
    if data is None or isinstance(data, bool):
        return data
    if depth and isinstance(data, list):
        items = read_list(data, place, at_most=_MAX_POSITIONS)
        return tuple(_nested(item, f"{place}[{at}]", depth - 1) for at, item in enumerate(items))
    return read_integer(data, place, low=0, high=_MAX_SETTING)


def _partition(data: Any) -> Partition:
    sides = read_object(data, "partition", ("left", "right"))
    left, right = (
        read_integers(sides[side], f"partition.{side}", at_most=_MAX_POSITIONS, high=_MAX_POSITIONS)
        for side in ("left", "right")
    )
    return Partition(left, right)


def _seed(data: Any, place: str) -> int:
    seed = read_object(data, place, ("seed",))["seed"]
    return read_integer(seed, f"{place}.seed", low=0, high=_MAX_SEED)


def _weights(data: Any) -> DrawnWeights | GivenWeights:
    if isinstance(data, dict) and "values" in data:
        values = read_object(data, "weights", ("values",))["values"]
        return GivenWeights(read_values(values, "weights.values", _array, at_most=_MAX_ARRAYS))
    return DrawnWeights(_seed(data, "weights"))


def _array(data: Any, place: str) -> GivenArray:
    parts = read_object(data, place, ("shape", "float64"))
    shape = tuple(
        read_integer(size, f"{place}.shape[{at}]", low=0, high=_MAX_WEIGHTS)
        for at, size in enumerate(read_list(parts["shape"], f"{place}.shape", at_most=8))
    )
    texts = read_list(parts["float64"], f"{place}.float64", at_most=_MAX_WEIGHTS)
    if math.prod(shape) != len(texts):
        raise refusal(f"{place}.float64", f"a list of {math.prod(shape)}", texts)
    return GivenArray(shape, tuple(_float(text, f"{place}.float64") for text in texts))


def _float(data: Any, place: str) -> float:
    """A finite number in the form that `float.hex` writes, and in no other."""
    text = read_text(data, place)
    try:
        value = float.fromhex(text)
    except (ValueError, OverflowError) as error:
        raise refusal(place, "a hexadecimal float64", text) from error
    if not math.isfinite(value) or value.hex() != text:
        raise refusal(place, "a finite hexadecimal float64 as float.hex writes it", text)
    return value


def _minor(data: Any, place: str) -> CertifiedMinor:
    parts = read_object(data, place, ("grade", "rows", "columns", "answers"))
    grade = parts["grade"]
    if grade is not None:
        grade = read_integer(grade, f"{place}.grade", low=0, high=_MAX_MINORS)
    answers, at_most = parts["answers"], MAX_DETERMINANT
    if answers is not None:
        listed = read_list(answers, f"{place}.answers", at_most=128)
        answers = tuple(_answer(item, f"{place}.answers[{at}]") for at, item in enumerate(listed))
        # A short file must not ask for a long list of numbers.
        at_most = min(MAX_SIZE, max(map(len, answers), default=0) // 4)
    rows, columns = (
        _ranges(parts[side], f"{place}.{side}", at_most) for side in ("rows", "columns")
    )
    return CertifiedMinor(grade, rows, columns, answers)


def _ranges(data: Any, place: str, at_most: int) -> tuple[int, ...]:
    numbers: list[int] = []
    for at, item in enumerate(read_list(data, place, at_most=at_most)):
        ends = read_integers(item, f"{place}[{at}]", at_most=2, high=MAX_POINT + 1)
        first_allowed = numbers[-1] + 2 if numbers else 0
        if len(ends) != 2 or ends[0] < first_allowed:
            raise refusal(
                f"{place}[{at}]", f"[start, stop] with start at least {first_allowed}", item
            )
        if len(numbers) + ends[1] - ends[0] > at_most:
            raise refusal(f"{place}[{at}]", f"at most {at_most} numbers, as it is answered", item)
        numbers.extend(range(*ends))
    return tuple(numbers)


def _answer(data: Any, place: str) -> bytes:
    text = read_text(data, place)
    try:
        decoded = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise refusal(place, "residues in base 64", text) from error
    if base64.b64encode(decoded).decode("ascii") != text:
        raise refusal(place, "residues in base 64", text)
    return decoded
