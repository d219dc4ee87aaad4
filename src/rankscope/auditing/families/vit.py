"""Vision transformers: patches of an image instead of tokens."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.families.blocks import feed_forward, separate_attention
from rankscope.auditing.families.family import Family, Tensors, read_sizes
from rankscope.auditing.families.fields import Fields
from rankscope.auditing.families.tensor_list import ExpectedTensor, Part, linear, norm
from rankscope.errors import ConfigurationError


def _vit(fields: Fields) -> tuple[Configuration, Tensors]:
    """The embedding's rank is at most channels x patch², the numbers in a patch.

    That is the rank of the embedded patches; learned positions are added after, and may raise
    the rank of their sum.
    """
    channels, patch = fields.size("num_channels", default=3), fields.size("patch_size")
    image = fields.size("image_size")
    if patch > image:
        raise ConfigurationError(
            f"{fields.who}: patches of {patch} x {patch} do not fit in an image of "
            f"{image} x {image}."
        )
    sizes = read_sizes(fields)
    # A stray vocab_size counts no embeddings of images.
    rank = min(sizes.width, channels * patch**2)
    sizes = replace(sizes, vocabulary=None, embedding_rank=rank)
    return sizes, _tensors(fields, sizes, (channels, patch, patch), (image // patch) ** 2)


def _tensors(
    fields: Fields, sizes: Configuration, patch: tuple[int, int, int], num_patches: int
) -> Iterator[ExpectedTensor]:
    width, name, part = sizes.width, "embeddings.patch_embeddings.projection", Part.EMBEDDING
    yield ExpectedTensor("embeddings.cls_token", (1, 1, width), part)
    yield ExpectedTensor("embeddings.position_embeddings", (1, num_patches + 1, width), part)
    yield ExpectedTensor(f"{name}.weight", (width, *patch), part)
    yield ExpectedTensor(f"{name}.bias", (width,), part)
    bias = fields.flag("qkv_bias", default=True)
    for number in range(sizes.depth):
        yield from _block(sizes, f"encoder.layer.{number}", bias=bias)
    yield from norm("layernorm", width, bias=True)
    if "ViTModel" in fields.words("architectures"):
        yield from linear("pooler.dense", (width, width), Part.OTHER, bias=True)
    labels = _num_labels(fields)
    if labels:
        yield from linear("classifier", (labels, width), Part.HEAD, bias=True)


def _block(sizes: Configuration, name: str, *, bias: bool) -> Iterator[ExpectedTensor]:
    yield from norm(f"{name}.layernorm_before", sizes.width, bias=True)
    one = f"{name}.attention.attention"
    names = (f"{one}.query", f"{one}.key", f"{one}.value", f"{name}.attention.output.dense")
    yield from separate_attention(sizes, names, bias=bias, output_bias=True)
    yield from norm(f"{name}.layernorm_after", sizes.width, bias=True)
    maps = f"{name}.intermediate.dense", f"{name}.output.dense"
    yield from feed_forward(sizes.width, sizes.feed_forward, maps, bias=True)


def _num_labels(fields: Fields) -> int:
    names = fields.document.get("id2label")
    if "ViTForImageClassification" not in fields.words("architectures"):
        return 0
    return fields.count("num_labels", default=len(names) if isinstance(names, Mapping) else 0)


VIT_FAMILIES = (
    Family(
        "vit",
        _vit,
        "patch, class and position embeddings and the encoder; the pooler if `architectures` says "
        "ViTModel, the classifier if it says ViTForImageClassification and the labels are listed",
        required=(
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "image_size",
            "patch_size",
        ),
        telling_keys=("hidden_size", "image_size", "patch_size", "num_attention_heads"),
    ),
)
