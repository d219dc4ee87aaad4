"""GPT-2 and the decoders that followed it before LLaMA: two feed-forward maps, biases, shifts."""

from collections.abc import Iterator
from dataclasses import replace

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.families.llama import (
    BlockMaps,
    DecoderFrame,
    biased_block,
    decoder,
    is_tied,
)
from rankscope.auditing.families.tensor_list import (
    SIZES,
    ExpectedTensor,
    Family,
    Fields,
    Part,
    Tensors,
    linear,
    norm,
    read_sizes,
    table,
    transposed,
)
from rankscope.errors import ConfigurationError

SHORT_KEYS = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
}
NO_INNER = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


def read_gpt_sizes(fields: Fields) -> Configuration:
    """The shared sizes; the inner one is four times the width if the document says nothing."""
    return read_sizes(fields, feed_forward=4 * fields.size("hidden_size"))


def _transformer_frame(fields: Fields, *, tied: bool, positions: bool) -> DecoderFrame:
    rows = fields.size("max_position_embeddings") if positions else 0
    return DecoderFrame(
        is_tied(fields, default=tied),
        norms=("ln_1", "ln_2"),
        has_norm_bias=True,
        embedding="transformer.wte",
        blocks="transformer.h",
        final_norm="transformer.ln_f",
        positions=("transformer.wpe", rows) if positions else None,
    )


def _gpt2_block(sizes: Configuration) -> BlockMaps:
    return biased_block(sizes, "attn.c_attn attn.c_proj", "mlp.c_fc mlp.c_proj")


def _gpt2(fields: Fields) -> tuple[Configuration, Tensors]:
    """Its matrices are stored as (inputs, outputs)."""
    if fields.flag("add_cross_attention", default=False):
        raise ConfigurationError(
            f"{fields.who}: a gpt2 with add_cross_attention=true is not read: "
            "wanted false, a decoder that stands alone."
        )
    sizes = read_gpt_sizes(fields)
    frame = _transformer_frame(fields, tied=True, positions=True)
    block = _gpt2_block(sizes)
    return sizes, decoder(sizes, frame, lambda name, _: transposed(block(name)))


def _gpt_bigcode(fields: Fields) -> tuple[Configuration, Tensors]:
    """One key and one value for all heads, unless `multi_query` is false."""
    sizes = read_gpt_sizes(fields)
    if fields.flag("multi_query", default=True):
        sizes = replace(sizes, key_value_heads=1)
    frame = _transformer_frame(fields, tied=True, positions=True)
    return sizes, decoder(sizes, frame, _gpt2_block(sizes))


def _gpt3(fields: Fields) -> tuple[Configuration, Tensors]:
    """PaddleNLP's GPT: matrices are stored as (inputs, outputs), token types are not used."""
    sizes = read_gpt_sizes(fields)
    block = biased_block(
        sizes,
        "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj",
        "linear1 linear2",
    )
    frame = DecoderFrame(
        is_tied(fields, default=True),
        norms=("norm1", "norm2"),
        has_norm_bias=True,
        embedding="gpt.embeddings.word_embeddings",
        blocks="gpt.decoder.layers",
        final_norm="gpt.decoder.norm",
        head="lm_head.decoder",
        positions=("gpt.embeddings.position_embeddings", fields.size("max_position_embeddings")),
    )
    return sizes, decoder(sizes, frame, lambda name, _: transposed(block(name)))


def _gptj(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes = read_gpt_sizes(fields)
    block = BlockMaps(
        sizes,
        has_feed_forward_bias=True,
        attention="attn.q_proj attn.k_proj attn.v_proj attn.out_proj",
        feed_forward="mlp.fc_in mlp.fc_out",
    )
    frame = _transformer_frame(fields, tied=False, positions=False)
    frame = replace(frame, norms=("ln_1",), has_head_bias=True)
    return sizes, decoder(sizes, frame, block)


def _gpt_neox(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes, bias = read_gpt_sizes(fields), fields.flag("attention_bias", default=True)
    block = BlockMaps(
        sizes,
        has_bias=bias,
        has_output_bias=bias,
        has_feed_forward_bias=True,
        attention="attention.query_key_value attention.dense",
        feed_forward="mlp.dense_h_to_4h mlp.dense_4h_to_h",
    )
    frame = DecoderFrame(
        is_tied(fields),
        has_norm_bias=True,
        embedding="gpt_neox.embed_in",
        blocks="gpt_neox.layers",
        final_norm="gpt_neox.final_layer_norm",
        head="embed_out",
    )
    return sizes, decoder(sizes, frame, block)


GPT_FAMILIES = (
    Family(
        "gpt2",
        _gpt2,
        aliases=SHORT_KEYS,
        required=(*NO_INNER, "max_position_embeddings"),
        telling_keys=("n_embd", "n_head", "n_layer", "n_positions"),
    ),
    Family(
        "gpt_bigcode",
        _gpt_bigcode,
        aliases=SHORT_KEYS,
        required=(*NO_INNER, "max_position_embeddings"),
        telling_keys=("n_embd", "n_head", "n_layer", "n_positions", "multi_query"),
    ),
    Family(
        "gpt",
        _gpt3,
        required=(*NO_INNER, "max_position_embeddings"),
        telling_keys=("hidden_size", "type_vocab_size", "eol_token_id", "max_position_embeddings"),
    ),
    Family(
        "gptj",
        _gptj,
        aliases=SHORT_KEYS,
        required=NO_INNER,
        telling_keys=("n_embd", "n_head", "n_layer", "n_positions", "rotary", "rotary_dim"),
    ),
    Family(
        "gpt_neox",
        _gpt_neox,
        required=NO_INNER,
        telling_keys=("hidden_size", "rotary_pct", "use_parallel_residual"),
    ),
)


# --- OPT: learned positions, and token vectors that may be smaller than the width -----------------


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
    has_norms = fields.flag("layer_norm_elementwise_affine", default=True)
    bias = fields.flag("enable_bias", default=True)
    block = BlockMaps(
        sizes,
        has_bias=bias,
        has_output_bias=bias,
        has_feed_forward_bias=bias,
        attention="self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj",
        feed_forward="fc1 fc2",
        after=("self_attn_layer_norm", "final_layer_norm") if has_norms else (),
    )
    for number in range(sizes.depth):
        yield from block(f"{name}.layers.{number}")
    is_first = fields.flag("do_layer_norm_before", default=True)
    if is_first and has_norms and not fields.flag("_remove_final_layer_norm", default=False):
        yield from norm(f"{name}.final_layer_norm", width, bias=True)
    if embedding != width:
        yield from linear(f"{name}.project_out", (embedding, width), Part.HEAD)
    tied = is_tied(fields, default=True)
    yield ExpectedTensor("lm_head.weight", (vocabulary, embedding), Part.HEAD, is_tied=tied)


OPT_FAMILIES = (
    Family(
        "opt",
        _opt,
        aliases={"intermediate_size": "ffn_dim"},
        required=(*SIZES, "max_position_embeddings"),
        telling_keys=("ffn_dim", "word_embed_proj_dim", "hidden_size"),
    ),
)


# --- Phi, first and second version, in both layouts of its weights; the third is like LLaMA -------


def _phi(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes = read_gpt_sizes(fields)
    has_head_norms = fields.flag("qk_layernorm", default=False)

    maps = biased_block(
        sizes,
        "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.dense",
        "mlp.fc1 mlp.fc2",
    )

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        yield from maps.attention_maps(name)
        for side in "qk" if has_head_norms else "":
            yield from norm(f"{name}.self_attn.{side}_layernorm", sizes.head_size, bias=True)
        yield from maps.feed_forward_maps(name)

    frame = DecoderFrame(
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
    block = biased_block(sizes, "mixer.Wqkv mixer.out_proj", "mlp.fc1 mlp.fc2")
    frame = DecoderFrame(
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
