"""A family: what its configurations are called, and how one is read."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from rankscope.auditing.configuration import Configuration, Parameters
from rankscope.auditing.families.fields import Fields
from rankscope.auditing.families.tensor_list import ExpectedTensor
from rankscope.errors import ConfigurationError

SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
)

Tensors = Iterator[ExpectedTensor]


@dataclass(frozen=True)
class Family:
    """One kind of model.

    Args:
        name: what `family=` and `--family` call it.
        read: its sizes (parameters still uncounted) and its tensors.
        counted: what the total is the total of.
        model_types: what `model_type` calls it, besides its name.
        aliases: its own key for a shared name, such as `{"hidden_size": "n_embd"}`.
        required: keys that it cannot do without, by their shared names.
        telling_keys: keys that together give the family away where there is no `model_type`.
    """

    name: str
    read: Callable[[Fields], tuple[Configuration, Tensors]]
    counted: str = "a language model with its output matrix, counted once if tied to the embedding"
    model_types: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = SIZES
    telling_keys: tuple[str, ...] = ()


def read_sizes(
    fields: Fields, *, feed_forward: int | None = None, head_size: int | None = None
) -> Configuration:
    """The sizes that every family has, under their shared names.

    Args:
        fields: what to read.
        feed_forward: inner size if the document says none; otherwise it must.
        head_size: if the document says none; otherwise width / heads.

    Raises:
        ConfigurationError: if sizes are missing, absurd, or do not divide.
    """
    width, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    key_value_heads = fields.size("num_key_value_heads", default=heads)
    if heads % key_value_heads:
        raise ConfigurationError(
            f"{fields.who}: {heads} heads cannot share {key_value_heads} keys and values evenly."
        )
    if not fields.has("head_dim") and head_size is None and width % heads:
        raise ConfigurationError(
            f"{fields.who}: {heads} heads do not divide the width {width}, and no head size is "
            "given. Add head_dim, or correct one of them."
        )
    vocabulary = fields.size("vocab_size") if fields.has("vocab_size") else None
    return Configuration(
        family=fields.family,
        depth=fields.size("num_hidden_layers"),
        width=width,
        heads=heads,
        head_size=fields.size("head_dim", default=head_size or width // heads),
        key_value_heads=key_value_heads,
        feed_forward=fields.size("intermediate_size", default=feed_forward),
        vocabulary=vocabulary,
        embedding_rank=width if vocabulary is None else min(width, vocabulary),
        parameters=Parameters(),
    )
