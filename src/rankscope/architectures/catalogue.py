"""Networks by name and plain settings, as they stand in certificates.

Settings may come from a stranger's file: names, types and ranges are checked before anything is
built, and nothing is imported that is not in the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from rankscope.architectures.network import PolynomialNetwork
from rankscope.errors import FamilyError
from rankscope.strict_json import (
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

# The parts of a homogeneous output are told apart by one evaluation for each degree in one side;
# attention has every other one.
_MAX_PARTS = 2**12


@dataclass(frozen=True)
class Entry:
    """Where a family's class stands, what its settings may be, and the degree of its output."""

    module: str
    name: str
    settings: Mapping[str, Reader[Any]]
    max_degree: int | None = None

    def network_class(self) -> type[PolynomialNetwork]:
        """The class, imported when it is first needed."""
        found: type[PolynomialNetwork] = getattr(import_module(self.module), self.name)
        return found


_WIDTH = Integer(1, 64)
_ORDER = Integer(2, 256)
_DEPTH = Integer(1, 16)
_CHANNELS = Integer(1, 256)
_POOLING = ListOf(ListOf(ListOf(Integer(0, 255), 256), 256), 16)

CATALOGUE: Mapping[str, Entry] = {
    "attention": Entry(
        "rankscope.architectures.attention.self_attention",
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
        max_degree=2 * _MAX_PARTS,
    ),
    "tensor-train": Entry(
        "rankscope.architectures.tensor_train",
        "TensorTrain",
        {
            "order": _ORDER,
            "size": _WIDTH,
            "bond": Either(_WIDTH, ListOf(_WIDTH, 255)),
            "has_equal_cores": Flag(),
        },
    ),
    "shallow": Entry(
        "rankscope.architectures.shallow",
        "Shallow",
        {"order": _ORDER, "size": _WIDTH, "channels": Integer(1, 4096)},
    ),
    "convolutional": Entry(
        "rankscope.architectures.convolutional",
        "ConvolutionalCircuit",
        {
            "num_tokens": _ORDER,
            "window": _ORDER,
            "num_templates": _WIDTH,
            "channels": ListOf(_CHANNELS, 16),
            "is_shared": Flag(),
            "pooling": Optional(_POOLING),
        },
    ),
    "recurrent": Entry(
        "rankscope.architectures.recurrent",
        "RecurrentCircuit",
        {
            "num_tokens": Integer(2, 64),
            "num_templates": _WIDTH,
            "channels": _CHANNELS,
            "depth": _DEPTH,
            "on_templates": Flag(),
        },
    ),
    "polynomial": Entry(
        "rankscope.architectures.products",
        "ProductNetwork",
        {
            "num_inputs": _ORDER,
            "degree": Integer(1, 16),
            "depth": _DEPTH,
            "width": Optional(_CHANNELS),
        },
        max_degree=_MAX_PARTS,
    ),
    "mixed-polynomial": Entry(
        "rankscope.architectures.degree.degree_polynomial",
        "DegreePolynomial",
        {
            "num_inputs": _ORDER,
            "width": _CHANNELS,
            "degrees": ListOf(Integer(1, 16), 16),
            "raised": ListOf(Integer(0, 255), 16),
        },
        max_degree=_MAX_PARTS,
    ),
    "mixer": Entry(
        "rankscope.architectures.degree.polynomial_mixer",
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
        max_degree=_MAX_PARTS,
    ),
    "sparse-polynomial": Entry(
        "rankscope.architectures.sparse_polynomial",
        "SparsePolynomial",
        {"terms": ListOf(ListOf(Integer(0, 4096), 64), 4096)},
    ),
}


def build(family: str, settings: Mapping[str, Any]) -> PolynomialNetwork:
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
