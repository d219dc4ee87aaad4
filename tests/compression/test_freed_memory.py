"""Freed memory that stays with the process."""

import platform
import subprocess
import sys

import pytest

from rankscope.compression.training.freed_memory import keep_freed_memory

# Blocks are written to, freed and written again; after some steps there are no new pages.
_STEPS = """
import resource
from rankscope.compression.training.freed_memory import keep_freed_memory
import torch

def faults_of_a_step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(2**21) for _ in range(20)]
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

assert keep_freed_memory()
print(*(faults_of_a_step() for _ in range(8)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is of glibc")
def test_later_steps_ask_for_no_new_pages() -> None:
    command = [sys.executable, "-c", _STEPS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, *_, last = map(int, done.stdout.split())
    assert last <= first / 10


def test_elsewhere_nothing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("musl", "1.2"))
    assert not keep_freed_memory()
