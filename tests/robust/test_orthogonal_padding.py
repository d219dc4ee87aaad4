import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.robust.orthogonal import fold_circularly, pad_circularly


@settings(deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), *[st.integers(0, 7)] * 4)
def test_folding_is_the_adjoint_of_padding_by_the_definition(
    rows: int, columns: int, top: int, bottom: int, left: int, right: int
) -> None:
    margins = ((top, bottom), (left, right))
    inputs = torch.arange(rows * columns, dtype=torch.float64).reshape(1, 1, rows, columns)
    padded = pad_circularly(inputs, margins)
    for i in range(-top, rows + bottom):
        for j in range(-left, columns + right):
            assert padded[0, 0, i + top, j + left] == inputs[0, 0, i % rows, j % columns]
    probe = torch.randn_like(padded)
    folded = fold_circularly(probe, margins)
    torch.testing.assert_close((padded * probe).sum(), (inputs * folded).sum())
