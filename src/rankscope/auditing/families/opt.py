"""OPT: learned positions, and token vectors that may be smaller than the width."""

from collections.abc import Iterator
from dataclasses import replace

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.families.blocks import feed_forward, separate_attention
from rankscope.auditing.families.family import SIZES, Family, Tensors, read_sizes
from rankscope.auditing.families.fields import Fields
from rankscope.auditing.families.llama import is_tied
from rankscope.auditing.families.tensor_list import ExpectedTensor, Part, linear, norm, table

# The first two rows of the table of positions are never used.
_OFFSET = 2


def _opt(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes = read_sizes(fields)
    embedding = fields.size("word_embed_proj_dim", default=sizes.width)
    sizes = replace(sizes, embedding_rank=min(sizes.embedding_rank, embedding))
    return sizes, _tensors(fields, sizes, embedding)


def _tensors(fields: Fields, sizes: Configuration, embedding: int) -> Iterator[ExpectedTensor]:
    vocabulary, width, name = fields.size("vocab_size"), sizes.width, "model.decoder"
    positions = fields.size("max_position_embeddings") + _OFFSET
    yield table(f"{name}.embed_tokens", vocabulary, embedding)
    yield table(f"{name}.embed_positions", positions, width)
    if embedding != width:
        yield from linear(f"{name}.project_in", (width, embedding), Part.EMBEDDING)
    for number in range(sizes.depth):
        yield from _block(fields, sizes, f"{name}.layers.{number}")
    is_first = fields.flag("do_layer_norm_before", default=True)
    if is_first and not fields.flag("_remove_final_layer_norm", default=False):
        yield from _norm(fields, f"{name}.final_layer_norm", width)
    if embedding != width:
        yield from linear(f"{name}.project_out", (embedding, width), Part.HEAD)
    tied = is_tied(fields, default=True)
    yield ExpectedTensor("lm_head.weight", (vocabulary, embedding), Part.HEAD, is_tied=tied)


def _block(fields: Fields, sizes: Configuration, name: str) -> Iterator[ExpectedTensor]:
    bias, one = fields.flag("enable_bias", default=True), f"{name}.self_attn"
    names = (f"{one}.q_proj", f"{one}.k_proj", f"{one}.v_proj", f"{one}.out_proj")
    yield from separate_attention(sizes, names, bias=bias, output_bias=bias)
    yield from _norm(fields, f"{name}.self_attn_layer_norm", sizes.width)
    maps = f"{name}.fc1", f"{name}.fc2"
    yield from feed_forward(sizes.width, sizes.feed_forward, maps, bias=bias)
    yield from _norm(fields, f"{name}.final_layer_norm", sizes.width)


def _norm(fields: Fields, name: str, width: int) -> Iterator[ExpectedTensor]:
    if fields.flag("layer_norm_elementwise_affine", default=True):
        yield from norm(name, width, bias=True)


OPT_FAMILIES = (
    Family(
        "opt",
        _opt,
        aliases={"intermediate_size": "ffn_dim"},
        required=(*SIZES, "max_position_embeddings"),
        telling_keys=("ffn_dim", "word_embed_proj_dim", "hidden_size"),
    ),
)
