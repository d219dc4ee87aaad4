"""One process in which cases run, one after the other, under limits, and are judged.

The oracle: exit 0, or 2 with one line; no traceback, no control character, no hang, memory under a
limit, nothing written on failure, no code of the input run. Verdicts of `verify` may exit with 1.
"""

import contextlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuzz.case import Case
from fuzz.cases import case_of
from fuzz.page_requests import Page

SECONDS = 20.0  # of processor time, for one case
MEMORY = 1_500_000_000  # bytes above what the process has once everything is loaded
# What no input may bring about.
_FORBIDDEN = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "subprocess.Popen",
    "socket.connect",
)


class OutOfTimeError(BaseException):
    """A case took too long; not an Exception, so that no command takes it for its own."""


class Judge:
    """Runs cases and says what is wrong with each; "" if nothing."""

    def __init__(self) -> None:
        self._forbidden: list[str] = []
        self._page = Page()
        self._of_page: set[threading.Thread] = set()  # they talk to the workers of the page
        sys.addaudithook(self._watch)
        signal.signal(signal.SIGPROF, self._ring)

    def _watch(self, event: str, _: tuple[Any, ...]) -> None:
        if event in _FORBIDDEN and threading.current_thread() not in self._of_page:
            self._forbidden.append(event)

    @staticmethod
    def _ring(*_: object) -> None:
        raise OutOfTimeError

    def complaint(self, case: Case) -> str:
        """What is wrong with how a command took its input."""
        if case.words[0] == "request":
            return self._answer(case)
        with _folder(case.files) as before:
            self._forbidden.clear()
            exit_code, out, error = run_case(case.words)
            after = _contents(Path.cwd())
        return _wrong(case, (exit_code, out, error), before, after) or (
            f"the input brought about {self._forbidden[0]}" if self._forbidden else ""
        )

    def _answer(self, case: Case) -> str:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            return self._page.complaint(case.words, case.files.get("body.json"))
        except OutOfTimeError:
            return f"took more than {SECONDS:g} s in {_innermost()}"
        except BaseException:  # noqa: BLE001 - whatever it is, it is reported
            return f"raised {traceback.format_exc(limit=-3)}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._of_page = {*threading.enumerate()} - {threading.main_thread()}

    def close(self) -> None:
        """End what the page has started."""
        self._page.close()


def run_case(words: tuple[str, ...]) -> tuple[int | str, str, str]:
    """Exit code (or what was raised), standard output and standard error of a command."""
    from rankscope.cli.main import main

    out, error = io.StringIO(), io.StringIO()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            code: int | str = main(list(words))
    except OutOfTimeError:
        code = f"took more than {SECONDS:g} s in {_innermost()}"
    except BaseException:  # noqa: BLE001 - whatever it is, it is reported
        code = f"raised {traceback.format_exc(limit=-3)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return code, out.getvalue(), error.getvalue()


def _innermost() -> str:
    frames = traceback.extract_tb(sys.exc_info()[2])
    ours = [frame for frame in frames if "rankscope" in frame.filename]
    return " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(ours[-4:]))


def _wrong(
    case: Case, ended: tuple[int | str, str, str], before: dict[str, bytes], after: dict[str, bytes]
) -> str:
    code, out, error = ended
    if isinstance(code, str):
        return code
    return (
        _wrong_end(case, code, error)
        or _wrong_output(case, code, out)
        or _wrong_files(code, before, after)
    )


def _wrong_end(case: Case, code: int, error: str) -> str:
    if code not in (0, 2) and not (code == 1 and case.words[0] == "verify" and not error):
        return f"exit {code}: {error[-400:]}"
    if "Traceback" in error or (code == 2 and not _is_one_line(error)):
        return f"no single line: {error[-400:]!r}"
    if code == 0 and error:
        return f"noise on standard error: {error[-400:]!r}"
    return _control_characters(error)


def _wrong_output(case: Case, code: int, out: str) -> str:
    if code == 2 and out and "--json" not in case.words:
        return f"output of a failure: {out[-400:]!r}"
    if "--json" in case.words:
        try:
            json.loads(out, parse_constant=lambda word: json.loads(f"no {word}"))
        except ValueError as reason:
            return f"no JSON document: {reason}"
    return _control_characters(out)


def _control_characters(text: str) -> str:
    odd = {c for c in text if not (c.isprintable() or c in "\n\t" or c.isspace())}
    return f"control characters {sorted(odd)!r}" if odd else ""


def _wrong_files(code: int, before: dict[str, bytes], after: dict[str, bytes]) -> str:
    if code == 2 and before != after:
        return f"written on failure: {sorted(set(after) ^ set(before)) or 'a changed file'}"
    if any("canary" in name for name in after) or any(".tmp" in name for name in after):
        return f"left behind: {sorted(after)}"
    return ""


def _is_one_line(error: str) -> bool:
    return error.startswith("rankscope: ") and error.count("\n") == 1 and len(error) < 5000


@contextlib.contextmanager
def _folder(files: dict[str, bytes]) -> Iterator[dict[str, bytes]]:
    here = Path.cwd()
    folder = Path(tempfile.mkdtemp(prefix="rankscope-fuzz-"))
    try:
        os.chdir(folder)
        for name, data in files.items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_bytes(data)
        yield _contents(folder)
    finally:
        os.chdir(here)
        shutil.rmtree(folder, ignore_errors=True)


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def work(seed: int) -> None:
    """Judge the cases whose numbers, or whose JSON, arrive line by line; answer line by line."""
    os.environ["RANKSCOPE_OFFLINE"] = "1"
    answers = os.fdopen(os.dup(1), "w")
    # Whatever a library prints past Python goes where it does not disturb.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.chdir(tempfile.mkdtemp(prefix="rankscope-fuzz-worker-"))
    judge = Judge()
    for warm in ("audit digits", "verify x", "compress digits --dry-run", "draw cp -o a.svg"):
        run_case(tuple(warm.split()))
    judge.complaint(Case("warm", ("request", "/api/model"), {}))
    _limit_memory()
    for line in sys.stdin:
        number = line.strip()
        case = (
            case_of(seed, int(number))
            if number.isdecimal()
            else Case.from_json("corpus", json.loads(number))
        )
        complaint = judge.complaint(case)
        answers.write(json.dumps([complaint, case.to_json() if complaint else ""]) + "\n")
        answers.flush()
    judge.close()


if __name__ == "__main__":
    work(int(sys.argv[1]))
