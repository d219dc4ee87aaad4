"""What the bounds of token mixers need to know of transformers and of recurrences."""

from rankscope.errors import BoundError
from rankscope.rank.bounds.attention import quadric_lower_bound
from rankscope.rank.bounds.counting import (
    MAX_FACTORS,
    counting_upper_bound,
    monomial_lower_bound,
)
from rankscope.rank.bounds.sizes import AttentionSizes
from rankscope.rank.bounds.token_mixers import (
    MixedTokens,
    SharedKeys,
    StateDegrees,
    key_value_forms,
    shared_keys_terms,
    shared_keys_upper_bound,
)
from rankscope.rank.networks.polynomial_transformer import TransformerShape
from rankscope.rank.networks.recurrence import Kind, RecurrenceShape
from rankscope.rank.partition import Partition
from rankscope.theorem import LowerBound, UpperBound

# --- Transformers ---------------------------------------------------------------------------------


def transformer_upper_bound(shape: TransformerShape, partition: Partition) -> UpperBound:
    """The least of the bounds that apply."""
    bounds = transformer_tokens(shape).upper_bounds(partition)
    if _is_gram(shape):
        sizes = attention_sizes(shape, partition)
        bounds.append(counting_upper_bound(sizes))
        if shape.is_attention and sizes.factors <= MAX_FACTORS:
            bounds.append(shared_keys_upper_bound(sizes, shared_keys(shape)))
    return min(bounds, key=lambda bound: bound.log3)


def transformer_terms(
    shape: TransformerShape, partition: Partition, degrees: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Bounds of the parts of these degrees on the right."""
    terms = transformer_tokens(shape).terms(partition)
    if terms is None:
        return None
    counted = tuple(terms[degree] for degree in degrees)
    sizes = attention_sizes(shape, partition)
    if not shape.is_attention or sizes.factors > MAX_FACTORS:
        return counted
    seen = shared_keys_terms(sizes, shared_keys(shape))
    if shape.output_position in partition.right:
        seen = seen[::-1]
    return tuple(min(pair) for pair in zip(counted, seen, strict=True))


def transformer_lower_bound(shape: TransformerShape, partition: Partition) -> LowerBound | None:
    """That of attention; residuals and positions cannot lower it (docs/proofs.md, section 23)."""
    has_own_keys = shape.num_kv_heads == shape.heads and not (shape.latent or shape.query_latent)
    if not _is_gram(shape) or not has_own_keys:
        return None
    sizes, bounds = attention_sizes(shape, partition), []
    for bound in (quadric_lower_bound, monomial_lower_bound):
        try:
            bounds.append(bound(sizes))
        except BoundError:  # its theorem does not cover these sizes
            continue
    return max(bounds, key=lambda bound: bound.log3, default=None)


def transformer_tokens(shape: TransformerShape) -> MixedTokens:
    """With which degrees tokens enter, and what later ones know of earlier ones."""
    degree, layers = shape.layer_degree**shape.depth, shape.depth
    if shape.has_positions or (shape.has_residual and shape.gated):
        others = output = range(degree + 1)
    elif shape.gated:
        others, output = range(0, degree + 1, 2), range(2**layers, degree + 1, 2)
    else:
        others, output = range(0, degree, 2), range(1, degree + 1, 2)
    seen, place = shape.seen, shape.output_position
    states = None
    if shape.is_causal:
        states = (_transformer_states(shape),) * (len(seen) - 1)
    return MixedTokens(
        width=shape.width,
        degree=degree,
        is_homogeneous=shape.is_homogeneous,
        degrees=tuple(output if token == place else others for token in seen),
        output=place,
        is_symmetric=not (shape.is_causal or shape.has_rotary or shape.has_positions),
        states=states,
        state_degrees=tuple(2 * shape.layer_degree**layer for layer in range(layers)),
    )


def _transformer_states(shape: TransformerShape) -> StateDegrees:
    """Sums of (value)(key)ᵗ; of the last layer only what coordinate 0 reads of them."""
    size, groups = shape.head_size, shape.num_kv_heads
    if shape.has_rotary:
        forms = groups * size * min(size, shape.latent or size)
    else:
        forms = key_value_forms(shape.width, size, shared_keys(shape))
    read = min(forms, groups * min(size * size, shape.heads // groups * size))
    last = forms if shape.gated else read
    return StateDegrees(
        sizes=(*[forms] * (shape.depth - 1), last),
        with_state=1,
        without_state=3,
        per_token=2 if shape.gated else 1,
    )


def _is_gram(shape: TransformerShape) -> bool:
    """Whether the output sees other tokens through their Gram matrix only."""
    return not (shape.is_causal or shape.has_rotary or shape.gated)


def shared_keys(shape: TransformerShape) -> SharedKeys:
    """How its heads come by keys, values and queries."""
    return SharedKeys(shape.num_kv_heads, shape.latent, shape.query_latent)


def attention_sizes(shape: TransformerShape, partition: Partition) -> AttentionSizes:
    """Its sizes as those of attention with keys and values for every head."""
    left, right = len(partition.left), len(partition.right)
    is_left = shape.output_position in partition.left
    return AttentionSizes(
        depth=shape.depth,
        width=shape.width,
        heads=shape.heads,
        head_size=shape.head_size,
        own_tokens=left if is_left else right,
        other_tokens=right if is_left else left,
    )


# --- Recurrences ----------------------------------------------------------------------------------


def recurrence_tokens(shape: RecurrenceShape) -> MixedTokens:
    """With which degrees tokens enter, and what later ones know of earlier ones."""
    place = shape.output_position
    step = {Kind.DECAY: 2, Kind.DELTA: shape.rate_degree}.get(shape.kind, 1)
    if shape.has_input_rate and shape.depth > 1:
        step = 1  # a rate of degree 1 in tokens of degree 4 leaves no parity
    degrees = [
        range(0, most + 1, step) if token < place else range(1, most + 1, step)
        for token, most in enumerate(_most_degrees(shape))
    ]
    state_degrees = None
    if shape.is_homogeneous:
        layer_degree = 3 if shape.kind is Kind.DECAY else 2
        own = 2 if shape.kind is Kind.DECAY else 1
        state_degrees = tuple(own * layer_degree**layer for layer in range(shape.depth))
    return MixedTokens(
        width=shape.width,
        degree=shape.degrees()[place],
        is_homogeneous=shape.is_homogeneous,
        degrees=tuple(degrees),
        output=place,
        is_symmetric=False,
        states=tuple(_recurrence_states(shape, place - token) for token in range(place)),
        state_degrees=state_degrees,
    )


def _most_degrees(shape: RecurrenceShape) -> list[int]:
    """The largest degree of each token in the output."""
    place = shape.output_position
    # most[t][j]: of the token at time t of the layer in input j.
    most = [[int(t == j) for j in range(place + 1)] for t in range(place + 1)]
    for _ in range(shape.depth):
        made = []
        for t in range(place + 1):
            row = []
            for j in range(place + 1):
                before = [most[i][j] for i in range(t + 1)]
                if shape.kind is Kind.DELTA:
                    state = shape.rate_degree * sum(before)
                elif shape.kind is Kind.SELECTIVE:
                    state = sum(before)
                else:
                    state = max(before) * (2 if shape.kind is Kind.DECAY else 1)
                row.append(state + most[t][j])
            made.append(row)
        most = made
    return most[place]


def _recurrence_states(shape: RecurrenceShape, remaining: int) -> StateDegrees:
    """The states when so many tokens are still to come, the output's among them."""
    heads, state, size = shape.heads, shape.state, shape.head_size
    all_forms = shape.width * (shape.width + 1) // 2
    if shape.kind is Kind.DECAY:
        sizes, last = heads * min(size * state, all_forms), heads * min(state, all_forms)
        with_state, without_state = 1, 3
    elif shape.kind is Kind.DELTA:
        sizes, last = heads * size * state, heads * state
        with_state = without_state = shape.rate_degree * remaining + 1
    elif shape.kind is Kind.SELECTIVE:
        sizes, last = heads * state, state  # coordinate 0 is written by head 0
        with_state = without_state = remaining + 1
    else:
        sizes, last = heads * state, 1  # one form of the state of head 0
        with_state, without_state = 1, 2
    return StateDegrees((*[sizes] * (shape.depth - 1), last), with_state, without_state)


def recurrence_upper_bound(shape: RecurrenceShape, partition: Partition) -> UpperBound:
    """The least of the bounds that apply."""
    bounds = recurrence_tokens(shape).upper_bounds(partition)
    return min(bounds, key=lambda bound: bound.log3)


def recurrence_terms(
    shape: RecurrenceShape, partition: Partition, degrees: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Bounds of the parts of these degrees on the right."""
    terms = recurrence_tokens(shape).terms(partition)
    return None if terms is None else tuple(terms[degree] for degree in degrees)
