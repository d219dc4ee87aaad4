"""Networks of exact rank by name and plain settings: the one place that a new network is added to.

An entry gives certificates their `build` and the commands `rank`, `bounds`, `draw` and `cost` their
options. Settings may come from a stranger's file: names, types and ranges are checked before
anything is built, and nothing is imported that is not in the table. Reading the table loads no
torch.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rankscope.budget import require_within
from rankscope.errors import FamilyError, RequestError
from rankscope.rank.bounds.sizes import DEEPEST
from rankscope.strict_json import (
    Choice,
    Either,
    Flag,
    Integer,
    ListOf,
    Object,
    Optional,
    Reader,
    read_as,
    shown,
)

if TYPE_CHECKING:
    from rankscope.rank.networks.network import PolynomialNetwork

# The parts of a homogeneous output are told apart by one evaluation for each degree in one side;
# attention has every other one.
_MAX_PARTS = 2**12
_LISTED_EDGES = re.compile(r"[0-9]+,[0-9]+(;[0-9]+,[0-9]+)*")


@dataclass(frozen=True)
class Edges(Reader[tuple[tuple[int, ...], ...]]):
    """A list of edges; as text, the path of a file of them will do."""

    listed: Reader[tuple[tuple[int, ...], ...]]

    def read(self, data: Any) -> tuple[tuple[int, ...], ...]:
        return self.listed.read(data)

    def __str__(self) -> str:
        return str(self.listed)


@dataclass(frozen=True)
class Entry:
    """A family's class, and what its settings may be.

    Args:
        module: that defines the class.
        name: of the class.
        settings: its arguments, each with what it may be in a stranger's file.
        example: settings of a picture for which nobody chose any.
        max_degree: of the output in its inputs, in a stranger's file.
    """

    module: str
    name: str
    settings: Mapping[str, Reader[Any]]
    example: Mapping[str, Any] = field(default_factory=dict)
    max_degree: int | None = None

    def network_class(self) -> "type[PolynomialNetwork]":
        """The class, imported when it is first needed."""
        network_class: type[PolynomialNetwork] = getattr(import_module(self.module), self.name)
        return network_class

    @property
    def options(self) -> dict[str, str]:
        """The settings that can be written as text, by the words that write them."""
        return {option_word(name): name for name in self.settings if name in DESCRIPTIONS}

    def required(self) -> list[str]:
        """The words of the settings that have no default."""
        arguments = inspect.signature(self.network_class()).parameters
        return [
            word
            for word, name in self.options.items()
            if arguments[name].default is inspect.Parameter.empty
        ]


# What a setting means, as the help of its option says it; one without a line here has no option.
DESCRIPTIONS = {
    "depth": "Layers.",
    "width": "Size of a token vector.",
    "heads": "Attention heads per layer (1).",
    "head_size": "Size of a head (width / heads).",
    "num_tokens": "Input tokens (attention: 2 x width).",
    "embedding_rank": "Rank of the map that makes token vectors (width).",
    "degree": "Degree of a layer (attention: 3).",
    "output_position": "Token whose output is split (0; the last one if it sees the past only).",
    "has_positions": "Learned positions are added to the tokens.",
    "num_kv_heads": "Heads with keys and values of their own; the others share them (heads).",
    "latent": "Size of the vector that keys and values are read from (the token itself).",
    "query_latent": "Size of the vector that queries are read from (the token itself).",
    "is_causal": "Tokens attend to themselves and earlier ones only.",
    "has_rotary": "Queries and keys are turned by rational angles times their position.",
    "has_residual": "Every layer is added to what it reads.",
    "gated": "Inner size of a gated feed-forward part after attention (none).",
    "kind": "decay, diagonal, dense, selective or delta.",
    "state": "Size of a head's keys (decay, delta) or state vector (width / heads).",
    "has_input_rate": "The rate of the delta rule is linear in the token, not constant.",
    "order": "Number of inputs.",
    "size": "Size of an input vector.",
    "bond": "Bond dimension; one for each bond if they differ.",
    "has_equal_cores": "All inner cores are one.",
    "channels": "Channels; one for each pooling level.",
    "window": "Tokens pooled together (2).",
    "num_templates": "Templates, the size of a representation.",
    "is_shared": "Weights are shared across positions.",
    "num_inputs": "Number of scalar inputs.",
    "degrees": "Degree of each layer.",
    "raised": "Channels of each layer that are raised to its degree (all).",
    "input_size": "Size of an input token.",
    "token_hidden": "Hidden channels of a mixer between tokens.",
    "channel_hidden": "Hidden channels of a mixer between channels.",
    "terms": "Exponents of each monomial.",
    "edges": "File with two vertices on each line, or a list like 0,1;1,2.",
    "num_vertices": "Vertices (the largest one in the edges + 1).",
    "vertex": "Vertex whose output is split (the product over all).",
}

_WIDTH = Integer(1, 64)
_ORDER = Integer(2, 256)
_DEPTH = Integer(1, 16)
_CHANNELS = Integer(1, 256)
_POOLING = ListOf(ListOf(ListOf(Integer(0, 255), 256), 256), 16)

CATALOGUE: Mapping[str, Entry] = {
    "attention": Entry(
        "rankscope.rank.networks.self_attention",
        "SelfAttention",
        {
            "depth": _DEPTH,
            "width": _WIDTH,
            "heads": _WIDTH,
            "head_size": Optional(_WIDTH),
            "num_tokens": Optional(_ORDER),
            "embedding_rank": Optional(_WIDTH),
            "degree": Integer(1, 99),
            "output_position": Integer(0, 255),
            "has_positions": Flag(),
        },
        example={"depth": 2, "width": 4},
        max_degree=2 * _MAX_PARTS,
    ),
    "tensor-train": Entry(
        "rankscope.rank.networks.tensor_train",
        "TensorTrain",
        {
            "order": _ORDER,
            "size": _WIDTH,
            "bond": Either(_WIDTH, ListOf(_WIDTH, 255)),
            "has_equal_cores": Flag(),
        },
        example={"order": 5, "size": 2, "bond": 2},
    ),
    "shallow": Entry(
        "rankscope.rank.networks.convolutional",
        "Shallow",
        {"order": _ORDER, "size": _WIDTH, "channels": Integer(1, 4096)},
        example={"order": 4, "size": 2, "channels": 3},
    ),
    "convolutional": Entry(
        "rankscope.rank.networks.convolutional",
        "ConvolutionalCircuit",
        {
            "num_tokens": _ORDER,
            "window": _ORDER,
            "num_templates": _WIDTH,
            "channels": ListOf(_CHANNELS, 16),
            "is_shared": Flag(),
            "pooling": Optional(_POOLING),
        },
        example={"num_tokens": 8, "num_templates": 2, "channels": (2, 2, 2)},
    ),
    "recurrent": Entry(
        "rankscope.rank.networks.recurrent",
        "RecurrentCircuit",
        {
            "num_tokens": Integer(2, 64),
            "num_templates": _WIDTH,
            "channels": _CHANNELS,
            "depth": _DEPTH,
            "on_templates": Flag(),
        },
        example={"num_tokens": 4, "num_templates": 2, "channels": 2},
    ),
    "polynomial": Entry(
        "rankscope.rank.networks.products",
        "ProductNetwork",
        {
            "num_inputs": _ORDER,
            "degree": Integer(1, 16),
            "depth": _DEPTH,
            "width": Optional(_CHANNELS),
        },
        example={"num_inputs": 4, "degree": 2, "depth": 2},
        max_degree=_MAX_PARTS,
    ),
    "mixed-polynomial": Entry(
        "rankscope.rank.networks.degree",
        "DegreePolynomial",
        {
            "num_inputs": _ORDER,
            "width": _CHANNELS,
            "degrees": ListOf(Integer(1, 16), 16),
            "raised": ListOf(Integer(0, 255), 16),
        },
        example={"num_inputs": 4, "width": 3, "degrees": (2, 2)},
        max_degree=_MAX_PARTS,
    ),
    "mixer": Entry(
        "rankscope.rank.networks.mixer",
        "PolynomialMixer",
        {
            "num_tokens": _ORDER,
            "input_size": _WIDTH,
            "width": _CHANNELS,
            "token_hidden": _CHANNELS,
            "channel_hidden": _CHANNELS,
            "depth": _DEPTH,
            "degree": Integer(1, 16),
        },
        example={
            "num_tokens": 3,
            "input_size": 2,
            "width": 2,
            "token_hidden": 2,
            "channel_hidden": 3,
            "depth": 1,
        },
        max_degree=_MAX_PARTS,
    ),
    "polynomial-transformer": Entry(
        "rankscope.rank.networks.polynomial_transformer",
        "PolynomialTransformer",
        {
            "depth": _DEPTH,
            "width": _WIDTH,
            "heads": _WIDTH,
            "head_size": _WIDTH,
            "num_kv_heads": _WIDTH,
            "latent": Optional(_WIDTH),
            "query_latent": Optional(_WIDTH),
            "is_causal": Flag(),
            "has_rotary": Flag(),
            "has_positions": Flag(),
            "has_residual": Flag(),
            "gated": Optional(_CHANNELS),
            "num_tokens": _ORDER,
            "output_position": Integer(0, 255),
        },
        example={"depth": 2, "width": 4, "heads": 2, "num_kv_heads": 1, "is_causal": True},
        max_degree=2 * _MAX_PARTS,
    ),
    "recurrence": Entry(
        "rankscope.rank.networks.recurrence",
        "Recurrence",
        {
            "kind": Choice(("decay", "diagonal", "dense", "selective", "delta")),
            "depth": _DEPTH,
            "width": _WIDTH,
            "state": Integer(1, 48),
            "heads": _WIDTH,
            "has_input_rate": Flag(),
            "num_tokens": _ORDER,
            "output_position": Integer(0, 255),
        },
        example={"kind": "decay", "depth": 1, "width": 2, "num_tokens": 3},
        max_degree=2 * _MAX_PARTS,
    ),
    "graph": Entry(
        "rankscope.rank.networks.message_passing",
        "MessagePassing",
        {
            "edges": Edges(ListOf(ListOf(Integer(0, 1023), 2), 4096)),
            "depth": _DEPTH,
            "width": _WIDTH,
            "num_vertices": Integer(2, 1024),
            "vertex": Optional(Integer(0, 1023)),
        },
        example={"edges": ((0, 1), (1, 2), (2, 3)), "depth": 2, "width": 2, "vertex": 0},
    ),
    "sparse-polynomial": Entry(
        "rankscope.rank.networks.products",
        "SparsePolynomial",
        {"terms": ListOf(ListOf(Integer(0, 4096), 64), 4096)},
        example={"terms": ((1, 0, 2), (0, 1, 1))},
    ),
}


def build(family: str, settings: Mapping[str, Any]) -> "PolynomialNetwork":
    """Build the network that has exactly these settings.

    Example:
        >>> build("shallow", {"order": 3, "size": 2, "channels": 4}).num_positions
        3

    Raises:
        FamilyError: if the family is unknown, or the settings are not all and only its own,
            each in its range.
        SizeError: if the settings contradict each other.
    """
    if family not in CATALOGUE:
        known = ", ".join(CATALOGUE)
        raise FamilyError(f"There is no family {shown(family)}; there are {known}.")
    entry = CATALOGUE[family]
    chosen = read_as(Object(entry.settings), dict(settings), who=family, error=FamilyError)
    network = entry.network_class()(**chosen)
    if entry.max_degree is not None and network.input_degree > entry.max_degree:
        raise FamilyError(
            f"{family}: the output may have degree {entry.max_degree} at most, "
            f"got {network.input_degree}. Use fewer or smaller layers."
        )
    if network.settings != chosen:
        raise FamilyError(
            f"{family}: wanted the settings in full, {network.settings}, got {chosen}."
        )
    return network


@dataclass(frozen=True)
class Option:
    """A setting as text writes it, for all networks that have one of that name.

    Args:
        word: `tokens` for the setting `num_tokens`.
        description: in a sentence.
        is_flag: whether it is only there, or not.
        levels: 0 for numbers, 1 for lists of them (3,3,3), 2 for lists of lists (1,0,2;0,1,1).
        words: the words that it takes instead of numbers, if any.
    """

    word: str
    description: str
    is_flag: bool
    levels: int
    words: tuple[str, ...] = ()

    @property
    def wanted(self) -> str:
        """Values that it takes, by example."""
        if self.is_flag:
            return "true or false"
        if self.words:
            return f"one of {', '.join(self.words)}"
        return ("a number like 3", "3 or 3,3,3", "lists like 1,0,2;0,1,1")[self.levels]


@cache
def known_options() -> Mapping[str, Option]:
    """Every option of every network, by its word."""
    options: dict[str, Option] = {}
    for entry in CATALOGUE.values():
        for word, name in entry.options.items():
            kind = entry.settings[name]
            levels = max(_levels(kind), options[word].levels if word in options else 0)
            words = kind.options if isinstance(kind, Choice) else ()
            is_flag = isinstance(kind, Flag)
            options[word] = Option(word, DESCRIPTIONS[name], is_flag, levels, words)
    return options


def option_word(setting: str) -> str:
    """The word that writes a setting.

    Example:
        >>> option_word("num_tokens"), option_word("head_size")
        ('tokens', 'head-size')
    """
    for start in ("num_", "has_", "is_"):
        setting = setting.removeprefix(start)
    return setting.replace("_", "-")


def read_settings(family: str, given: Mapping[str, str | int], *, mark: str = "") -> dict[str, Any]:
    """The arguments of a network's class, from options as text or numbers.

    Args:
        family: name of the network.
        given: values by their words; those of other networks are refused.
        mark: what stands before a word in messages, such as "--".

    Example:
        >>> read_settings("convolutional", {"tokens": 8, "templates": "2", "channels": "3,2,2"})
        {'num_tokens': 8, 'num_templates': 2, 'channels': (3, 2, 2)}

    Raises:
        RequestError: if a word is not one of the network's, one is missing, or a value is none.
    """
    entry = CATALOGUE[family]
    takes = ", ".join(f"{mark}{word}" for word in entry.options)
    for word in given:
        if word not in entry.options:
            raise RequestError(f"{mark}{word} does not apply to {family}, which takes {takes}.")
    missing = [f"{mark}{word}" for word in entry.required() if word not in given]
    if missing:
        raise RequestError(f"{family} needs {' and '.join(missing)}; it takes {takes}.")
    return {
        entry.options[word]: _read(
            f"{mark}{word}", family, entry.settings[entry.options[word]], value
        )
        for word, value in given.items()
    }


# What a network may be built with by a command. An array has at most three of the sizes that are
# not named here, so its entries are counted in 64 bits; every layer and every core is an object.
_LARGEST = {"depth": DEEPEST, "num_tokens": 2**20, "num_inputs": 2**20, "order": 2**14}
_LARGEST_SIZE = 10**6
_MOST_ARRAYS = 10**5


def require_buildable(
    who: str, family: str, settings: Mapping[str, Any], *, mark: str = ""
) -> None:
    """Refuse settings that would take minutes or gigabytes only to build the network.

    Example:
        >>> require_buildable("bounds", "attention", {"depth": 96, "width": 12288}, mark="--")

    Raises:
        BudgetError: if one does; the message says what fits.
    """
    for name, value in settings.items():
        word = f"{mark}{option_word(name)}"
        limit = _LARGEST.get(name, _LARGEST_SIZE)
        if isinstance(value, tuple):
            require_within(f"{who} {family}", f"the length of {word}", len(value), DEEPEST)
        for number in _numbers(value):
            require_within(f"{who} {family}", word, number, limit)
    degree = settings.get("degree", 1)
    arrays = {
        f"{mark}depth times {mark}degree": settings.get("depth", 1) * degree,
        f"ten times the sum of {mark}degrees": 10 * sum(settings.get("degrees", ())),
    }
    for what, count in arrays.items():
        require_within(f"{who} {family}", what, count, _MOST_ARRAYS)


def _numbers(value: Any) -> Iterator[int]:
    if isinstance(value, tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value


def _read(word: str, family: str, kind: Reader[Any], value: str | int) -> Any:
    option = known_options()[word.lstrip("-")]
    if option.is_flag or option.words:
        written = str(value).lower() if option.is_flag else value
        if written not in (option.words or ("true", "false")):
            raise RequestError(f"{word} takes {option.wanted}, got {value!r}.")
        return written == "true" if option.is_flag else written
    if isinstance(kind, Edges) and not _LISTED_EDGES.fullmatch(str(value)):
        from rankscope.rank.graphs import read_numbered_edges

        return read_numbered_edges(str(value))
    try:
        rows = [tuple(int(part) for part in row.split(",")) for row in str(value).split(";")]
    except ValueError as error:
        raise RequestError(f"{word} takes {option.wanted}, got {value!r}.") from error
    lowest = 0 if _lowest(kind) == 0 else 1
    if min(number for row in rows for number in row) < lowest:
        wanted = "a positive number" if lowest else "0 or more"
        raise RequestError(f"{word} must be {wanted}, got {value}.")
    is_single = len(rows) == 1 and len(rows[0]) == 1
    if _levels(kind) == 2:
        return tuple(rows)
    if len(rows) > 1 or (_levels(kind) == 0 and not is_single):
        raise RequestError(f"{word} of {family} is one number, got {value!r}.")
    return rows[0][0] if (is_single and kind.fits(rows[0][0])) or _levels(kind) == 0 else rows[0]


def _levels(kind: Reader[Any]) -> int:
    if isinstance(kind, Edges):
        return _levels(kind.listed)
    if isinstance(kind, Optional):
        return _levels(kind.something)
    if isinstance(kind, Either):
        return max(_levels(kind.first), _levels(kind.second))
    return 1 + _levels(kind.item) if isinstance(kind, ListOf) else 0


def _lowest(kind: Reader[Any]) -> int:
    if isinstance(kind, Either):
        return min(_lowest(kind.first), _lowest(kind.second))
    inner = kind.something if isinstance(kind, Optional) else kind
    inner = inner.listed if isinstance(inner, Edges) else inner
    if isinstance(inner, ListOf):
        return _lowest(inner.item)
    return inner.low or 0 if isinstance(inner, Integer) else 0
