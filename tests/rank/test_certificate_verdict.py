from dataclasses import replace

from rankscope.rank import Verdict

PROVED = Verdict(
    is_proved=True,
    statement="All is well.",
    lower=3,
    reason=None,
    soundness_log2=-119.96,
    num_minors=2,
    paths=("1 minor: this way", "1 minor: that way"),
    seconds=1.23456,
)


def test_the_soundness_error_is_never_understated() -> None:
    assert PROVED.soundness == "2^-119.9"


def test_a_proof_says_what_how_and_how_surely() -> None:
    assert str(PROVED).splitlines() == [
        "PROVED: All is well.",
        "soundness error 2^-119.9",
        "1 minor: this way",
        "1 minor: that way",
    ]
    assert PROVED.to_dict() == {
        "verdict": "PROVED",
        "statement": "All is well.",
        "lower": 3,
        "reason": None,
        "soundness": "2^-119.9",
        "conditions": [],
        "minors": 2,
        "paths": ["1 minor: this way", "1 minor: that way"],
        "seconds": 1.235,
    }


def test_a_failure_says_why() -> None:
    failed = Verdict(
        is_proved=False,
        statement="All is well.",
        lower=3,
        reason="it is not.",
        soundness_log2=None,
        num_minors=1,
        paths=("1 minor: this way",),
        seconds=0.0,
    )
    assert str(failed) == "FAILED: it is not.\nNot proved: All is well."
    assert failed.to_dict()["verdict"] == "FAILED"
    assert failed.soundness == "0"


def test_a_probability_stands_with_its_conditions() -> None:
    verdict = replace(PROVED, conditions=("one thing holds", "another does"))
    assert str(verdict).splitlines()[1:4] == [
        "soundness error 2^-119.9",
        "  provided that one thing holds",
        "  provided that another does",
    ]
    assert verdict.to_dict()["conditions"] == ["one thing holds", "another does"]


def test_people_read_the_summary_and_programs_the_statement() -> None:
    verdict = replace(PROVED, summary="All is.")
    assert str(verdict).startswith("PROVED: All is.\n")
    assert verdict.to_dict()["statement"] == "All is well."
