"""Keep a solver's stray lines out of standard output, where JSON may be printed.

HiGHS prints a line of its own to standard output now and then, whatever its options say. It does
so below Python, so that the file descriptor is turned aside for as long as it works.
"""

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

STRAY = b"HighsMipSolverData::"
STANDARD_OUTPUT = 1


@contextmanager
def without_stray_lines() -> Iterator[None]:
    """Lines of HiGHS written within are dropped; all others come out at the end."""
    if os.name != "posix" or not _is_open(STANDARD_OUTPUT):
        yield  # elsewhere C's buffer, which must be emptied in time, cannot be reached
        return
    _empty_buffers()
    kept = os.dup(STANDARD_OUTPUT)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), STANDARD_OUTPUT)
        try:
            yield
        finally:
            _empty_buffers()
            os.dup2(kept, STANDARD_OUTPUT)
            os.close(kept)
            aside.seek(0)
            for line in aside:
                if not line.startswith(STRAY):
                    os.write(STANDARD_OUTPUT, line)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _empty_buffers() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()
    ctypes.pythonapi.fflush(None)
