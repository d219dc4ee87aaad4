import pytest

from rankscope.diagrams.parts import Convolution
from rankscope.diagrams.running.lowering import (
    Elementwise,
    MatrixProduct,
    Padded,
    lower_convolution,
    lower_product,
)
from rankscope.errors import SizeError

SIZES = {"b": 2, "i": 3, "j": 4, "k": 5}


@pytest.mark.parametrize("batch", [(), ("b",)])
@pytest.mark.parametrize("first", [("i", "j"), ("j", "i")])
@pytest.mark.parametrize("second", [("j", "k"), ("k", "j")])
@pytest.mark.parametrize("output", [("i", "k"), ("k", "i")])
def test_matrix_products_need_no_copy_and_never_transpose_the_larger_operand(
    batch: tuple[str, ...], first: tuple[str, ...], second: tuple[str, ...], output: tuple[str, ...]
) -> None:
    inputs = ((*batch, *first), (*batch, *second))
    lowered = lower_product(inputs, (*batch, *output), SIZES)
    assert isinstance(lowered, MatrixProduct)
    assert (lowered.left.reduce, lowered.right.reduce, lowered.shape) == (None, None, None)
    assert lowered.is_batched == bool(batch)
    # The second operand, 4 x 5, is larger than the first, 3 x 4.
    larger = lowered.left if lowered.is_swapped else lowered.right
    assert not larger.is_transposed
    made = ("k", "i") if lowered.is_swapped else ("i", "k")
    assert (lowered.permutation is None) == (made == output)


def test_products_without_a_sum_are_multiplied_entry_by_entry() -> None:
    assert lower_product((("i", "j"), ("i", "j")), ("i", "j"), SIZES) == Elementwise(None, None)


def test_equal_padding_with_zeros_is_left_to_the_convolution() -> None:
    sizes = {"h": 9, "k": 3, "w": 9, "l": 3}
    inputs = (("h", "w"), ("k", "l"))
    rows = Convolution("rows", "h", "k", "x", padding=(1, 1))
    columns = Convolution("columns", "w", "l", "y", padding=(1, 2))
    even = lower_convolution((("h",), ("k",)), ("x",), (rows,), sizes)
    assert (even.padding, even.paddings) == ((1,), ())
    uneven = lower_convolution(inputs, ("x", "y"), (rows, columns), sizes)
    assert uneven.padding == (0, 0)
    assert uneven.paddings == (
        Padded((0, 0, 1, 1), "constant"),
        Padded((1, 2, 0, 0), "constant"),
    )


@pytest.mark.parametrize(
    ("mode", "padding", "limit"),
    [("circular", (0, 5), "0 to 4"), ("reflect", (4, 0), "0 to 3"), ("replicate", (-1, 0), "0")],
)
def test_padding_further_than_its_mode_reaches_is_refused(
    mode: str, padding: tuple[int, int], limit: str
) -> None:
    part = Convolution("star", "h", "k", "x", padding=padding, padding_mode=mode)
    message = (
        rf"'star': {mode} padding of an input of size 4 must be from {limit}, got \({padding[0]}"
    )
    with pytest.raises(SizeError, match=message):
        lower_convolution((("h",), ("k",)), ("x",), (part,), {"h": 4, "k": 1})
