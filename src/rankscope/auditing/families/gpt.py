"""GPT-2 and the decoders that followed it before LLaMA: two feed-forward maps, biases, shifts."""

from collections.abc import Iterator
from dataclasses import replace

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.families.llama import Frame, decoder, is_tied
from rankscope.auditing.families.tensor_list import (
    SIZES,
    ExpectedTensor,
    Family,
    Fields,
    Part,
    Tensors,
    feed_forward,
    fused_attention,
    linear,
    norm,
    read_sizes,
    separate_attention,
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


def _transformer_frame(fields: Fields, *, tied: bool, positions: bool) -> Frame:
    rows = fields.size("max_position_embeddings") if positions else 0
    return Frame(
        is_tied(fields, default=tied),
        norms=("ln_1", "ln_2"),
        has_norm_bias=True,
        embedding="transformer.wte",
        blocks="transformer.h",
        final_norm="transformer.ln_f",
        positions=("transformer.wpe", rows) if positions else None,
    )


def _gpt2_block(sizes: Configuration, name: str) -> Iterator[ExpectedTensor]:
    names = f"{name}.attn.c_attn", f"{name}.attn.c_proj"
    yield from fused_attention(sizes, names, bias=True, output_bias=True)
    maps = f"{name}.mlp.c_fc", f"{name}.mlp.c_proj"
    yield from feed_forward(sizes.width, sizes.feed_forward, maps, bias=True)


def _gpt2(fields: Fields) -> tuple[Configuration, Tensors]:
    """Its matrices are stored as (inputs, outputs)."""
    if fields.flag("add_cross_attention", default=False):
        raise ConfigurationError(
            f"{fields.who}: a gpt2 with add_cross_attention=true is not read: "
            "wanted false, a decoder that stands alone."
        )
    sizes = read_gpt_sizes(fields)
    frame = _transformer_frame(fields, tied=True, positions=True)
    return sizes, decoder(sizes, frame, lambda name, _: transposed(_gpt2_block(sizes, name)))


def _gpt_bigcode(fields: Fields) -> tuple[Configuration, Tensors]:
    """One key and one value for all heads, unless `multi_query` is false."""
    sizes = read_gpt_sizes(fields)
    if fields.flag("multi_query", default=True):
        sizes = replace(sizes, key_value_heads=1)
    frame = _transformer_frame(fields, tied=True, positions=True)
    return sizes, decoder(sizes, frame, lambda name, _: _gpt2_block(sizes, name))


def _gpt3(fields: Fields) -> tuple[Configuration, Tensors]:
    """PaddleNLP's GPT: matrices are stored as (inputs, outputs), token types are not used."""
    sizes = read_gpt_sizes(fields)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        one = f"{name}.self_attn"
        names = (f"{one}.q_proj", f"{one}.k_proj", f"{one}.v_proj", f"{one}.out_proj")
        yield from transposed(separate_attention(sizes, names, bias=True, output_bias=True))
        maps = f"{name}.linear1", f"{name}.linear2"
        yield from transposed(feed_forward(sizes.width, sizes.feed_forward, maps, bias=True))

    frame = Frame(
        is_tied(fields, default=True),
        norms=("norm1", "norm2"),
        has_norm_bias=True,
        embedding="gpt.embeddings.word_embeddings",
        blocks="gpt.decoder.layers",
        final_norm="gpt.decoder.norm",
        head="lm_head.decoder",
        positions=("gpt.embeddings.position_embeddings", fields.size("max_position_embeddings")),
    )
    return sizes, decoder(sizes, frame, block)


def _gptj(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes = read_gpt_sizes(fields)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        one = f"{name}.attn"
        names = (f"{one}.q_proj", f"{one}.k_proj", f"{one}.v_proj", f"{one}.out_proj")
        yield from separate_attention(sizes, names, bias=False, output_bias=False)
        maps = f"{name}.mlp.fc_in", f"{name}.mlp.fc_out"
        yield from feed_forward(sizes.width, sizes.feed_forward, maps, bias=True)

    frame = _transformer_frame(fields, tied=False, positions=False)
    frame = replace(frame, norms=("ln_1",), has_head_bias=True)
    return sizes, decoder(sizes, frame, block)


def _gpt_neox(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes, bias = read_gpt_sizes(fields), fields.flag("attention_bias", default=True)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        names = f"{name}.attention.query_key_value", f"{name}.attention.dense"
        yield from fused_attention(sizes, names, bias=bias, output_bias=bias)
        maps = f"{name}.mlp.dense_h_to_4h", f"{name}.mlp.dense_4h_to_h"
        yield from feed_forward(sizes.width, sizes.feed_forward, maps, bias=True)

    frame = Frame(
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


# --- Phi, first and second version, in both layouts of its weights; the third is like LLaMA -------


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
