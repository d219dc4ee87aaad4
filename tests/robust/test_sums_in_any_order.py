"""Partial sums of any tree, exactly: docs/proofs.md, section 36."""

from dataclasses import dataclass
from fractions import Fraction

import torch
from hypothesis import given
from hypothesis import strategies as st

from rankscope.robust.rounding import Arithmetic, ProductSquares


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
