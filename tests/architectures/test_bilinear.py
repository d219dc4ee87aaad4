"""Bilinear recurrent networks are tensor trains."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.architectures.bilinear import BilinearRecurrent
from rankscope.architectures.tensor_train import TensorTrain
from rankscope.errors import SizeError
from rankscope.separation.exact.modular import rank_modulo
from rankscope.separation.measuring.draws import draw_residues
from rankscope.separation.partition import Partition

ORDER_SIZE_BOND = st.integers(2, 5).flatmap(
    lambda order: st.tuples(
        st.just(order),
        st.integers(1, 3),
        st.integers(1, 3)
        | st.lists(st.integers(1, 3), min_size=order - 1, max_size=order - 1).map(tuple),
    )
)


def train_of(drawn: tuple[int, int, int | tuple[int, ...]]) -> TensorTrain:
    """Equal cores where one bond dimension was drawn."""
    order, size, bond = drawn
    has_equal_cores = isinstance(bond, int)
    return TensorTrain(order=order, size=size, bond=bond, has_equal_cores=has_equal_cores).double()


@settings(deadline=None, max_examples=30)
@given(drawn=ORDER_SIZE_BOND, seed=st.integers(0, 2**16))
def test_a_train_and_its_recurrent_network_are_equal(
    drawn: tuple[int, int, int | tuple[int, ...]], seed: int
) -> None:
    train = train_of(drawn)
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(4, train.order, train.size, generator=generator, dtype=torch.float64)
    network = BilinearRecurrent.from_tensor_train(train)
    torch.testing.assert_close(network(inputs), train(inputs))
    assert network.hidden_sizes == train.bonds


@settings(deadline=None, max_examples=30)
@given(drawn=ORDER_SIZE_BOND, seed=st.integers(0, 2**16), prime=st.sampled_from((2, 5, 11)))
def test_a_train_and_its_recurrent_network_are_equal_modulo_a_prime(
    drawn: tuple[int, int, int | tuple[int, ...]], seed: int, prime: int
) -> None:
    train = train_of(drawn)
    weights = train.draw_weights(seed, prime)
    inputs = draw_residues(seed, "inputs", (4, train.order, train.size), prime)
    train.load_state_dict({name: torch.from_numpy(core) for name, core in weights.items()})
    # Integers up to (9 * 10 * 10)^5 < 2^53, so that the floats of the recurrent network are exact.
    exact = BilinearRecurrent.from_tensor_train(train)(torch.from_numpy(inputs).double())
    residues = exact.long() % prime
    assert residues.tolist() == train.evaluate_modulo(weights, inputs, prime).tolist()


def test_hidden_sizes_are_the_ranks_of_the_train() -> None:
    train, prime = TensorTrain(order=5, size=3, bond=(2, 4, 5, 3)), 1073741789
    sizes = BilinearRecurrent.from_tensor_train(train).hidden_sizes
    samples = torch.arange(8).numpy()
    for cut, hidden in enumerate(sizes, 1):
        partition = Partition.of(range(cut), order=5)
        values = train.split(partition, seed=0, prime=prime).values(samples, samples)
        assert rank_modulo(values, prime) == hidden


def test_equal_cores_are_one_recurrent_cell_and_cells_are_copies() -> None:
    train = TensorTrain(order=6, size=2, bond=3, has_equal_cores=True)
    network = BilinearRecurrent.from_tensor_train(train)
    assert len({id(cell) for cell in network.cells}) == 3
    assert sum(weight.numel() for weight in network.parameters()) == sum(
        core.numel() for core in train.parameters()
    )
    inputs = torch.ones(1, 6, 2)
    expected = train(inputs)
    with torch.no_grad():
        next(network.parameters()).zero_()
    torch.testing.assert_close(train(inputs), expected)


def test_a_sequence_of_another_length_is_refused() -> None:
    network = BilinearRecurrent.from_tensor_train(TensorTrain(order=4, size=2, bond=3))
    with pytest.raises(SizeError, match=r"shape \(batch, 4, size\), got \(1, 5, 2\)"):
        network(torch.ones(1, 5, 2))
    with pytest.raises(SizeError, match=r"shape \(batch, 4, size\), got \(5, 4\)"):
        network(torch.ones(5, 4))
