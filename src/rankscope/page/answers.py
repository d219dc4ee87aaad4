"""Answers to equal questions: computed once, also for those who ask while it is computed."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Answers(Generic[T]):
    """The latest answers by their question. May be asked from any thread.

    Args:
        most: answers that are kept.

    Example:
        >>> answers = Answers(most=2)
        >>> [answers.get("1 + 1", lambda: 2), answers.get("1 + 1", lambda: 3)]
        [2, 2]
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, Future[T]] = {}
        self._lock = threading.Lock()

    def get(self, question: str, compute: Callable[[], T]) -> T:
        """The answer; an error is raised to all who wait for it, and not kept."""
        with self._lock:
            known = self._known.pop(question, None)
            future: Future[T] = known or Future()
            self._known[question] = future  # the latest stands last
            if len(self._known) > self._most:
                del self._known[next(iter(self._known))]
        if known is None:
            self._fill(future, question, compute)
        return future.result()

    def _fill(self, future: "Future[T]", question: str, compute: Callable[[], T]) -> None:
        try:
            future.set_result(compute())
        except BaseException as error:
            with self._lock:
                if self._known.get(question) is future:
                    del self._known[question]
            future.set_exception(error)
            if not isinstance(error, Exception):
                raise
