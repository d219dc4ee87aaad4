import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import BudgetError, MeasurementError, TooLargeError
from rankscope.rank import (
    DegreePolynomial,
    MeasureOptions,
    MemoryBudget,
    MessagePassing,
    Partition,
    PolynomialMixer,
    PolynomialNetwork,
    PolynomialTransformer,
    ProductNetwork,
    Recurrence,
    SelfAttention,
    available_memory,
    default_memory_limit,
    measure_rank,
)

CROWN = (1, 10, 55, 220, 715, 2002, 5005, 11_440, 8008, 2860, 880, 220, 40, 4)


def test_the_largest_planned_measurement_fits_16_gib() -> None:
    shapes = [(size, size) for size in CROWN]
    MemoryBudget(16 * 2**30).require(shapes, instead="")
    assert MemoryBudget(1).needed(shapes) < 4 * 2**30


def test_on_disk_only_the_largest_elimination_counts() -> None:
    shapes = [(100, 200), (300, 10)]
    assert MemoryBudget(1).needed(shapes) == 4 * 23_000 + 10 * 20_000
    assert MemoryBudget(1, is_on_disk=True, reserve=7).needed(shapes) == 10 * 20_000 + 7


@settings(deadline=None)
@given(
    shapes=st.lists(st.tuples(st.integers(1, 500), st.integers(1, 500)), min_size=1, max_size=4),
    limit=st.integers(1, 10**6),
    is_on_disk=st.booleans(),
)
def test_the_largest_side_fits_and_the_next_does_not(
    shapes: list[tuple[int, int]], limit: int, is_on_disk: bool
) -> None:
    budget = MemoryBudget(limit, is_on_disk=is_on_disk)
    side = budget.largest_side(shapes)

    def needed(most: int) -> int:
        return budget.needed([(min(a, most), min(b, most)) for a, b in shapes])

    assert needed(side) <= limit
    assert side == max(max(shape) for shape in shapes) or needed(side + 1) > limit


def test_what_does_not_fit_is_refused_with_the_largest_that_does() -> None:
    budget = MemoryBudget(14 * 1000**2)
    with pytest.raises(
        TooLargeError,
        match=r"a matrix of 1,001 x 2,000 .* needs 2,002,000 entries, over the limit of 1,000,000. "
        r"In the 13 MiB allowed, 1,000 x 1,000 is the largest that fits. Do less.",
    ):
        budget.require([(1001, 2000)], instead="Do less.")
    with pytest.raises(TooLargeError, match="2 blocks, the largest of 3,000 x 3,000"):
        budget.require([(3000, 3000), (10, 10)], instead="")


def write_information(folder: Path, available: int) -> Path:
    path = folder / "meminfo"
    path.write_text(f"MemTotal:  9999999 kB\nMemAvailable:  {available} kB\n", encoding="ascii")
    return path


def test_linux_tells_what_is_available(tmp_path: Path) -> None:
    information = write_information(tmp_path, 1000)
    assert available_memory(information=information, group=tmp_path) == 1_024_000


def test_a_container_may_be_allowed_less(tmp_path: Path) -> None:
    information = write_information(tmp_path, 1000)
    (tmp_path / "memory.current").write_text("30000\n", encoding="ascii")
    (tmp_path / "memory.max").write_text("80000\n", encoding="ascii")
    assert available_memory(information=information, group=tmp_path) == 50_000
    (tmp_path / "memory.max").write_text("max\n", encoding="ascii")
    assert available_memory(information=information, group=tmp_path) == 1_024_000


def test_elsewhere_half_of_what_is_built_in_or_4_gib_is_assumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = tmp_path / "nothing"
    built_in = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert available_memory(information=nowhere) == built_in // 2
    monkeypatch.delattr(os, "sysconf_names")
    assert available_memory(information=nowhere) == 4 * 2**30


def test_the_default_limit_leaves_a_fifth_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.rank.tiles.available_memory", lambda: 1000)
    assert default_memory_limit() == 800


def test_a_first_sample_that_takes_too_long_is_refused_before_it_begins() -> None:
    network = PolynomialTransformer(
        depth=3, width=16, heads=2, is_causal=True, has_residual=True, num_tokens=32
    )
    with pytest.raises(
        BudgetError,
        match=r"Measuring polynomial-transformer on a first sample of 512 x 512 points is "
        r"estimated to take .* of one core \(196,608 products for each value\); the best bound, "
        r".* would need .* MiB. In 10 s, no sample fits.",
    ):
        measure_rank(network, Partition.interleaved(32), MeasureOptions(memory_limit=2**30))


@pytest.mark.parametrize(
    "network",
    [
        PolynomialTransformer(depth=2, width=2, num_tokens=4, is_causal=True),
        Recurrence(kind="delta", depth=2, width=2, num_tokens=4),
        MessagePassing(edges=((0, 1), (1, 2), (2, 3)), num_vertices=4, depth=2, width=2),
        SelfAttention(depth=2, width=2, num_tokens=4),
        PolynomialMixer(
            num_tokens=4, input_size=2, width=2, token_hidden=2, channel_hidden=2, depth=1
        ),
        DegreePolynomial(num_inputs=4, width=2, degrees=(2, 2)),
        ProductNetwork(num_inputs=4, degree=2, depth=2),
    ],
    ids=lambda network: network.family,
)
def test_every_family_has_an_estimate(network: PolynomialNetwork) -> None:
    with pytest.raises(BudgetError, match=f"Measuring {network.family} on a first sample of"):
        measure_rank(network, Partition.interleaved(4), MeasureOptions(max_seconds=1e-9))
    with pytest.raises(MeasurementError, match="max_seconds must be above 0, got -1"):
        MeasureOptions(max_seconds=-1.0)
