from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from rankscope.diagrams import Drawable
from rankscope.errors import (
    CheckpointError,
    PartitionError,
    PrimeError,
    TooLargeError,
    UnsupportedModuleError,
)
from rankscope.progress import Progress
from rankscope.rank import (
    Arithmetic,
    MeasureOptions,
    Partition,
    PolynomialNetwork,
    ProductNetwork,
    RecurrentCircuit,
    SelfAttention,
    Setting,
    Shallow,
    TensorTrain,
    measure_rank,
    measure_ranks,
    plan_tiles,
)
from rankscope.workers import Workers


class Power(PolynomialNetwork):
    """(a x_0 + b x_1)^exponent: separation rank exponent + 1, one for each degree."""

    family = "power"
    num_positions = 2
    input_size = 1

    def __init__(self, exponent: int, *, on_template: bool = False) -> None:
        super().__init__()
        self.exponent = exponent
        self.num_templates = 1 if on_template else None
        self.weight = nn.Parameter(torch.ones(2))

    @property
    def settings(self) -> dict[str, Setting]:
        return {"exponent": self.exponent}

    @property
    def weight_degree(self) -> int:
        return self.exponent

    @property
    def input_degree(self) -> int:
        return self.exponent

    def compute(self, numbers: Arithmetic, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        base = numbers.contract("bp,p->b", inputs[:, :, 0], weights["weight"])
        power = base
        for _ in range(self.exponent - 1):
            power = numbers.multiply(power, base)
        return power

    def diagram(self) -> Drawable:
        raise NotImplementedError

    def grade_degrees(self, partition: Partition) -> tuple[int, ...]:
        return tuple(range(self.exponent + 1))


SIDES = Partition((0,), (1,))


@pytest.mark.parametrize("is_graded", [None, False, True])
def test_a_power_of_a_sum_has_one_part_for_each_degree(is_graded: bool | None) -> None:
    measured = measure_rank(Power(5), SIDES, MeasureOptions(is_graded=is_graded))
    assert measured.lower == 6
    assert measured.degree == 10
    assert not measured.is_exact
    assert measured.failure_probability < 1e-6


def test_networks_with_bounds_are_measured_exactly() -> None:
    train = TensorTrain(order=6, size=3, bond=2)
    assert measure_rank(train, Partition.interleaved(6)).lower == 18
    assert measure_rank(train, Partition.left_right(6)).is_exact
    power = ProductNetwork(num_inputs=4, degree=3, depth=2)
    for is_graded in (False, True):
        measured = measure_rank(
            power, Partition.interleaved(4), MeasureOptions(is_graded=is_graded)
        )
        assert measured.lower == 30
        assert measured.is_exact


@pytest.mark.parametrize(
    ("depth", "width", "heads", "tokens", "expected"),
    [
        (1, 4, 2, 4, 5),
        (2, 2, 1, 2, 15),
        (2, 2, 1, 4, 18),
        (2, 2, 2, 4, 17),
        (2, 3, 1, 6, 49),
        (2, 4, 2, 4, 107),
        (3, 2, 1, 2, 105),
        (3, 2, 1, 4, 232),
    ],
)
def test_attention_has_the_ranks_of_the_specification_graded_or_not(
    depth: int, width: int, heads: int, tokens: int, expected: int
) -> None:
    network = SelfAttention(depth=depth, width=width, heads=heads, num_tokens=tokens)
    for split in (Partition.interleaved(tokens), Partition.interleaved(tokens).swapped):
        for is_graded in (False, True):
            measured = measure_rank(network, split, MeasureOptions(is_graded=is_graded))
            assert measured.lower == expected
            assert measured.upper is not None
            assert measured.upper.holds_for(expected)


@pytest.mark.parametrize(
    ("sizes", "start_end", "odd_even"),
    [((8, 2, 2, 1), 2, 16), ((8, 2, 2, 2), 10, 16), ((6, 3, 2, 2), 8, 18), ((8, 3, 3, 1), 3, 81)],
)
def test_ranks_on_templates_are_those_of_the_specification(
    sizes: tuple[int, int, int, int], start_end: int, odd_even: int
) -> None:
    tokens, templates, channels, depth = sizes
    network = RecurrentCircuit(
        num_tokens=tokens, num_templates=templates, channels=channels, depth=depth
    )
    measured = measure_ranks(
        [(network, Partition.start_end(tokens)), (network, Partition.interleaved(tokens))]
    )
    assert [each.lower for each in measured] == [start_end, odd_even]
    assert all(each.degree == network.weight_degree for each in measured)


def test_the_degree_counts_what_is_drawn() -> None:
    weights = {"weight": torch.tensor([1.0, 2.0])}
    assert measure_rank(Power(3), SIDES).degree == 6
    assert measure_rank(Power(3), SIDES, weights=weights).degree == 3
    assert measure_rank(Power(3, on_template=True), SIDES).degree == 3
    nothing_drawn = measure_rank(Power(3, on_template=True), SIDES, weights=weights)
    assert nothing_drawn.degree == 0


def test_own_weights_are_measured_as_they_are() -> None:
    network = Shallow(order=4, size=3, channels=5)
    split = Partition.interleaved(4)
    weights = {name: tensor.clone() for name, tensor in network.named_parameters()}
    assert measure_rank(network, split, weights=weights).lower == 5
    for tensor in weights.values():
        tensor[..., :] = 0.1  # five equal channels
    measured = measure_rank(network, split, weights=weights)
    assert measured.lower == 1
    assert measured.has_given_weights
    assert "for these weights" in str(measured)


def test_weights_too_small_for_float_arithmetic_still_count() -> None:
    tiny = {"weight": torch.tensor([1.0, 2.0**-1000], dtype=torch.float64)}  # its square is 0
    assert measure_rank(Power(2), SIDES, weights=tiny).lower == 3
    zero = {"weight": torch.tensor([1.0, 0.0])}
    assert measure_rank(Power(2), SIDES, weights=zero).lower == 1


def test_a_module_that_is_no_polynomial_is_referred_to_the_numeric_mode() -> None:
    with pytest.raises(UnsupportedModuleError, match=r"got Softmax. The numeric mode, separation_"):
        measure_rank(nn.Softmax(dim=-1), SIDES)


def test_a_partition_that_leaves_a_position_out_is_refused() -> None:
    train = TensorTrain(order=4, size=2, bond=2)
    with pytest.raises(PartitionError, match=r"positions 0..3, the partition covers \(0, 1\)"):
        measure_rank(train, SIDES)


def test_a_prime_not_larger_than_the_degree_is_refused() -> None:
    with pytest.raises(PrimeError, match=r"degree 10 .* got 7"):
        measure_rank(Power(5), SIDES, MeasureOptions(primes=(7,)))


def test_a_network_too_large_for_the_memory_is_refused() -> None:
    with pytest.raises(TooLargeError, match="is the largest that fits"):
        measure_rank(
            TensorTrain(order=24, size=4, bond=4),
            Partition.interleaved(24),
            MeasureOptions(memory_limit=2**28),
        )


def test_a_checkpoint_belongs_to_one_network_and_its_weights(tmp_path: Path) -> None:
    options = MeasureOptions(checkpoint=tmp_path)
    weights = {"weight": torch.tensor([1.0, 2.0])}
    measured = measure_rank(Power(3), SIDES, options, weights=weights)
    assert measure_rank(Power(3), SIDES, options, weights=weights).runs == measured.runs
    with pytest.raises(CheckpointError, match="its settings is"):
        measure_rank(Power(4), SIDES, options, weights=weights)
    with pytest.raises(CheckpointError, match=r"its weights is [0-9a-f]{50,64}, not None"):
        measure_rank(Power(3), SIDES, options)


@pytest.fixture
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen tiles where there would be one, so that the workers have something to do."""
    monkeypatch.setattr("rankscope.rank.measurement.plan_tiles", partial(plan_tiles, side=16))


def runs_with(workers: Workers) -> object:
    train = TensorTrain(order=6, size=4, bond=4)
    return measure_rank(train, Partition.interleaved(6), MeasureOptions(workers=workers)).runs


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_local_workers_change_nothing(backend: str) -> None:
    assert runs_with(Workers(backend, jobs=2)) == runs_with(Workers("sequential"))


def test_several_measurements_keep_their_order_and_their_folders(tmp_path: Path) -> None:
    reports: list[Progress] = []
    split = Partition.interleaved(4)
    questions = [(TensorTrain(order=4, size=size, bond=2), split) for size in (4, 1, 3)]
    options = MeasureOptions(checkpoint=tmp_path, report=reports.append, workers=Workers(jobs=2))
    measured = measure_ranks(questions, options)
    assert [each.lower for each in measured] == [8, 1, 6]
    assert reports == [Progress("measurements", done, 3) for done in (1, 2, 3)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0000", "0001", "0002"]
    assert measure_ranks([], options) == []
