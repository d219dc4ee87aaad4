"""Softmax-free multi-head self-attention of any depth."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Body, Network, Step, Sum, Term
from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.errors import SizeError
from rankscope.rank.bounds.attention import (
    embedding_lower_growth,
    embedding_upper_growth,
    heads_terms,
    heads_upper_bound,
    multiset_lower_bound,
    published_lower_bound,
    published_upper_bound,
    quadric_lower_bound,
    word_upper_bound,
)
from rankscope.rank.bounds.common_zeros import zeros_terms, zeros_upper_bound
from rankscope.rank.bounds.counting import (
    MAX_FACTORS,
    counting_terms,
    counting_upper_bound,
    monomial_lower_bound,
)
from rankscope.rank.bounds.known import KnownBounds, applicable
from rankscope.rank.bounds.sizes import AttentionSizes
from rankscope.rank.measured import SplitFunction
from rankscope.rank.networks.network import (
    Arithmetic,
    Setting,
    TokenMixer,
    require_sizes,
)
from rankscope.rank.partition import Partition
from rankscope.theorem import LowerBound, UpperBound

# --- The layers of softmax-free attention, token by token, for real numbers and for residues ------


class AttentionLayer(nn.Module):
    r"""The weights of multi-head attention without softmax, of degree 3 in its tokens.

    .. math:: y^i = \sum_h W^O_h \sum_j \langle W^Q_h x^i, W^K_h x^j \rangle\, W^V_h x^j

    `query`, `key` and `value` are (heads, head_size, width), `output` is (width, heads,
    head_size). They are drawn so that independent tokens of variance 1 give outputs of variance
    about 1.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        head_size: int,
        num_tokens: int,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        inner = (heads, head_size, width)
        self.query = nn.Parameter(normal(inner, width, generator))
        self.key = nn.Parameter(normal(inner, width, generator))
        self.value = nn.Parameter(normal(inner, width, generator))
        # A sum over the tokens of (score times value), which are partly aligned.
        summed = num_tokens * head_size * (1 + num_tokens / width)
        self.output = nn.Parameter(
            normal((width, heads, head_size), heads * head_size * summed, generator)
        )


class ChainLayer(nn.Module):
    r"""The weights of a layer of odd degree 2s + 1: `factors` are W_0, …, W_s, (width, width).

    .. math:: Y = W_0 (G W_1)(G W_2) \cdots (G W_s) X, \qquad G = X X^T
    """

    def __init__(
        self, width: int, degree: int, num_tokens: int, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        summed = num_tokens * (num_tokens + width)  # the second moment of G times a unit vector
        self.factors = nn.ParameterList(
            normal((width, width), width * (summed if place else 1), generator)
            for place in range((degree + 1) // 2)
        )


ALL = slice(None)


def attend(
    numbers: Arithmetic,
    weights: Mapping[str, Tensor],
    prefix: str,
    tokens: Tensor,
    at: slice = ALL,
) -> Tensor:
    """The tokens (batch, tokens, width) after an `AttentionLayer`, all or only some of them."""
    queries, keys, values = (
        numbers.contract("hak,btk->bhta", weights[f"{prefix}.{name}"], read)
        for name, read in (("query", tokens[:, at]), ("key", tokens), ("value", tokens))
    )
    scores = numbers.contract("bhia,bhja->bhij", queries, keys)
    mixed = numbers.contract("bhij,bhja->bhia", scores, values)
    return numbers.contract("kha,bhia->bik", weights[f"{prefix}.output"], mixed)


def follow_chain(
    numbers: Arithmetic,
    weights: Mapping[str, Tensor],
    prefix: str,
    tokens: Tensor,
    at: slice = ALL,
) -> Tensor:
    """The tokens (batch, tokens, width) after a `ChainLayer`, all or only some of them."""
    num_factors = sum(name.startswith(f"{prefix}.factors.") for name in weights)
    product = tokens[:, at]
    for place in reversed(range(num_factors)):
        product = numbers.contract("kf,bif->bik", weights[f"{prefix}.factors.{place}"], product)
        if place:
            scores = numbers.contract("bik,bjk->bij", product, tokens)
            product = numbers.contract("bij,bjk->bik", scores, tokens)
    return product


def normal(
    shape: tuple[int, ...], inverse_variance: int | float, generator: torch.Generator | None
) -> Tensor:
    """Draw entries of mean 0."""
    device = None if generator is None else generator.device
    drawn = torch.randn(shape, generator=generator, device=device)
    return drawn / math.sqrt(inverse_variance)


# --- Softmax-free attention as a tensor diagram: one step for each layer --------------------------


INPUTS = "x"
TOKENS = "tokens"


@dataclass(frozen=True)
class AttentionShape:
    """The sizes that an attention diagram is drawn with; arrays are named as parameters are.

    `heads` is None for layers that are chains, with `num_factors` factors each. The last layer
    computes coordinate 0 at `output_position` only.
    """

    depth: int
    width: int
    num_tokens: int
    output_position: int
    heads: int | None
    head_size: int
    num_factors: int
    embedding_rank: int | None
    has_positions: bool


def attention_network(shape: AttentionShape) -> Network:
    """Draw the network for one input (num_tokens, input_size); its value is the output."""
    steps = []
    source = INPUTS
    if shape.embedding_rank is not None or shape.has_positions:
        source = TOKENS
        steps.append(Step(TOKENS, _token_vectors(shape), r"\mathbf{X}_{0}"))
    for number in range(shape.depth):
        is_last = number == shape.depth - 1
        layer = (_chain if shape.heads is None else _attention)(shape, number, source)
        source = f"layer{number + 1}"
        steps.append(Step(source, layer, "y" if is_last else rf"\mathbf{{X}}_{{{number + 1}}}"))
    return Network("attention", tuple(steps), "Softmax-free self-attention")


def _token_vectors(shape: AttentionShape) -> Body:
    token = Index("n", shape.num_tokens, "N", IndexKind.SEQUENCE)
    feature = Index("f", shape.width, "F", IndexKind.FEATURE)
    output = ("n", "f")
    if shape.embedding_rank is None:
        data = Diagram(TOKENS, (token, feature), (_data("X", INPUTS, "nf"),), output)
    else:
        rank = Index("r", shape.embedding_rank, "R", IndexKind.RANK)
        embedding = Node("E", ("f", "r"), array="embedding")
        nodes = (_data("X", INPUTS, "nr"), embedding)
        data = Diagram(TOKENS, (token, feature, rank), nodes, output)
    if not shape.has_positions:
        return data
    positions = Diagram(
        "positions", (token, feature), (Node("positions", output, label=r"\mathbf{P}"),), output
    )
    return Sum(TOKENS, (Term(data), Term(positions)))


def _attention(shape: AttentionShape, number: int, source: str) -> Diagram:
    prefix, is_last = f"layers.{number}", number == shape.depth - 1
    nodes = (
        _query(shape, source, is_last=is_last),
        _weight("Q", f"{prefix}.query", "hdf"),
        _weight("K", f"{prefix}.key", "hdg"),
        _data("Xk", source, "mg"),
        _data("Xv", source, "me"),
        _weight("V", f"{prefix}.value", "hce"),
        _weight("O", f"{prefix}.output", "hc" if is_last else "ohc", is_row=is_last),
    )
    features = tuple(_feature(shape, name) for name in ("fge" if is_last else "fgeo"))
    inner = tuple(Index(name, shape.head_size, "D", IndexKind.FEATURE) for name in "dc")
    head = Index("h", shape.heads, "H", IndexKind.HEAD)
    return _layer(shape, number, (*features, *inner, head), nodes, ("m",))


def _chain(shape: AttentionShape, number: int, source: str) -> Diagram:
    is_last, length = number == shape.depth - 1, shape.num_factors - 1
    nodes = [_query(shape, source, is_last=is_last)]
    wire = "f"
    for place in range(length, 0, -1):
        nodes.append(_factor(number, place, (f"a{place}", wire)))
        nodes.append(_data(f"Xk{place}", source, (f"m{place}", f"a{place}")))
        nodes.append(_data(f"Xv{place}", source, (f"m{place}", f"b{place}")))
        wire = f"b{place}"
    nodes.append(_factor(number, 0, (wire,) if is_last else ("o", wire), is_row=is_last))
    places = range(length, 0, -1)
    names = ["f", *(f"{side}{place}" for place in places for side in "ab")]
    features = tuple(_feature(shape, name) for name in (names if is_last else [*names, "o"]))
    return _layer(shape, number, features, tuple(nodes), tuple(f"m{place}" for place in places))


def _layer(
    shape: AttentionShape,
    number: int,
    indices: tuple[Index, ...],
    nodes: tuple[Node, ...],
    keys: tuple[str, ...],
) -> Diagram:
    is_last = number == shape.depth - 1
    names = keys if is_last else ("n", *keys)
    tokens = tuple(Index(name, shape.num_tokens, "N", IndexKind.SEQUENCE) for name in names)
    output = () if is_last else ("n", "o")
    return Diagram(f"layer{number + 1}", (*tokens, *indices), nodes, output)


def _query(shape: AttentionShape, source: str, *, is_last: bool) -> Node:
    if not is_last:
        return _data("Xq", source, "nf")
    place = shape.output_position
    return Node("Xq", ("f",), Role.DATA, r"\mathbf{x}", array=source, rows=(place, place + 1))


def _data(name: str, source: str, indices: tuple[str, ...] | str) -> Node:
    return Node(name, tuple(indices), Role.DATA, r"\mathbf{X}", array=source)


def _weight(letter: str, array: str, indices: str, *, is_row: bool = False) -> Node:
    label = rf"\mathcal{{W}}^{{\,{letter}}}"
    rows = (0, 1) if is_row else None
    return Node(f"W{letter}", tuple(indices), label=label, array=array, rows=rows)


def _factor(number: int, place: int, indices: tuple[str, ...], *, is_row: bool = False) -> Node:
    array = f"layers.{number}.factors.{place}"
    rows = (0, 1) if is_row else None
    return Node(f"W{place}", indices, label=rf"\mathbf{{W}}_{{{place}}}", array=array, rows=rows)


def _feature(shape: AttentionShape, name: str) -> Index:
    return Index(name, shape.width, "F", IndexKind.FEATURE)


class SelfAttention(TokenMixer):
    r"""Attention layers without softmax, residuals or feed-forward parts.

    .. math:: y^i = \sum_h W^O_h \sum_j \langle W^Q_h x^i, W^K_h x^j \rangle\, W^V_h x^j

    The output is coordinate 0 of the token at the output position. With the Gram matrix
    G = XXᵗ it is e_0ᵗ F(G) x^i with F homogeneous of degree C = (3^L - 1) / 2, so that it mixes
    C + 1 input vectors.

    Args:
        depth: number of layers, L.
        width: size of a token vector, d.
        heads: heads per layer, H.
        head_size: size of a head, d_a; `width // heads` if None.
        num_tokens: number of inputs, N; `2 * width` if None.
        embedding_rank: tokens are `embedding` (width, rank) times inputs of this size; inputs
            are the tokens if None.
        degree: of a layer in its tokens; beyond 3 a layer is the chain
            W₀(G W₁)(G W₂)…(G W_s) X of odd degree 2s + 1.
        output_position: which token the output is read from.
        has_positions: whether `positions` (num_tokens, width) are added to the tokens.
        generator: where the initial weights come from.

    Example:
        >>> SelfAttention(depth=2, width=4, heads=2)(torch.ones(3, 8, 4)).shape
        torch.Size([3])

    Raises:
        SizeError: if a size does not fit, or heads are asked for in a layer of higher degree.

    Reference:
        Levine et al. (2020), eqs 7.5 to 7.7 of the 2022 book chapter, arXiv:2006.12467.
    """

    family = "attention"

    def __init__(  # noqa: PLR0913 - a certificate names each of these
        self,
        *,
        depth: int,
        width: int,
        heads: int = 1,
        head_size: int | None = None,
        num_tokens: int | None = None,
        embedding_rank: int | None = None,
        degree: int = 3,
        output_position: int = 0,
        has_positions: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        count = 2 * width if num_tokens is None else num_tokens
        require_sizes("SelfAttention", depth=depth, width=width, heads=heads, num_tokens=count)
        if embedding_rank is not None:
            require_sizes("SelfAttention", embedding_rank=embedding_rank)
        _require_odd_degree(degree, heads, head_size)
        self.depth, self.width, self.heads, self.degree = depth, width, heads, degree
        self.head_size = _resolved_head_size(width, heads, head_size)
        self.num_positions = count
        if not 0 <= output_position < count:
            raise SizeError(
                f"SelfAttention: the output position must lie in 0..{count - 1}, "
                f"got {output_position}."
            )
        self.output_position = output_position
        self.embedding_rank, self.has_positions = embedding_rank, has_positions
        self.input_size = width if embedding_rank is None else embedding_rank
        if embedding_rank is not None:
            self.embedding = nn.Parameter(
                normal((width, embedding_rank), embedding_rank, generator)
            )
        if has_positions:
            self.positions = nn.Parameter(normal((count, width), 4, generator))
        self.layers = nn.ModuleList(
            AttentionLayer(width, heads, self.head_size, count, generator=generator)
            if degree == 3
            else ChainLayer(width, degree, count, generator=generator)
            for _ in range(depth)
        )

    @property
    def settings(self) -> dict[str, Setting]:
        """All arguments but the generator; sizes that were left out are written down."""
        return {
            "depth": self.depth,
            "width": self.width,
            "heads": self.heads,
            "head_size": self.head_size if self.degree == 3 else None,
            "num_tokens": self.num_positions,
            "embedding_rank": self.embedding_rank,
            "degree": self.degree,
            "output_position": self.output_position,
            "has_positions": self.has_positions,
        }

    @property
    def weight_degree(self) -> int:
        """Each layer multiplies `degree` tokens and four matrices, a chain (degree + 1) / 2."""
        degree = int(self.embedding_rank is not None or self.has_positions)
        matrices = 4 if self.degree == 3 else (self.degree + 1) // 2
        for _ in range(self.depth):
            degree = self.degree * degree + matrices
        return degree

    @property
    def input_degree(self) -> int:
        """degree^depth = 2 C + 1."""
        return int(self.degree**self.depth)

    def compute(self, numbers: Arithmetic, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """Coordinate 0 of the token at the output position, after all layers."""
        at = slice(self.output_position, self.output_position + 1)
        return self.mix(numbers, weights, inputs, at)[:, 0, 0]

    def upper_bound(self, partition: Partition) -> UpperBound:
        """The counting bound, refined by what the heads can see where that can be summed."""
        sizes = self._sizes(partition, has_subspace=not self.has_positions)
        counted = counting_upper_bound(sizes)
        if self.degree != 3 or sizes.factors > MAX_FACTORS:
            return counted
        found = [counted, heads_upper_bound(sizes), applicable(zeros_upper_bound, sizes)]
        return min((one for one in found if one is not None), key=lambda bound: bound.log3)

    def lower_bound(self, partition: Partition) -> LowerBound | None:
        """The best of our bounds by explicit weights; positions among them may be 0."""
        sizes = self._sizes(partition, has_subspace=True)
        known = [applicable(bound, sizes) for bound in (quadric_lower_bound, monomial_lower_bound)]
        bounds = [bound for bound in known if bound is not None]
        return max(bounds, key=lambda bound: bound.log3, default=None)

    def known_bounds(self, partition: Partition) -> KnownBounds:
        """Every theorem that applies, the published ones among them; also for very large sizes."""
        least = self._sizes(partition, has_subspace=True)  # positions may be 0
        most = self._sizes(partition, has_subspace=not self.has_positions)
        count = applicable(counting_upper_bound, most)
        further = [
            applicable(quadric_lower_bound, least),
            applicable(monomial_lower_bound, least),
            applicable(multiset_lower_bound, least),
            applicable(heads_upper_bound, most),
            applicable(zeros_upper_bound, most),
            applicable(word_upper_bound, most),
        ]
        if count is None:  # too few tokens to be counted; more of them have no smaller rank
            further.append(counting_upper_bound(most.with_tokens_for_rank()))
        has_embedding = self.embedding_rank is not None
        growths = (embedding_upper_growth(most), embedding_lower_growth(least))
        return KnownBounds(
            published_lower_bound(least),
            published_upper_bound(most),
            count,
            tuple(bound for bound in further if bound is not None),
            tuple(growth for growth in growths if has_embedding and growth is not None),
        )

    def grade_degrees(self, partition: Partition) -> tuple[int, ...]:
        """Even degrees if the output stands on the left, odd ones if it stands on the right."""
        if self.has_positions:
            return (0,)
        first = int(self.output_position in partition.right)
        return tuple(range(first, self.input_degree + first, 2))

    def grade_upper_bounds(self, partition: Partition) -> tuple[int, ...] | None:
        """The terms of the upper bound, by degree in the right side."""
        sizes = self._sizes(partition, has_subspace=not self.has_positions)
        if self.has_positions or sizes.factors > MAX_FACTORS:
            return None
        terms = heads_terms(sizes) if self.degree == 3 else counting_terms(sizes)
        if self.heads == 1 and self.degree == 3:
            terms = zeros_terms(sizes)
        return terms if self.output_position in partition.left else terms[::-1]

    def diagram(self) -> Network:
        """One step for each layer, on the array `x` (num_tokens, input_size)."""
        return attention_network(
            AttentionShape(
                depth=self.depth,
                width=self.width,
                num_tokens=self.num_positions,
                output_position=self.output_position,
                heads=self.heads if self.degree == 3 else None,
                head_size=self.head_size,
                num_factors=(self.degree + 1) // 2,
                embedding_rank=self.embedding_rank,
                has_positions=self.has_positions,
            )
        )

    def program_products(self, defined: int) -> int:
        # For each layer M from G, head by head, and M G Mᵗ; tokens are not seen one by one.
        del defined
        return self.depth * (3 + self.heads) * self.width**3

    def split_class(self) -> Callable[..., SplitFunction]:
        """The output as a function of the two sides, which meet in their Gram matrices only."""
        from rankscope.rank.networks.moments import MomentFunction

        return MomentFunction

    def mix(
        self,
        numbers: Arithmetic,
        weights: Mapping[str, Tensor],
        inputs: Tensor,
        last_at: slice = ALL,
    ) -> Tensor:
        """The tokens after all layers; the last layer computes only those at `last_at`."""
        tokens = inputs
        if self.embedding_rank is not None:
            tokens = numbers.contract("kr,btr->btk", weights["embedding"], tokens)
        if self.has_positions:
            tokens = numbers.add(tokens, weights["positions"])
        layer = attend if self.degree == 3 else follow_chain
        for number in range(self.depth):
            at = last_at if number == self.depth - 1 else ALL
            tokens = layer(numbers, weights, f"layers.{number}", tokens, at)
        return tokens

    def _sizes(self, partition: Partition, *, has_subspace: bool) -> AttentionSizes:
        """What the theorems need; `has_subspace`: whether tokens lie in the embedding's image."""
        self.require_covered(partition)
        is_left = self.output_position in partition.left
        own, other = len(partition.left), len(partition.right)
        return AttentionSizes(
            depth=self.depth,
            width=self.width,
            heads=self.heads,
            head_size=self.head_size,
            embedding_rank=self.embedding_rank if has_subspace else None,
            own_tokens=own if is_left else other,
            other_tokens=other if is_left else own,
            degree=self.degree,
        )


def _require_odd_degree(degree: int, heads: int, head_size: int | None) -> None:
    if degree < 3 or degree % 2 == 0:
        raise SizeError(f"SelfAttention: the degree must be odd and at least 3, got {degree}.")
    if degree > 3 and (heads != 1 or head_size is not None):
        raise SizeError(
            f"SelfAttention: a layer of degree {degree} is a chain of square matrices without "
            f"heads, got heads={heads} and head_size={head_size}. Leave them out, or use degree 3."
        )


def _resolved_head_size(width: int, heads: int, head_size: int | None) -> int:
    if head_size is not None:
        require_sizes("SelfAttention", head_size=head_size)
        return head_size
    if width % heads:
        raise SizeError(
            f"SelfAttention: {heads} heads do not divide width {width}; give head_size."
        )
    return width // heads
