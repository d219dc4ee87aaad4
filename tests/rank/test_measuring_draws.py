"""Residues that anyone can draw again."""

import hashlib

from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.rank import draw_residues

PRIMES = st.sampled_from((2, 101, 16777213, 2147483647))


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**64),
    label=st.text(max_size=8),
    shape=st.lists(st.integers(0, 4), max_size=3).map(tuple),
    prime=PRIMES,
)
def test_residues_are_words_of_shake_modulo_the_prime(
    seed: int, label: str, shape: tuple[int, ...], prime: int
) -> None:
    drawn = draw_residues(seed, label, shape, prime)
    assert drawn.shape == shape
    stream = hashlib.shake_256(f"rankscope {seed} {prime} {label}".encode()).digest(8 * drawn.size)
    words = [int.from_bytes(stream[8 * k : 8 * k + 8], "little") for k in range(drawn.size)]
    assert drawn.ravel().tolist() == [word % prime for word in words]


def test_every_seed_label_and_prime_has_words_of_its_own() -> None:
    prime, other = 2147483647, 2147483629
    first = draw_residues(0, "left/1", (8,), prime)
    assert (first != draw_residues(1, "left/1", (8,), prime)).any()
    assert (first != draw_residues(0, "left/2", (8,), prime)).any()
    # The same words would differ by multiples of the primes' difference only.
    assert ((first - draw_residues(0, "left/1", (8,), other)) % (prime - other)).any()


def test_residues_are_spread_evenly() -> None:
    count = 30_000
    drawn = draw_residues(0, "even", (count,), 3)
    for residue in range(3):
        # Five standard deviations, sqrt(count * 1/3 * 2/3).
        assert abs((drawn == residue).sum() - count / 3) < 5 * (count * 2 / 9) ** 0.5
