import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams.running.axes import grouped
from rankscope.diagrams.running.products import reduced

SIZES = {"a": 2, "b": 3, "c": 4, "d": 1}


@settings(deadline=None, max_examples=60)
@given(
    indices=st.lists(st.sampled_from("abcd"), max_size=5),
    order=st.permutations("abcd"),
    count=st.integers(0, 4),
    split=st.integers(0, 4),
    seed=st.integers(0, 99),
)
def test_grouping_takes_diagonals_sums_moves_and_merges(
    indices: list[str], order: list[str], count: int, split: int, seed: int
) -> None:
    kept = [index for index in order if index in indices][:count]
    groups = (tuple(kept[:split]), tuple(kept[split:]))
    shape = [SIZES[index] for index in indices]
    value = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    reduce = grouped(tuple(indices), groups, SIZES)
    found = value if reduce is None else reduced(value, reduce)
    expected = torch.einsum(f"{''.join(indices)}->{''.join(kept)}", value)
    rows = 1
    for index in groups[0]:
        rows *= SIZES[index]
    torch.testing.assert_close(found, expected.reshape(rows, -1))


def test_nothing_is_done_to_a_tensor_that_is_already_right() -> None:
    assert grouped(("a", "b"), (("a",), ("b",)), SIZES) is None
