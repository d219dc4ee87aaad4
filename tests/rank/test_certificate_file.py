import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest

from rankscope.errors import CertificateError, OutputError
from rankscope.rank import (
    Certificate,
    CertifiedMinor,
    DrawnWeights,
    GivenArray,
    GivenWeights,
    Partition,
    num_challenges,
    pack_answers,
    parse_certificate,
    read_certificate,
    to_json,
    write_certificate,
)
from rankscope.rank.certificate_file import MAX_BYTES

DRAWN = Certificate(
    family="convolutional",
    settings={"channels": (2, 1), "pooling": (((0, 1), (2,)),), "window": None, "is_shared": True},
    partition=Partition((0, 2), (1,)),
    weights=DrawnWeights(7),
    points_seed=8,
    prime=101,
    lower=4,
    minors=(
        CertifiedMinor(
            0,
            (0, 4, 5),
            (1, 2, 3),
            pack_answers(numpy.arange(3 * num_challenges(101)).reshape(3, -1)),
        ),
        CertifiedMinor(2, (9,), (0,)),
    ),
)
GIVEN = replace(
    DRAWN,
    weights=GivenWeights({"w": GivenArray((2, 2), (0.1, -3.0, 5e-324, 0.0))}),
)
Change = Callable[[dict[str, Any]], object]


def changed(change: Change, certificate: Certificate = DRAWN) -> bytes:
    document = json.loads(to_json(certificate))
    change(document)
    return json.dumps(document).encode()


@pytest.mark.parametrize("certificate", [DRAWN, GIVEN])
def test_a_certificate_is_read_as_it_was_written(certificate: Certificate, tmp_path: Path) -> None:
    write_certificate(tmp_path / "file.json", certificate)
    assert read_certificate(tmp_path / "file.json") == certificate
    assert parse_certificate(to_json(certificate).encode()) == certificate


def test_rows_are_written_as_ranges() -> None:
    document = json.loads(to_json(DRAWN))
    assert document["minors"][0]["rows"] == [[0, 1], [4, 6]]
    assert document["format"] == "rankscope-certificate"
    assert document["statement"] == DRAWN.statement


def test_a_file_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="there is no folder"):
        write_certificate(tmp_path / "absent" / "file.json", DRAWN)


@pytest.mark.slow
def test_a_certificate_too_long_to_be_read_is_not_written(tmp_path: Path) -> None:
    weights = GivenWeights({"w": GivenArray((2, 10**6), (0.1,) * (2 * 10**6))})
    with pytest.raises(CertificateError, match=r"has 4\d,.* bytes, over the limit of 33,554,432"):
        write_certificate(tmp_path / "file.json", replace(DRAWN, weights=weights))
    assert not list(tmp_path.iterdir())


def test_a_file_of_any_other_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="wanted a file"):
        read_certificate(tmp_path)
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(CertificateError, match=r"has 33,554,433 bytes; .* at most 33,554,432"):
        read_certificate(tmp_path / "huge")


def put(path: str, value: object) -> Change:
    *places, last = [int(key) if key.isdigit() else key for key in path.split(".")]

    def change(document: dict[str, Any]) -> None:
        inner: Any = document
        for place in places:
            inner = inner[place]
        inner[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("format", "other"), "at format: wanted rankscope-certificate, got 'other'"),
        (put("version", 2), r"at version: wanted 1, got 2"),
        (put("version", True), r"at version: wanted 1, got True"),
        (put("statement", "For all weights."), "at statement: wanted .*got 'For all weights.'"),
        (put("extra", 1), "at top: wanted only the keys format, .* got 'extra'"),
        (lambda document: document.pop("lower"), "at top: lower is missing"),
        (put("network.family", 3), r"at network\.family: wanted a string, got 3"),
        (put("network.settings.window", "1"), r"network\.settings\.window: wanted an integer"),
        (put("network.settings.window", -1), r"wanted an integer in 0\.\.2147483647, got -1"),
        (put("network.settings.window", [[[[1]]]]), r"window\[0\]\[0\]\[0\]: wanted an integer"),
        (put("partition.left", [2, 0]), r"at partition\.left: wanted numbers in ascending order"),
        (put("partition.left", []), "Both sides of a partition must hold a position"),
        (put("partition.left", [1]), r"must be disjoint, got 1 in both \(1,\) and \(1,\)"),
        (put("weights", {"seed": -1}), r"at weights\.seed: wanted an integer in 0\.\.9"),
        (put("weights", {"values": {}, "seed": 1}), "at weights: wanted only the keys values"),
        (put("points", {}), "at points: seed is missing"),
        (put("prime", 2**31 + 11), r"at prime: wanted an integer in 2\.\.2147483647"),
        (put("prime", 100), "100 is not a prime"),
        (put("lower", "4"), "at lower: wanted an integer"),
        (put("lower", 5), "add up to its lower bound 5, got 4"),
        (put("minors.1.grade", 0), r"different grades, got \[0, 0\]"),
        (put("minors.1.grade", -1), r"at minors\[1\]\.grade: wanted an integer in 0\.\.4096"),
        (put("minors.0.rows", [[0, 3, 4]]), r"at minors\[0\]\.rows\[0\]: wanted a list of at most"),
        (put("minors.0.rows", [[0]]), r"wanted \[start, stop\] with start at least 0, got \[0\]"),
        (put("minors.0.rows", [[0, 2], [2, 3]]), r"rows\[1\]: .* with start at least 3, got"),
        (put("minors.0.rows", [[3, 3]]), r"rows\[0\]: wanted numbers in ascending order"),
        (put("minors.0.rows", [[0, 4]]), r"rows\[0\]: wanted at most 3 numbers, as it is answered"),
        (put("minors.0.rows", [[0, 2**31]]), "at most 3 numbers, as it is answered"),
        (put("minors.1.rows", [[0, 2], [3, 502]]), r"rows\[1\]: wanted at most 500 numbers"),
        (put("minors.0.answers", []), r"rows: wanted a list of at most 0, .*, got a list of 2"),
        (put("minors.0.rows", [[0, 2]]), "equally many rows and columns, .* got 2 and 3"),
        (put("minors.0.answers", 5), r"at minors\[0\]\.answers: wanted a list of at most 128"),
        (put("minors.0.answers.0", "?"), r"at minors\[0\]\.answers\[0\]: wanted residues in base"),
        (put("minors.0.answers.0", "é"), r"answers\[0\]: wanted residues in base 64"),
        (put("minors.0.answers.0", "AAB="), r"answers\[0\]: wanted residues in base 64, got 'AAB="),
        (put("minors.0.answers.0", "AAA="), r"size 3 have 12 bytes each, got \[2, 12\]"),
    ],
)
def test_what_is_not_as_it_should_be_is_refused_with_its_place(
    change: Change, message: str
) -> None:
    with pytest.raises(CertificateError, match=message):
        parse_certificate(changed(change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            put("weights.values.w.shape", [3, 2]),
            r"values\.w: wanted 6 numbers as float64, got a list of 4",
        ),
        (put("weights.values.w.shape", [-1]), r"w\.shape\[0\]: wanted an integer in 0\.\.2097152"),
        (put("weights.values.w.float64.0", 1), "wanted a string, got 1"),
        (put("weights.values.w.float64.0", "inf"), "wanted a finite hexadecimal float64"),
        (put("weights.values.w.float64.0", "0x1p99999"), "as float.hex writes it, got '0x1p99999'"),
        (
            put("weights.values.w.float64.0", "one"),
            "wanted a finite hexadecimal .*, got 'one'",
        ),
        (put("weights.values.w.float64.0", "0x1p0"), "as float.hex writes it, got '0x1p0'"),
    ],
)
def test_weights_are_finite_numbers_in_their_shape(change: Change, message: str) -> None:
    with pytest.raises(CertificateError, match=message):
        parse_certificate(changed(change, GIVEN))


def test_a_truncated_file_is_no_certificate() -> None:
    data = to_json(DRAWN).encode()
    for length in range(len(data) - 1):
        with pytest.raises(CertificateError, match="is not usable JSON"):
            parse_certificate(data[:length])


@pytest.mark.parametrize("text", [b"{}", b'{"findings": [], "share": 0.5}', b'{"x": NaN}'])
def test_a_document_that_was_never_one_is_told_so(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "audit.json").write_bytes(text)
    with pytest.raises(
        CertificateError, match=r"audit\.json is no certificate: it names no format"
    ):
        read_certificate(tmp_path / "audit.json")
