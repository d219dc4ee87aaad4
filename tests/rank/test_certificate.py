from dataclasses import replace

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.errors import CertificateError, PrimeError
from rankscope.rank import (
    Certificate,
    CertifiedMinor,
    DrawnWeights,
    GivenArray,
    GivenWeights,
    Partition,
    num_challenges,
    pack_answers,
)
from rankscope.rank.certificate import to_ranges

ANSWERS = pack_answers(numpy.arange(2 * num_challenges(101)).reshape(2, -1) % 101)
CERTIFICATE = Certificate(
    family="tensor-train",
    settings={"order": 3, "bond": (2, 1), "has_equal_cores": False},
    partition=Partition((0, 2), (1,)),
    weights=DrawnWeights(7),
    points_seed=8,
    prime=101,
    lower=3,
    minors=(CertifiedMinor(0, (0, 4), (1, 2), ANSWERS), CertifiedMinor(2, (9,), (0,))),
)


def test_the_statement_names_network_split_and_bound() -> None:
    assert CERTIFICATE.statement == (
        "For almost all weights, the separation rank of "
        "tensor-train(order=3, bond=(2, 1), has_equal_cores=False) over {0,2} | {1} is at least 3."
    )
    given_here = replace(CERTIFICATE, weights=GivenWeights({}))
    assert given_here.statement.startswith("For the weights given here, the separation rank of")


def test_answers_are_unpacked_as_they_were_packed() -> None:
    minor = CERTIFICATE.minors[0]
    assert (pack_answers(minor.solutions())) == ANSWERS
    assert minor.solutions()[1, 0] == num_challenges(101) % 101


def test_the_challenges_are_bound_to_all_that_is_stated_but_not_to_the_answers() -> None:
    first, second = CERTIFICATE.minors
    same = replace(CERTIFICATE, minors=(replace(first, answers=ANSWERS[::-1]), second))
    assert same.binding() == CERTIFICATE.binding()
    others = [
        replace(CERTIFICATE, family="train"),
        replace(CERTIFICATE, settings={"order": 3}),
        replace(CERTIFICATE, partition=Partition((0, 1), (2,))),
        replace(CERTIFICATE, weights=DrawnWeights(8)),
        replace(CERTIFICATE, weights=GivenWeights({})),
        replace(CERTIFICATE, weights=GivenWeights({"a": GivenArray((1,), (0.5,))})),
        replace(CERTIFICATE, points_seed=7),
        replace(CERTIFICATE, prime=97),
        replace(CERTIFICATE, minors=(first,), lower=2),
        replace(CERTIFICATE, minors=(first, replace(second, grade=1))),
        replace(CERTIFICATE, minors=(first, replace(second, rows=(8,)))),
        replace(CERTIFICATE, minors=(first, replace(second, columns=(1,)))),
    ]
    assert len({other.binding() for other in [CERTIFICATE, *others]}) == len(others) + 1


@given(numbers=st.sets(st.integers(0, 40)))
def test_ranges_hold_the_numbers_and_do_not_touch(numbers: set[int]) -> None:
    ranges = to_ranges(tuple(sorted(numbers)))
    assert {number for start, stop in ranges for number in range(start, stop)} == numbers
    ends = [end for pair in ranges for end in pair]
    assert ends == sorted(set(ends))


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        ((), (), "1 to 65536, got 0 and 0"),
        ((1,), (1, 2), "equally many rows and columns, 1 to 65536, got 1 and 2"),
        (tuple(range(65537)), tuple(range(65537)), "got 65537 and 65537"),
        ((2, 1), (0, 1), "rows of a minor must ascend .* got 2 numbers from 2 to 1"),
        ((0, 1), (3, 3), "columns of a minor must ascend .* got 2 numbers from 3 to 3"),
        ((-1,), (0,), r"rows of a minor must ascend within 0\.\.2147483647, got 1 numbers from -1"),
        ((0,), (2**31,), "columns of a minor must ascend .* got 1 numbers from 2147483648"),
    ],
)
def test_a_minor_is_made_of_distinct_ascending_points(
    rows: tuple[int, ...], columns: tuple[int, ...], message: str
) -> None:
    with pytest.raises(CertificateError, match=message):
        CertifiedMinor(None, rows, columns)


def test_a_certificate_needs_a_prime() -> None:
    with pytest.raises(PrimeError, match="100 is not a prime"):
        replace(CERTIFICATE, prime=100)
    with pytest.raises(PrimeError, match="must be below 2147483648, got 4294967311"):
        replace(CERTIFICATE, prime=4294967311)


def test_halves_need_an_odd_prime() -> None:
    minors = (CertifiedMinor(None, (0, 1, 2), (0, 1, 2)),)
    replace(CERTIFICATE, prime=2, minors=minors)
    with pytest.raises(CertificateError, match="no residue modulo the prime 2"):
        replace(CERTIFICATE, prime=2, minors=minors, weights=GivenWeights({}))


def test_the_sizes_of_the_minors_add_up_to_the_bound() -> None:
    with pytest.raises(CertificateError, match="add up to its lower bound 4, got 3"):
        replace(CERTIFICATE, lower=4)


@pytest.mark.parametrize("grades", [(0, 0), (None, 1), (None, None)])
def test_ranks_of_different_parts_add_up_and_no_others(grades: tuple[int | None, ...]) -> None:
    minors = tuple(CertifiedMinor(grade, (0,), (0,)) for grade in grades)
    with pytest.raises(CertificateError, match="one minor, or minors of different grades, got"):
        replace(CERTIFICATE, lower=2, minors=minors)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (ANSWERS[:-1], "needs 16 answers modulo 101, got 15"),
        ((), "needs 16 answers modulo 101, got 0"),
        ((b"123", *ANSWERS[1:]), r"size 2 have 8 bytes each, got \[3, 8\]"),
        ((b"\x65" + b"\x00" * 7, *ANSWERS[1:]), "must be residues modulo 101, got 101"),
    ],
)
def test_answers_are_residues_one_column_for_each_challenge(
    answers: tuple[bytes, ...], message: str
) -> None:
    minor = CertifiedMinor(None, (0, 1), (0, 1), answers)
    with pytest.raises(CertificateError, match=message):
        replace(CERTIFICATE, lower=2, minors=(minor,))


def test_a_summary_names_few_of_many_positions() -> None:
    sides = tuple(range(0, 4000, 2)), tuple(range(1, 4000, 2))
    long = Certificate(
        family="shallow",
        settings={"order": 4000, "terms": ((1,) * 500,)},
        partition=Partition(*sides),
        weights=DrawnWeights(0),
        points_seed=0,
        prime=101,
        lower=1,
        minors=(CertifiedMinor(None, (0,), (0,)),),
    )
    assert len(long.statement) > 15_000
    assert len(long.summary) < 400
    assert "…,3998: 2,000 positions} | {1,3,5" in long.summary
