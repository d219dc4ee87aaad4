import os
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest
import torch
from torch import nn

from rankscope.errors import MeasurementError, MissingExtraError
from rankscope.extras import transformers as load_transformers
from rankscope.workers import BACKENDS, Workers

NUMBERS = list(range(-20, 20))
EXPECTED = list(enumerate(abs(number) for number in NUMBERS))


@pytest.mark.parametrize("backend", ["sequential", "threading", "loky"])
def test_every_backend_gives_every_result_with_its_number(backend: str) -> None:
    assert sorted(Workers(backend, jobs=2).run(abs, NUMBERS)) == EXPECTED


@pytest.mark.slow
def test_models_of_transformers_reach_other_processes() -> None:
    transformers = load_transformers()
    config = transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=7, n_positions=4)
    models = [transformers.GPT2Model(config), transformers.GPT2Model(config)]
    counts = Workers("loky", jobs=2).run(_count, models)
    assert sorted(counts) == [(number, _count(model)) for number, model in enumerate(models)]


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_results_come_while_others_are_still_computed() -> None:
    may_go_on = threading.Event()

    def wait_unless_first(number: int) -> int:
        if number:
            assert may_go_on.wait(timeout=60)
        return number

    results = Workers("threading", jobs=2).run(wait_unless_first, [0, 1])
    assert next(results) == (0, 0)
    may_go_on.set()
    assert list(results) == [(1, 1)]


@pytest.mark.parametrize("workers", [Workers("loky", jobs=1), Workers("ray")])
def test_one_job_or_one_task_is_done_here(workers: Workers) -> None:
    here: list[int] = []
    assert list(workers.run(here.append, [7])) == [(0, None)]
    assert here == [7]


@pytest.mark.filterwarnings("ignore:.*adjusting the input task:UserWarning")  # joblib's advice
def test_giving_up_waits_for_the_threads_at_work_and_starts_no_others() -> None:
    begun: list[int] = []
    finished: list[int] = []

    def work(number: int) -> None:
        begun.append(number)
        if number:
            time.sleep(0.05)  # so that the caller gives up meanwhile
        finished.append(number)

    results = Workers(jobs=2).run(work, list(range(100)))
    assert isinstance(results, Generator)
    next(results)
    results.close()
    assert sorted(begun) == sorted(finished)
    assert len(begun) < 100


def test_errors_of_a_task_reach_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        list(Workers(jobs=2).run(lambda number: 1 // number, [1, 0, 1]))


def test_only_clusters_work_in_other_memory() -> None:
    assert [Workers(backend).is_local for backend in BACKENDS] == [True, True, True, False, False]
    assert Workers("sequential", jobs=8).num_local == 1
    assert Workers("threading", jobs=8).num_local == 8
    assert Workers("loky").num_local >= 1


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(MeasurementError, match=r"sequential, threading, .* got 'gpu'"):
        Workers("gpu")


def test_less_than_one_job_is_refused() -> None:
    with pytest.raises(MeasurementError, match="at least 1 job is needed, got 0"):
        Workers(jobs=0)


@pytest.mark.parametrize(("backend", "package"), [("ray", "ray"), ("dask", "distributed")])
def test_a_cluster_whose_package_is_missing_names_the_extra(
    backend: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package}, .* 'rankscope\[{backend}\]'"):
        Workers(backend).run(abs, NUMBERS)


_ON_A_CLUSTER = """
import os
import sys
from rankscope.workers import Workers

def done(number):
    return abs(number), os.getpid()

if __name__ == "__main__":
    found = sorted(Workers(sys.argv[1], jobs=2).run(done, [-9, -8, -7, -6]))
    print("found", [(number, result) for number, (result, _) in found])
    print("done here:", os.getpid() in {process for _, (_, process) in found})
"""
# The same cluster then measures, in sixteen tiles where there would be one.
_MEASURED_ON_A_CLUSTER = """
    from functools import partial
    from rankscope.rank import MeasureOptions, Partition, TensorTrain, measure_rank, measure_ranks
    from rankscope.rank import measurement

    def runs_with(workers):
        train = TensorTrain(order=6, size=4, bond=4)
        return measure_rank(train, Partition.interleaved(6), MeasureOptions(workers=workers)).runs

    cluster = Workers(sys.argv[1], jobs=2)
    measurement.plan_tiles = partial(measurement.plan_tiles, side=16)
    print("changed:", runs_with(cluster) != runs_with(Workers("sequential")))
    questions = [
        (TensorTrain(order=4, size=size, bond=2), Partition.interleaved(4)) for size in (4, 1, 3)
    ]
    measured = measure_ranks(questions, MeasureOptions(workers=cluster))
    print("ranks", [each.lower for each in measured])
"""


def output_on_a_cluster(script: str, backend: str, folder: Path) -> str:
    """What is printed by a process of its own: what clusters leave behind must not meet others."""
    path = folder / "on_a_cluster.py"
    path.write_text(script, encoding="utf-8")
    # Ray gives its workers the lowest priority, with which they starve on a busy machine.
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    command = [sys.executable, str(path), backend]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert "found [(0, 9), (1, 8), (2, 7), (3, 6)]" in done.stdout
    assert "done here: False" in done.stdout
    return done.stdout


@pytest.mark.slow
def test_a_dask_cluster_that_is_not_running_is_started(tmp_path: Path) -> None:
    assert output_on_a_cluster(_ON_A_CLUSTER, "dask", tmp_path)


@pytest.mark.slow
def test_a_ray_cluster_that_is_not_running_is_started_and_changes_no_rank(tmp_path: Path) -> None:
    output = output_on_a_cluster(_ON_A_CLUSTER + _MEASURED_ON_A_CLUSTER, "ray", tmp_path)
    assert "changed: False" in output
    assert "ranks [8, 1, 6]" in output


def test_the_calling_thread_renews_torch_threads_before_others_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # After a fork, of two threads that ask torch for its pool at once one would get none.
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(
        torch, "set_num_threads", lambda count: asked.append((threading.get_ident(), count))
    )
    list(Workers(jobs=2).run(abs, [-1, -2, -3]))
    assert asked == [(threading.get_ident(), torch.get_num_threads())]
