r"""What every attention head does to tokens: query-key and output-value products.

A head compares tokens by :math:`x^\top (W_Q^h)^\top W_K^h y` and passes on :math:`W_O^h W_V^h y`.
Both matrices are as wide as the model but have only the rank of the head, so their singular values
come from a core of the head's size. Rotary positions turn the first between query and key; it is
seen at distance zero. Biases and scales are left out.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor

from rankscope.auditing.configuration import Configuration
from rankscope.auditing.packing import Packing, Shapes, leaf_of, packing_of
from rankscope.auditing.singular_values import Triangle
from rankscope.auditing.spectra import Spectrum

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
    found: dict[str, dict[str, Piece]] = {}
    for name in shapes:
        for piece in _pieces(name, shapes, configuration):
            found.setdefault(_block_name(name), {})[piece.role] = piece
    blocks = {}
    for pieces in found.values():
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
