from dataclasses import replace

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import CertificateError, FamilyError, MatrixError
from rankscope.progress import Progress
from rankscope.rank import (
    Certificate,
    CertifiedMinor,
    DrawnWeights,
    GivenWeights,
    MeasuredRank,
    MeasureOptions,
    Minor,
    Partition,
    PolynomialNetwork,
    ProductNetwork,
    RecurrentCircuit,
    Residues,
    Run,
    SelfAttention,
    Shallow,
    certify_rank,
    measure_rank,
    num_challenges,
    pack_answers,
    parse_certificate,
    rank_modulo,
    to_json,
    verify,
)
from rankscope.rank.certificate import MAX_DETERMINANT
from rankscope.rank.networks.convolutional import ShallowFunction

SHALLOW = Shallow(order=4, size=2, channels=3)
SPLIT = Partition.interleaved(4)


def certified(
    network: PolynomialNetwork, *, is_graded: bool | None = None, max_determinant: int = 500
) -> Certificate:
    """The certificate of a measurement, written to JSON and read again."""
    partition = Partition.interleaved(network.num_positions)
    measured = measure_rank(network, partition, MeasureOptions(is_graded=is_graded))
    made = certify_rank(network, partition, measured, max_determinant=max_determinant)
    read = parse_certificate(to_json(made).encode())
    assert read == made
    return read


@pytest.mark.parametrize(
    ("network", "separation_rank"),
    [
        (SelfAttention(depth=2, width=3), 49),
        (ProductNetwork(num_inputs=4, degree=3, depth=2), 30),
        (SHALLOW, 3),
        (RecurrentCircuit(num_tokens=6, num_templates=3, channels=2, depth=2), 18),
    ],
)
def test_measured_ranks_are_proved_by_determinants(
    network: PolynomialNetwork, separation_rank: int
) -> None:
    verdict = verify(certified(network))
    assert verdict.is_proved
    assert verdict.lower == separation_rank
    assert verdict.soundness == "0"
    assert verdict.paths == ("1 minor: determinants by FLINT, values by the defining equations",)
    assert f"is at least {separation_rank}." in verdict.statement


@pytest.mark.parametrize("network", [SelfAttention(depth=2, width=3), SHALLOW])
def test_large_minors_are_proved_by_answers(network: PolynomialNetwork) -> None:
    certificate = certified(network, max_determinant=2)
    slow, quick = verify(certificate), verify(certificate, max_defined=0)
    assert slow.is_proved
    assert quick.is_proved
    assert slow.soundness == quick.soundness == "2^-119.9"
    assert slow.paths == ("1 minor: answers to challenges, values by the defining equations",)
    assert "values by the fast evaluation" in quick.paths[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "network", [SelfAttention(depth=2, width=3), ProductNetwork(num_inputs=4, degree=3, depth=2)]
)
def test_graded_minors_add_up_and_may_be_small_and_large(network: PolynomialNetwork) -> None:
    whole, graded = certified(network), certified(network, is_graded=True, max_determinant=4)
    assert graded.lower == whole.lower
    assert len(graded.minors) > 1
    by_definition, by_fast = (verify(graded, max_defined=limit) for limit in (10**9, 0))
    for verdict, path in ((by_definition, "defining equations"), (by_fast, "fast evaluation;")):
        assert verdict.is_proved
        assert verdict.num_minors == len(graded.minors)
        assert "determinants by FLINT, values by the defining equations" in verdict.paths[0]
        assert f"answers to challenges, values by the {path}" in verdict.paths[1]


@settings(deadline=None, max_examples=20)
@given(
    network=st.sampled_from(
        [
            SelfAttention(depth=2, width=2, heads=2),
            SelfAttention(depth=1, width=2, degree=5, output_position=1),
            ProductNetwork(num_inputs=4, degree=2, depth=2),
        ]
    ),
    scale=st.integers(2, 100),
    seed=st.integers(0, 2**16),
)
def test_graded_networks_are_homogeneous_in_all_inputs_together(
    network: PolynomialNetwork, scale: int, seed: int
) -> None:
    """Otherwise the ranks of the parts need not add up: a b + a b^2 is a product, a (b + b^2)."""
    prime = 16777213
    assert len(network.grade_degrees(Partition.interleaved(network.num_positions))) > 1
    weights = network.draw_weights(seed, prime)
    shape = (1, network.num_positions, network.input_size)
    inputs = numpy.random.default_rng(seed).integers(0, prime, shape)
    once = int(network.evaluate_modulo(weights, inputs, prime)[0])
    scaled = int(network.evaluate_modulo(weights, inputs * scale % prime, prime)[0])
    assert scaled == once * pow(scale, network.input_degree, prime) % prime


def claim(minor: CertifiedMinor, prime: int = 101, seed: int = 0) -> Certificate:
    return Certificate(
        family="shallow",
        settings=SHALLOW.settings,
        partition=SPLIT,
        weights=DrawnWeights(seed),
        points_seed=seed + 1,
        prime=prime,
        lower=minor.size,
        minors=(minor,),
    )


@settings(deadline=None, max_examples=60)
@given(
    size=st.integers(1, 4),
    prime=st.sampled_from([2, 3, 101, 16777213, 2147483647]),
    seed=st.integers(0, 2**16),
    data=st.data(),
)
def test_a_claim_is_proved_exactly_if_its_minor_is_not_0(
    size: int, prime: int, seed: int, data: st.DataObject
) -> None:
    numbers = st.sets(st.integers(0, 2**31 - 1), min_size=size, max_size=size).map(sorted)
    rows, columns = tuple(data.draw(numbers)), tuple(data.draw(numbers))
    certificate = claim(CertifiedMinor(None, rows, columns), prime, seed)
    function = SHALLOW.split(
        SPLIT, seed=seed + 1, prime=prime, weights=SHALLOW.draw_weights(seed, prime)
    )
    matrix = function.values(numpy.array(rows), numpy.array(columns))
    verdict = verify(certificate)
    assert verdict.is_proved == (rank_modulo(matrix, prime) == size)
    assert verdict.is_proved <= (size <= 3)
    if not verdict.is_proved:
        assert verdict.reason == f"minor 0, of size {size}, is 0 modulo {prime}."


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32), max_defined=st.sampled_from([0, 10**6]))
def test_whatever_is_answered_for_a_rank_that_is_too_high_fails(
    seed: int, max_defined: int
) -> None:
    drawn = numpy.random.default_rng(seed).integers(0, 101, (4, num_challenges(101)))
    minor = CertifiedMinor(None, (0, 1, 2, 3), (0, 1, 2, 3), pack_answers(drawn))
    verdict = verify(claim(minor, seed=seed), max_defined=max_defined)
    assert not verdict.is_proved
    assert verdict.reason is not None
    assert verdict.reason.startswith("the answers of minor 0 miss ")


def test_answers_of_another_statement_fail() -> None:
    certificate = certified(SHALLOW, max_determinant=2)
    assert verify(certificate).is_proved
    assert not verify(replace(certificate, points_seed=1)).is_proved
    assert not verify(replace(certificate, weights=DrawnWeights(1))).is_proved


def test_a_certificate_of_nothing_is_proved() -> None:
    verdict = verify(replace(claim(CertifiedMinor(None, (0,), (0,))), lower=0, minors=()))
    assert verdict.is_proved
    assert (verdict.lower, verdict.num_minors, verdict.paths) == (0, 0, ())


def test_trained_weights_are_certified_as_they_are() -> None:
    """Two equal channels out of three: the rank is 2, where almost all weights have 3."""
    network = Shallow(order=4, size=2, channels=3, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        network.factors[:, 2] = network.factors[:, 1]
    weights = dict(network.named_parameters())
    measured = measure_rank(network, SPLIT, weights=weights)
    certificate = certify_rank(network, SPLIT, measured, weights=weights)
    assert isinstance(certificate.weights, GivenWeights)
    read = parse_certificate(to_json(certificate).encode())
    assert read == certificate
    verdict = verify(read)
    assert verdict.is_proved
    assert verdict.lower == 2
    assert verdict.statement.startswith("For the weights given here,")
    broken = dict(certificate.weights.arrays)
    broken["mixing"] = replace(broken["mixing"], shape=(1, 3))
    with pytest.raises(CertificateError, match=r"wants mixing of shape \(3,\), got \(1, 3\)"):
        verify(replace(certificate, weights=GivenWeights(broken)))


def test_weights_must_be_those_that_were_measured() -> None:
    weights = dict(SHALLOW.named_parameters())
    drawn, given_here = measure_rank(SHALLOW, SPLIT), measure_rank(SHALLOW, SPLIT, weights=weights)
    with pytest.raises(CertificateError, match="measured at random ones: give none"):
        certify_rank(SHALLOW, SPLIT, drawn, weights=weights)
    with pytest.raises(CertificateError, match="measured at given weights: give them"):
        certify_rank(SHALLOW, SPLIT, given_here)


def test_a_network_that_cannot_be_built_again_is_refused() -> None:
    class Own(Shallow):
        family = "own"

    with pytest.raises(FamilyError, match="There is no family 'own'"):
        certify_rank(Own(order=4, size=2, channels=3), SPLIT, measure_rank(SHALLOW, SPLIT))


def test_a_measurement_of_another_network_is_refused() -> None:
    minor = Minor(None, (0, 1, 2, 3), (0, 1, 2, 3))
    measured = MeasuredRank((Run(101, 0, (minor,), (4, 4)),), None, 8, 0.0)
    with pytest.raises(MatrixError, match="non-singular matrix, got rank 3 modulo 101 for size 4"):
        certify_rank(SHALLOW, SPLIT, measured, max_determinant=2)


def test_a_fast_evaluation_that_errs_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = certified(SHALLOW, max_determinant=2)
    right = ShallowFunction.paired

    def wrong(self: ShallowFunction, left: Residues, other: Residues) -> Residues:
        return (right(self, left, other) + 1) % self.prime

    monkeypatch.setattr(ShallowFunction, "paired", wrong)
    verdict = verify(certificate, max_defined=0)
    assert not verdict.is_proved
    assert verdict.reason == "the fast evaluation differs from the definition 9 times."


def test_points_and_grades_must_exist() -> None:
    recurrent = certified(RecurrentCircuit(num_tokens=4, num_templates=2, channels=2, depth=1))
    beyond = CertifiedMinor(None, (0, 4), (0, 1))
    with pytest.raises(CertificateError, match="There are 4 rows, the certificate names number 4"):
        verify(replace(recurrent, minors=(beyond,), lower=2))
    beyond = CertifiedMinor(None, (0,), (7,))
    with pytest.raises(CertificateError, match="There are 4 columns, the certificate names numb"):
        verify(replace(recurrent, minors=(beyond,), lower=1))
    with pytest.raises(CertificateError, match=r"has the grades 0\.\.0, the certificate names 1"):
        verify(claim(CertifiedMinor(1, (0,), (0,))))


def test_a_large_minor_needs_answers() -> None:
    numbers = tuple(range(MAX_DETERMINANT + 1))
    with pytest.raises(CertificateError, match=r"size 501 needs answers .* taken up to 500"):
        verify(claim(CertifiedMinor(None, numbers, numbers)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": "none"}, "cannot be checked. There is no family 'none'"),
        (
            {"settings": {"order": 4, "size": 2, "channels": 10**9}},
            "at channels: wanted an integer in",
        ),
        ({"partition": Partition((0,), (1,))}, r"the partition covers \(0, 1\)"),
    ],
)
def test_what_does_not_fit_together_cannot_be_checked(
    changes: dict[str, object], message: str
) -> None:
    fields = {**vars(claim(CertifiedMinor(None, (0,), (0,)))), **changes}
    with pytest.raises(CertificateError, match=message):
        verify(Certificate(**fields))


def test_progress_is_reported() -> None:
    seen: list[Progress] = []
    verify(certified(SHALLOW), seen.append)
    assert [(progress.done, progress.total) for progress in seen] == [(1, 1)]
