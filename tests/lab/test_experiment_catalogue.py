"""Lists are printed from a table; every line of it is true of the object that it names."""

import subprocess
import sys

import pytest

from rankscope.errors import ExperimentError, RequestError
from rankscope.lab.experiments import (
    EXPERIMENTS,
    TOPIC_GROUPS,
    TOPICS,
    ListedExperiment,
    ListedTopic,
    find_experiment,
    find_topic,
)


@pytest.mark.parametrize("listed", EXPERIMENTS.values(), ids=list(EXPERIMENTS))
def test_a_listed_experiment_is_the_one_that_is_loaded(listed: ListedExperiment) -> None:
    experiment = find_experiment(listed.name)
    assert experiment.name == listed.name
    assert experiment.title == listed.title
    assert len(experiment.runs()) == listed.num_rows
    assert bool(experiment.quick) == listed.has_quick
    assert experiment.needs == listed.needs


@pytest.mark.parametrize("listed", TOPICS.values(), ids=list(TOPICS))
def test_a_listed_topic_is_the_one_that_is_loaded_and_says_something(listed: ListedTopic) -> None:
    topic = find_topic(listed.name)
    assert topic.name == listed.name == listed.name.lower()
    assert topic.title == listed.title != ""
    assert len(topic.statement) > 80
    assert topic.statement.endswith(".")
    assert topic.reference.citation


def test_no_topic_is_listed_twice() -> None:
    assert sum(map(len, TOPIC_GROUPS.values())) == len(TOPICS) == 31


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"no topic 'sofmax'; choose one of piecewise-linear, "):
        find_topic("sofmax")
    with pytest.raises(
        ExperimentError, match=r"no experiment 'x'. `rankscope experiment list` lists"
    ):
        find_experiment("x")


def _modules_after(code: str) -> set[str]:
    code = f"import sys; {code}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["experiment", "list"], ["explain"]])
def test_lists_are_printed_without_torch(arguments: list[str]) -> None:
    loaded = _modules_after(f"from rankscope.cli.main import main; main({arguments})")
    assert "torch" not in loaded


@pytest.mark.slow
def test_an_experiment_loads_only_what_it_needs() -> None:
    loaded = _modules_after("from rankscope.lab import find_experiment as find; find('tt-digits')")
    homes = {f"rankscope.lab.experiments.{listed.module}" for listed in EXPERIMENTS.values()}
    assert homes & loaded == {"rankscope.lab.experiments.classifiers"}
    assert "rankscope.compression.planning" not in loaded
    assert "torch._dynamo" not in loaded, "torch's compiler takes two seconds to load"
