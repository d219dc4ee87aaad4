"""Bounds on transformers and recurrences: degrees of tokens, visible forms, states over time.

Three ways to bound a separation rank from above, for all weights. By degrees: how often each token
may enter a term, with one count for tokens that may be exchanged. By forms: what shared or latent
keys and values let the first layer of plain attention see. By states: a network that reads tokens
in order knows the past through its states only, so the rank is at most the number of their
monomials, and over any split that of a tensor train over them. A bound is the least of those that
apply; the proofs are in docs/proofs.md, sections 22 to 25.
"""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.rank.bounds.counting import counting_terms, multiset, total_degree_upper_bound
from rankscope.rank.bounds.polynomials import tensor_train_upper_bound
from rankscope.rank.bounds.sizes import AttentionSizes, require_at_least
from rankscope.rank.partition import Partition
from rankscope.theorem import Magnitude, Status, Theorem, UpperBound

# Counting by degree takes time with the square of the degree: up to here a second.
MAX_DEGREE = 600
# Monomials of states are counted one multidegree at a time up to so many: a tenth of a second.
MAX_MULTIDEGREES = 20_000
# Beyond, the number of monomials may have this many binary digits in each layer.
MAX_STATE_BITS = 30_000

TOKEN_DEGREES = Theorem(
    "Rankscope, degrees of tokens",
    "docs/proofs.md, section 22",
    None,
    ("a polynomial in tokens that enter with the given degrees", "all weights"),
    Status.PROVED_HERE,
)
SHARED_KEYS = Theorem(
    "Rankscope, visible forms of shared keys and values",
    "docs/proofs.md, section 24",
    None,
    (
        "softmax-free self-attention without mask, rotary positions, residual and gate",
        "all weights",
        "the given groups, latent sizes and numbers of tokens on the two sides",
    ),
    Status.PROVED_HERE,
)
STATES = Theorem(
    "Rankscope, monomials of states",
    "docs/proofs.md, section 25",
    None,
    ("a network that reads its tokens in order", "all weights"),
    Status.PROVED_HERE,
)


# --- By degrees: how often a token may enter a term -----------------------------------------------


@dataclass(frozen=True)
class TokenSide:
    """The tokens of one side of a split, by the degrees with which they may enter a term.

    Args:
        width: entries of a token.
        others: for each token but the output's, its degrees.
        output: the degrees of the output's token; None if it stands on the other side.
        is_symmetric: whether the tokens but the output's may be exchanged.
    """

    width: int
    others: tuple[range, ...]
    output: range | None
    is_symmetric: bool

    def counts(self, degree: int) -> list[int]:
        """Independent functions of each total degree, 0 to `degree`.

        Example:
            >>> TokenSide(2, (range(0, 5, 2),) * 2, None, is_symmetric=False).counts(4)
            [1, 0, 6, 0, 19]
            >>> TokenSide(2, (range(0, 5, 2),) * 2, None, is_symmetric=True).counts(4)
            [1, 0, 3, 0, 11]
        """
        series = [1]
        if self.is_symmetric and self.others:
            series = self._exchangeable(degree)
        else:
            for degrees in self.others:
                series = _product(series, self._one(degrees, degree), degree)
        if self.output is not None:
            series = _product(series, self._one(self.output, degree), degree)
        return series + [0] * (degree + 1 - len(series))

    def _one(self, degrees: range, degree: int) -> list[int]:
        """Monomials of one token, by their degree."""
        return [multiset(self.width, e) if e in degrees else 0 for e in range(degree + 1)]

    def _exchangeable(self, degree: int) -> list[int]:
        """Multisets of monomials, one for each token, by their total degree."""
        places = len(self.others)
        # table[m] counts multisets of m monomials that are not 1, by their total degree.
        table = [[1], *[[0]] * places]
        for each in self.others[0]:
            if not 0 < each <= degree:
                continue
            kinds, added = multiset(self.width, each), table
            for taken in range(1, min(places, degree // each) + 1):
                chosen = [0] * (taken * each) + [multiset(kinds, taken)]
                added = [
                    _sum(row, _product(table[m - taken], chosen, degree)) if m >= taken else row
                    for m, row in enumerate(added)
                ]
            table = added
        total: list[int] = []
        for row in table:
            total = _sum(total, row)
        return total


def _product(first: Sequence[int], second: Sequence[int], degree: int) -> list[int]:
    """The product of two power series up to a degree."""
    product = [0] * (min(degree, len(first) + len(second) - 2) + 1)
    terms = [(place, factor) for place, factor in enumerate(second) if factor]
    for at, factor in enumerate(first):
        if factor:
            for place, other in terms:
                if at + place < len(product):
                    product[at + place] += factor * other
    return product


def _sum(first: Sequence[int], second: Sequence[int]) -> list[int]:
    return [a + b for a, b in itertools.zip_longest(first, second, fillvalue=0)]


def degree_terms(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...]:
    """Bounds of the parts of degree 0, 1, … on the right, if all terms have one degree.

    Args:
        left: functions of the left side of each degree, up to the degree of the output.
        right: functions of the right side of each degree.

    Example:
        >>> degree_terms([1, 0, 6, 0], [0, 2, 0, 10])
        (0, 2, 0, 1)
    """
    return tuple(min(pair) for pair in zip(reversed(left), right, strict=True))


def degree_upper_bound(
    left: Sequence[int], right: Sequence[int], *, is_homogeneous: bool
) -> UpperBound:
    r"""Largest rank of a polynomial whose sides have so many functions of each degree.

    .. math:: \sum_{s=0}^{T} \min(l_{T-s}, r_s) \text{ if it is homogeneous, else } \min_t
              \Bigl(\sum_{s<t} l_s + \sum_{s \le T-t} r_s\Bigr)

    Example:
        >>> degree_upper_bound([1, 0, 6, 0], [0, 2, 0, 10], is_homogeneous=True).value
        3

    Raises:
        BoundError: if the two lists have different lengths, or none.

    Reference:
        ours (proved); docs/proofs.md, section 22.
    """
    require_at_least("degree_upper_bound", 1, num_left=len(left), num_right=len(right))
    require_at_least("degree_upper_bound", len(left), num_right_counts=len(right))
    if is_homogeneous:
        return UpperBound(Magnitude.of(sum(degree_terms(left, right))), TOKEN_DEGREES)
    below = itertools.accumulate(left, initial=0)
    beside = [*reversed([*itertools.accumulate(right)]), 0]
    best = min(first + second for first, second in zip(below, beside, strict=True))
    return UpperBound(Magnitude.of(best), TOKEN_DEGREES)


# --- By forms: what shared and latent keys and values let plain attention see ---------------------


@dataclass(frozen=True)
class SharedKeys:
    """How the heads of attention come by their keys, values and queries.

    Args:
        num_kv_heads: keys and values of their own.
        latent: size of the vector that they are read from, or None.
        query_latent: size of the vector that queries are read from, or None.
    """

    num_kv_heads: int
    latent: int | None = None
    query_latent: int | None = None


def shared_keys_terms(sizes: AttentionSizes, shared: SharedKeys) -> tuple[int, ...]:
    """Upper bounds of the ranks of the parts of degree 0..C in the other side's Gram matrix.

    With keys and values for every head and no latents they are those of `heads_terms`.

    Example:
        >>> shared_keys_terms(AttentionSizes(2, 4, heads=2), SharedKeys(num_kv_heads=1))
        (1, 10, 34, 36, 4)

    Raises:
        BoundError: if there are too many factors to sum over.

    Reference:
        ours (proved); docs/proofs.md, section 24.
    """
    inside, outside, queries = visible_shared_forms(sizes, shared)
    most = (3 ** (sizes.depth - 1) - 1) // 2

    def up_to_each(degree: int) -> list[int]:
        counts = [
            multiset(inside, degree - i) * multiset(outside, i) if i <= degree else 0
            for i in range(most + 1)
        ]
        return [*itertools.accumulate(counts, initial=0)]

    terms = []
    for degree, counted in enumerate(counting_terms(sizes)):
        other, own = up_to_each(degree), up_to_each(sizes.factors - degree)
        seen = min(low + queries * high for low, high in zip(other, reversed(own), strict=True))
        terms.append(min(counted, seen))
    return tuple(terms)


def shared_keys_upper_bound(sizes: AttentionSizes, shared: SharedKeys) -> UpperBound:
    r"""The head bound for keys and values that heads share or read from a latent vector.

    Keys and values of K groups span at most g linear forms of the Gram matrix, with a latent of
    size c at most c(c + 1)/2; queries from a latent of size q span at most q vectors. The rest is
    the head bound. With one form only every layer is a number times a linear map, and the rank is
    at most the product of 3^l + 1 over l < L.

    Example:
        >>> shared_keys_upper_bound(AttentionSizes(2, 4, heads=4), SharedKeys(num_kv_heads=1)).value
        8

    Raises:
        BoundError: if there are too many factors to sum over.

    Reference:
        ours (proved); docs/proofs.md, section 24.
    """
    best = sum(shared_keys_terms(sizes, shared))
    if key_value_forms(sizes.rank, sizes.resolved_head_size(), shared) == 1:
        best = min(best, math.prod(3**layer + 1 for layer in range(sizes.depth)))
    return UpperBound(Magnitude.of(best), SHARED_KEYS)


def visible_shared_forms(sizes: AttentionSizes, shared: SharedKeys) -> tuple[int, int, int]:
    """Forms between values and keys, further forms between queries, and entries of a query.

    Example:
        >>> visible_shared_forms(AttentionSizes(2, 4, heads=4), SharedKeys(num_kv_heads=2))
        (2, 8, 4)
    """
    rank, head_size = sizes.rank, sizes.resolved_head_size()
    all_forms = rank * (rank + 1) // 2
    inside = min(all_forms, key_value_forms(rank, head_size, shared))
    queries = min(rank, sizes.heads * head_size, shared.query_latent or rank)
    return inside, min(all_forms - inside, queries * (queries + 1) // 2), queries


def key_value_forms(rank: int, head_size: int, shared: SharedKeys) -> int:
    """Linear forms of a symmetric matrix of this rank that keys and values can see.

    Example:
        >>> key_value_forms(4, 2, SharedKeys(2)), key_value_forms(4, 2, SharedKeys(2, latent=2))
        (8, 3)
    """
    space = rank if shared.latent is None else min(rank, shared.latent)
    dimension = min(head_size, space)
    # Two subspaces of this dimension meet; symmetric products of the meeting count once.
    meeting = max(0, 2 * dimension - space)
    grouped = shared.num_kv_heads * (dimension**2 - math.comb(meeting, 2))
    return min(grouped, space * (space + 1) // 2)


# --- By states: what a network that reads tokens in order knows of the past -----------------------


@dataclass(frozen=True)
class StateDegrees:
    """How the output of a network that reads tokens in order depends on its states at one time.

    A token of layer l is a sum of terms, each with the state of that layer at most once, times
    later tokens of the layer below: `with_state` of them in a term with the state, at most, and
    `without_state` in a term without it.

    Args:
        sizes: numbers in the states of layers 1..L that the output can tell apart.
        with_state: tokens of the layer below in a term with the state.
        without_state: tokens of the layer below in a term without the state.
        per_token: factors of a layer that make one token: 2 with a gate.
    """

    sizes: tuple[int, ...]
    with_state: int
    without_state: int
    per_token: int = 1

    @property
    def num_factors(self) -> int:
        """Factors of the first layer, at most."""
        most = max(self.with_state, self.without_state)
        return int(self.per_token ** len(self.sizes) * most ** (len(self.sizes) - 1))

    @property
    def is_listable(self) -> bool:
        """Whether the multidegrees are few enough to be listed."""
        most, factors = max(self.with_state, self.without_state), self.per_token
        product = 1
        for _ in self.sizes:
            product *= factors + 1
            factors *= self.per_token * most
        return product <= MAX_MULTIDEGREES

    @property
    def is_countable(self) -> bool:
        """Whether the number of monomials is worth writing down."""
        return max(self.sizes) * self.num_factors.bit_length() <= MAX_STATE_BITS

    def multidegrees(self) -> set[tuple[int, ...]]:
        """The degrees (e_1, …, e_L) in the states of layers 1..L that may occur.

        Example:
            >>> sorted(StateDegrees((3, 2), 1, 3).multidegrees())
            [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (3, 0)]
        """
        reached: set[tuple[tuple[int, ...], int]] = {((), self.per_token)}
        for _ in self.sizes:
            reached = {
                ((degree, *degrees), self._below(factors, degree))
                for degrees, factors in reached
                for degree in range(factors + 1)
            }
        return {degrees for degrees, _ in reached}

    def _below(self, factors: int, degree: int) -> int:
        tokens = degree * self.with_state + (factors - degree) * self.without_state
        return self.per_token * tokens

    def total(self) -> int:
        """How many monomials of the states there are.

        Example:
            >>> StateDegrees((3, 2), 1, 3).total()
            28
        """
        if self.is_listable:
            return sum(self.by_degree((1,) * len(self.sizes)).values())
        # Too many to list: every degree up to the largest, in each layer by itself.
        product, factors = 1, self.per_token
        for size in reversed(self.sizes):
            product *= math.comb(size + factors, size)
            factors = max(self._below(factors, degree) for degree in (0, factors))
        return product

    def by_degree(self, state_degrees: Sequence[int]) -> Counter[int]:
        """Monomials of the states by their degree, given the degrees of the states of each layer.

        Example:
            >>> sorted(StateDegrees((3, 2), 1, 3).by_degree((2, 6)).items())
            [(0, 1), (2, 3), (4, 6), (6, 12), (8, 6)]
        """
        counted: Counter[int] = Counter()
        for degrees in self.multidegrees():
            ways = [multiset(size, e) for size, e in zip(self.sizes, degrees, strict=True)]
            degree = sum(e * g for e, g in zip(degrees, state_degrees, strict=True))
            counted[degree] += math.prod(ways)
        return counted


def state_upper_bound(
    states: Sequence[StateDegrees], sites: Sequence[int], left: tuple[int, ...]
) -> UpperBound:
    r"""Minimal cut of a network unrolled in time, with monomials of states for bonds.

    Over a split of the past from the rest it is the number of monomials of the states at that
    time; over any split that of the cheapest cut of a tensor train.

    Args:
        states: how the output depends on the states after each token but the last.
        sites: functions of each token, in order.
        left: tokens of one side, from 0.

    Example:
        >>> state_upper_bound([StateDegrees((3,), 1, 3)] * 3, (7, 7, 7, 7), (0, 1)).value
        4

    Raises:
        BoundError: if the states do not fit the tokens, or a side is empty.

    Reference:
        ours (proved); docs/proofs.md, section 25.
    """
    bonds = tuple(each.total() for each in states)
    cut = tensor_train_upper_bound(tuple(sites), bonds, left)
    return UpperBound(cut.magnitude, STATES)


# --- All that applies to one network --------------------------------------------------------------


@dataclass(frozen=True)
class MixedTokens:
    """What is known of a network's output as a polynomial in its tokens.

    Args:
        width: entries of a token.
        degree: of the output in all tokens, at most.
        is_homogeneous: whether all terms have that degree.
        degrees: for each token that the output may depend on, in order, the degrees with which it
            may enter a term.
        output: which of these tokens the output is read from.
        is_symmetric: whether the other tokens may be exchanged.
        states: how the output depends on the states after each token but the last; None for a
            network that does not read its tokens in order.
        state_degrees: degrees of the states of each layer in the tokens, if they have one.
    """

    width: int
    degree: int
    is_homogeneous: bool
    degrees: tuple[range, ...]
    output: int
    is_symmetric: bool
    states: tuple[StateDegrees, ...] | None = None
    state_degrees: tuple[int, ...] | None = None

    def upper_bounds(self, partition: Partition) -> list[UpperBound]:
        """The bounds that apply, for all weights."""
        left, right = self._seen(partition)
        if not left or not right:
            return [UpperBound(Magnitude.of(1), TOKEN_DEGREES)]
        bounds = []
        if self.degree <= MAX_DEGREE:
            counts = self._counts(partition)
            bounds.append(degree_upper_bound(*counts, is_homogeneous=self.is_homogeneous))
        else:
            bounds.append(
                total_degree_upper_bound(
                    num_left=self.width * len(left),
                    num_right=self.width * len(right),
                    degree=self.degree,
                )
            )
        if self.states is not None and all(each.is_countable for each in self.states):
            sites = [self._functions(degrees) for degrees in self.degrees]
            bounds.append(state_upper_bound(self.states, sites, left))
        return bounds

    def _functions(self, degrees: range) -> int:
        """Functions of one token, or all up to its largest degree where there are many degrees."""
        if len(degrees) > MAX_DEGREE:
            return math.comb(self.width + degrees[-1], self.width)
        return sum(multiset(self.width, degree) for degree in degrees)

    def terms(self, partition: Partition) -> tuple[int, ...] | None:
        """Bounds of the parts of each degree on the right, where there is one for each."""
        if not self.is_homogeneous or self.degree > MAX_DEGREE:
            return None
        return degree_terms(*self._counts(partition))

    def _seen(self, partition: Partition) -> tuple[tuple[int, ...], tuple[int, ...]]:
        places = range(len(self.degrees))
        return (
            tuple(place for place in partition.left if place in places),
            tuple(place for place in partition.right if place in places),
        )

    def _counts(self, partition: Partition) -> tuple[list[int], list[int]]:
        """Functions of each side, by degree; of the past no more than monomials of the states."""
        sides = self._seen(partition)
        counted = []
        for side in sides:
            others = tuple(self.degrees[place] for place in side if place != self.output)
            output = self.degrees[self.output] if self.output in side else None
            tokens = TokenSide(self.width, others, output, self.is_symmetric)
            counts = tokens.counts(self.degree)
            known = self._known_of(side)
            if known is not None:
                counts = [min(count, known[degree]) for degree, count in enumerate(counts)]
            counted.append(counts)
        return counted[0], counted[1]

    def _known_of(self, side: tuple[int, ...]) -> Counter[int] | None:
        """What later tokens know of a side that comes before all others, by degree."""
        is_past = side == tuple(range(len(side))) and 0 < len(side) < len(self.degrees)
        if not is_past or self.states is None or self.state_degrees is None:
            return None
        states = self.states[len(side) - 1]
        return states.by_degree(self.state_degrees) if states.is_listable else None
