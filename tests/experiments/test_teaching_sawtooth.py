from pathlib import Path

import pytest

from rankscope.constructions.dense import dense_layers
from rankscope.constructions.explicit_networks import depth_separation
from rankscope.experiments.experiment import RunContext
from rankscope.experiments.teaching_regions import SAWTOOTH_RIVALS, SawtoothRival
from rankscope.separation.measuring.progress import Progress


@pytest.mark.parametrize("seed", [0, 1])
def test_trained_rivals_stay_above_the_proved_distance(tmp_path: Path, seed: int) -> None:
    seen: list[Progress] = []
    rival = SawtoothRival(2, seed, steps=150)
    row = rival.run(RunContext(tmp_path, None, 60.0, seen.append))
    distance, bound = row["distance"], row["least for its pieces"]
    assert isinstance(distance, float)
    assert isinstance(bound, float)
    assert distance >= bound >= float(depth_separation(2).distance)
    assert len(seen) == 150


def test_training_brings_a_rival_nearer(tmp_path: Path) -> None:
    context = RunContext(tmp_path, None, 60.0)
    before, after = (
        SawtoothRival(2, 0, steps=steps).run(context)["distance"] for steps in (0, 200)
    )
    assert isinstance(before, float)
    assert isinstance(after, float)
    assert after < before


def test_rivals_have_the_layers_and_units_of_the_theorem(tmp_path: Path) -> None:
    network = SawtoothRival(3, 0, steps=0).train(RunContext(tmp_path, None, 60.0))
    assert [len(layer.bias) for layer in dense_layers(network)] == [3, 3, 2, 1]


def test_the_experiment_has_a_row_for_each_seed() -> None:
    assert len({entry.name for entry in SAWTOOTH_RIVALS.entries}) == 6
