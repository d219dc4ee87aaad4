"""DeepSeek-V2: keys and values of all heads are read from one small latent vector."""

from collections.abc import Iterator
from dataclasses import replace

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.families.blocks import output_map
from rankscope.auditing.families.decoder import Frame, decoder
from rankscope.auditing.families.experts import (
    DEEPSEEK_SIZES,
    deepseek_feed_forward,
    deepseek_sizes,
)
from rankscope.auditing.families.family import Family, Tensors, read_sizes
from rankscope.auditing.families.fields import Fields
from rankscope.auditing.families.llama import is_tied
from rankscope.auditing.families.tensor_list import ExpectedTensor, Part, linear, norm


def _latent_attention(fields: Fields, sizes: Configuration, name: str) -> Iterator[ExpectedTensor]:
    """Queries (from a latent vector of their own, if `q_lora_rank` is given), keys and values."""
    width, heads, bias = sizes.width, sizes.heads, fields.flag("attention_bias", default=False)
    plain, turned = fields.size("qk_nope_head_dim"), fields.size("qk_rope_head_dim")
    latent, queries = fields.size("kv_lora_rank"), heads * (plain + turned)
    if fields.has("q_lora_rank"):
        rank = fields.size("q_lora_rank")
        yield from linear(f"{name}.q_a_proj", (rank, width), Part.ATTENTION, bias=bias)
        yield from norm(f"{name}.q_a_layernorm", rank, bias=False)
        yield from linear(f"{name}.q_b_proj", (queries, rank), Part.ATTENTION, head_axis=0)
    else:
        yield from linear(f"{name}.q_proj", (queries, width), Part.ATTENTION, head_axis=0)
    shared = (latent + turned, width)
    yield from linear(f"{name}.kv_a_proj_with_mqa", shared, Part.ATTENTION, bias=bias)
    yield from norm(f"{name}.kv_a_layernorm", latent, bias=False)
    rows = heads * (plain + sizes.head_size)
    yield from linear(f"{name}.kv_b_proj", (rows, latent), Part.ATTENTION, head_axis=0)
    yield from output_map(sizes, f"{name}.o_proj", bias=bias)


def _deepseek_v2(fields: Fields) -> tuple[Configuration, Tensors]:
    """A head's size is `v_head_dim`: what it writes back, as heads x head size stands for.

    Its queries and keys are longer (`qk_nope_head_dim` + `qk_rope_head_dim`), and there is a key
    and a value for every head, whatever `num_key_value_heads` says.
    """
    sizes = deepseek_sizes(fields, read_sizes(fields))
    sizes = replace(sizes, key_value_heads=sizes.heads)
    maps = deepseek_feed_forward(fields, sizes)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        yield from _latent_attention(fields, sizes, f"{name}.self_attn")
        yield from maps(name, number)

    return sizes, decoder(sizes, Frame(is_tied(fields)), block)


LATENT_FAMILIES = (
    Family(
        "deepseek_v2",
        _deepseek_v2,
        "all experts, routers and the output matrix; the head size is that of the values",
        aliases={"head_dim": "v_head_dim"},
        required=(
            *DEEPSEEK_SIZES,
            "head_dim",
            "kv_lora_rank",
            "qk_nope_head_dim",
            "qk_rope_head_dim",
        ),
    ),
)
