"""Two arithmetics: residues against Python integers, reals against PyTorch."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.errors import PrimeError, TooLargeError
from rankscope.rank import Modulo, Reals

PRIMES = (2, 3, 101, 65521, 65537, 16777213, 1073741789, 2147483647)
EQUATIONS = ("ij,jk->ik", "bl,lir->bir", "bi,bir->br", "ij,ij->", "i,j->ij", "bij,j->b", "ii,i->i")


def by_definition(equation: str, left: Tensor, right: Tensor, prime: int) -> Tensor:
    """The einsum in Python integers, one product at a time."""
    inputs, output = equation.split("->")
    first, second = inputs.split(",")
    size = dict(zip(first + second, (*left.shape, *right.shape), strict=True))
    found = torch.zeros([size[letter] for letter in output], dtype=torch.int64)
    letters = sorted(size)
    for values in itertools.product(*(range(size[letter]) for letter in letters)):
        at = dict(zip(letters, values, strict=True))
        one = int(left[tuple(at[letter] for letter in first)])
        other = int(right[tuple(at[letter] for letter in second)])
        place = tuple(at[letter] for letter in output)
        found[place] = (int(found[place]) + one * other) % prime
    return found


@settings(deadline=None)
@given(data=st.data(), prime=st.sampled_from(PRIMES), equation=st.sampled_from(EQUATIONS))
def test_contractions_modulo_a_prime_are_those_of_python_integers(
    data: st.DataObject, prime: int, equation: str
) -> None:
    first, second = equation.split("->")[0].split(",")
    size = {letter: data.draw(st.integers(1, 4)) for letter in sorted(set(first + second))}
    residue = st.one_of(st.integers(0, prime - 1), st.just(prime - 1))
    operands = []
    for letters in (first, second):
        shape = [size[letter] for letter in letters]
        count = math.prod(shape)
        entries = data.draw(st.lists(residue, min_size=count, max_size=count))
        operands.append(torch.tensor(entries, dtype=torch.int64).reshape(shape))
    found = Modulo(prime).contract(equation, operands[0], operands[1])
    assert torch.equal(found, by_definition(equation, operands[0], operands[1], prime))


@pytest.mark.parametrize(("prime", "limit"), [(2147483647, 64), (16777213, 8192)])
def test_the_longest_sums_are_exact_and_longer_ones_refused(prime: int, limit: int) -> None:
    largest = torch.full((limit + 1,), prime - 1)
    numbers = Modulo(prime)
    # The square of -1 is 1.
    assert int(numbers.contract("i,i->", largest[:-1], largest[:-1])) == limit
    message = f"modulo {prime} needs {limit + 1:,} entries, over the limit of {limit:,}"
    with pytest.raises(TooLargeError, match=message):
        numbers.contract("i,i->", largest, largest)


@pytest.mark.parametrize("prime", PRIMES)
def test_sums_long_and_short_agree_where_the_factor_is_split_into_limbs(prime: int) -> None:
    for depth in {max(1, 2**53 // prime**2 + more) for more in (0, 1)}:
        if depth <= 10_000:
            entries = torch.full((depth,), prime - 1)
            assert int(Modulo(prime).contract("i,i->", entries, entries)) == depth % prime


def test_a_summed_leg_of_size_one_counts_as_long_as_its_partner() -> None:
    with pytest.raises(TooLargeError, match="needs 65 entries"):
        Modulo(2147483647).contract("ij,jk->ik", torch.ones(1, 65), torch.ones(1, 1))


@settings(deadline=None)
@given(data=st.data(), prime=st.sampled_from(PRIMES))
def test_products_and_sums_modulo_a_prime_are_those_of_python_integers(
    data: st.DataObject, prime: int
) -> None:
    residues = st.lists(st.integers(0, prime - 1), min_size=3, max_size=3)
    left, right = data.draw(residues), data.draw(residues)
    numbers = Modulo(prime)
    column, row = torch.tensor(left)[:, None], torch.tensor(right)[None]
    assert numbers.multiply(column, row).tolist() == [[a * b % prime for b in right] for a in left]
    assert numbers.add(column, row).tolist() == [[(a + b) % prime for b in right] for a in left]


@pytest.mark.parametrize("prime", [2**31, 1])
def test_numbers_that_are_too_large_or_too_small_are_refused(prime: int) -> None:
    with pytest.raises(PrimeError, match=rf"from 2 to 2\^31 - 1, got {prime}"):
        Modulo(prime)


def test_reals_are_pytorch_and_differentiable(generator: torch.Generator) -> None:
    left = torch.randn(2, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    right = torch.randn(3, 4, dtype=torch.float64, generator=generator)
    numbers = Reals()
    torch.testing.assert_close(numbers.contract("ij,jk->ik", left, right), left @ right)
    other = torch.randn(3, dtype=torch.float64, generator=generator)
    torch.testing.assert_close(numbers.multiply(left, other), left * other)
    torch.testing.assert_close(numbers.add(left, other), left + other)
    total = numbers.contract("ij,jk->", numbers.multiply(numbers.add(left, other), left), right)
    (gradient,) = torch.autograd.grad(total, left)
    torch.testing.assert_close(gradient, (2 * left + other) * right.sum(1))
