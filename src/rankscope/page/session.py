"""What one `rankscope open` is about: the model, the output folder, jobs and events."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, TypeVar

from rankscope.errors import RequestError
from rankscope.page.jobs import Job, Jobs

T = TypeVar("T")
MOST_EVENTS = 5000
QUICK = "quick"  # jobs that take a moment, of which nobody is told


class Events:
    """What happened, in order; readers ask for what came after the last one they saw."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._first = 0
        self._lock = threading.Lock()

    def add(self, kind: str, **content: object) -> None:
        """Append an event; the oldest are forgotten."""
        with self._lock:
            self._events.append({"kind": kind, **content})
            if len(self._events) > MOST_EVENTS:
                dropped = len(self._events) // 2
                del self._events[:dropped]
                self._first += dropped

    @property
    def end(self) -> int:
        """The number of the next event."""
        return self._first + len(self._events)

    def after(self, number: int) -> tuple[list[dict[str, Any]], int]:
        """Events from that number on, and the number to ask for next."""
        with self._lock:
            start = max(0, number - self._first)
            return self._events[start:], self._first + len(self._events)


@dataclass(eq=False)
class Session:
    """One opened model.

    Args:
        model: the word or path given on the command line; None for the embedded transformer.
        output: the only folder that is written to; made when something is first written.
        token: that every request must show.
    """

    model: str | None
    output: Path
    token: str = field(default_factory=lambda: token_urlsafe(24), repr=False)
    events: Events = field(default_factory=Events)

    def __post_init__(self) -> None:
        self.jobs = Jobs(on_change=self._tell)
        self._states: dict[object, Any] = {}
        self._lock = threading.RLock()

    def state(self, make: "Callable[[Session], T]") -> T:
        """The one object of this session that `make` makes; views keep theirs so."""
        with self._lock:
            if make not in self._states:
                self._states[make] = make(self)
            made: T = self._states[make]
            return made

    def output_path(self, name: str) -> Path:
        """A place inside the output folder.

        Raises:
            RequestError: if the name is no plain name of a file or folder.
        """
        is_plain = name == Path(name).name and not name.startswith(".") and "\\" not in name
        if not is_plain or not name.isprintable() or not 0 < len(name.encode()) <= 100:
            raise RequestError(
                f"A name in the output folder is one word without slashes, got {name[:60]!r}."
            )
        return self.output / name

    def close(self) -> None:
        """End the worker processes."""
        self.jobs.close()

    def _tell(self, job: Job) -> None:
        if job.kind == QUICK:
            return
        self.events.add("job", job=job.to_dict())
