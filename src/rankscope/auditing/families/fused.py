"""Gated decoders that keep queries, keys and values, or gate and map up, in one matrix."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.families.blocks import feed_forward, fused_attention
from rankscope.auditing.families.decoder import Frame, decoder
from rankscope.auditing.families.family import Family, Tensors, read_sizes
from rankscope.auditing.families.fields import Fields
from rankscope.auditing.families.llama import gated, is_tied
from rankscope.auditing.families.tensor_list import ExpectedTensor, Part, linear
from rankscope.errors import ConfigurationError


def _gate_and_up(
    sizes: Configuration, fused: str, down: str, *, bias: bool
) -> Iterator[ExpectedTensor]:
    width, inner = sizes.width, sizes.feed_forward
    yield from linear(fused, (2 * inner, width), Part.FEED_FORWARD, bias=bias)
    yield from linear(down, (width, inner), Part.FEED_FORWARD, bias=bias)


def _baichuan(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes = read_sizes(fields)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        names = f"{name}.self_attn.W_pack", f"{name}.self_attn.o_proj"
        yield from fused_attention(sizes, names, bias=False, output_bias=False)
        yield from gated(sizes, f"{name}.mlp", sizes.feed_forward)

    return sizes, decoder(sizes, Frame(is_tied(fields)), block)


def _phi3(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes = read_sizes(fields)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        names = f"{name}.self_attn.qkv_proj", f"{name}.self_attn.o_proj"
        yield from fused_attention(sizes, names, bias=False, output_bias=False)
        yield from _gate_and_up(
            sizes, f"{name}.mlp.gate_up_proj", f"{name}.mlp.down_proj", bias=False
        )

    return sizes, decoder(sizes, Frame(is_tied(fields)), block)


def _internlm2(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes, bias = read_sizes(fields), fields.flag("bias", default=True)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        names = f"{name}.attention.wqkv", f"{name}.attention.wo"
        yield from fused_attention(sizes, names, bias=bias, output_bias=bias)
        maps = tuple(f"{name}.feed_forward.{one}" for one in ("w1", "w3", "w2"))
        yield from feed_forward(sizes.width, sizes.feed_forward, maps)

    frame = Frame(
        is_tied(fields),
        norms=("attention_norm", "ffn_norm"),
        embedding="model.tok_embeddings",
        head="output",
    )
    return sizes, decoder(sizes, frame, block)


def _qwen(fields: Fields) -> tuple[Configuration, Tensors]:
    # The document names the size of both maps up together.
    sizes = read_sizes(fields)
    sizes = replace(sizes, feed_forward=sizes.feed_forward // 2)
    bias = not fields.flag("no_bias", default=True)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        names = f"{name}.attn.c_attn", f"{name}.attn.c_proj"
        yield from fused_attention(sizes, names, bias=True, output_bias=bias)
        maps = tuple(f"{name}.mlp.{one}" for one in ("w1", "w2", "c_proj"))
        yield from feed_forward(sizes.width, sizes.feed_forward, maps, bias=bias)

    frame = Frame(
        is_tied(fields),
        norms=("ln_1", "ln_2"),
        embedding="transformer.wte",
        blocks="transformer.h",
        final_norm="transformer.ln_f",
    )
    return sizes, decoder(sizes, frame, block)


def _chatglm(fields: Fields) -> tuple[Configuration, Tensors]:
    if not fields.flag("post_layer_norm", default=True):
        raise ConfigurationError(
            f"{fields.who}: a chatglm with post_layer_norm=false is not read: "
            "wanted true, as in all that were published."
        )
    sizes = read_sizes(fields)
    if fields.flag("multi_query_attention", default=False):
        sizes = replace(sizes, key_value_heads=fields.size("multi_query_group_num"))
    frame = Frame(
        is_tied(fields),
        has_norm_bias=not fields.flag("rmsnorm", default=True),
        embedding="transformer.embedding.word_embeddings",
        blocks="transformer.encoder.layers",
        final_norm="transformer.encoder.final_layernorm",
        head="transformer.output_layer",
    )
    return sizes, decoder(sizes, frame, _chatglm_block(fields, sizes))


def _chatglm_block(
    fields: Fields, sizes: Configuration
) -> Callable[[str, int], Iterator[ExpectedTensor]]:
    bias = fields.flag("add_bias_linear", default=False)
    query_bias = bias or fields.flag("add_qkv_bias", default=False)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        names = f"{name}.self_attention.query_key_value", f"{name}.self_attention.dense"
        yield from fused_attention(sizes, names, bias=query_bias, output_bias=bias)
        yield from _gate_and_up(
            sizes, f"{name}.mlp.dense_h_to_4h", f"{name}.mlp.dense_4h_to_h", bias=bias
        )

    return block


FUSED_FAMILIES = (
    Family("baichuan", _baichuan),
    Family("phi3", _phi3),
    Family("internlm2", _internlm2),
    Family("qwen", _qwen, aliases={"head_dim": "kv_channels"}),
    Family(
        "chatglm",
        _chatglm,
        aliases={
            "num_hidden_layers": "num_layers",
            "intermediate_size": "ffn_hidden_size",
            "vocab_size": "padded_vocab_size",
            "head_dim": "kv_channels",
        },
        telling_keys=("padded_vocab_size", "ffn_hidden_size", "kv_channels"),
    ),
)
