"""BERT, RoBERTa, DistilBERT and ALBERT: encoders with learned positions."""

from collections.abc import Iterator
from dataclasses import replace

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.families.blocks import feed_forward, separate_attention
from rankscope.auditing.families.family import SIZES, Family, Tensors, read_sizes
from rankscope.auditing.families.fields import Fields
from rankscope.auditing.families.tensor_list import ExpectedTensor, Part, linear, norm, table
from rankscope.errors import ConfigurationError


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
    for number in range(sizes.depth):
        name = f"encoder.layer.{number}"
        one = f"{name}.attention.self"
        names = (f"{one}.query", f"{one}.key", f"{one}.value", f"{name}.attention.output.dense")
        yield from separate_attention(sizes, names, bias=True, output_bias=True)
        yield from norm(f"{name}.attention.output.LayerNorm", sizes.width, bias=True)
        maps = f"{name}.intermediate.dense", f"{name}.output.dense"
        yield from feed_forward(sizes.width, sizes.feed_forward, maps, bias=True)
        yield from norm(f"{name}.output.LayerNorm", sizes.width, bias=True)
    yield from linear("pooler.dense", (sizes.width, sizes.width), Part.OTHER, bias=True)


def _distilbert(fields: Fields) -> tuple[Configuration, Tensors]:
    sizes = read_sizes(fields)
    return sizes, _distilbert_tensors(fields, sizes)


def _distilbert_tensors(fields: Fields, sizes: Configuration) -> Iterator[ExpectedTensor]:
    yield from _embeddings(fields, sizes.width, types=0)
    for number in range(sizes.depth):
        name = f"transformer.layer.{number}"
        one = f"{name}.attention"
        names = (f"{one}.q_lin", f"{one}.k_lin", f"{one}.v_lin", f"{one}.out_lin")
        yield from separate_attention(sizes, names, bias=True, output_bias=True)
        yield from norm(f"{name}.sa_layer_norm", sizes.width, bias=True)
        maps = f"{name}.ffn.lin1", f"{name}.ffn.lin2"
        yield from feed_forward(sizes.width, sizes.feed_forward, maps, bias=True)
        yield from norm(f"{name}.output_layer_norm", sizes.width, bias=True)


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
    for group in range(fields.size("num_hidden_groups", default=1)):
        for number in range(fields.size("inner_group_num", default=1)):
            name = f"encoder.albert_layer_groups.{group}.albert_layers.{number}"
            yield from _albert_block(sizes, name)
    yield from linear("pooler", (sizes.width, sizes.width), Part.OTHER, bias=True)


def _albert_block(sizes: Configuration, name: str) -> Iterator[ExpectedTensor]:
    one = f"{name}.attention"
    names = (f"{one}.query", f"{one}.key", f"{one}.value", f"{one}.dense")
    yield from separate_attention(sizes, names, bias=True, output_bias=True)
    yield from norm(f"{one}.LayerNorm", sizes.width, bias=True)
    maps = f"{name}.ffn", f"{name}.ffn_output"
    yield from feed_forward(sizes.width, sizes.feed_forward, maps, bias=True)
    yield from norm(f"{name}.full_layer_layer_norm", sizes.width, bias=True)


_COUNTED = "the encoder with all embeddings and the pooler, without heads for tasks"
_REQUIRED = (*SIZES, "max_position_embeddings")
BERT_FAMILIES = (
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
