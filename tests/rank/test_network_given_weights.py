from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import MeasurementError, PrimeError
from rankscope.rank import TensorTrain, weight_residues
from rankscope.rank.networks.given_weights import digest, require_weights_of

PRIMES = (3, 101, 16777213, 2**31 - 1)


@settings(deadline=None)
@given(number=st.floats(allow_nan=False, allow_infinity=False), prime=st.sampled_from(PRIMES))
def test_a_float_is_its_own_fraction_modulo_the_prime(number: float, prime: int) -> None:
    fraction = Fraction(number)
    expected = fraction.numerator * pow(fraction.denominator, -1, prime) % prime
    weights = {"weight": torch.tensor([[number]], dtype=torch.float64)}
    assert weight_residues(weights, prime)["weight"].tolist() == [[expected]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32])
def test_every_real_type_is_taken_exactly(dtype: torch.dtype) -> None:
    weights = {"weight": torch.tensor([-3.0, 0.0, 2.0]).to(dtype).requires_grad_(False)}
    assert weight_residues(weights, 101)["weight"].tolist() == [98, 0, 2]


def test_weights_that_are_no_numbers_are_refused() -> None:
    weights = {"core": torch.tensor([1.0, float("nan"), float("inf"), 2.0])}
    with pytest.raises(MeasurementError, match="core has 2 of 4 that are infinite or not a number"):
        weight_residues(weights, 101)


def test_complex_weights_are_refused() -> None:
    with pytest.raises(MeasurementError, match=r"core is torch.complex64. Use the numeric mode"):
        weight_residues({"core": torch.zeros(2, dtype=torch.complex64)}, 101)


def test_there_is_no_half_modulo_two() -> None:
    with pytest.raises(PrimeError, match="odd prime, got 2"):
        weight_residues({}, 2)


def test_weights_of_another_network_are_refused() -> None:
    network = TensorTrain(order=4, size=2, bond=3)
    weights = dict(network.named_parameters())
    require_weights_of(network, weights)
    other = dict(TensorTrain(order=4, size=2, bond=5).named_parameters())
    with pytest.raises(MeasurementError, match=r"TensorTrain wants \S+ of shape .*3.*, got .*5"):
        require_weights_of(network, other)
    name = min(weights)
    with pytest.raises(MeasurementError, match=rf"wants {name} of shape \(.*, got None"):
        require_weights_of(network, {key: weights[key] for key in weights if key != name})
    with pytest.raises(MeasurementError, match=r"wants extra of shape None, got \(1,\)"):
        require_weights_of(network, {**weights, "extra": torch.zeros(1)})


def test_the_digest_tells_weights_apart() -> None:
    weights = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([3.0])}
    assert digest(weights) == digest(dict(reversed(weights.items())))
    for other in (
        {"a": torch.tensor([1.0, 2.5]), "b": torch.tensor([3.0])},
        {"a": torch.tensor([[1.0, 2.0]]), "b": torch.tensor([3.0])},
        {"a": torch.tensor([1.0, 2.0]), "c": torch.tensor([3.0])},
    ):
        assert digest(other) != digest(weights)
