"""Phi, first and second version, in both layouts of its weights; the third is like LLaMA."""

from collections.abc import Iterator

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.families.blocks import (
    feed_forward,
    fused_attention,
    separate_attention,
)
from rankscope.auditing.families.decoder import Frame, decoder
from rankscope.auditing.families.family import Family, Tensors
from rankscope.auditing.families.fields import Fields
from rankscope.auditing.families.gpt import NO_INNER, SHORT_KEYS, read_gpt_sizes
from rankscope.auditing.families.llama import is_tied
from rankscope.auditing.families.tensor_list import ExpectedTensor, norm


def _phi(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes = read_gpt_sizes(fields)
    has_head_norms = fields.flag("qk_layernorm", default=False)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        one = f"{name}.self_attn"
        names = (f"{one}.q_proj", f"{one}.k_proj", f"{one}.v_proj", f"{one}.dense")
        yield from separate_attention(sizes, names, bias=True, output_bias=True)
        for side in "qk" if has_head_norms else "":
            yield from norm(f"{one}.{side}_layernorm", sizes.head_size, bias=True)
        maps = f"{name}.mlp.fc1", f"{name}.mlp.fc2"
        yield from feed_forward(sizes.width, sizes.feed_forward, maps, bias=True)

    frame = Frame(
        is_tied(fields),
        norms=("input_layernorm",),
        has_norm_bias=True,
        has_head_bias=True,
        final_norm="model.final_layernorm",
    )
    return sizes, decoder(sizes, frame, block)


def _phi_msft(fields: Fields) -> tuple[Configuration, Tensors]:
    """The names of Phi's first release."""
    sizes = read_gpt_sizes(fields)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        names = f"{name}.mixer.Wqkv", f"{name}.mixer.out_proj"
        yield from fused_attention(sizes, names, bias=True, output_bias=True)
        maps = f"{name}.mlp.fc1", f"{name}.mlp.fc2"
        yield from feed_forward(sizes.width, sizes.feed_forward, maps, bias=True)

    frame = Frame(
        is_tied(fields),
        norms=("ln",),
        has_norm_bias=True,
        has_head_bias=True,
        embedding="transformer.embd.wte",
        blocks="transformer.h",
        final_norm="lm_head.ln",
        head="lm_head.linear",
    )
    return sizes, decoder(sizes, frame, block)


PHI_FAMILIES = (
    Family("phi", _phi, required=NO_INNER),
    Family(
        "phi-msft",
        _phi_msft,
        aliases={**SHORT_KEYS, "num_key_value_heads": "n_head_kv"},
        required=NO_INNER,
    ),
)
