"""Families with experts, with fused projections, and with latent attention."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.families.llama import (
    BlockMaps,
    DecoderFrame,
    decoder,
    gated_feed_forward,
    is_tied,
    qwen3_block,
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
)
from rankscope.errors import ConfigurationError

# --- Mixtures of experts: several feed-forward parts per block, a router, and experts for all -----


def numbered_experts(
    sizes: Configuration, name: str, maps: tuple[str, str, str]
) -> Iterator[ExpectedTensor]:
    """A router, and `num_experts` gated feed-forward parts."""
    shape = (sizes.num_experts, sizes.width)
    yield from linear(f"{name}.gate", shape, Part.FEED_FORWARD)
    for expert in range(sizes.num_experts):
        names = tuple(f"{name}.experts.{expert}.{one}" for one in maps)
        yield from feed_forward(sizes.width, sizes.feed_forward, names)


_SHORT_NAMES = ("w1", "w3", "w2")
_LONG_NAMES = ("gate_proj", "up_proj", "down_proj")


def _mixtral(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes = replace(read_sizes(fields), num_experts=fields.size("num_local_experts"))
    maps = BlockMaps(sizes)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        yield from maps.attention_maps(name)
        yield from numbered_experts(sizes, f"{name}.block_sparse_moe", _SHORT_NAMES)

    return sizes, decoder(sizes, DecoderFrame(is_tied(fields)), block)


def _minicpm(fields: Fields) -> tuple[Configuration, Tensors]:
    num_experts = fields.count("num_experts", default=0)
    sizes = replace(read_sizes(fields), num_experts=max(1, num_experts))
    maps = BlockMaps(sizes)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        yield from maps.attention_maps(name)
        yield from numbered_experts(sizes, f"{name}.mlp", _SHORT_NAMES)

    frame = DecoderFrame(is_tied(fields, default=True))
    return sizes, decoder(sizes, frame, block if num_experts else maps)


def _qwen_moe(
    fields: Fields, maps: BlockMaps, shared: int
) -> Callable[[str, int], Iterator[ExpectedTensor]]:
    sizes, dense = maps.sizes, fields.size("intermediate_size")
    step, only_dense = (
        fields.size("decoder_sparse_step", default=1),
        fields.numbers("mlp_only_layers"),
    )

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        yield from maps.attention_maps(name)
        if number in only_dense or (number + 1) % step:
            yield from gated_feed_forward(sizes, f"{name}.mlp", dense)
            return
        yield from numbered_experts(sizes, f"{name}.mlp", _LONG_NAMES)
        if shared:
            yield from gated_feed_forward(sizes, f"{name}.mlp.shared_expert", shared)
            gate = f"{name}.mlp.shared_expert_gate"
            yield from linear(gate, (1, sizes.width), Part.FEED_FORWARD)

    return block


def _expert_sizes(fields: Fields, sizes: Configuration, key: str) -> Configuration:
    return replace(
        sizes,
        num_experts=fields.size(key),
        feed_forward=fields.size("moe_intermediate_size"),
    )


def _qwen2_moe(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes = _expert_sizes(fields, read_sizes(fields), "num_experts")
    maps = BlockMaps(sizes, has_bias=fields.flag("qkv_bias", default=True))
    shared = fields.size("shared_expert_intermediate_size")
    return sizes, decoder(sizes, DecoderFrame(is_tied(fields)), _qwen_moe(fields, maps, shared))


def _qwen3_moe(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes = _expert_sizes(fields, read_sizes(fields), "num_experts")
    maps = qwen3_block(fields, sizes)
    return sizes, decoder(sizes, DecoderFrame(is_tied(fields)), _qwen_moe(fields, maps, 0))


def deepseek_feed_forward(
    fields: Fields, sizes: Configuration
) -> Callable[[str, int], Iterator[ExpectedTensor]]:
    """The first blocks dense, then routed experts and one joint part of all shared experts."""
    dense, shared = fields.size("intermediate_size"), fields.count("n_shared_experts", default=0)
    first = fields.count("first_k_dense_replace", default=0)
    step = fields.size("moe_layer_freq", default=1)

    def maps(name: str, number: int) -> Iterator[ExpectedTensor]:
        if number < first or number % step:
            yield from gated_feed_forward(sizes, f"{name}.mlp", dense)
            return
        yield from numbered_experts(sizes, f"{name}.mlp", _LONG_NAMES)
        if shared:
            yield from gated_feed_forward(
                sizes, f"{name}.mlp.shared_experts", shared * sizes.feed_forward
            )

    return maps


def deepseek_sizes(fields: Fields, sizes: Configuration) -> Configuration:
    """The same sizes, with those of one routed expert."""
    return _expert_sizes(fields, sizes, "n_routed_experts")


def _deepseek(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes, bias = read_sizes(fields), fields.flag("attention_bias", default=False)
    sizes = deepseek_sizes(fields, sizes)
    attention, maps = BlockMaps(sizes, bias, bias), deepseek_feed_forward(fields, sizes)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        yield from attention.attention_maps(name)
        yield from maps(name, number)

    return sizes, decoder(sizes, DecoderFrame(is_tied(fields)), block)


_COUNTED = "all experts, routers and the output matrix, not only what one token passes through"
DEEPSEEK_SIZES = (*SIZES, "n_routed_experts", "moe_intermediate_size")
EXPERT_FAMILIES = (
    Family("mixtral", _mixtral, _COUNTED, required=(*SIZES, "num_local_experts")),
    Family("minicpm", _minicpm, _COUNTED),
    Family(
        "qwen2_moe",
        _qwen2_moe,
        _COUNTED,
        required=(
            *SIZES,
            "num_experts",
            "moe_intermediate_size",
            "shared_expert_intermediate_size",
        ),
    ),
    Family(
        "qwen3_moe",
        _qwen3_moe,
        _COUNTED,
        required=(*SIZES, "num_experts", "moe_intermediate_size"),
    ),
    Family("deepseek", _deepseek, _COUNTED, required=DEEPSEEK_SIZES),
)


# --- Gated decoders that keep queries, keys and values, or gate and map up, in one matrix ---------


def _baichuan(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes = read_sizes(fields)
    block = BlockMaps(sizes, attention="self_attn.W_pack self_attn.o_proj")
    return sizes, decoder(sizes, DecoderFrame(is_tied(fields)), block)


def _phi3(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes = read_sizes(fields)
    block = BlockMaps(
        sizes,
        attention="self_attn.qkv_proj self_attn.o_proj",
        feed_forward="mlp.gate_up_proj mlp.down_proj",
        has_joint_gate=True,
    )
    return sizes, decoder(sizes, DecoderFrame(is_tied(fields)), block)


def _internlm2(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes, bias = read_sizes(fields), fields.flag("bias", default=True)
    block = BlockMaps(
        sizes,
        has_bias=bias,
        has_output_bias=bias,
        attention="attention.wqkv attention.wo",
        feed_forward="feed_forward.w1 feed_forward.w3 feed_forward.w2",
    )
    frame = DecoderFrame(
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
    block = BlockMaps(
        sizes,
        has_bias=True,
        has_output_bias=bias,
        has_feed_forward_bias=bias,
        attention="attn.c_attn attn.c_proj",
        feed_forward="mlp.w1 mlp.w2 mlp.c_proj",
    )
    frame = DecoderFrame(
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
    frame = DecoderFrame(
        is_tied(fields),
        has_norm_bias=not fields.flag("rmsnorm", default=True),
        embedding="transformer.embedding.word_embeddings",
        blocks="transformer.encoder.layers",
        final_norm="transformer.encoder.final_layernorm",
        head="transformer.output_layer",
    )
    return sizes, decoder(sizes, frame, _chatglm_block(fields, sizes))


def _chatglm_block(fields: Fields, sizes: Configuration) -> BlockMaps:
    bias = fields.flag("add_bias_linear", default=False)
    return BlockMaps(
        sizes,
        has_bias=bias or fields.flag("add_qkv_bias", default=False),
        has_output_bias=bias,
        has_feed_forward_bias=bias,
        attention="self_attention.query_key_value self_attention.dense",
        feed_forward="mlp.dense_h_to_4h mlp.dense_4h_to_h",
        has_joint_gate=True,
    )


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


# --- DeepSeek-V2: keys and values of all heads are read from one small latent vector --------------


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
    sizes = replace(sizes, key_value_heads=sizes.heads, latent=fields.size("kv_lora_rank"))
    maps = deepseek_feed_forward(fields, sizes)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        yield from _latent_attention(fields, sizes, f"{name}.self_attn")
        yield from maps(name, number)

    return sizes, decoder(sizes, DecoderFrame(is_tied(fields)), block)


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
