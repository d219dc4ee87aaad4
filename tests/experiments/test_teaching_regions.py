from pathlib import Path

from rankscope.constructions.dense import dense_layers
from rankscope.experiments.experiment import RunContext
from rankscope.experiments.teaching_regions import TRAINED_REGIONS, TrainedRegions


def test_the_regions_of_a_trained_network_are_counted_and_drawn(tmp_path: Path) -> None:
    row = TrainedRegions((6, 4), 0, 60).run(RunContext(tmp_path, None, 60.0))
    patterns, pieces, most = row["patterns"], row["affine pieces"], row["at most"]
    assert isinstance(patterns, int)
    assert isinstance(pieces, int)
    assert isinstance(most, int)
    assert 1 <= pieces <= patterns <= most == 22 * 11
    assert (tmp_path / str(row["picture"])).stat().st_size > 0


def test_training_learns_the_circle(tmp_path: Path) -> None:
    context = RunContext(tmp_path, None, 60.0)
    (network, before), (_, after) = (
        TrainedRegions((12,), 1, steps).train(context) for steps in (0, 300)
    )
    assert after > max(before, 0.85)
    assert [len(layer.bias) for layer in dense_layers(network)] == [12, 1]


def test_rows_have_different_names() -> None:
    assert len({entry.name for entry in TRAINED_REGIONS.entries}) == 3
