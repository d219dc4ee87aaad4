"""A family of configurations as a list of the tensors that its models have."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from rankscope.auditing.configuration import Configuration, Parameters
from rankscope.errors import ConfigurationError, DocumentError, UnknownFamilyError
from rankscope.strict_json import Choice, Flag, Integer, ListOf, Reader, Text

# --- The tensors that a model must hold: names, shapes, and the part of the model they belong to


class Part(StrEnum):
    """The part of the model that a tensor is counted under: a field of `Parameters`."""

    EMBEDDING = "embedding"
    ATTENTION = "attention"
    FEED_FORWARD = "feed_forward"
    NORMALIZATION = "normalization"
    HEAD = "head"
    OTHER = "other"


@dataclass(frozen=True)
class ExpectedTensor:
    """One tensor that follows from a configuration.

    Args:
        name: as in the family's own checkpoints.
        shape: as in the family's own checkpoints, transposed where the family transposes.
        part: where it is counted.
        is_tied: whether it only repeats an earlier tensor; then it is not counted, and a file
            may leave it out.
        head_axis: which index of an attention matrix or bias runs over heads x head size (grouped
            or fused: a multiple of the head size), or None.
    """

    name: str
    shape: tuple[int, ...]
    part: Part
    is_tied: bool = False
    head_axis: int | None = None

    @property
    def size(self) -> int:
        """Number of its entries."""
        return math.prod(self.shape)


def linear(
    name: str,
    shape: tuple[int, int],
    part: Part,
    *,
    bias: bool = False,
    head_axis: int | None = None,
) -> Iterator[ExpectedTensor]:
    """The weight of an affine map of shape (outputs, inputs), and its bias if it has one."""
    yield ExpectedTensor(f"{name}.weight", shape, part, head_axis=head_axis)
    if bias:
        along_heads = 0 if head_axis == 0 else None
        yield ExpectedTensor(f"{name}.bias", shape[:1], part, head_axis=along_heads)


def transposed(tensors: Iterable[ExpectedTensor]) -> Iterator[ExpectedTensor]:
    """The same, each matrix stored as (inputs, outputs)."""
    for tensor in tensors:
        axis = tensor.head_axis
        flipped = axis if axis is None else len(tensor.shape) - 1 - axis
        yield ExpectedTensor(tensor.name, tensor.shape[::-1], tensor.part, tensor.is_tied, flipped)


def table(name: str, num_rows: int, size: int) -> ExpectedTensor:
    """One vector per token, position or type."""
    return ExpectedTensor(f"{name}.weight", (num_rows, size), Part.EMBEDDING)


def norm(name: str, size: int, *, bias: bool) -> Iterator[ExpectedTensor]:
    """The scale of a normalization, and its shift if it has one."""
    yield ExpectedTensor(f"{name}.weight", (size,), Part.NORMALIZATION)
    if bias:
        yield ExpectedTensor(f"{name}.bias", (size,), Part.NORMALIZATION)


def count_parameters(tensors: Iterable[ExpectedTensor]) -> Parameters:
    """Exact numbers by part; tied tensors are counted where they stand first.

    Example:
        >>> count_parameters([table("embed", 10, 4), *norm("norm", 4, bias=True)]).to_dict()[
        ...     "total"
        ... ]
        48
    """
    counts = dict.fromkeys(Part, 0)
    for tensor in tensors:
        if not tensor.is_tied:
            counts[tensor.part] += tensor.size
    return Parameters(**{part.value: count for part, count in counts.items()})


def count_beyond_width(
    tensors: Iterable[ExpectedTensor], *, attention_width: int, width: int
) -> int:
    r"""Parameters of attention that smaller heads would save, if heads x head size were the width.

    .. math:: \sum_W |W|\,\bigl(1 - \mathrm{width} / (H d_a)\bigr),\quad H d_a > \mathrm{width}

    over all matrices and biases with an index along heads x head size, grouped keys and values
    shrinking alike; rounded down where the width is no multiple of the number of heads.
    """
    along_heads = sum(tensor.size for tensor in tensors if tensor.head_axis is not None)
    return along_heads * max(0, attention_width - width) // attention_width


# --- What the blocks of most families are made of: attention and feed-forward maps under any names


def separate_queries(
    sizes: Configuration, names: Sequence[str], *, bias: bool
) -> Iterator[ExpectedTensor]:
    """Queries, keys and values in three matrices; keys and values may be grouped."""
    grouped = sizes.key_value_heads * sizes.head_size
    for name, size in zip(names, (sizes.attention_width, grouped, grouped), strict=True):
        yield from linear(name, (size, sizes.width), Part.ATTENTION, bias=bias, head_axis=0)


def fused_queries(sizes: Configuration, name: str, *, bias: bool) -> Iterator[ExpectedTensor]:
    """Queries, keys and values in one matrix."""
    rows = (sizes.heads + 2 * sizes.key_value_heads) * sizes.head_size
    yield from linear(name, (rows, sizes.width), Part.ATTENTION, bias=bias, head_axis=0)


def output_map(sizes: Configuration, name: str, *, bias: bool) -> Iterator[ExpectedTensor]:
    """The output projection of attention."""
    shape = (sizes.width, sizes.attention_width)
    yield from linear(name, shape, Part.ATTENTION, bias=bias, head_axis=1)


def feed_forward(
    width: int, inner: int, names: tuple[str, ...], *, bias: bool = False
) -> Iterator[ExpectedTensor]:
    """Maps up (two if gated), and the last one down."""
    *ups, down = names
    for name in ups:
        yield from linear(name, (inner, width), Part.FEED_FORWARD, bias=bias)
    yield from linear(down, (width, inner), Part.FEED_FORWARD, bias=bias)


# --- The keys of a configuration, read one by one; what does not fit is refused by name -----------


_MAX_SIZE = 2**31 - 1
T = TypeVar("T")


@dataclass(frozen=True)
class Fields:
    """A document under the names that all families share.

    Null counts as absent, as it does where such files come from.

    Args:
        document: keys and values of the file.
        aliases: the family's own key for a shared name, such as `{"hidden_size": "n_embd"}`.
        family: its name, for messages.
        who: the file's name, for messages.
    """

    document: Mapping[str, object]
    aliases: Mapping[str, str]
    family: str
    who: str

    def has(self, name: str) -> bool:
        """Whether there is a value."""
        return self._value(name) is not None

    def require(self, names: tuple[str, ...]) -> None:
        """Refuse a document that lacks any of them, naming all that are missing.

        Raises:
            ConfigurationError: if some are missing.
        """
        missing = [self._key(name) for name in names if not self.has(name)]
        if missing:
            raise UnknownFamilyError(
                f"{self.who}: a configuration of family {self.family!r} needs "
                f"{len(names)} keys, and {', '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} missing."
            )

    def size(self, name: str, *, default: int | None = None) -> int:
        """A positive integer.

        Raises:
            ConfigurationError: if it is missing without a default, or anything else.
        """
        return self._read(name, Integer(1, _MAX_SIZE), default)

    def count(self, name: str, *, default: int) -> int:
        """An integer that may be zero.

        Raises:
            ConfigurationError: if it is anything else.
        """
        return self._read(name, Integer(0, _MAX_SIZE), default)

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false.

        Raises:
            ConfigurationError: if it is anything else.
        """
        return self._read(name, Flag(), default)

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of a few words, the first if it is absent.

        Raises:
            ConfigurationError: if it is anything else.
        """
        return self._read(name, Choice(choices), choices[0])

    def words(self, name: str) -> tuple[str, ...]:
        """A list of words, such as `architectures`; empty if absent.

        Raises:
            ConfigurationError: if it is anything else.
        """
        return self._read(name, ListOf(Text()), ())

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list of integers, such as `mlp_only_layers`; empty if absent.

        Raises:
            ConfigurationError: if it is anything else.
        """
        return self._read(name, ListOf(Integer()), ())

    def _read(self, name: str, reader: Reader[T], default: T | None) -> T:
        value = self._value(name)
        if value is None and default is not None:
            return default
        try:
            return reader.read(value)
        except DocumentError as refused:
            place = "".join(f"[{key}]" for key in refused.place)
            raise ConfigurationError(
                f"{self.who}, at {self._key(name)}{place}: {refused}."
            ) from refused

    def _key(self, name: str) -> str:
        alias = self.aliases.get(name)
        return name if alias is None else f"{alias} (or {name})"

    def _value(self, name: str) -> object:
        own = self.document.get(self.aliases.get(name, name))
        return self.document.get(name) if own is None else own


# --- A family: what its configurations are called, and how one is read ----------------------------


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
