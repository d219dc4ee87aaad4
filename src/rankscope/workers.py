"""Workers for independent tasks: in this process, on more cores, or on a cluster, by joblib."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from threading import Semaphore
from typing import TypeVar

import joblib

from rankscope import extras
from rankscope.budget import require_within
from rankscope.errors import MeasurementError, MissingExtraError

Task = TypeVar("Task")
Result = TypeVar("Result")

LOCAL_BACKENDS = ("threading", "loky")
# The package that must be importable, which is also the name of our extra.
CLUSTER_BACKENDS = {"ray": "ray", "dask": "distributed"}
BACKENDS = ("sequential", *LOCAL_BACKENDS, *CLUSTER_BACKENDS)
_BATCHES_PER_WORKER = 4
_MOST_JOBS = 4096


@dataclass(frozen=True)
class Workers:
    """How many workers there are, and of which kind.

    Threads are the default: our kernels and BLAS release the interpreter lock, and processes
    first have to import torch, which takes longer than most measurements.

    Args:
        backend: `threading`, `loky` (processes), `ray` or `dask` (a cluster that is running, or
            one started here), or `sequential`.
        jobs: how many; None for as many as there are cores, or places in the cluster.

    Example:
        >>> sorted(Workers(jobs=2).run(abs, [-1, -2, -3]))
        [(0, 1), (1, 2), (2, 3)]

    Raises:
        MeasurementError: if the backend is unknown, or there is less than one job.
    """

    backend: str = "threading"
    jobs: int | None = None

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise MeasurementError(
                f"Workers: the backend must be one of {', '.join(BACKENDS)}, got {self.backend!r}."
            )
        if self.jobs is not None and self.jobs < 1:
            raise MeasurementError(
                f"Workers: at least 1 job is needed, got {self.jobs}. Leave it out for all cores."
            )

        require_within("Workers", "the number of jobs", self.jobs or 1, _MOST_JOBS)

    @property
    def is_local(self) -> bool:
        """Whether all work is done in the memory of this machine."""
        return self.backend not in CLUSTER_BACKENDS

    @property
    def num_local(self) -> int:
        """How many tasks this machine works on at the same time."""
        if self.backend not in LOCAL_BACKENDS:
            return 1
        return self.jobs or joblib.cpu_count()

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[int, Result]]:
        """Apply a function to tasks; give numbers of tasks and results as they are finished.

        A single task, or a single job, is done here.

        Raises:
            MissingExtraError: if the package of the cluster is not installed.
        """
        if self.backend == "sequential" or self.jobs == 1 or len(tasks) < 2:
            return ((number, function(task)) for number, task in enumerate(tasks))
        if self.backend == "threading":
            return self._run_in_threads(function, tasks)
        calls = [joblib.delayed(_call)(_Prepared(), function, item) for item in enumerate(tasks)]
        if self.backend == "loky":
            return self._run_unordered(calls)
        self._require_cluster()
        return self._run_in_batches(calls)

    def _run_unordered(self, calls: Sequence[object]) -> Iterator[tuple[int, Result]]:
        results: Iterator[tuple[int, Result]] = joblib.Parallel(
            n_jobs=self.num_local,
            backend=self.backend,
            return_as="generator_unordered",
            max_nbytes=None,  # arrays would arrive as read-only files, which torch warns about
        )(calls)
        return results

    def _run_in_threads(
        self, function: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[int, Result]]:
        """Results as they come; ends only when no thread is at work.

        Joblib leaves threads running when the caller gives up (Ctrl-C), and Python aborts if
        they are still inside machine code when it exits.
        """
        _renew_thread_pool()
        places = Semaphore(self.num_local)

        def in_place(item: tuple[int, Task]) -> tuple[int, Result]:
            with places:
                return _with_number(function, item)

        try:
            yield from self._run_unordered([joblib.delayed(in_place)(i) for i in enumerate(tasks)])
        finally:
            for _ in range(self.num_local):
                places.acquire()

    def _require_cluster(self) -> None:
        package = CLUSTER_BACKENDS[self.backend]
        try:
            import_module(package)
        except ImportError as error:
            raise MissingExtraError(
                what=f"Workers({self.backend!r})", package=package, extra=self.backend
            ) from error
        if self.backend == "ray":
            import_module("ray.util.joblib").register_ray()

    def _run_in_batches(self, calls: Sequence[object]) -> Iterator[tuple[int, Result]]:
        """Results batch by batch: these backends cannot give single ones as they come."""
        with (
            self._cluster(),
            joblib.parallel_config(backend=self.backend, n_jobs=self.jobs or -1),
            joblib.Parallel() as parallel,
        ):
            size = _BATCHES_PER_WORKER * joblib.effective_n_jobs(self.jobs or -1)
            for start in range(0, len(calls), size):
                yield from parallel(calls[start : start + size])

    def _cluster(self) -> AbstractContextManager[object]:
        """Dask, unlike Ray, has to be started if no cluster is running."""
        if self.backend != "dask":
            return nullcontext()
        distributed = import_module("distributed")
        try:
            distributed.get_client()
        except ValueError:
            cluster: AbstractContextManager[object] = distributed.Client(
                n_workers=self.jobs or joblib.cpu_count(),
                threads_per_worker=1,
                dashboard_address=None,
            )
            return cluster
        return nullcontext()


def _renew_thread_pool() -> None:
    """Let torch make its pool of threads anew where this process was forked from another.

    It does so when it is first asked to after a fork; of two threads that ask at once, one gets no
    pool and fails ("Invalid thread pool!").
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(torch.get_num_threads())


class _Prepared:
    """Travels before a task: who unpacks it has transformers loaded our way, if it is used here.

    A model in the task would otherwise import it as it is, which fails beside some torchvisions.
    """

    def __reduce__(self) -> tuple[Callable[[bool], "_Prepared"], tuple[bool]]:
        return _prepare, ("transformers" in sys.modules,)


def _prepare(uses_transformers: bool) -> _Prepared:  # noqa: FBT001 - as pickle calls it
    if uses_transformers:
        extras.transformers()
    return _Prepared()


def _call(
    prepared: _Prepared, function: Callable[[Task], Result], item: tuple[int, Task]
) -> tuple[int, Result]:
    del prepared
    return _with_number(function, item)


def _with_number(function: Callable[[Task], Result], item: tuple[int, Task]) -> tuple[int, Result]:
    return item[0], function(item[1])
