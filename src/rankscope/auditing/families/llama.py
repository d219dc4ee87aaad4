"""LLaMA and its many relatives: normalized, gated blocks whose maps have the same names."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.families.tensor_list import (
    ExpectedTensor,
    Family,
    Fields,
    Part,
    Tensors,
    feed_forward,
    fused_queries,
    linear,
    norm,
    output_map,
    read_sizes,
    separate_queries,
    table,
)

# --- A stack of blocks between an embedding and an output matrix, under any names -----------------


@dataclass(frozen=True)
class DecoderFrame:
    """What surrounds attention and feed-forward maps; the defaults are those of LLaMA.

    Args:
        is_tied: whether the output matrix is the embedding once more.
        norms: those of one block.
        has_norm_bias: whether normalizations shift too.
        has_head_bias: whether the output matrix has a bias.
        embedding: name of the token embedding.
        blocks: name of the list of blocks.
        final_norm: name of the normalization after the last block.
        head: name of the output matrix.
        positions: name and number of learned positions, or None.
    """

    is_tied: bool
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    has_norm_bias: bool = False
    has_head_bias: bool = False
    embedding: str = "model.embed_tokens"
    blocks: str = "model.layers"
    final_norm: str = "model.norm"
    head: str = "lm_head"
    positions: tuple[str, int] | None = None


def decoder(
    sizes: Configuration,
    frame: DecoderFrame,
    block: Callable[[str, int], Iterator[ExpectedTensor]],
) -> Iterator[ExpectedTensor]:
    """All tensors, in the order in which they are used.

    Args:
        sizes: of the model; its vocabulary must be known.
        frame: names and kinds of what surrounds the blocks' maps.
        block: attention and feed-forward tensors of a block, from its name and number.
    """
    vocabulary = sizes.vocabulary
    assert vocabulary is not None, "the catalogue requires vocab_size of every decoder"
    yield table(frame.embedding, vocabulary, sizes.width)
    if frame.positions is not None:
        yield table(*frame.positions, sizes.width)
    for number in range(sizes.depth):
        name = f"{frame.blocks}.{number}"
        for one in frame.norms:
            yield from norm(f"{name}.{one}", sizes.width, bias=frame.has_norm_bias)
        yield from block(name, number)
    yield from norm(frame.final_norm, sizes.width, bias=frame.has_norm_bias)
    shape = (vocabulary, sizes.width)
    yield ExpectedTensor(f"{frame.head}.weight", shape, Part.HEAD, is_tied=frame.is_tied)
    if frame.has_head_bias:
        yield ExpectedTensor(f"{frame.head}.bias", (vocabulary,), Part.HEAD)


_AROUND_BOTH = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)


@dataclass(frozen=True)
class BlockMaps:
    """The maps of a block, by their names after the block's; the defaults are those of LLaMA.

    Args:
        sizes: of the model.
        has_bias: whether queries, keys and values have one.
        has_output_bias: whether the heads' output has one.
        has_feed_forward_bias: whether all feed-forward maps have one.
        head_norms: shapes of `q_norm` and `k_norm`, or None.
        attention: queries, keys, values and output; or all three in one matrix, and output.
        feed_forward: maps up (two if gated), and down.
        has_joint_gate: whether the gate and the map up are one matrix.
        before: normalizations before attention and before the feed-forward maps.
        after: normalizations after attention and after the feed-forward maps.
    """

    sizes: Configuration
    has_bias: bool = False
    has_output_bias: bool = False
    has_feed_forward_bias: bool = False
    head_norms: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    attention: str = "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj"
    feed_forward: str = "mlp.gate_proj mlp.up_proj mlp.down_proj"
    has_joint_gate: bool = False
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    def __call__(self, name: str, number: int = 0) -> Iterator[ExpectedTensor]:
        """All tensors of a block."""
        parts = (self.attention_maps(name), self.feed_forward_maps(name))
        for place, part in enumerate(parts):
            yield from self._norms(name, self.before[place : place + 1])
            yield from part
            yield from self._norms(name, self.after[place : place + 1])

    def _norms(self, name: str, norms: tuple[str, ...]) -> Iterator[ExpectedTensor]:
        for one in norms:
            yield from norm(f"{name}.{one}", self.sizes.width, bias=True)

    def attention_maps(self, name: str) -> Iterator[ExpectedTensor]:
        """Attention alone, for relatives with other feed-forward maps."""
        *_, output = names = [f"{name}.{one}" for one in self.attention.split()]
        if len(names) == 2:
            yield from fused_queries(self.sizes, names[0], bias=self.has_bias)
        else:
            yield from separate_queries(self.sizes, names[:3], bias=self.has_bias)
        yield from output_map(self.sizes, output, bias=self.has_output_bias)
        for side, shape in zip("qk", self.head_norms or (), strict=False):
            one = f"{name}.self_attn.{side}_norm.weight"
            yield ExpectedTensor(one, shape, Part.NORMALIZATION)

    def feed_forward_maps(self, name: str) -> Iterator[ExpectedTensor]:
        """The feed-forward maps alone."""
        names = tuple(f"{name}.{one}" for one in self.feed_forward.split())
        width, inner, bias = self.sizes.width, self.sizes.feed_forward, self.has_feed_forward_bias
        if self.has_joint_gate:
            yield from linear(names[0], (2 * inner, width), Part.FEED_FORWARD, bias=bias)
            names = names[1:]
        yield from feed_forward(width, inner, names, bias=bias)


def biased_block(
    sizes: Configuration, attention: str, feed_forward: str, after: tuple[str, ...] = ()
) -> BlockMaps:
    """A block whose maps all have biases."""
    return BlockMaps(
        sizes,
        has_bias=True,
        has_output_bias=True,
        has_feed_forward_bias=True,
        attention=attention,
        feed_forward=feed_forward,
        after=after,
    )


def gated_feed_forward(sizes: Configuration, name: str, inner: int) -> Iterator[ExpectedTensor]:
    """Two maps up, one of them a gate, and one down."""
    names = (f"{name}.gate_proj", f"{name}.up_proj", f"{name}.down_proj")
    yield from feed_forward(sizes.width, inner, names)


def is_tied(fields: Fields, *, default: bool = False) -> bool:
    """Whether the output matrix is the embedding; the default is the family's."""
    return fields.flag("tie_word_embeddings", default=default)


def one_norm_per_head(sizes: Configuration) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """One normalization of size head size, shared by all heads, for queries and one for keys."""
    return (sizes.head_size,), (sizes.head_size,)


def _llama(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes, bias = read_sizes(fields), fields.flag("attention_bias", default=False)
    block = BlockMaps(
        sizes,
        has_bias=bias,
        has_output_bias=bias,
        has_feed_forward_bias=fields.flag("mlp_bias", default=False),
    )
    return sizes, decoder(sizes, DecoderFrame(is_tied(fields)), block)


def _plain(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes = read_sizes(fields)
    return sizes, decoder(sizes, DecoderFrame(is_tied(fields)), BlockMaps(sizes))


def _qwen2(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes = read_sizes(fields)
    return sizes, decoder(sizes, DecoderFrame(is_tied(fields)), BlockMaps(sizes, has_bias=True))


def qwen3_block(fields: Fields, sizes: Configuration) -> BlockMaps:
    """Normalized queries and keys; biases as the document says."""
    bias = fields.flag("attention_bias", default=False)
    return BlockMaps(sizes, bias, bias, head_norms=one_norm_per_head(sizes))


def _qwen3(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes = read_sizes(fields, head_size=128)
    return sizes, decoder(sizes, DecoderFrame(is_tied(fields)), qwen3_block(fields, sizes))


def _gemma(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes, bias = read_sizes(fields, head_size=256), fields.flag("attention_bias", default=False)
    frame = DecoderFrame(is_tied(fields, default=True))
    return sizes, decoder(sizes, frame, BlockMaps(sizes, bias, bias))


def _gemma2(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes, bias = read_sizes(fields, head_size=256), fields.flag("attention_bias", default=False)
    frame = DecoderFrame(is_tied(fields, default=True), norms=_AROUND_BOTH)
    return sizes, decoder(sizes, frame, BlockMaps(sizes, bias, bias))


def _gemma3(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes = read_sizes(fields, head_size=256)
    frame = DecoderFrame(is_tied(fields, default=True), norms=_AROUND_BOTH)
    return sizes, decoder(sizes, frame, qwen3_block(fields, sizes))


def _olmo2(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes, bias = read_sizes(fields), fields.flag("attention_bias", default=False)
    shapes = (sizes.attention_width,), (sizes.key_value_heads * sizes.head_size,)
    frame = DecoderFrame(
        is_tied(fields), norms=("post_attention_layernorm", "post_feedforward_layernorm")
    )
    return sizes, decoder(sizes, frame, BlockMaps(sizes, bias, bias, head_norms=shapes))


def _internlm(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes, bias = read_sizes(fields), fields.flag("bias", default=True)
    return sizes, decoder(sizes, DecoderFrame(is_tied(fields)), BlockMaps(sizes, bias, bias))


def _orion(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes, bias = read_sizes(fields), fields.flag("attention_bias", default=False)
    frame = DecoderFrame(is_tied(fields), has_norm_bias=True)
    return sizes, decoder(sizes, frame, BlockMaps(sizes, bias, bias))


def _cohere(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes, bias = read_sizes(fields), fields.flag("attention_bias", default=False)
    shapes = (sizes.heads, sizes.head_size), (sizes.key_value_heads, sizes.head_size)
    norms = shapes if fields.flag("use_qk_norm", default=False) else None
    frame = DecoderFrame(is_tied(fields, default=True), norms=("input_layernorm",))
    return sizes, decoder(sizes, frame, BlockMaps(sizes, bias, bias, head_norms=norms))


def _stablelm(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes = read_sizes(fields)
    is_parallel = fields.flag("use_parallel_residual", default=False)
    norms = ("input_layernorm",) if is_parallel else DecoderFrame.norms
    maps = BlockMaps(sizes, has_bias=fields.flag("use_qkv_bias", default=False))
    has_head_norms = fields.flag("qk_layernorm", default=False)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        yield from maps(name, number)
        for side, heads in (("q", sizes.heads), ("k", sizes.key_value_heads)):
            for head in range(heads if has_head_norms else 0):
                one = f"{name}.self_attn.{side}_layernorm.norms.{head}.weight"
                yield ExpectedTensor(one, (sizes.head_size,), Part.NORMALIZATION)

    return sizes, decoder(sizes, DecoderFrame(is_tied(fields), norms, has_norm_bias=True), block)


LLAMA_FAMILIES = (
    Family("llama", _llama),
    Family("mistral", _plain, model_types=("ministral3",)),
    Family("qwen2", _qwen2),
    Family("qwen3", _qwen3),
    Family("gemma", _gemma),
    Family("gemma2", _gemma2),
    Family("gemma3", _gemma3, model_types=("gemma3_text",)),
    Family("olmo2", _olmo2),
    Family("internlm", _internlm),
    Family("orion", _orion),
    Family("cohere", _cohere),
    Family("stablelm", _stablelm, model_types=("stablelm_epoch",)),
)
