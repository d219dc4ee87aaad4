"""Settings, seeds and quick versions."""

from dataclasses import dataclass

import pytest

from rankscope.errors import ExperimentError
from rankscope.lab.experiments import Entry, Experiment, Row, RunContext
from rankscope.lab.experiments.experiment import takes_seeds


@dataclass(frozen=True)
class Fixed(Entry):
    width: int

    @property
    def name(self) -> str:
        return f"width-{self.width}"

    def run(self, context: RunContext) -> Row:
        return {"width": self.width}


@dataclass(frozen=True)
class Drawn(Fixed):
    seed: int = 0

    def run(self, context: RunContext) -> Row:
        return {"width": self.width, "drawn": self.seed}


@dataclass(frozen=True)
class NamesItsSeed(Drawn):
    @property
    def name(self) -> str:
        return f"width-{self.width}-number-{self.seed}"


def names(experiment: Experiment, *, quick: bool = False, seeds: int | None = None) -> list[str]:
    return [run.name for run in experiment.runs(quick=quick, seeds=seeds)]


def test_every_setting_is_run_with_every_seed_and_what_has_none_once() -> None:
    experiment = Experiment("some", "Some", (Drawn(1), Fixed(2), Drawn(3)), seeds=2)
    assert names(experiment) == [
        "width-1-seed0",
        "width-1-seed1",
        "width-2",
        "width-3-seed0",
        "width-3-seed1",
    ]
    assert [run.entry for run in experiment.runs(seeds=1)] == [Drawn(1, 0), Fixed(2), Drawn(3, 0)]
    assert experiment.runs()[1].entry == Drawn(1, seed=1)


def test_a_single_seed_is_not_named_unless_it_is_asked_for() -> None:
    experiment = Experiment("some", "Some", (Drawn(1),))
    assert names(experiment) == ["width-1"]
    assert names(experiment, seeds=1) == ["width-1-seed0"]


def test_the_quick_version_has_entries_of_its_own_and_two_seeds_at_most() -> None:
    experiment = Experiment("some", "Some", (Drawn(10), Drawn(20)), seeds=5, quick=(Drawn(1),))
    assert names(experiment, quick=True) == ["width-1-seed0", "width-1-seed1"]
    assert len(names(experiment, quick=True, seeds=3)) == 3
    assert experiment.to_dict()["quick"] == ["width-1"]


def test_an_entry_that_names_its_seed_takes_no_other() -> None:
    assert takes_seeds(Drawn(1))
    assert not takes_seeds(Fixed(1))
    assert not takes_seeds(NamesItsSeed(1))


def test_impossible_seeds_and_quick_versions_are_refused() -> None:
    fixed = Experiment("fixed", "Fixed", (Fixed(1), NamesItsSeed(2)))
    with pytest.raises(ExperimentError, match="run with 3 seeds: none of its 2 entries takes one"):
        fixed.runs(seeds=3)
    with pytest.raises(ExperimentError, match="run with 2 seeds: none of its 1 entries takes one"):
        Experiment("fixed", "Fixed", (Fixed(1),), seeds=2)
    with pytest.raises(ExperimentError, match="some: at least 1 seed is needed, got 0"):
        Experiment("some", "Some", (Drawn(1),)).runs(seeds=0)
    with pytest.raises(ExperimentError, match="fixed has no quick version"):
        fixed.runs(quick=True)
    with pytest.raises(ExperimentError, match="some: two of its 2 entries are width-1"):
        Experiment("some", "Some", (), quick=(Fixed(1), Drawn(1)))
