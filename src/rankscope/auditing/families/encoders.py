"""Encoders and encoder-decoders: BERT and its relatives, ViT, T5."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.families.decoder import BlockMaps, biased_block, is_tied
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
    read_sizes,
    table,
)
from rankscope.errors import ConfigurationError

# --- BERT, RoBERTa, DistilBERT and ALBERT: encoders with learned positions ------------------------


def _check_positions(fields: Fields) -> None:
    # Other kinds have tables of their own in every block.
    fields.choice("position_embedding_type", ("absolute",))


def _embeddings(fields: Fields, size: int, *, types: int) -> Iterator[ExpectedTensor]:
    yield table("embeddings.word_embeddings", fields.size("vocab_size"), size)
    positions = fields.size("max_position_embeddings")
    yield table("embeddings.position_embeddings", positions, size)
    if types:
        yield table("embeddings.token_type_embeddings", types, size)
    yield from norm("embeddings.LayerNorm", size, bias=True)


def _bert(fields: Fields) -> tuple[Configuration, Tensors]:
    _check_positions(fields)
    sizes = read_sizes(fields)
    embedding = fields.size("embedding_size", default=sizes.width)
    if embedding != sizes.width:
        raise ConfigurationError(
            f"{fields.who}: embedding_size is {embedding}, but a {fields.family} has token vectors "
            f"of its width {sizes.width}. If it is an albert, pass family='albert'."
        )
    return sizes, _bert_tensors(fields, sizes)


def _bert_tensors(fields: Fields, sizes: Configuration) -> Iterator[ExpectedTensor]:
    types = fields.count("type_vocab_size", default=2)
    yield from _embeddings(fields, sizes.width, types=types)
    block = biased_block(
        sizes,
        "attention.self.query attention.self.key attention.self.value attention.output.dense",
        "intermediate.dense output.dense",
        after=("attention.output.LayerNorm", "output.LayerNorm"),
    )
    for number in range(sizes.depth):
        yield from block(f"encoder.layer.{number}")
    yield from _bert_head(fields, sizes)


# Classes of BERT and RoBERTa whose base model has no pooler, and what stands on the base instead.
_WORDS_HEADS = ("ForMaskedLM", "LMHeadModel", "ForCausalLM")
_PLACES_HEADS = {"ForTokenClassification": "classifier", "ForQuestionAnswering": "qa_outputs"}


def _bert_head(fields: Fields, sizes: Configuration) -> Iterator[ExpectedTensor]:
    """What stands behind the last block, by the first of `architectures`; a pooler without one."""
    kind = next(iter(fields.words("architectures")), "")
    width, is_roberta = sizes.width, "oberta" in kind.lower()
    if kind.endswith(_WORDS_HEADS):
        yield from _words_head(fields, width, is_roberta=is_roberta)
        return
    ending = next((one for one in _PLACES_HEADS if kind.endswith(one)), None)
    if ending is not None:
        shape = (_bert_labels(fields), width)
        yield from linear(_PLACES_HEADS[ending], shape, Part.HEAD, bias=True)
        return
    is_sorting = kind.endswith("ForSequenceClassification")
    if is_sorting and is_roberta:
        yield from linear("classifier.dense", (width, width), Part.HEAD, bias=True)
        last = (_bert_labels(fields), width)
        yield from linear("classifier.out_proj", last, Part.HEAD, bias=True)
        return
    yield from linear("pooler.dense", (width, width), Part.OTHER, bias=True)
    if kind == "BertForPreTraining":
        yield from _words_head(fields, width, is_roberta=False)
        yield from linear("cls.seq_relationship", (2, width), Part.HEAD, bias=True)
    elif is_sorting:
        yield from linear("classifier", (_bert_labels(fields), width), Part.HEAD, bias=True)


def _words_head(fields: Fields, width: int, *, is_roberta: bool) -> Iterator[ExpectedTensor]:
    """A map, a normalization, and the table again with a bias of its own."""
    names = "lm_head.dense", "lm_head.layer_norm", "lm_head"
    if not is_roberta:
        start = "cls.predictions"
        names = f"{start}.transform.dense", f"{start}.transform.LayerNorm", start
    words = fields.size("vocab_size")
    yield from linear(names[0], (width, width), Part.HEAD, bias=True)
    yield from norm(names[1], width, bias=True)
    yield ExpectedTensor(f"{names[2]}.bias", (words,), Part.HEAD)
    tied = is_tied(fields, default=True)
    yield ExpectedTensor(f"{names[2]}.decoder.weight", (words, width), Part.HEAD, is_tied=tied)
    yield ExpectedTensor(f"{names[2]}.decoder.bias", (words,), Part.HEAD, is_tied=True)


def _bert_labels(fields: Fields) -> int:
    names = fields.document.get("id2label")
    return fields.count("num_labels", default=len(names) if isinstance(names, Mapping) else 2)


def _distilbert(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes = read_sizes(fields)
    return sizes, _distilbert_tensors(fields, sizes)


def _distilbert_tensors(fields: Fields, sizes: Configuration) -> Iterator[ExpectedTensor]:
    yield from _embeddings(fields, sizes.width, types=0)
    block = biased_block(
        sizes,
        "attention.q_lin attention.k_lin attention.v_lin attention.out_lin",
        "ffn.lin1 ffn.lin2",
        after=("sa_layer_norm", "output_layer_norm"),
    )
    for number in range(sizes.depth):
        yield from block(f"transformer.layer.{number}")


def _albert(fields: Fields) -> tuple[Configuration, Tensors]:
    """Blocks share their weights: the depth counts all, the parameters each group once.

    Token vectors have `embedding_size` numbers (128 if the document says nothing) before one map
    to the width, so that the embedding's rank is at most that.
    """
    _check_positions(fields)
    sizes, embedding = read_sizes(fields), fields.size("embedding_size", default=128)
    groups, inner = (
        fields.size("num_hidden_groups", default=1),
        fields.size("inner_group_num", default=1),
    )
    if groups > sizes.depth:
        raise ConfigurationError(
            f"{fields.who}: {groups} groups of blocks cannot share {sizes.depth} blocks."
        )
    rank = min(sizes.embedding_rank, embedding)
    sizes = replace(sizes, depth=sizes.depth * inner, embedding_rank=rank)
    return sizes, _albert_tensors(fields, sizes, embedding)


def _albert_tensors(
    fields: Fields, sizes: Configuration, embedding: int
) -> Iterator[ExpectedTensor]:
    types = fields.count("type_vocab_size", default=2)
    yield from _embeddings(fields, embedding, types=types)
    shape = (sizes.width, embedding)
    yield from linear("encoder.embedding_hidden_mapping_in", shape, Part.EMBEDDING, bias=True)
    block = biased_block(
        sizes,
        "attention.query attention.key attention.value attention.dense",
        "ffn ffn_output",
        after=("attention.LayerNorm", "full_layer_layer_norm"),
    )
    for group in range(fields.size("num_hidden_groups", default=1)):
        for number in range(fields.size("inner_group_num", default=1)):
            name = f"encoder.albert_layer_groups.{group}.albert_layers.{number}"
            yield from block(name)
    yield from linear("pooler", (sizes.width, sizes.width), Part.OTHER, bias=True)


_COUNTED = "the encoder with all embeddings and the pooler, without heads for tasks"
_REQUIRED = (*SIZES, "max_position_embeddings")
_BERT_FAMILIES = (
    Family(
        "bert",
        _bert,
        _COUNTED,
        required=_REQUIRED,
        telling_keys=("hidden_size", "num_attention_heads", "type_vocab_size"),
    ),
    Family("roberta", _bert, _COUNTED, ("xlm-roberta", "camembert"), required=_REQUIRED),
    Family(
        "distilbert",
        _distilbert,
        "the encoder with all embeddings, without heads for tasks (it has no pooler)",
        aliases={
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
        },
        required=_REQUIRED,
        telling_keys=("dim", "n_layers", "n_heads", "hidden_dim"),
    ),
    Family(
        "albert",
        _albert,
        _COUNTED + "; each shared block once",
        required=_REQUIRED,
        telling_keys=("hidden_size", "embedding_size", "type_vocab_size", "num_hidden_groups"),
    ),
)


# --- Vision transformers: patches of an image instead of tokens -----------------------------------


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
    block = biased_block(
        sizes,
        "attention.attention.query attention.attention.key attention.attention.value "
        "attention.output.dense",
        "intermediate.dense output.dense",
    )
    bias = fields.flag("qkv_bias", default=True)
    block = replace(block, has_bias=bias, before=("layernorm_before", "layernorm_after"))
    for number in range(sizes.depth):
        yield from block(f"encoder.layer.{number}")
    yield from norm("layernorm", width, bias=True)
    if "ViTModel" in fields.words("architectures"):
        yield from linear("pooler.dense", (width, width), Part.OTHER, bias=True)
    labels = _num_labels(fields)
    if labels:
        yield from linear("classifier", (labels, width), Part.HEAD, bias=True)


def _num_labels(fields: Fields) -> int:
    names = fields.document.get("id2label")
    if "ViTForImageClassification" not in fields.words("architectures"):
        return 0
    return fields.count("num_labels", default=len(names) if isinstance(names, Mapping) else 0)


_VIT_FAMILIES = (
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


# --- T5: an encoder and a decoder that reads it, with relative positions in the first blocks ------


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
        layers = f"{name}.block.{number}.layer"
        for layer, kind in enumerate(kinds):
            one = f"{layers}.{layer}"
            maps = BlockMaps(sizes, attention=" ".join(f"{kind}.{side}" for side in "qkvo"))
            yield from maps.attention_maps(one)
            yield from norm(f"{one}.layer_norm", sizes.width, bias=False)
            if number == layer == 0:
                positions = f"{one}.SelfAttention.relative_attention_bias.weight"
                yield ExpectedTensor(positions, (buckets, sizes.heads), Part.ATTENTION)
        last = f"{layers}.{len(kinds)}"
        names = tuple(f"{last}.DenseReluDense.{one}" for one in (*ups, "wo"))
        yield from feed_forward(sizes.width, sizes.feed_forward, names)
        yield from norm(f"{last}.layer_norm", sizes.width, bias=False)
    yield from norm(f"{name}.final_layer_norm", sizes.width, bias=False)


_T5_FAMILIES = (
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

ENCODER_FAMILIES = (*_T5_FAMILIES, *_BERT_FAMILIES, *_VIT_FAMILIES)
