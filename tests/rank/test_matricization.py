import subprocess
import sys
from itertools import product

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import PartitionError
from rankscope.rank import Partition, matricize


def test_every_entry_lands_where_the_definition_says() -> None:
    """Cohen & Shashua (2017), Sec. 2, written out index by index."""
    array = numpy.arange(120).reshape(2, 3, 4, 5)
    matrix = matricize(array, Partition.of([1, 3], order=4))
    for a, b, c, d in product(range(2), range(3), range(4), range(5)):
        assert matrix[5 * b + d, 4 * a + c] == array[a, b, c, d]


@settings(deadline=None)
@given(
    shape=st.lists(st.integers(1, 3), min_size=2, max_size=5),
    chosen=st.sets(st.integers(0, 4), min_size=1),
)
def test_it_is_the_transposed_and_reshaped_array_for_both_libraries(
    shape: list[int], chosen: set[int]
) -> None:
    left = sorted(position for position in chosen if position < len(shape))
    if not left or len(left) == len(shape):
        left = [0]
    partition = Partition.of(left, order=len(shape))
    array = numpy.random.default_rng(0).integers(0, 100, shape)
    expected = numpy.transpose(array, partition.left + partition.right)
    rows = int(numpy.prod([shape[position] for position in left]))
    numpy.testing.assert_array_equal(matricize(array, partition), expected.reshape(rows, -1))
    as_tensor = matricize(torch.from_numpy(array), partition)
    numpy.testing.assert_array_equal(as_tensor.numpy(), expected.reshape(rows, -1))


def test_swapping_the_sides_transposes_the_matrix() -> None:
    array, partition = numpy.arange(24).reshape(2, 3, 4), Partition.of([2, 0], order=3)
    numpy.testing.assert_array_equal(
        matricize(array, partition.swapped), matricize(array, partition).T
    )


@pytest.mark.parametrize("partition", [Partition((0,), (1, 2, 3)), Partition((0,), (2,))])
def test_a_partition_of_other_positions_is_refused(partition: Partition) -> None:
    with pytest.raises(PartitionError, match=r"covers .*2.* order 3 \(shape \(2, 3, 4\)\)"):
        matricize(numpy.zeros((2, 3, 4)), partition)


def test_numpy_arrays_are_matricized_without_torch_or_numba() -> None:
    code = (
        "import sys, numpy; from rankscope.rank import Partition, matricize;"
        "matricize(numpy.zeros((2, 2)), Partition.left_right(2));"
        "print('torch' in sys.modules, 'numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"
