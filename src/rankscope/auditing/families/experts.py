"""Mixtures of experts: several feed-forward parts per block, a router, and experts for all."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.families.blocks import feed_forward
from rankscope.auditing.families.decoder import Frame, decoder
from rankscope.auditing.families.family import SIZES, Family, Tensors, read_sizes
from rankscope.auditing.families.fields import Fields
from rankscope.auditing.families.llama import GatedBlock, gated, is_tied, qwen3_block
from rankscope.auditing.families.tensor_list import ExpectedTensor, Part, linear


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
    maps = GatedBlock(sizes)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        yield from maps.attention(name)
        yield from numbered_experts(sizes, f"{name}.block_sparse_moe", _SHORT_NAMES)

    return sizes, decoder(sizes, Frame(is_tied(fields)), block)


def _minicpm(fields: Fields) -> tuple[Configuration, Tensors]:
    num_experts = fields.count("num_experts", default=0)
    sizes = replace(read_sizes(fields), num_experts=max(1, num_experts))
    maps = GatedBlock(sizes)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        yield from maps.attention(name)
        yield from numbered_experts(sizes, f"{name}.mlp", _SHORT_NAMES)

    frame = Frame(is_tied(fields, default=True))
    return sizes, decoder(sizes, frame, block if num_experts else maps)


def _qwen_moe(
    fields: Fields, maps: GatedBlock, shared: int
) -> Callable[[str, int], Iterator[ExpectedTensor]]:
    sizes, dense = maps.sizes, fields.size("intermediate_size")
    step, only_dense = (
        fields.size("decoder_sparse_step", default=1),
        fields.numbers("mlp_only_layers"),
    )

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        yield from maps.attention(name)
        if number in only_dense or (number + 1) % step:
            yield from gated(sizes, f"{name}.mlp", dense)
            return
        yield from numbered_experts(sizes, f"{name}.mlp", _LONG_NAMES)
        if shared:
            yield from gated(sizes, f"{name}.mlp.shared_expert", shared)
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
    maps = GatedBlock(sizes, has_bias=fields.flag("qkv_bias", default=True))
    shared = fields.size("shared_expert_intermediate_size")
    return sizes, decoder(sizes, Frame(is_tied(fields)), _qwen_moe(fields, maps, shared))


def _qwen3_moe(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes = _expert_sizes(fields, read_sizes(fields), "num_experts")
    maps = qwen3_block(fields, sizes)
    return sizes, decoder(sizes, Frame(is_tied(fields)), _qwen_moe(fields, maps, 0))


def deepseek_feed_forward(
    fields: Fields, sizes: Configuration
) -> Callable[[str, int], Iterator[ExpectedTensor]]:
    """The first blocks dense, then routed experts and one joint part of all shared experts."""
    dense, shared = fields.size("intermediate_size"), fields.count("n_shared_experts", default=0)
    first = fields.count("first_k_dense_replace", default=0)
    step = fields.size("moe_layer_freq", default=1)

    def maps(name: str, number: int) -> Iterator[ExpectedTensor]:
        if number < first or number % step:
            yield from gated(sizes, f"{name}.mlp", dense)
            return
        yield from numbered_experts(sizes, f"{name}.mlp", _LONG_NAMES)
        if shared:
            yield from gated(sizes, f"{name}.mlp.shared_experts", shared * sizes.feed_forward)

    return maps


def deepseek_sizes(fields: Fields, sizes: Configuration) -> Configuration:
    """The same sizes, with those of one routed expert."""
    return _expert_sizes(fields, sizes, "n_routed_experts")


def _deepseek(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes, bias = read_sizes(fields), fields.flag("attention_bias", default=False)
    sizes = deepseek_sizes(fields, sizes)
    attention, maps = GatedBlock(sizes, bias, bias), deepseek_feed_forward(fields, sizes)

    def block(name: str, number: int) -> Iterator[ExpectedTensor]:
        yield from attention.attention(name)
        yield from maps(name, number)

    return sizes, decoder(sizes, Frame(is_tied(fields)), block)


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
