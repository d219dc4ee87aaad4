"""Standard output belongs to the caller: JSON is printed there."""

import os
import subprocess
import sys

import numpy as np
import pytest

from rankscope.compression import Option, choose
from rankscope.compression.solver import STANDARD_OUTPUT, STRAY, without_stray_lines

PROBLEMS = (3, 9, 20, 29)  # seeds for which HiGHS 1.12 prints a line


def random_lists(seed: int) -> list[list[Option]]:
    draw = np.random.default_rng(seed)
    return [
        [
            Option(int(step) * (n + 1), float(score))
            for n, score in enumerate(np.sort(draw.random(25))[::-1])
        ]
        for step in draw.integers(20, 140, size=30)
    ]


def test_the_solver_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    for seed in PROBLEMS:
        lists = random_lists(seed)
        choose(lists, sum(options[-1].cost for options in lists) // 3)
    assert capfd.readouterr().out == ""


def test_other_lines_come_out_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    os.write(STANDARD_OUTPUT, b"before\n")
    with without_stray_lines():
        os.write(STANDARD_OUTPUT, b"one\n" + STRAY + b"something\ntwo\n")
    os.write(STANDARD_OUTPUT, b"after\n")
    assert capfd.readouterr().out.split() == ["before", "one", "two", "after"]


def test_standard_output_is_back_after_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), without_stray_lines():
        raise ZeroDivisionError
    os.write(STANDARD_OUTPUT, b"here")
    assert capfd.readouterr().out == "here"


@pytest.mark.slow
def test_a_process_without_standard_output_can_still_plan() -> None:
    program = (
        "import os; os.close(1)\n"
        "from rankscope.compression.solver import without_stray_lines\n"
        "with without_stray_lines(): os.write(2, b'works')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stderr == b"works"
