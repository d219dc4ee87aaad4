import itertools
import math
from collections.abc import Sequence

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.diagrams import Role
from rankscope.reading import (
    ArrayView,
    expanded,
    guess,
    merged,
    permuted,
    reshaped,
    squeezed,
    unsqueezed,
    whole,
)
from rankscope.reading.views import FEATURE, GENERIC, HEAD, HEAD_FEATURE, common_cuts, parts_of


def realized(value: ArrayView, array: Tensor) -> Tensor:
    """The tensor that a value stands for, from its definition: cut the array, order the pieces."""
    cut = array.reshape([piece.size for piece in value.stored])
    place = {piece: position for position, piece in enumerate(value.stored)}
    for piece in value.flat:
        if piece not in place:
            cut = cut[..., None].expand(*cut.shape, piece.size)
            place[piece] = cut.ndim - 1
    return cut.permute([place[piece] for piece in value.flat]).reshape(value.shape)


def numbered(shape: Sequence[int]) -> tuple[ArrayView, Tensor]:
    value = whole("x", shape, guess(len(shape)), Role.DATA)
    return value, torch.arange(math.prod(shape)).reshape(tuple(shape))


SHAPES = st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)


@st.composite
def factorizations(draw: st.DrawFn, total: int) -> list[int]:
    """Sizes that multiply to a number, with some ones in between."""
    sizes: list[int] = []
    while total > 1:
        size = draw(st.sampled_from([n for n in range(2, total + 1) if total % n == 0]))
        sizes.append(size)
        total //= size
    for _ in range(draw(st.integers(0, 2))):
        sizes.insert(draw(st.integers(0, len(sizes))), 1)
    return sizes


@settings(deadline=None)
@given(data=st.data(), shape=SHAPES)
def test_views_show_the_same_numbers_as_in_pytorch(data: st.DataObject, shape: list[int]) -> None:
    """Whatever is transposed and reshaped; only a reshape may say that a copy is needed."""
    value, array = numbered(shape)
    tensor = array
    for _ in range(data.draw(st.integers(1, 4))):
        if data.draw(st.booleans()):
            order = data.draw(st.permutations(range(tensor.ndim)))
            value, tensor = permuted(value, order), tensor.permute(order)
        else:
            sizes = data.draw(factorizations(tensor.numel()))
            found = reshaped(value, sizes)
            if found is None:
                thick = [piece for piece in value.stored if piece.size > 1]
                assert thick != [piece for piece in value.flat if piece.size > 1]
                continue
            value, tensor = found, tensor.reshape(sizes)
    assert value.shape == tuple(tensor.shape)
    assert torch.equal(realized(value, array), tensor)


@settings(deadline=None)
@given(data=st.data(), shape=SHAPES)
def test_axes_of_size_one_come_go_and_are_repeated(data: st.DataObject, shape: list[int]) -> None:
    value, array = numbered(shape)
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    wide, tensor = unsqueezed(value, axis), array.unsqueeze(axis)
    assert torch.equal(realized(wide, array), tensor)
    place = axis % (len(shape) + 1)
    assert torch.equal(realized(squeezed(wide, place), array), array)
    repeated = expanded(wide, place, whole("y", (5,), (GENERIC,), Role.DATA).stored[0])
    assert repeated.is_expanded
    sizes = [5 if n == place else -1 for n in range(tensor.ndim)]
    assert torch.equal(realized(repeated, array), tensor.expand(sizes))


def test_an_axis_of_another_size_is_not_squeezed() -> None:
    value, _ = numbered((2, 3))
    assert squeezed(value, 0) is value


def test_pieces_that_are_apart_are_not_merged() -> None:
    value, array = numbered((2, 3, 4))
    swapped = permuted(value, (0, 2, 1))
    flat = reshaped(swapped, (2, 12))
    assert flat is not None
    assert [piece.size for piece in flat.axes[1]] == [4, 3]
    assert merged(flat, 1) is None
    straight = reshaped(value, (2, 12))
    assert straight is not None
    joined = merged(straight, 1)
    assert joined is not None
    assert [piece.size for piece in joined.axes[1]] == [12]
    assert torch.equal(realized(joined, array), array.reshape(2, 12))


def test_features_are_split_into_heads() -> None:
    value, _ = numbered((2, 5, 12))
    split = reshaped(value, (2, 5, 3, 4))
    assert split is not None
    assert [axis[0].sort for axis in split.axes[2:]] == [HEAD, HEAD_FEATURE]
    assert [sort.letter for sort in parts_of(FEATURE, 3)] == ["p", "h", "d"]


@settings(deadline=None)
@given(data=st.data(), total=st.sampled_from([12, 24, 36]))
def test_a_common_cut_refines_every_group(data: st.DataObject, total: int) -> None:
    groups = [data.draw(factorizations(total)) for _ in range(2)]
    cuts = common_cuts(groups)
    borders = [{math.prod(sizes[:n]) for n in range(len(sizes) + 1)} for sizes in groups]
    wanted = sorted(borders[0] | borders[1])
    if cuts is None:
        assert any(later % earlier for earlier, later in itertools.pairwise(wanted))
    else:
        assert [math.prod(cuts[:n]) for n in range(len(cuts) + 1)] == wanted
