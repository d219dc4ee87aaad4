"""Matrices that are stored as one: which rows of a fused weight belong to which part.

No torch at import: what is fused is told by names and shapes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rankscope.auditing.configuration import Configuration

Shapes = Mapping[str, tuple[int, ...]]

# Queries, then keys, then values.
_IN_ORDER = {"in_proj", "c_attn", "W_pack", "Wqkv", "qkv_proj", "qkv", "to_qkv"}
# For every head, or group of heads with the same keys: its queries, its key, its value.
_BY_GROUP = {"query_key_value", "wqkv"}
_GATE_AND_UP = {"gate_up_proj"}
_RECURRENT = re.compile(r"weight_(?:ih|hh)(?P<rest>(?:_l\d+(?:_reverse)?)?)$")
_GATES = {
    4: ("input gate", "forget gate", "cell gate", "output gate"),
    3: ("reset gate", "update gate", "new gate"),
}


@dataclass(frozen=True)
class Packing:
    """Rows of a matrix: `groups` times the same parts, each of so many rows.

    Args:
        parts: name and number of rows in one group.
        groups: how often they are repeated.
        transposed: if the tensor holds the matrix with its rows as columns.

    Example:
        >>> import torch
        >>> packing = Packing((("query", 1), ("key", 1)), groups=2)
        >>> packing.unpack(torch.tensor([[1.0], [2.0], [3.0], [4.0]]))["key"].tolist()
        [[2.0], [4.0]]
    """

    parts: tuple[tuple[str, int], ...]
    groups: int = 1
    transposed: bool = False

    def unpack(self, tensor: Any) -> dict[str, Any]:
        """The parts of a `torch.Tensor`, each (rows, columns), in their order."""
        matrix = tensor.mT if self.transposed else tensor
        grouped = matrix.unflatten(0, (self.groups, -1))
        pieces = grouped.split([rows for _, rows in self.parts], dim=1)
        names = [name for name, _ in self.parts]
        return {name: piece.flatten(0, 1) for name, piece in zip(names, pieces, strict=True)}


def leaf_of(name: str) -> str:
    """The word that says what a weight does.

    Example:
        >>> leaf_of("h.0.attn.c_attn.weight"), leaf_of("self_attn.in_proj_weight")
        ('c_attn', 'in_proj')
        >>> leaf_of("attn.to_out.0.weight")
        'to_out'
    """
    words = name.split(".")
    if len(words) > 1 and words[-1] == "weight":
        words.pop()
    if len(words) > 1 and words[-1].isdigit():
        words.pop()
    return words[-1].removesuffix("_weight")


def packing_of(name: str, shapes: Shapes, configuration: Configuration | None) -> Packing | None:
    """How a tensor is to be taken apart, or None if it is one matrix as far as can be told.

    Args:
        name: of the tensor.
        shapes: of all tensors of the model; gates are told by those beside them.
        configuration: numbers of heads; without it only equal thirds of queries, keys and values
            can be told, and nothing that is stored head by head.
    """
    shape = shapes[name]
    leaf = leaf_of(name)
    if len(shape) != 2:
        return None
    if leaf in _IN_ORDER or leaf in _BY_GROUP:
        return _queries_keys_values(leaf, shape, configuration)
    if leaf in _GATE_AND_UP and shape[0] % 2 == 0:
        return Packing((("gate", shape[0] // 2), ("up", shape[0] // 2)))
    return _gates(name, shapes)


def _queries_keys_values(
    leaf: str, shape: tuple[int, ...], configuration: Configuration | None
) -> Packing | None:
    # GPT-2 stores its maps as inputs x outputs.
    transposed = leaf == "c_attn" and shape[1] == 3 * shape[0]
    rows, columns = (shape[1], shape[0]) if transposed else shape
    if configuration is not None:
        size, keys = configuration.head_size, configuration.key_value_heads
        groups = _groups(leaf, configuration)
        if rows == (configuration.heads + 2 * keys) * size and keys % groups == 0:
            parts = (configuration.heads, keys, keys)
            named = zip(("query", "key", "value"), parts, strict=True)
            sizes = tuple((part, count * size // groups) for part, count in named)
            return Packing(sizes, groups, transposed)
    if leaf in _IN_ORDER and rows == 3 * columns:
        return Packing((("query", columns), ("key", columns), ("value", columns)), 1, transposed)
    return None


def _groups(leaf: str, configuration: Configuration) -> int:
    grouped = configuration.key_value_heads < configuration.heads
    in_order = leaf in _IN_ORDER or ("glm" in configuration.family and grouped)
    return 1 if in_order else configuration.key_value_heads


def _gates(name: str, shapes: Shapes) -> Packing | None:
    found = _RECURRENT.search(name)
    if found is None:
        return None
    # Columns of the recurrent weight count the units, unless a projection stands between.
    start, rest = name[: found.start()], found["rest"]
    units = shapes.get(f"{start}weight_hr{rest}") or shapes.get(f"{start}weight_hh{rest}")
    if units is None or units[-1] == 0 or shapes[name][0] % units[-1]:
        return None
    names = _GATES.get(shapes[name][0] // units[-1])
    return None if names is None else Packing(tuple((gate, units[-1]) for gate in names))
