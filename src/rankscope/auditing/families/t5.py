"""T5: an encoder and a decoder that reads it, with relative positions in the first blocks."""

from collections.abc import Iterator
from dataclasses import replace

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.families.blocks import feed_forward, separate_attention
from rankscope.auditing.families.family import SIZES, Family, Tensors, read_sizes
from rankscope.auditing.families.fields import Fields
from rankscope.auditing.families.llama import is_tied
from rankscope.auditing.families.tensor_list import ExpectedTensor, Part, norm, table

_ACTIVATIONS = ("relu", "gelu", "silu", "gated-gelu", "gated-silu", "gated-relu")


def _t5(fields: Fields) -> tuple[Configuration, Tensors]:
    """The depth is that of the deeper stack; the embedding is shared by both."""
    sizes = read_sizes(fields)
    if "T5EncoderModel" in fields.words("architectures"):
        return sizes, _encoder(fields, sizes, sizes.depth)
    encoder, decoder = sizes.depth, fields.size("num_decoder_layers", default=sizes.depth)
    both = replace(sizes, depth=max(encoder, decoder), encoder_depth=encoder, decoder_depth=decoder)
    return both, _encoder_and_decoder(fields, both, encoder, decoder)


def _encoder(fields: Fields, sizes: Configuration, depth: int) -> Iterator[ExpectedTensor]:
    yield table("shared", fields.size("vocab_size"), sizes.width)
    yield _shared_again(fields, sizes, "encoder.embed_tokens")
    yield from _stack(fields, sizes, "encoder", depth)


def _encoder_and_decoder(
    fields: Fields, sizes: Configuration, encoder: int, decoder: int
) -> Iterator[ExpectedTensor]:
    yield from _encoder(fields, sizes, encoder)
    yield _shared_again(fields, sizes, "decoder.embed_tokens")
    yield from _stack(fields, sizes, "decoder", decoder)
    shape = (fields.size("vocab_size"), sizes.width)
    tied = is_tied(fields, default=True)
    yield ExpectedTensor("lm_head.weight", shape, Part.HEAD, is_tied=tied)


def _shared_again(fields: Fields, sizes: Configuration, name: str) -> ExpectedTensor:
    shape = (fields.size("vocab_size"), sizes.width)
    return ExpectedTensor(f"{name}.weight", shape, Part.EMBEDDING, is_tied=True)


def _stack(fields: Fields, sizes: Configuration, name: str, depth: int) -> Iterator[ExpectedTensor]:
    kinds = ("SelfAttention", "EncDecAttention") if name == "decoder" else ("SelfAttention",)
    buckets = fields.size("relative_attention_num_buckets", default=32)
    is_gated = fields.choice("feed_forward_proj", _ACTIVATIONS).startswith("gated")
    ups = ("wi_0", "wi_1") if is_gated else ("wi",)
    for number in range(depth):
        block = f"{name}.block.{number}.layer"
        for layer, kind in enumerate(kinds):
            yield from _attention(sizes, f"{block}.{layer}", kind)
            if number == layer == 0:
                positions = f"{block}.0.SelfAttention.relative_attention_bias.weight"
                yield ExpectedTensor(positions, (buckets, sizes.heads), Part.ATTENTION)
        last = f"{block}.{len(kinds)}"
        maps = tuple(f"{last}.DenseReluDense.{one}" for one in (*ups, "wo"))
        yield from feed_forward(sizes.width, sizes.feed_forward, maps)
        yield from norm(f"{last}.layer_norm", sizes.width, bias=False)
    yield from norm(f"{name}.final_layer_norm", sizes.width, bias=False)


def _attention(sizes: Configuration, name: str, kind: str) -> Iterator[ExpectedTensor]:
    one = f"{name}.{kind}"
    names = (f"{one}.q", f"{one}.k", f"{one}.v", f"{one}.o")
    yield from separate_attention(sizes, names, bias=False, output_bias=False)
    yield from norm(f"{name}.layer_norm", sizes.width, bias=False)


T5_FAMILIES = (
    Family(
        "t5",
        _t5,
        "both stacks, relative positions and the output matrix, counted once if tied",
        model_types=("mt5",),
        aliases={
            "hidden_size": "d_model",
            "num_hidden_layers": "num_layers",
            "num_attention_heads": "num_heads",
            "intermediate_size": "d_ff",
            "head_dim": "d_kv",
        },
        required=(*SIZES, "head_dim"),
        telling_keys=("d_model", "d_kv", "d_ff", "num_layers", "num_heads"),
    ),
)
