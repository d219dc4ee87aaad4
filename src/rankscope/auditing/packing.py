"""Tensors as models store them: parts of packed projections, heads and their products."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.spectra import Spectrum, Triangle

# --- Matrices that are stored as one: which rows of a fused weight belong to which part -----------


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
    match = _RECURRENT.search(name)
    if match is None:
        return None
    # Columns of the recurrent weight count the units, unless a projection stands between.
    start, rest = name[: match.start()], match["rest"]
    units = shapes.get(f"{start}weight_hr{rest}") or shapes.get(f"{start}weight_hh{rest}")
    if units is None or units[-1] == 0 or shapes[name][0] % units[-1]:
        return None
    names = _GATES.get(shapes[name][0] // units[-1])
    return None if names is None else Packing(tuple((gate, units[-1]) for gate in names))


# --- What every attention head does to tokens: query-key and output-value products ----------------


_ROLES = {
    "query": {"query", "q", "q_proj", "q_lin", "wq", "to_q", "query_proj"},
    "key": {"key", "k", "k_proj", "k_lin", "wk", "to_k", "key_proj"},
    "value": {"value", "v", "v_proj", "v_lin", "wv", "to_v", "value_proj"},
    "output": {"o", "o_proj", "out_proj", "out_lin", "c_proj", "wo", "to_out", "dense", "proj"},
}
_ROLE_OF = {leaf: role for role, leaves in _ROLES.items() for leaf in leaves}
_ATTENTION = re.compile(r"attn|attention", re.IGNORECASE)


@dataclass(frozen=True)
class Piece:
    """Where the weight of a role stands: the whole of a tensor, or a part of one."""

    name: str
    role: str
    packing: Packing | None = None
    transposed: bool = False

    def take(self, tensor: Tensor) -> Tensor:
        """The weight as (outputs, inputs)."""
        if self.packing is not None:
            part: Tensor = self.packing.unpack(tensor)[self.role]
            return part
        return tensor.mT if self.transposed else tensor


@dataclass(frozen=True)
class AttentionBlock:
    """The four weights of one attention, and its heads."""

    query: Piece
    key: Piece
    value: Piece
    output: Piece
    heads: int
    key_value_heads: int

    def factors(self, name: str) -> tuple[str, ...]:
        """Names of the tensors that `spectra` will read for this one."""
        pairs = ((self.query, self.key), (self.output, self.value))
        return tuple(piece.name for pair in pairs if pair[0].name == name for piece in pair)

    def spectra(self, name: str, read: Callable[[str], Tensor]) -> Iterator[tuple[str, Spectrum]]:
        """Products shown with a tensor: query-key with the query's, output-value with the output's.

        Args:
            name: of the tensor.
            read: gives a tensor by its name.
        """
        if name == self.query.name:
            query, key = (piece.take(read(piece.name)) for piece in (self.query, self.key))
            yield from self._products("query-key", query.mT, key)
        if name == self.output.name:
            output, value = (piece.take(read(piece.name)) for piece in (self.output, self.value))
            yield from self._products("output-value", output, value)

    def _products(self, what: str, outer: Tensor, inner: Tensor) -> Iterator[tuple[str, Spectrum]]:
        """Columns of `outer` belong to heads, rows of `inner` to heads or groups of them."""
        shared = self.heads // self.key_value_heads
        columns = outer.chunk(self.heads, dim=1)
        for group, rows in enumerate(inner.chunk(self.key_value_heads, dim=0)):
            right = Triangle.of(rows.mT)
            for head in range(group * shared, (group + 1) * shared):
                yield f"head {head}: {what}", Triangle.of(columns[head]).times(right)


def attention_blocks(
    shapes: Shapes, configuration: Configuration | None
) -> dict[str, AttentionBlock]:
    """Attention blocks by the names of the tensors that show their products.

    Only blocks whose four weights are found and have the shapes that the configuration says; none
    without a configuration, since no weight tells the number of heads.
    """
    if configuration is None:
        return {}
    roles_of_blocks: dict[str, dict[str, Piece]] = {}
    for name in shapes:
        for piece in _pieces(name, shapes, configuration):
            roles_of_blocks.setdefault(_block_name(name), {})[piece.role] = piece
    blocks = {}
    for pieces in roles_of_blocks.values():
        block = _block(pieces, shapes, configuration)
        if block is not None:
            blocks[block.query.name] = blocks[block.output.name] = block
    return blocks


def _pieces(name: str, shapes: Shapes, configuration: Configuration) -> Iterator[Piece]:
    if len(shapes[name]) != 2:
        return
    packing = packing_of(name, shapes, configuration)
    if packing is not None:
        yield from (Piece(name, role, packing) for role, _ in packing.parts if role in _ROLES)
    elif leaf_of(name) in _ROLE_OF and _ATTENTION.search(name):
        yield Piece(name, _ROLE_OF[leaf_of(name)])


def _block_name(name: str) -> str:
    """Everything up to the word attention; BERT and GPT-Neo nest what belongs together."""
    words = name.split(".")
    places = [place for place, word in enumerate(words) if _ATTENTION.search(word)]
    own = [place for place in places if not words[place].lower().startswith("c_attn")]
    if not own:
        return ".".join(words[:-1])
    last = own[-1]
    while last - 1 in own:
        last -= 1
    return ".".join(words[: last + 1])


def _block(
    pieces: dict[str, Piece], shapes: Shapes, configuration: Configuration
) -> AttentionBlock | None:
    if set(pieces) != set(_ROLES):
        return None
    packing = pieces["query"].packing
    if packing is not None and packing.transposed:
        output = pieces["output"]
        pieces = {**pieces, "output": Piece(output.name, output.role, transposed=True)}
    heads, keys, size = (
        configuration.heads,
        configuration.key_value_heads,
        configuration.head_size,
    )
    if heads % keys or not all(
        _outputs(pieces[role], shapes) == count * size
        for role, count in (("query", heads), ("key", keys), ("value", keys))
    ):
        return None
    output = pieces["output"]
    if shapes[output.name][0 if output.transposed else 1] != heads * size:
        return None
    return AttentionBlock(**pieces, heads=heads, key_value_heads=keys)


def _outputs(piece: Piece, shapes: Shapes) -> int:
    if piece.packing is None:
        return shapes[piece.name][0]
    return dict(piece.packing.parts)[piece.role] * piece.packing.groups
