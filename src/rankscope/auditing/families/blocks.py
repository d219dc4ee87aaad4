"""What the blocks of most families are made of: attention and feed-forward maps under any names."""

from collections.abc import Iterator

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.families.tensor_list import ExpectedTensor, Part, linear


def separate_attention(
    sizes: Configuration,
    names: tuple[str, str, str, str],
    *,
    bias: bool,
    output_bias: bool,
) -> Iterator[ExpectedTensor]:
    """Queries, keys, values and outputs in four matrices; keys and values may be grouped."""
    query, key, value, output = names
    grouped = sizes.key_value_heads * sizes.head_size
    rows = ((query, sizes.attention_width), (key, grouped), (value, grouped))
    for name, size in rows:
        yield from linear(name, (size, sizes.width), Part.ATTENTION, bias=bias, head_axis=0)
    yield from output_map(sizes, output, bias=output_bias)


def fused_attention(
    sizes: Configuration,
    names: tuple[str, str],
    *,
    bias: bool,
    output_bias: bool,
) -> Iterator[ExpectedTensor]:
    """Queries, keys and values in one matrix, outputs in another."""
    fused, output = names
    rows = (sizes.heads + 2 * sizes.key_value_heads) * sizes.head_size
    yield from linear(fused, (rows, sizes.width), Part.ATTENTION, bias=bias, head_axis=0)
    yield from output_map(sizes, output, bias=output_bias)


def output_map(sizes: Configuration, name: str, *, bias: bool) -> Iterator[ExpectedTensor]:
    """What all heads together write back."""
    shape = (sizes.width, sizes.attention_width)
    yield from linear(name, shape, Part.ATTENTION, bias=bias, head_axis=1)


def feed_forward(
    width: int, inner: int, names: tuple[str, ...], *, bias: bool = False
) -> Iterator[ExpectedTensor]:
    """Maps up (two if gated), and the last one down."""
    *ups, down = names
    for name in ups:
        yield from linear(name, (inner, width), Part.FEED_FORWARD, bias=bias)
    yield from linear(down, (width, inner), Part.FEED_FORWARD, bias=bias)
