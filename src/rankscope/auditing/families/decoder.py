"""Decoders: a stack of blocks between an embedding and an output matrix, under any names."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.families.tensor_list import (
    ExpectedTensor,
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
    transposed,
)

HeadNorms = tuple[tuple[int, ...], tuple[int, ...]]  # shapes of `q_norm` and of `k_norm`
Block = Callable[[str, int], Iterator[ExpectedTensor]]  # its tensors, from its name and number
Switch = bool | tuple[str, bool]  # fixed, or a key of the document and what holds without it


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
    head_norms: HeadNorms | None = None
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


@dataclass(frozen=True)
class Decoder:
    """How a decoder's configuration is read and what its tensors are called, as a row of a table.

    The defaults are those of LLaMA without switches. A `Switch` is a fixed answer, or the key that
    gives it.

    Args:
        bias: whether queries, keys and values have one.
        output_bias: whether the heads' output has one.
        feed_forward_bias: whether all feed-forward maps have one.
        norm_bias: whether normalizations shift too.
        head_bias: whether the output matrix has a bias.
        is_tied: whether the output matrix is the embedding where the document says nothing.
        is_transposed: whether the matrices of blocks are stored as (inputs, outputs).
        head_size: if the document says none; width / heads if None.
        has_inner_size: whether the document must name the inner size; else four times the width.
        norms: those of one block.
        attention: see `BlockMaps`, also for the next two.
        feed_forward: maps up, and down.
        has_joint_gate: whether the gate and the map up are one matrix.
        embedding: name of the token embedding.
        positions: name of the table of learned positions, or empty.
        blocks: name of the list of blocks.
        final_norm: name of the normalization after the last block.
        head: name of the output matrix.
        sizes: what the document changes in the shared sizes; refuses what is not read.
        head_norms: normalizations of queries and keys.
        block: the tensors of a block, where they are not those of its maps.
    """

    bias: Switch = False
    output_bias: Switch = False
    feed_forward_bias: Switch = False
    norm_bias: Switch = False
    head_bias: bool = False
    is_tied: bool = False
    is_transposed: bool = False
    head_size: int | None = None
    has_inner_size: bool = True
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    attention: str = BlockMaps.attention
    feed_forward: str = BlockMaps.feed_forward
    has_joint_gate: bool = False
    embedding: str = "model.embed_tokens"
    positions: str = ""
    blocks: str = "model.layers"
    final_norm: str = "model.norm"
    head: str = "lm_head"
    sizes: Callable[[Fields, Configuration], Configuration] | None = None
    head_norms: Callable[[Fields, Configuration], HeadNorms | None] | None = None
    block: Callable[[Fields, BlockMaps], Block] | None = None

    def __call__(self, fields: Fields) -> tuple[Configuration, Tensors]:
        """The sizes that a document names, and all tensors in the order in which they are used."""
        inner = None if self.has_inner_size else 4 * fields.size("hidden_size")
        sizes = read_sizes(fields, feed_forward=inner, head_size=self.head_size)
        if self.sizes is not None:
            sizes = self.sizes(fields, sizes)
        maps = BlockMaps(
            sizes,
            has_bias=_answer(fields, self.bias),
            has_output_bias=_answer(fields, self.output_bias),
            has_feed_forward_bias=_answer(fields, self.feed_forward_bias),
            head_norms=None if self.head_norms is None else self.head_norms(fields, sizes),
            attention=self.attention,
            feed_forward=self.feed_forward,
            has_joint_gate=self.has_joint_gate,
        )
        return sizes, self._tensors(fields, sizes, self.block(fields, maps) if self.block else maps)

    def _tensors(
        self, fields: Fields, sizes: Configuration, block: Block
    ) -> Iterator[ExpectedTensor]:
        words, width, bias = fields.size("vocab_size"), sizes.width, _answer(fields, self.norm_bias)
        yield table(self.embedding, words, width)
        if self.positions:
            yield table(self.positions, fields.size("max_position_embeddings"), width)
        for number in range(sizes.depth):
            name = f"{self.blocks}.{number}"
            for one in self.norms:
                yield from norm(f"{name}.{one}", width, bias=bias)
            tensors = block(name, number)
            yield from transposed(tensors) if self.is_transposed else tensors
        yield from norm(self.final_norm, width, bias=bias)
        tied = is_tied(fields, default=self.is_tied)
        yield ExpectedTensor(f"{self.head}.weight", (words, width), Part.HEAD, is_tied=tied)
        if self.head_bias:
            yield ExpectedTensor(f"{self.head}.bias", (words,), Part.HEAD)


def _answer(fields: Fields, switch: Switch) -> bool:
    return switch if isinstance(switch, bool) else fields.flag(switch[0], default=switch[1])
