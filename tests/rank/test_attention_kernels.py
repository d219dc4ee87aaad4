"""The kernels at the edge of exactness; test_programs runs all of them on random programs."""

import numpy
import pytest

from rankscope.rank import ProgramWriter, evaluate_pairs


@pytest.mark.slow
@pytest.mark.parametrize("prime", [33554393, 2147483647])
def test_the_largest_residues_stay_exact(prime: int) -> None:
    # All operands are (p - 1) / 2 on both sides, so that sums of sides are as large as can be.
    size, half = 16, (prime - 1) // 2
    writer = ProgramWriter(size, prime)
    squares = writer.dot(writer.inputs, writer.inputs)
    cubes = writer.mix(numpy.full(5, half), [squares] * 5)
    identity = ProgramWriter(1, prime)
    found = numpy.empty((1, 1, 1), dtype=numpy.int64)
    evaluate_pairs(
        writer.finish([cubes]),
        identity.finish([identity.mix(numpy.array([1]), identity.inputs)]),
        numpy.full((1, size), float(half)),
        numpy.full((1, size, 1), float(half)),
        prime,
        found,
    )
    assert int(found[0, 0, 0]) == 5 * half * size * (2 * half) ** 2 % prime
