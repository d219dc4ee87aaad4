"""Every decoder that is read, as rows of a table: GPT-2, LLaMA and their many relatives."""

from collections.abc import Iterator
from dataclasses import replace

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.families.decoder import (
    Block,
    BlockMaps,
    Decoder,
    HeadNorms,
    gated_feed_forward,
    is_tied,
)
from rankscope.auditing.families.tensor_list import (
    SIZES,
    ExpectedTensor,
    Family,
    Fields,
    Part,
    Tensors,
    feed_forward,
    linear,
    norm,
    output_map,
    read_sizes,
    table,
)
from rankscope.errors import ConfigurationError

# --- LLaMA and its relatives: normalized, gated blocks whose maps have the same names -------------

_AROUND_BOTH = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
_BIAS = ("attention_bias", False)
_LLAMA = Decoder(bias=_BIAS, output_bias=_BIAS)


def _one_norm_per_head(_: Fields, sizes: Configuration) -> HeadNorms:
    """One normalization of size head size, shared by all heads, for queries and one for keys."""
    return (sizes.head_size,), (sizes.head_size,)


def _whole_norms(_: Fields, sizes: Configuration) -> HeadNorms:
    return (sizes.attention_width,), (sizes.key_value_heads * sizes.head_size,)


def _norm_of_each_head(fields: Fields, sizes: Configuration) -> HeadNorms | None:
    shapes = (sizes.heads, sizes.head_size), (sizes.key_value_heads, sizes.head_size)
    return shapes if fields.flag("use_qk_norm", default=False) else None


def _stablelm(fields: Fields) -> tuple[Configuration, Tensors]:
    is_parallel = fields.flag("use_parallel_residual", default=False)
    norms = Decoder.norms[:1] if is_parallel else Decoder.norms
    bias = ("use_qkv_bias", False)
    return Decoder(bias=bias, norm_bias=True, norms=norms, block=_stablelm_block)(fields)


def _stablelm_block(fields: Fields, maps: BlockMaps) -> Block:
    sizes, has_head_norms = maps.sizes, fields.flag("qk_layernorm", default=False)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        yield from maps(name, number)
        for side, heads in (("q", sizes.heads), ("k", sizes.key_value_heads)):
            for head in range(heads if has_head_norms else 0):
                one = f"{name}.self_attn.{side}_layernorm.norms.{head}.weight"
                yield ExpectedTensor(one, (sizes.head_size,), Part.NORMALIZATION)

    return block


_QWEN3 = replace(_LLAMA, head_norms=_one_norm_per_head)
_GEMMA = replace(_LLAMA, head_size=256, is_tied=True)
_INTERNLM = replace(_LLAMA, bias=("bias", True), output_bias=("bias", True))
_LLAMA_FAMILIES = (
    Family("llama", replace(_LLAMA, feed_forward_bias=("mlp_bias", False))),
    Family("mistral", Decoder(), model_types=("ministral3",)),
    Family("qwen2", Decoder(bias=True)),
    Family("qwen3", replace(_QWEN3, head_size=128)),
    Family("gemma", _GEMMA),
    Family("gemma2", replace(_GEMMA, norms=_AROUND_BOTH)),
    Family(
        "gemma3",
        replace(_GEMMA, norms=_AROUND_BOTH, head_norms=_one_norm_per_head),
        model_types=("gemma3_text",),
    ),
    Family("olmo2", replace(_LLAMA, norms=_AROUND_BOTH[1::2], head_norms=_whole_norms)),
    Family("internlm", _INTERNLM),
    Family("orion", replace(_LLAMA, norm_bias=True)),
    Family(
        "cohere",
        replace(_LLAMA, is_tied=True, norms=("input_layernorm",), head_norms=_norm_of_each_head),
    ),
    Family("stablelm", _stablelm, model_types=("stablelm_epoch",)),
)

# --- Gated decoders that keep queries, keys and values, or gate and map up, in one matrix ---------


def _half_inner(_: Fields, sizes: Configuration) -> Configuration:
    """The document names the size of both maps up together."""
    return replace(sizes, feed_forward=sizes.feed_forward // 2)


def _chatglm(fields: Fields) -> tuple[Configuration, Tensors]:
    if not fields.flag("post_layer_norm", default=True):
        raise ConfigurationError(
            f"{fields.who}: a chatglm with post_layer_norm=false is not read: "
            "wanted true, as in all that were published."
        )
    bias = fields.flag("add_bias_linear", default=False)
    return Decoder(
        bias=bias or ("add_qkv_bias", False),
        output_bias=bias,
        feed_forward_bias=bias,
        norm_bias=not fields.flag("rmsnorm", default=True),
        attention="self_attention.query_key_value self_attention.dense",
        feed_forward="mlp.dense_h_to_4h mlp.dense_4h_to_h",
        has_joint_gate=True,
        embedding="transformer.embedding.word_embeddings",
        blocks="transformer.encoder.layers",
        final_norm="transformer.encoder.final_layernorm",
        head="transformer.output_layer",
        sizes=_chatglm_sizes,
    )(fields)


def _chatglm_sizes(fields: Fields, sizes: Configuration) -> Configuration:
    if not fields.flag("multi_query_attention", default=False):
        return sizes
    return replace(sizes, key_value_heads=fields.size("multi_query_group_num"))


def _qwen(fields: Fields) -> tuple[Configuration, Tensors]:
    bias = not fields.flag("no_bias", default=True)
    return Decoder(
        bias=True,
        output_bias=bias,
        feed_forward_bias=bias,
        norms=("ln_1", "ln_2"),
        attention="attn.c_attn attn.c_proj",
        feed_forward="mlp.w1 mlp.w2 mlp.c_proj",
        embedding="transformer.wte",
        blocks="transformer.h",
        final_norm="transformer.ln_f",
        sizes=_half_inner,
    )(fields)


_FUSED_FAMILIES = (
    Family("baichuan", Decoder(attention="self_attn.W_pack self_attn.o_proj")),
    Family(
        "phi3",
        Decoder(
            attention="self_attn.qkv_proj self_attn.o_proj",
            feed_forward="mlp.gate_up_proj mlp.down_proj",
            has_joint_gate=True,
        ),
    ),
    Family(
        "internlm2",
        replace(
            _INTERNLM,
            norms=("attention_norm", "ffn_norm"),
            attention="attention.wqkv attention.wo",
            feed_forward="feed_forward.w1 feed_forward.w3 feed_forward.w2",
            embedding="model.tok_embeddings",
            head="output",
        ),
    ),
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

# --- Mixtures of experts: several feed-forward parts per block, a router, and experts for all -----

_SHORT_NAMES = ("w1", "w3", "w2")
_LONG_NAMES = ("gate_proj", "up_proj", "down_proj")


def _numbered_experts(
    sizes: Configuration, name: str, maps: tuple[str, str, str]
) -> Iterator[ExpectedTensor]:
    """A router, and `num_experts` gated feed-forward parts."""
    shape = (sizes.num_experts, sizes.width)
    yield from linear(f"{name}.gate", shape, Part.FEED_FORWARD)
    for expert in range(sizes.num_experts):
        names = tuple(f"{name}.experts.{expert}.{one}" for one in maps)
        yield from feed_forward(sizes.width, sizes.feed_forward, names)


def _joined(maps: BlockMaps, feed_forward_maps: Block) -> Block:
    """The attention of a block, and other feed-forward maps."""

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        yield from maps.attention_maps(name)
        yield from feed_forward_maps(name, number)

    return block


def _mixtral_sizes(fields: Fields, sizes: Configuration) -> Configuration:
    return replace(sizes, num_experts=fields.size("num_local_experts"))


def _mixtral_block(_: Fields, maps: BlockMaps) -> Block:
    return _joined(
        maps,
        lambda name, _: _numbered_experts(maps.sizes, f"{name}.block_sparse_moe", _SHORT_NAMES),
    )


def _minicpm_sizes(fields: Fields, sizes: Configuration) -> Configuration:
    return replace(sizes, num_experts=max(1, fields.count("num_experts", default=0)))


def _minicpm_block(fields: Fields, maps: BlockMaps) -> Block:
    if not fields.count("num_experts", default=0):
        return maps
    return _joined(maps, lambda name, _: _numbered_experts(maps.sizes, f"{name}.mlp", _SHORT_NAMES))


def _qwen_moe_sizes(fields: Fields, sizes: Configuration) -> Configuration:
    inner = fields.size("moe_intermediate_size")
    return replace(sizes, num_experts=fields.size("num_experts"), feed_forward=inner)


def _qwen_moe_block(fields: Fields, maps: BlockMaps) -> Block:
    """Some blocks dense, the others with experts and, in Qwen2, one for all tokens."""
    sizes, dense = maps.sizes, fields.size("intermediate_size")
    shared = fields.size("shared_expert_intermediate_size") if fields.family == "qwen2_moe" else 0
    step = fields.size("decoder_sparse_step", default=1)
    only_dense = fields.numbers("mlp_only_layers")

    def feed_forward_maps(name: str, number: int) -> Iterator[ExpectedTensor]:
        if number in only_dense or (number + 1) % step:
            yield from gated_feed_forward(sizes, f"{name}.mlp", dense)
            return
        yield from _numbered_experts(sizes, f"{name}.mlp", _LONG_NAMES)
        if shared:
            yield from gated_feed_forward(sizes, f"{name}.mlp.shared_expert", shared)
            gate = f"{name}.mlp.shared_expert_gate"
            yield from linear(gate, (1, sizes.width), Part.FEED_FORWARD)

    return _joined(maps, feed_forward_maps)


def _deepseek_sizes(fields: Fields, sizes: Configuration) -> Configuration:
    inner = fields.size("moe_intermediate_size")
    return replace(sizes, num_experts=fields.size("n_routed_experts"), feed_forward=inner)


def _deepseek_feed_forward(fields: Fields, sizes: Configuration) -> Block:
    """The first blocks dense, then routed experts and one joint part of all shared experts."""
    dense, shared = fields.size("intermediate_size"), fields.count("n_shared_experts", default=0)
    first = fields.count("first_k_dense_replace", default=0)
    step = fields.size("moe_layer_freq", default=1)

    def maps(name: str, number: int) -> Iterator[ExpectedTensor]:
        if number < first or number % step:
            yield from gated_feed_forward(sizes, f"{name}.mlp", dense)
            return
        yield from _numbered_experts(sizes, f"{name}.mlp", _LONG_NAMES)
        if shared:
            yield from gated_feed_forward(
                sizes, f"{name}.mlp.shared_experts", shared * sizes.feed_forward
            )

    return maps


def _deepseek_block(fields: Fields, maps: BlockMaps) -> Block:
    return _joined(maps, _deepseek_feed_forward(fields, maps.sizes))


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


def _deepseek_v2_sizes(fields: Fields, sizes: Configuration) -> Configuration:
    """A head's size is `v_head_dim`: what it writes back, as heads x head size stands for.

    Its queries and keys are longer (`qk_nope_head_dim` + `qk_rope_head_dim`), and there is a key
    and a value for every head, whatever `num_key_value_heads` says.
    """
    sizes = _deepseek_sizes(fields, sizes)
    return replace(sizes, key_value_heads=sizes.heads, latent=fields.size("kv_lora_rank"))


def _deepseek_v2_block(fields: Fields, maps: BlockMaps) -> Block:
    """Keys and values of all heads are read from one small latent vector."""
    feed_forward_maps = _deepseek_feed_forward(fields, maps.sizes)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        yield from _latent_attention(fields, maps.sizes, f"{name}.self_attn")
        yield from feed_forward_maps(name, number)

    return block


_COUNTED = "all experts, routers and the output matrix, not only what one token passes through"
_QWEN_MOE_SIZES = (*SIZES, "num_experts", "moe_intermediate_size")
_DEEPSEEK_SIZES = (*SIZES, "n_routed_experts", "moe_intermediate_size")
_EXPERT_FAMILIES = (
    Family(
        "mixtral",
        Decoder(sizes=_mixtral_sizes, block=_mixtral_block),
        _COUNTED,
        required=(*SIZES, "num_local_experts"),
    ),
    Family("minicpm", Decoder(is_tied=True, sizes=_minicpm_sizes, block=_minicpm_block), _COUNTED),
    Family(
        "qwen2_moe",
        Decoder(bias=("qkv_bias", True), sizes=_qwen_moe_sizes, block=_qwen_moe_block),
        _COUNTED,
        required=(*_QWEN_MOE_SIZES, "shared_expert_intermediate_size"),
    ),
    Family(
        "qwen3_moe",
        replace(_QWEN3, sizes=_qwen_moe_sizes, block=_qwen_moe_block),
        _COUNTED,
        required=_QWEN_MOE_SIZES,
    ),
    Family(
        "deepseek",
        replace(_LLAMA, sizes=_deepseek_sizes, block=_deepseek_block),
        _COUNTED,
        required=_DEEPSEEK_SIZES,
    ),
    Family(
        "deepseek_v2",
        Decoder(sizes=_deepseek_v2_sizes, block=_deepseek_v2_block),
        "all experts, routers and the output matrix; the head size is that of the values",
        aliases={"head_dim": "v_head_dim"},
        required=(
            *_DEEPSEEK_SIZES,
            "head_dim",
            "kv_lora_rank",
            "qk_nope_head_dim",
            "qk_rope_head_dim",
        ),
    ),
)

# --- GPT-2 and the decoders that followed it before LLaMA: two feed-forward maps, biases, shifts --

_SHORT_KEYS = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
}
_NO_INNER = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_BIASED = Decoder(
    bias=True, output_bias=True, feed_forward_bias=True, norm_bias=True, has_inner_size=False
)


def _gpt2_sizes(fields: Fields, sizes: Configuration) -> Configuration:
    if fields.flag("add_cross_attention", default=False):
        raise ConfigurationError(
            f"{fields.who}: a gpt2 with add_cross_attention=true is not read: "
            "wanted false, a decoder that stands alone."
        )
    return sizes


def _bigcode_sizes(fields: Fields, sizes: Configuration) -> Configuration:
    """One key and one value for all heads, unless `multi_query` is false."""
    is_shared = fields.flag("multi_query", default=True)
    return replace(sizes, key_value_heads=1) if is_shared else sizes


_GPT2 = replace(
    _BIASED,
    is_tied=True,
    is_transposed=True,
    norms=("ln_1", "ln_2"),
    attention="attn.c_attn attn.c_proj",
    feed_forward="mlp.c_fc mlp.c_proj",
    embedding="transformer.wte",
    positions="transformer.wpe",
    blocks="transformer.h",
    final_norm="transformer.ln_f",
    sizes=_gpt2_sizes,
)
# PaddleNLP's GPT; its token types are not used.
_GPT3 = replace(
    _GPT2,
    norms=("norm1", "norm2"),
    attention="self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj",
    feed_forward="linear1 linear2",
    embedding="gpt.embeddings.word_embeddings",
    positions="gpt.embeddings.position_embeddings",
    blocks="gpt.decoder.layers",
    final_norm="gpt.decoder.norm",
    head="lm_head.decoder",
    sizes=None,
)
_GPTJ = replace(
    _GPT2,
    bias=False,
    output_bias=False,
    head_bias=True,
    is_tied=False,
    is_transposed=False,
    norms=("ln_1",),
    attention="attn.q_proj attn.k_proj attn.v_proj attn.out_proj",
    feed_forward="mlp.fc_in mlp.fc_out",
    positions="",
    sizes=None,
)
_GPT_NEOX = replace(
    _BIASED,
    bias=("attention_bias", True),
    output_bias=("attention_bias", True),
    attention="attention.query_key_value attention.dense",
    feed_forward="mlp.dense_h_to_4h mlp.dense_4h_to_h",
    embedding="gpt_neox.embed_in",
    blocks="gpt_neox.layers",
    final_norm="gpt_neox.final_layer_norm",
    head="embed_out",
)
_GPT_FAMILIES = (
    Family(
        "gpt2",
        _GPT2,
        aliases=_SHORT_KEYS,
        required=(*_NO_INNER, "max_position_embeddings"),
        telling_keys=("n_embd", "n_head", "n_layer", "n_positions"),
    ),
    Family(
        "gpt_bigcode",
        replace(_GPT2, is_transposed=False, sizes=_bigcode_sizes),
        aliases=_SHORT_KEYS,
        required=(*_NO_INNER, "max_position_embeddings"),
        telling_keys=("n_embd", "n_head", "n_layer", "n_positions", "multi_query"),
    ),
    Family(
        "gpt",
        _GPT3,
        required=(*_NO_INNER, "max_position_embeddings"),
        telling_keys=("hidden_size", "type_vocab_size", "eol_token_id", "max_position_embeddings"),
    ),
    Family(
        "gptj",
        _GPTJ,
        aliases=_SHORT_KEYS,
        required=_NO_INNER,
        telling_keys=("n_embd", "n_head", "n_layer", "n_positions", "rotary", "rotary_dim"),
    ),
    Family(
        "gpt_neox",
        _GPT_NEOX,
        required=_NO_INNER,
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
    return sizes, _opt_tensors(fields, sizes, embedding)


def _opt_tensors(fields: Fields, sizes: Configuration, embedding: int) -> Iterator[ExpectedTensor]:
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


_OPT_FAMILIES = (
    Family(
        "opt",
        _opt,
        aliases={"intermediate_size": "ffn_dim"},
        required=(*SIZES, "max_position_embeddings"),
        telling_keys=("ffn_dim", "word_embed_proj_dim", "hidden_size"),
    ),
)

# --- Phi, first and second version, in both layouts of its weights; the third is like LLaMA -------


def _phi_block(fields: Fields, maps: BlockMaps) -> Block:
    has_head_norms = fields.flag("qk_layernorm", default=False)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        yield from maps.attention_maps(name)
        for side in "qk" if has_head_norms else "":
            yield from norm(f"{name}.self_attn.{side}_layernorm", maps.sizes.head_size, bias=True)
        yield from maps.feed_forward_maps(name)

    return block


_PHI = replace(
    _BIASED,
    head_bias=True,
    norms=("input_layernorm",),
    attention="self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.dense",
    feed_forward="mlp.fc1 mlp.fc2",
    final_norm="model.final_layernorm",
    block=_phi_block,
)
# The names of Phi's first release.
_PHI_MSFT = replace(
    _PHI,
    norms=("ln",),
    attention="mixer.Wqkv mixer.out_proj",
    embedding="transformer.embd.wte",
    blocks="transformer.h",
    final_norm="lm_head.ln",
    head="lm_head.linear",
    block=None,
)
_PHI_FAMILIES = (
    Family("phi", _PHI, required=_NO_INNER),
    Family(
        "phi-msft",
        _PHI_MSFT,
        aliases={**_SHORT_KEYS, "num_key_value_heads": "n_head_kv"},
        required=_NO_INNER,
    ),
)

DECODER_FAMILIES = (
    *_GPT_FAMILIES,
    *_OPT_FAMILIES,
    *_LLAMA_FAMILIES,
    *_FUSED_FAMILIES,
    *_EXPERT_FAMILIES,
    *_PHI_FAMILIES,
)
