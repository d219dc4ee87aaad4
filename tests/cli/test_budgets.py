"""Requests that would take more memory or time than anyone has are refused, with what fits."""

import pytest

from rankscope.cli.main import main

HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "experiment run tt-digits --quick --seeds 1000000000 -o out",
            "seeds may be at most 1,000",
        ),
        ("cost tensor-train --set order=2147483647", "order may be at most 1,000, got 2,147,483,"),
        ("draw cp --set order=1001", "order may be at most 1,000, got 1,001"),
        ("cost sum-of-pure-tensors --set count=9999", "count may be at most 1,000, got 9,999"),
        ("certify digits --data digits --radius 1e300", "--radius takes 0 to 1e+18, got '1e300'"),
        ("certify digits --data digits --steps 100001", "--steps may be at most 100,000"),
        ("certify digits --data digits --restarts 100001", "--restarts may be at most 100,000"),
        (f"generalization digits --data digits --tried {HUGE}", "got about 10^400"),
        (f"compress digits --dry-run --keep {HUGE}", "above 0 and at most 1, got inf"),
        ("compress digits --dry-run --input 2147483647,8", "entries may be at most 268,435,456"),
        (f"plan --params 1e8 --vocab {HUGE}", "--vocab may be at most 2,147,483,647, got about"),
        (f"plan --params 1e8 --multiple-of {HUGE}", "--multiple-of may be at most 2,147,483,647"),
        (
            "rank shallow --order 4 --size 2 --channels 2 --samples -1",
            "greater than or equal to 1",
        ),
        (
            "rank attention --depth 2 --width 1000000 --heads 1",
            "the number of weights may be at most 268,435,456, got 8,000,000,000,000",
        ),
        ("rank shallow --order 4 --size 2 --channels 2 --jobs 4097", "jobs may be at most 4,096"),
        (
            f"rank shallow --order 4 --size 2 --channels 2 --epsilon 0.1 --seed {HUGE}",
            "--seed, for samples, may be at most 9,223,372,036,854,775,807, got about 10^400",
        ),
        (
            "rank shallow --order 4 --size 2 --channels 2 --method numeric --samples 16385",
            "--samples may be at most 16,384, got 16,385",
        ),
    ],
)
def test_what_does_not_fit_is_refused_at_once_with_what_does(
    command: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.split()) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
