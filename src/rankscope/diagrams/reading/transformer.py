"""PyTorch's own transformer layers, read part by part.

Their `forward` has fast paths that cannot be traced, so the parts are put together here as the
documentation of PyTorch describes them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from rankscope.diagrams.reading.activation import activate
from rankscope.diagrams.reading.calls import Call
from rankscope.diagrams.reading.values import Value
from rankscope.errors import UnsupportedModuleError

# `layer.activation` is a function; which barrier it is.
FUNCTIONS: dict[Callable[..., Any], str] = {
    F.relu: "relu",
    torch.relu: "relu",
    F.gelu: "gelu",
    F.silu: "silu",
    torch.tanh: "tanh",
    torch.sigmoid: "sigmoid",
}

Block = Callable[[Value], Value]


def read_encoder_layer(call: Call) -> Value:
    """Read self-attention and a feed-forward block, each with a residual sum and a norm."""
    assert isinstance(call.module, nn.TransformerEncoderLayer)
    call.refuse("src_key_padding_mask")
    mask = _mask(call, "src_mask", "is_causal")

    def attention(value: Value) -> Value:
        return call.read_value(
            "dropout1", call.read_value("self_attn", value, value, value, attn_mask=mask)
        )

    value = call.value("src")
    value = _residual(call, value, attention, number=1)
    return _residual(call, value, _feed_forward(call, "dropout2"), number=2)


def read_decoder_layer(call: Call) -> Value:
    """Read self-attention, attention to a memory, and a feed-forward block."""
    assert isinstance(call.module, nn.TransformerDecoderLayer)
    call.refuse("tgt_key_padding_mask", "memory_key_padding_mask")
    value, memory = call.value("tgt"), call.value("memory")
    own = _mask(call, "tgt_mask", "tgt_is_causal")
    other = _mask(call, "memory_mask", "memory_is_causal")

    def attention(value: Value) -> Value:
        return call.read_value(
            "dropout1", call.read_value("self_attn", value, value, value, attn_mask=own)
        )

    def cross_attention(value: Value) -> Value:
        return call.read_value(
            "dropout2", call.read_value("multihead_attn", value, memory, memory, attn_mask=other)
        )

    value = _residual(call, value, attention, number=1)
    value = _residual(call, value, cross_attention, number=2)
    return _residual(call, value, _feed_forward(call, "dropout3"), number=3)


def _residual(call: Call, value: Value, block: Block, *, number: int) -> Value:
    """A value plus what a block makes of it, normalized before the block or after the sum."""
    assert isinstance(call.module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer)
    norm, name = f"norm{number}", call.inner(f"residual{number}")
    if call.module.norm_first:
        return call.notebook.add(name, (value, block(call.read_value(norm, value))), (1.0, 1.0))
    return call.read_value(norm, call.notebook.add(name, (value, block(value)), (1.0, 1.0)))


def _feed_forward(call: Call, last: str) -> Block:
    def block(value: Value) -> Value:
        hidden = _activated(call, call.read_value("linear1", value))
        return call.read_value(last, call.read_value("linear2", call.read_value("dropout", hidden)))

    return block


def _activated(call: Call, value: Value) -> Value:
    assert isinstance(call.module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer)
    activation = call.module.activation
    if isinstance(activation, nn.Module):
        return call.read_value("activation", value)
    if activation not in FUNCTIONS:
        raise UnsupportedModuleError(f"its activation {activation!r} is not known")
    return activate(call.renamed(call.inner("activation")), FUNCTIONS[activation], {}, value)


def _mask(call: Call, mask: str, flag: str) -> Any:
    """The mask that is given; `is_causal` alone is only a hint, which PyTorch wants beside it."""
    given = call.arguments.get(mask)
    if given is None and call.arguments.get(flag):
        raise UnsupportedModuleError(f"{flag}=True needs {mask}; PyTorch takes it as a hint only")
    return given


def read_encoder(call: Call) -> Value:
    """Read a stack of encoder layers and its last norm."""
    stack = call.module
    assert isinstance(stack, nn.TransformerEncoder)
    call.refuse("src_key_padding_mask")
    value = call.value("src")
    mask = _mask(call, "mask", "is_causal")
    for number in range(len(stack.layers)):
        value = call.read_value(f"layers.{number}", value, src_mask=mask)
    return value if stack.norm is None else call.read_value("norm", value)


def read_decoder(call: Call) -> Value:
    """Read a stack of decoder layers and its last norm."""
    stack = call.module
    assert isinstance(stack, nn.TransformerDecoder)
    call.refuse("tgt_key_padding_mask", "memory_key_padding_mask")
    value, memory = call.value("tgt"), call.value("memory")
    own = _mask(call, "tgt_mask", "tgt_is_causal")
    other = _mask(call, "memory_mask", "memory_is_causal")
    for number in range(len(stack.layers)):
        value = call.read_value(f"layers.{number}", value, memory, tgt_mask=own, memory_mask=other)
    return value if stack.norm is None else call.read_value("norm", value)


def read_transformer(call: Call) -> Value:
    """Read an encoder and a decoder."""
    assert isinstance(call.module, nn.Transformer)
    call.refuse("src_key_padding_mask", "tgt_key_padding_mask", "memory_key_padding_mask")
    options = {
        name: call.arguments.get(name) for name in ("tgt_mask", "memory_mask", "tgt_is_causal")
    }
    memory = call.read_value("encoder", call.value("src"), mask=call.arguments.get("src_mask"))
    return call.read_value("decoder", call.value("tgt"), memory, **options)
