"""Partial sums of any tree, exactly and in floats: docs/proofs.md, section 36."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankscope.robust import Arithmetic, ProductSquares, error_of_sums
from rankscope.robust.sums import spacing

FLOAT32 = Arithmetic.of(torch.float32)


@dataclass(frozen=True, eq=False)
class Sum:
    """Two sums or terms, added."""

    left: "Sum | int"
    right: "Sum | int"

    @property
    def terms(self) -> list[int]:
        return [*_terms(self.left), *_terms(self.right)]

    @property
    def sums(self) -> "list[Sum]":
        below = [
            one for part in (self.left, self.right) if isinstance(part, Sum) for one in part.sums
        ]
        return [self, *below]


def _terms(part: Sum | int) -> list[int]:
    return part.terms if isinstance(part, Sum) else [part]


@st.composite
def trees(draw: st.DrawFn) -> Sum:
    """Any brackets around 2 to 40 terms: chains, balanced ones, and all between."""
    parts: list[Sum | int] = list(range(draw(st.integers(2, 40))))
    while len(parts) > 1:
        first = draw(st.sampled_from([0, 0, len(parts) - 1])) if len(parts) > 2 else 0
        left = parts.pop(first)
        right = parts.pop(draw(st.integers(0, len(parts) - 1)))
        parts.insert(draw(st.sampled_from([0, len(parts)])), Sum(left, right))
    (root,) = parts
    assert isinstance(root, Sum)
    return root


def middle(root: Sum) -> Sum:
    """The last sum of more than half of the terms, going down."""
    half = Fraction(len(root.terms), 2)
    node = root
    while True:
        larger = [p for p in (node.left, node.right) if isinstance(p, Sum) and len(p.terms) > half]
        if not larger:
            return node
        (node,) = larger


@given(tree=trees())
def test_the_chains_above_terms_are_as_short_as_the_proof_says(tree: Sum) -> None:
    count, sums = len(tree.terms), tree.sums
    above = {term: {id(one) for one in sums if term in one.terms} for term in tree.terms}
    node = middle(tree)
    of_node = {id(one) for one in sums if set(node.terms) <= set(one.terms)}
    assert len(of_node) <= Fraction(count, 2) + 1
    squares = sum(len(above[term] ^ of_node) ** 2 for term in tree.terms)
    assert 12 * squares <= (count + 3) ** 3


@given(tree=trees(), data=st.data())
def test_partial_sums_are_within_the_bound_exactly(tree: Sum, data: st.DataObject) -> None:
    count = len(tree.terms)
    values = data.draw(st.lists(st.integers(-1000, 1000), min_size=count, max_size=count))
    total = sum(abs(sum(values[term] for term in one.terms)) for one in tree.sums)
    rest = total - (Fraction(count, 2) + 1) * abs(sum(values))
    assert rest <= 0 or 12 * rest**2 <= (count + 3) ** 3 * sum(value**2 for value in values)


@given(count=st.integers(2, 5000))
def test_the_shares_are_not_smaller_than_the_proof_asks_for(count: int) -> None:

    arithmetic = Arithmetic.of(torch.float32)
    of_products, of_results = ProductSquares.shares(arithmetic, count)
    unit = Fraction(arithmetic.unit)
    gamma = count * unit / (1 - count * unit)
    # First order, second order and the products' own, each exactly or by its square.
    first = of_products / float(unit)
    least = ((count + 3) ** 3 / 12) ** 0.5 + float(gamma**2 / unit + 1) * count**0.5
    assert first >= least * (1 - 1e-12)
    assert Fraction(of_results) >= unit * (Fraction(count, 2) + 1)


# Terms that are known.


@given(tree=trees(), data=st.data())
def test_spacings_of_the_partial_sums_of_any_tree_are_within_the_bound(
    tree: Sum, data: st.DataObject
) -> None:
    count = len(tree.terms)
    values = data.draw(st.lists(st.integers(-1000, 1000), min_size=count, max_size=count))
    sums = [abs(sum(values[term] for term in one.terms)) for one in tree.sums]
    spacings = sum(2 ** (size.bit_length() - 1) for size in sums if size)
    terms = torch.tensor([values], dtype=torch.float64)
    assert error_of_sums(terms, 0.0, FLOAT32, count) >= FLOAT32.unit * spacings


def worst_tree(values: list[int]) -> int:
    """The largest sum of spacings of all trees: of every set of terms, by its best two parts."""
    every = (1 << len(values)) - 1
    sums, best = [0] * (every + 1), [0] * (every + 1)
    for chosen in range(1, every + 1):
        first = chosen & -chosen
        sums[chosen] = sums[chosen ^ first] + values[first.bit_length() - 1]
        part = (chosen - 1) & chosen
        while part:
            best[chosen] = max(best[chosen], best[part] + best[chosen ^ part])
            part = (part - 1) & chosen
        if chosen != first and sums[chosen]:
            best[chosen] += 1 << (abs(sums[chosen]).bit_length() - 1)
    return best[every]


@given(values=st.lists(st.integers(-1000, 1000), min_size=2, max_size=7))
def test_the_worst_of_all_trees_is_within_the_bound(values: list[int]) -> None:
    terms = torch.tensor([values], dtype=torch.float64)
    found = error_of_sums(terms, 0.0, FLOAT32, len(values)) / FLOAT32.unit
    products = sum(map(abs, values))
    assert found - products >= worst_tree(values)


def test_evenly_falling_terms_from_the_largest_nearly_attain_the_bound() -> None:
    values = range(399, -400, -2)
    sums = [abs(sum(values[:count])) for count in range(2, 401)]
    spacings = sum(2 ** (size.bit_length() - 1) for size in sums if size)
    terms = torch.tensor([list(values)], dtype=torch.float64)
    assert 0.9 < FLOAT32.unit * spacings / error_of_sums(terms, 0.0, FLOAT32, 400) <= 1


@given(size=st.floats(1e-300, 1e300))
def test_spacings_are_powers_of_two_not_above(size: float) -> None:
    (found,) = spacing(torch.tensor([size], dtype=torch.float64)).tolist()
    assert math.frexp(found)[0] == 0.5
    assert found <= size < 2 * found


def added(tree: Sum | int, terms: np.ndarray) -> np.float32:
    """In float32, by the brackets of a tree."""
    if isinstance(tree, int):
        return np.float32(terms[tree])
    return np.float32(added(tree.left, terms) + added(tree.right, terms))


@given(tree=trees(), data=st.data())
def test_no_sum_of_a_ball_is_further_off_than_the_bound_of_its_middle(
    tree: Sum, data: st.DataObject
) -> None:
    """Products in float32, added by a tree with another order of the terms for every row."""
    count, rows = len(tree.terms), data.draw(st.integers(1, 6))
    seed = data.draw(st.integers(0, 2**16))
    radius = data.draw(st.sampled_from([0.0, 1e-4, 0.1, 10.0]))
    random = np.random.default_rng(seed)
    weight = random.standard_normal((rows, count)).astype(np.float32)
    middle_of_ball = random.standard_normal(count)
    step = random.standard_normal(count)
    inputs = (middle_of_ball + radius * step / np.linalg.norm(step)).astype(np.float32)
    reached = float(np.linalg.norm(inputs.astype(np.float64) - middle_of_ball))
    errors = []
    for row in weight:
        products, sign = row * inputs, random.choice([-1, 0, 1])
        order = np.argsort(sign * products) if sign else random.permutation(count)
        exact = sum(
            Fraction(float(w)) * Fraction(float(x)) for w, x in zip(row, inputs, strict=True)
        )
        errors.append(float(Fraction(float(added(tree, products[order]))) - exact))
    norms = [np.linalg.norm(one.astype(np.float64), 2) for one in (weight, np.abs(weight))]
    terms = torch.from_numpy(weight.astype(np.float64) * middle_of_ball)
    drift = float(sum(norms)) / 2 * reached * (1 + 1e-9)
    assert np.linalg.norm(errors) <= error_of_sums(terms, drift, FLOAT32, count + 2)


def test_known_terms_say_more_than_their_squares() -> None:
    terms = torch.randn(64, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    of_products, of_results = ProductSquares.shares(FLOAT32, 302)
    by_squares = of_products * terms.norm() + of_results * terms.sum(dim=1).norm()
    drift = 0.02 * float(terms.norm())
    assert error_of_sums(terms, drift, FLOAT32, 302) < 0.85 * float(by_squares)


def test_nothing_is_known_of_sums_of_too_many_terms() -> None:
    terms = torch.ones(1, 200, dtype=torch.float64)
    assert error_of_sums(terms, 0.0, Arithmetic.of(torch.bfloat16), 200) == math.inf
    assert error_of_sums(terms * math.inf, 0.0, FLOAT32, 200) == math.inf
