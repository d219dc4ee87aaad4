"""Long work in processes of its own: with progress, to be cancelled, and lost with nothing else.

A lane is one worker process that does one job after the other; lanes work side by side. Cancelling
kills the process, since no library that computes for minutes can be asked to stop; what a job
writes is written beside its place and renamed, so nothing half-done is left. A process that dies
fails its job, and the next job of the lane gets a new process.
"""

import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from importlib import import_module
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from rankscope.errors import RankscopeError, RequestError
from rankscope.progress import Progress

MOST_KEPT = 200  # finished jobs that are remembered


class State(StrEnum):
    """Where a job is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Job:
    """One piece of long work.

    Args:
        number: by which the page asks for it.
        kind: in a word, such as "save".
        lane: that does it.
        state: where it is.
        progress: what is being done, how much of it, of how much.
        result: plain data, when it is done.
        error: one line, when it failed.
    """

    number: int
    kind: str
    lane: str
    state: State = State.WAITING
    progress: tuple[str, int, int] = ("", 0, 0)
    result: Any = None
    error: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state in (State.DONE, State.FAILED, State.CANCELLED)

    def to_dict(self) -> dict[str, object]:
        """Plain data for the page, without the result, which its view asks for."""
        what, done, total = self.progress
        return {
            "number": self.number,
            "kind": self.kind,
            "state": str(self.state),
            "progress": {"what": what, "done": done, "total": total},
            "error": self.error,
        }


Part = Callable[[Any], None]
Ended = Callable[[Job], None]


@dataclass(frozen=True, eq=False)
class Task:
    """What a worker does: `function(arguments, report, part)` of a module of this package.

    Args:
        function: "package.module:function"; it returns plain data or frozen data classes.
        arguments: plain data.
        on_part: called with everything that the function gives to `part` on the way.
        on_end: called with the job when it is over.
    """

    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    on_part: Part = lambda part: None
    on_end: Ended = lambda job: None


class Jobs:
    """All jobs of a session. Every method may be called from any thread."""

    def __init__(self, on_change: Callable[[Job], None] = lambda job: None) -> None:
        self._jobs: dict[int, Job] = {}
        self._tasks: dict[int, Task] = {}
        self._lanes: dict[str, _Lane] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._on_change = on_change

    def start(self, kind: str, task: Task, *, lane: str) -> Job:
        """Put a job behind those that wait in its lane."""
        with self._lock:
            job = Job(next(self._numbers), kind, lane)
            self._jobs[job.number], self._tasks[job.number] = job, task
            self._forget_old()
            if lane not in self._lanes:
                self._lanes[lane] = _Lane(self)
            self._lanes[lane].put(job.number)
        self._on_change(job)
        return job

    def all(self) -> tuple[Job, ...]:
        """All that are remembered, the oldest first."""
        with self._lock:
            return tuple(self._jobs.values())

    def get(self, number: int) -> Job:
        """One job.

        Raises:
            RequestError: if there is none of that number.
        """
        with self._lock:
            if number not in self._jobs:
                raise RequestError(f"There is no job {number} here.")
            return self._jobs[number]

    def task(self, number: int) -> Task:
        """What a job is to do."""
        with self._lock:
            return self._tasks[number]

    def is_wanted(self, number: int) -> bool:
        """Whether a job is still to be done."""
        with self._lock:
            return number in self._jobs and not self._jobs[number].is_over

    def cancel(self, number: int) -> Job:
        """End a job; one that is over stays as it is.

        Raises:
            RequestError: if there is none of that number.
        """
        job = self.get(number)
        if not job.is_over:
            self.change(number, state=State.CANCELLED)
            self._lanes[job.lane].drop(number)
        return self.get(number)

    def forget(self, number: int) -> None:
        """Forget a job that is over."""
        with self._lock:
            if number in self._jobs and self._jobs[number].is_over:
                del self._jobs[number], self._tasks[number]

    def wait(self, number: int, seconds: float) -> Job:
        """The job when it is over, or as it is when the time is up."""
        with self._changed:
            self._changed.wait_for(lambda: self.get(number).is_over, timeout=seconds)
            return self.get(number)

    def change(self, number: int, **fields: Any) -> None:
        """Write down what became of a job; what is over stays so."""
        with self._changed:
            job = self._jobs[number]
            if job.is_over:
                return
            job = self._jobs[number] = replace(job, **fields)
            task = self._tasks[number]
            self._changed.notify_all()
        if job.is_over:
            task.on_end(job)
        self._on_change(job)

    def close(self) -> None:
        """End all processes."""
        for lane in list(self._lanes.values()):
            lane.close()

    def _forget_old(self) -> None:
        over = [number for number, job in self._jobs.items() if job.is_over]
        for number in over[: max(0, len(self._jobs) - MOST_KEPT)]:
            del self._jobs[number], self._tasks[number]


class _Lane:
    """One worker process, made when it is first needed, and the thread that speaks with it."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._waiting: list[int] = []
        self._running: int | None = None
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._is_closed = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, number: int) -> None:
        with self._wake:
            self._waiting.append(number)
            self._wake.notify()

    def drop(self, number: int) -> None:
        with self._wake:
            if number in self._waiting:
                self._waiting.remove(number)
            elif number == self._running:
                self._kill()

    def close(self) -> None:
        with self._wake:
            self._is_closed = True
            self._kill()
            self._wake.notify()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._waiting or self._is_closed)
                if self._is_closed:
                    return
                self._running = number = self._waiting.pop(0)
            try:
                self._do(number)
            except (EOFError, OSError):
                code = None if self._process is None else self._process.exitcode
                self._jobs.change(
                    number,
                    state=State.FAILED,
                    error="The worker process ended before it was done"
                    + (f" (exit code {code})" if code is not None else "")
                    + ". Nothing that was saved is lost; start it again.",
                )
                with self._wake:
                    self._kill()
            with self._wake:
                self._running = None

    def _do(self, number: int) -> None:
        task = self._jobs.task(number)
        connection = self._connect()
        if not self._jobs.is_wanted(number):
            return  # it was cancelled while the process was started
        self._jobs.change(number, state=State.RUNNING)
        connection.send((task.function, dict(task.arguments)))
        while True:
            kind, content = connection.recv()
            if kind == "part":
                task.on_part(content)
            elif kind == "progress":
                self._jobs.change(number, progress=content)
            else:
                over: dict[str, Any] = {"state": State.DONE, "result": content}
                if kind == "error":
                    over = {"state": State.FAILED, "error": content}
                self._jobs.change(number, **over)
                return

    def _connect(self) -> Connection:
        """The process at the other end; nobody waits while one is started, which takes seconds."""
        with self._wake:
            if self._process is not None and self._process.is_alive() and self._connection:
                return self._connection
        context = _context()
        connection: Connection
        connection, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs,), daemon=True)
        with _without_main():
            process.start()
        theirs.close()
        with self._wake:
            self._process, self._connection = process, connection
            if self._is_closed:
                self._kill()
        return connection

    def _kill(self) -> None:
        """End the process; whoever waits for it gets an EOFError. The lock is held."""
        if self._process is not None:
            self._process.kill()
            self._process.join(timeout=5)
        self._process = None


# What most jobs need, loaded once; every worker is a copy of the process that has it.
_PRELOADED = ["torch", "rankscope.auditing.weights", "rankscope.compression.planning"]


@cache
def _context() -> Any:
    if "forkserver" not in get_all_start_methods():
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


@contextmanager
def _without_main() -> Iterator[None]:
    """Without the program's main module, which a worker would load again and has no use for."""
    main = sys.modules["__main__"]
    with _STARTING:
        kept = {name: main.__dict__.pop(name, None) for name in ("__file__", "__spec__")}
        main.__spec__ = None
        try:
            yield
        finally:
            main.__dict__.update({k: v for k, v in kept.items() if v is not None})


_STARTING = threading.Lock()


def work(connection: Connection) -> None:
    """What a worker process does, until nobody is at the other end."""
    while True:
        try:
            name, arguments = connection.recv()
            connection.send(_answer(connection, name, arguments))
        except (EOFError, BrokenPipeError, KeyboardInterrupt):
            return


def _answer(connection: Connection, name: str, arguments: dict[str, Any]) -> tuple[str, Any]:
    def report(progress: Progress) -> None:
        connection.send(("progress", (progress.what, progress.done, progress.total)))

    def part(content: Any) -> None:
        connection.send(("part", content))

    module, _, function = name.partition(":")
    try:
        return "result", getattr(import_module(module), function)(arguments, report, part)
    except RankscopeError as error:
        return "error", str(error)
    except (EOFError, BrokenPipeError):
        raise
    except Exception as error:  # noqa: BLE001 - the edge of a process: one line for the page
        return "error", f"{type(error).__name__}: {error}"
