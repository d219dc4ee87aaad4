import numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.factorize import compose
from rankscope.factorize.tucker import compress


@settings(deadline=None)
@given(
    shape=st.lists(st.integers(1, 6), min_size=2, max_size=4),
    num_components=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_compression_keeps_the_tensor_in_the_least_sizes(
    shape: list[int], num_components: int, seed: int
) -> None:
    draw = numpy.random.default_rng(seed)
    tensor = compose(tuple(draw.standard_normal((size, num_components)) for size in shape))
    core, bases = compress(tensor)
    for position, basis in enumerate(bases):
        matrix = numpy.moveaxis(tensor, position, 0).reshape(shape[position], -1)
        assert basis.shape[1] == core.shape[position] == numpy.linalg.matrix_rank(matrix)
        numpy.testing.assert_allclose(basis.T @ basis, numpy.eye(basis.shape[1]), atol=1e-12)
        core = numpy.moveaxis(numpy.tensordot(core, basis, (position, 1)), -1, position)
    numpy.testing.assert_allclose(core, tensor, atol=1e-10)


def test_zero_keeps_one_entry() -> None:
    assert compress(numpy.zeros((2, 3, 4)))[0].shape == (1, 1, 1)
