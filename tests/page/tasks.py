"""What the workers of the tests do."""

import os
import signal
import time
from typing import Any

from rankscope.errors import RequestError
from rankscope.progress import Progress


def double(arguments: Any, report: Any, part: Any) -> int:
    report(Progress("steps", 1, 2))
    part("half")
    return int(2 * arguments["number"])


def refuse(arguments: Any, report: Any, part: Any) -> None:
    raise RequestError("Wanted 3, got 4.")


def fail(arguments: Any, report: Any, part: Any) -> None:
    raise ZeroDivisionError("nothing to divide by")


def die(arguments: Any, report: Any, part: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sleep(arguments: Any, report: Any, part: Any) -> None:
    part("started")
    time.sleep(60)
