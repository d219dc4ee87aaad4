"""Equal content and nothing else has equal fingerprints."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing import fingerprint


@settings(deadline=None)
@given(entries=st.lists(st.integers(-2, 2), min_size=6, max_size=6), place=st.integers(0, 5))
def test_fingerprints_differ_if_and_only_if_an_entry_does(entries: list[int], place: int) -> None:
    tensor = torch.tensor(entries, dtype=torch.float32).reshape(2, 3)
    changed = tensor.clone()
    changed.view(-1)[place] += 7
    mark = fingerprint(tensor)
    assert mark == fingerprint(tensor.clone())
    assert (mark is None) == (len(set(entries)) == 1)
    assert fingerprint(changed) != mark


def test_shape_and_dtype_count_as_content() -> None:
    tensor = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    others = [tensor.reshape(3, 2), tensor.view(torch.int32), tensor.double()]
    assert len({fingerprint(other) for other in [tensor, *others]}) == 4


def test_order_in_memory_does_not_count() -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    assert fingerprint(tensor.T) == fingerprint(tensor.T.contiguous())


def test_a_difference_in_the_last_piece_of_a_long_tensor_is_seen() -> None:
    tensor = torch.zeros(600_000)
    assert fingerprint(tensor) is None
    tensor[-1] = 1
    assert fingerprint(tensor) is not None
    assert fingerprint(tensor) != fingerprint(tensor.flip(0))
