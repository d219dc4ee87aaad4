"""Work in other processes: progress, parts, errors, cancelling, and processes that die."""

import threading
from collections.abc import Iterator

import pytest

from rankscope.errors import RequestError
from rankscope.page import Job, Jobs, State, Task

TASKS = "tests.page.tasks"


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    jobs = Jobs()
    yield jobs
    jobs.close()


def run(jobs: Jobs, function: str, **arguments: int) -> Job:
    started = jobs.start("test", Task(f"{TASKS}:{function}", arguments), lane="one")
    return jobs.wait(started.number, 60)


def test_a_job_gives_its_result_and_everything_on_the_way(jobs: Jobs) -> None:
    parts: list[object] = []
    ended: list[Job] = []
    task = Task(f"{TASKS}:double", {"number": 21}, parts.append, ended.append)
    job = jobs.wait(jobs.start("test", task, lane="one").number, 60)
    assert (job.state, job.result, job.progress) == (State.DONE, 42, ("steps", 1, 2))
    assert parts == ["half"]
    assert ended == [job]
    assert job in jobs.all()


def test_errors_are_one_line(jobs: Jobs) -> None:
    assert run(jobs, "refuse").error == "Wanted 3, got 4."
    assert run(jobs, "fail").error == "ZeroDivisionError: nothing to divide by"


def test_a_process_that_dies_fails_its_job_and_the_next_job_runs(jobs: Jobs) -> None:
    dead = run(jobs, "die")
    assert dead.state is State.FAILED
    assert "The worker process ended before it was done" in (dead.error or "")
    assert run(jobs, "double", number=2).result == 4


def test_a_job_can_be_cancelled_while_it_runs_and_while_it_waits(jobs: Jobs) -> None:
    started = threading.Event()
    task = Task(f"{TASKS}:sleep", on_part=lambda part: started.set())
    running = jobs.start("test", task, lane="one")
    waiting = jobs.start("test", Task(f"{TASKS}:double", {"number": 1}), lane="one")
    assert started.wait(60)
    assert jobs.cancel(waiting.number).state is State.CANCELLED
    assert jobs.cancel(running.number).state is State.CANCELLED
    assert run(jobs, "double", number=3).result == 6
    assert jobs.cancel(running.number).state is State.CANCELLED


def test_an_unknown_job_is_refused(jobs: Jobs) -> None:
    with pytest.raises(RequestError, match="no job 4711"):
        jobs.cancel(4711)
