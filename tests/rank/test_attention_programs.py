"""Straight-line programs against the same sums in Python integers."""

import random

import numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.rank import ProgramWriter, evaluate_pairs
from rankscope.rank.networks.program_writer import balanced

PRIMES = (2, 3, 101, 33554393, 33554467, 2147483647)


@settings(deadline=None, max_examples=60)
@given(
    prime=st.sampled_from(PRIMES),
    num_inputs=st.integers(1, 5),
    length=st.integers(1, 30),
    seed=st.integers(0, 10_000),
)
def test_a_program_computes_what_was_written_whatever_rows_it_reuses(
    prime: int, num_inputs: int, length: int, seed: int
) -> None:
    draw = random.Random(seed)
    left = numpy.array([[draw.randrange(prime) for _ in range(num_inputs)] for _ in range(2)])
    right = numpy.array([[draw.randrange(prime) for _ in range(num_inputs)] for _ in range(3)])
    pairs = [(a, b) for a in left for b in right]
    writer = ProgramWriter(num_inputs, prime)
    known = {
        number: [int(a[number - 1] + b[number - 1]) % prime for a, b in pairs]
        for number in writer.inputs
    }
    result = writer.inputs[-1]
    chosen = [result]
    for _ in range(length):
        # Often the same values again, but for one or two: such sums are carried out together.
        if draw.random() < 0.5:
            chosen = draw.choices(list(known), k=draw.randint(1, 9))
        elif draw.random() < 0.5:
            chosen = [*chosen[:-1], draw.choice(list(known))]
        count = len(chosen)
        if draw.random() < 0.3:
            others = draw.choices(list(known), k=count)
            result = writer.dot(others, chosen)
            factors = [known[other] for other in others]
        else:
            numbers = numpy.array([draw.randrange(prime) for _ in range(count)])
            result = writer.mix(numbers, chosen)
            factors = [[int(number)] * len(pairs) for number in numbers]
        known[result] = [
            sum(f[k] * known[c][k] for f, c in zip(factors, chosen, strict=True)) % prime
            for k in range(len(pairs))
        ]
    identity = ProgramWriter(1, prime)
    found = numpy.empty((1, 2, 3), dtype=numpy.int64)
    evaluate_pairs(
        writer.finish([result]),
        identity.finish([identity.mix(numpy.array([1]), identity.inputs)]),
        balanced(left, prime),
        balanced(right, prime).T.copy()[None],
        prime,
        found,
    )
    assert found.flatten().tolist() == known[result]


def test_a_chain_of_sums_needs_no_more_rows_than_are_alive() -> None:
    writer = ProgramWriter(2, 101)
    found = writer.inputs[0]
    for _ in range(50):
        found = writer.dot([found], [found])
    # Zero, the two inputs, and one row to write while another is read.
    assert writer.finish([found]).num_rows <= 3
