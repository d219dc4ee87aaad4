"""Values by the defining equations: another arithmetic, the same numbers, a cost known before."""

import math
from dataclasses import replace

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.budget import Deadline
from rankscope.errors import BudgetError, CertificateError, PrimeError, TooLargeError
from rankscope.rank import (
    BalancedResidues,
    Certificate,
    ConvolutionalCircuit,
    DefinedFunction,
    DegreePolynomial,
    MeasureOptions,
    Partition,
    PolynomialMixer,
    PolynomialNetwork,
    ProductNetwork,
    RecurrentCircuit,
    SelfAttention,
    Shallow,
    SparsePolynomial,
    TensorTrain,
    certify_rank,
    estimate_verification,
    evaluation_cost,
    measure_rank,
    verify,
)
from rankscope.workers import Workers

PRIMES = (2, 3, 101, 16_777_213, 134_217_689, 2**31 - 1)
NETWORKS = [
    SelfAttention(depth=2, width=3, heads=1, num_tokens=4),
    SelfAttention(depth=2, width=2, num_tokens=3, embedding_rank=2, has_positions=True),
    SelfAttention(depth=1, width=2, degree=5, num_tokens=3, output_position=2),
    TensorTrain(order=4, size=2, bond=3),
    Shallow(order=3, size=2, channels=3),
    ConvolutionalCircuit(num_tokens=4, num_templates=2, channels=(2, 3)),
    RecurrentCircuit(num_tokens=4, num_templates=2, channels=2, depth=2),
    ProductNetwork(num_inputs=4, degree=2, depth=2),
    DegreePolynomial(num_inputs=4, width=3, degrees=(2, 1), raised=(1, 0)),
    SparsePolynomial(terms=((1, 0, 2), (0, 3, 1))),
    PolynomialMixer(num_tokens=3, input_size=2, width=2, token_hidden=2, channel_hidden=3, depth=1),
]


@settings(deadline=None, max_examples=40)
@given(
    prime=st.sampled_from(PRIMES),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 300), st.integers(1, 3)),
    seed=st.integers(0, 2**32),
)
def test_sums_and_products_are_those_of_the_integers(
    prime: int, shape: tuple[int, int, int], seed: int
) -> None:
    generator = numpy.random.default_rng(seed)
    rows, inner, columns = shape
    left = generator.integers(0, prime, (rows, inner))
    right = generator.integers(0, prime, (inner, columns))
    if seed % 2:
        left[:], right[:] = prime // 2, prime // 2  # the largest balanced residues
    numbers = BalancedResidues(prime)
    first, second = numbers.residues(left), numbers.residues(right)
    exact = left.astype(object) @ right.astype(object) % prime
    found = numbers.integers(numbers.contract("ij,jk->ik", first, second))
    assert (found == exact).all()
    column = numbers.residues(right[:, 0])
    products = numbers.integers(numbers.multiply(first, column))
    assert (products == left.astype(object) * right[:, 0] % prime).all()
    assert (numbers.integers(numbers.add(first, column)) == (left + right[:, 0]) % prime).all()


def test_primes_and_sums_out_of_range_are_refused() -> None:
    with pytest.raises(PrimeError, match=r"from 2 to 2\^31 - 1, got 2147483659"):
        BalancedResidues(2**31 + 11)
    wide = torch.zeros(()).expand(2**23)
    with pytest.raises(TooLargeError, match="8,388,608 entries, over the limit of 4,194,304"):
        BalancedResidues(2**31 - 1).contract("i,i->", wide, wide)


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: type(network).__name__)
@pytest.mark.parametrize("prime", [101, 16_777_213, 2**31 - 1])
def test_both_arithmetics_give_the_same_values(network: PolynomialNetwork, prime: int) -> None:
    partition = Partition.interleaved(network.num_positions)
    reference = network.reference_split(partition, seed=5, prime=prime)
    assert isinstance(reference, DefinedFunction)
    fast = network.split(partition, seed=5, prime=prime)
    numbers = numpy.arange(4)
    assert (reference.values(numbers, numbers) == fast.values(numbers, numbers)).all()
    parts = reference.graded_values(numbers, numbers)
    assert (parts == fast.graded_values(numbers, numbers)).all()


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: type(network).__name__)
def test_the_cost_is_counted_without_memory(network: PolynomialNetwork) -> None:
    cost = evaluation_cost(network)
    assert cost.entries >= cost.largest >= 1
    assert cost.products >= 1
    assert 0 < cost.seconds < 1e-3


def test_the_cost_of_attention_is_its_formula() -> None:
    tokens, width = 16, 8
    cost = evaluation_cost(SelfAttention(depth=1, width=width, heads=2, num_tokens=tokens))
    # Queries and outputs of one token, keys and values of all; scores and their sums.
    maps = 2 * width**2 * (1 + tokens)
    assert cost.products == maps + 2 * tokens * width


def test_an_inverse_that_is_none_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    network = SelfAttention(depth=1, width=2)
    scales, matrix = (1, 2), numpy.ones((2, 2), dtype=numpy.int64)
    monkeypatch.setattr(
        "rankscope.rank.networks.network.interpolation_modulo", lambda *_: (scales, matrix)
    )
    with pytest.raises(CertificateError, match="cannot be told apart"):
        network.reference_split(Partition.interleaved(4), seed=0, prime=101)


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    network = SelfAttention(depth=2, width=2)
    partition = Partition.interleaved(4)
    measured = measure_rank(network, partition, MeasureOptions(primes=(16_777_213,)))
    return certify_rank(network, partition, measured, max_determinant=2)


def test_what_a_soundness_error_rests_on_is_said(certificate: Certificate) -> None:
    by_definition = verify(certificate, max_defined=None)
    assert len(by_definition.conditions) == 1
    assert "behaves like a random function" in by_definition.conditions[0]
    trusting = verify(certificate, max_defined=0)
    assert "the fast evaluation, compared in" in trusting.conditions[1]
    assert "--slow" in trusting.conditions[1]
    assert by_definition.is_proved
    assert trusting.is_proved


def test_the_cost_of_a_verification_is_known_before(certificate: Certificate) -> None:
    one, two = (estimate_verification(certificate, workers=Workers(jobs=n)) for n in (1, 2))
    assert one.fast == 0
    assert one.defined >= sum(minor.size**2 for minor in certificate.minors)
    assert math.isclose(one.seconds, 2 * two.seconds)
    assert "on 2 workers" in str(two)
    trusting = estimate_verification(certificate, max_defined=0)
    assert trusting.fast > 0
    assert "by the fast evaluation" in str(trusting)


def test_a_verification_that_takes_too_long_is_refused_or_given_up(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BudgetError, match=r"estimated to take .* more than the 1e-09 s allowed"):
        verify(certificate, max_seconds=1e-9)
    spent = replace(Deadline(1.0), _started=-10.0)
    function = SelfAttention(depth=1, width=2).reference_split(
        Partition.interleaved(4), seed=0, prime=101
    )
    assert isinstance(function, DefinedFunction)
    function.deadline = spent
    with pytest.raises(BudgetError, match="was not finished within 1 seconds"):
        function.values(numpy.arange(2), numpy.arange(2))
    monkeypatch.setattr("rankscope.rank.verification._MAX_DETERMINANT_ENTRIES", 3)
    small = replace(certificate, minors=tuple(replace(m, answers=None) for m in certificate.minors))
    with pytest.raises(BudgetError, match="entries of the minors without answers may be at most 3"):
        verify(small)


def test_more_workers_give_the_same_verdict(certificate: Certificate) -> None:
    verdicts = [verify(certificate, workers=Workers(jobs=jobs)) for jobs in (1, 2)]
    assert verdicts[0].is_proved
    assert [replace(verdict, seconds=0.0) for verdict in verdicts[:1]] == [
        replace(verdict, seconds=0.0) for verdict in verdicts[1:]
    ]
