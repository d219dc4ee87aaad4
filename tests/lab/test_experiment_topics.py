"""What single topics show; that all of them run is tested by tests/test_topic_pages.py."""

from fractions import Fraction

from rankscope.lab.constructions import depth_separation
from rankscope.lab.experiments import find_topic


def test_the_worked_example_has_the_numbers_of_the_source() -> None:
    numbers = find_topic("attention-example").run().numbers
    assert numbers["scores"] == [112.0, 96.0]
    assert numbers["divided by √64 = 8"] == [14.0, 12.0]
    assert numbers["weights"] == [0.88, 0.12]


def test_a_trained_rival_stays_above_the_bound() -> None:
    result = find_topic("sawtooth").run()
    distance = result.measured["distance of a trained rival"]
    assert isinstance(distance, float)
    assert distance >= depth_separation(2).distance >= Fraction(1, 32)


def test_operations_of_attention_are_the_polynomial_on_the_page() -> None:
    numbers = find_topic("multi-head-attention").run().numbers
    once, pairs = (
        numbers[name]
        for name in ("projections, per position", "scores and values, per pair of positions")
    )
    assert isinstance(once, int)
    assert isinstance(pairs, int)
    for length in (64, 128, 256, 512, 1024):
        assert numbers[f"operations at length {length:,}"] == once * length + pairs * length**2
