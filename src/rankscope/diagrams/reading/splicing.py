"""Puts one diagram in the place of a node of another that reads its value."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Body, Sum, output_shape
from rankscope.diagrams.parts import Convolution, Index, Node, Region, Role
from rankscope.diagrams.reading.sketch import primed, unused

WORD = re.compile(r"[A-Za-z_]\w*")


def splice(outer: Diagram, node: Node, inner: Diagram) -> Diagram | None:
    """`outer` with `inner` in the place of `node`; None when the two cannot be one diagram.

    They can when the node's indices are the open legs of `inner`, perhaps cut more finely,
    every convolution keeps exactly one tensor on its input and one on its kernel, and no leg
    that ends at the node leaves a barrier of `inner`: it would be summed before the function.
    """
    fitted = cut_legs(inner, _sizes(outer, node))
    if fitted is None or len(set(node.indices)) < len(node.indices):
        return None
    slid = [leg for c in outer.convolutions for leg in (c.input, c.kernel)]
    inside = fitted.structure.legs
    behind = [leg for region in fitted.regions for leg in inside[region.name]]
    for leg, index in zip(fitted.output, node.indices, strict=True):
        if index in slid and len(fitted.structure.owners[leg]) != 1:
            return None
        ends_here = len(outer.structure.owners[index]) == 1 and index not in outer.output
        if ends_here and leg in behind:
            return None
    return _joined(outer, node, renamed(fitted, outer, node))


def _sizes(diagram: Diagram, node: Node) -> list[int]:
    sizes = [diagram.index_by_name[index].size for index in node.indices]
    return [size for size in sizes if size is not None]


def cut_legs(diagram: Diagram, wanted: Sequence[int]) -> Diagram | None:
    """The same diagram with open legs of the wanted sizes, or None if its legs cut across."""
    if output_shape(diagram) == tuple(wanted):
        return diagram
    rest = list(wanted)
    for leg, size in zip(diagram.output, output_shape(diagram), strict=True):
        parts: list[int] = []
        product = 1
        while rest and size is not None and (product < size or (rest[0] == 1 and not parts)):
            parts.append(rest.pop(0))
            product *= parts[-1]
        if product != size or not parts:
            return None
        cut = diagram if len(parts) == 1 else _cut_index(diagram, leg, parts)
        if cut is None:
            return None
        diagram = cut
    return None if rest else diagram


def _cut_index(diagram: Diagram, name: str, sizes: Sequence[int]) -> Diagram | None:
    """One index replaced by several, wherever it stands."""
    held_whole = [leg for c in diagram.convolutions for leg in c.indices]
    held_whole += [leg for region in diagram.regions for leg in region.causal or ()]
    held_whole += [node.indices[-1] for node in diagram.nodes if node.is_one_hot]
    if name in held_whole:
        return None
    old, taken = diagram.index_by_name[name], list(diagram.index_by_name)
    parts: list[Index] = []
    for size in sizes:
        parts.append(Index(unused(name, taken), size, kind=old.kind))
        taken.append(parts[-1].name)
    new = tuple(part.name for part in parts)

    def cut(indices: Iterable[str]) -> tuple[str, ...]:
        return tuple(part for index in indices for part in (new if index == name else (index,)))

    return replace(
        diagram,
        indices=tuple(
            part for index in diagram.indices for part in (parts if index is old else (index,))
        ),
        nodes=tuple(replace(node, indices=cut(node.indices)) for node in diagram.nodes),
        output=cut(diagram.output),
        regions=tuple(replace(region, over=cut(region.over)) for region in diagram.regions),
    )


def renamed(inner: Diagram, outer: Diagram, node: Node) -> Diagram:
    """`inner` with open legs called as the node that reads it, and all other names apart."""
    legs = dict(zip(inner.output, node.indices, strict=True))
    indices = _fresh_indices(inner, outer, legs)
    names = {old: index.name for old, index in indices.items()}
    words = names | {
        old.symbol: indices[old.name].symbol or indices[old.name].name
        for old in inner.indices
        if old.symbol is not None
    }
    taken = [part.name for part in (*outer.holders, *outer.regions) if part is not node]
    parts = _fresh_parts(inner, taken)
    return Diagram(
        inner.name,
        tuple(indices.values()),
        tuple(
            replace(
                node,
                name=parts[node.name],
                indices=_mapped(node.indices, names),
                label=node.tex,
                array=None if node.role is Role.CONSTANT else node.source,
                narrow_side=None if node.narrow_side is None else names[node.narrow_side],
            )
            for node in inner.nodes
        ),
        _mapped(inner.output, names),
        tuple(_renamed_convolution(c, parts, names) for c in inner.convolutions),
        tuple(_renamed_region(region, parts, names, words) for region in inner.regions),
    )


def _mapped(old: Iterable[str], names: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(names[name] for name in old)


def _renamed_convolution(
    convolution: Convolution, parts: Mapping[str, str], names: Mapping[str, str]
) -> Convolution:
    return replace(
        convolution,
        name=parts[convolution.name],
        input=names[convolution.input],
        kernel=names[convolution.kernel],
        output=names[convolution.output],
    )


def _renamed_region(
    region: Region, parts: Mapping[str, str], names: Mapping[str, str], words: Mapping[str, str]
) -> Region:
    scale = region.scale
    if scale is not None:
        scale = WORD.sub(lambda word: words.get(word.group(), word.group()), scale)
    causal = region.causal
    return replace(
        region,
        name=parts[region.name],
        members=_mapped(region.members, parts),
        over=_mapped(region.over, names),
        scale=scale,
        causal=None if causal is None else (names[causal[0]], names[causal[1]]),
    )


def _fresh_indices(inner: Diagram, outer: Diagram, legs: Mapping[str, str]) -> dict[str, Index]:
    """Inner indices by their old names; symbols that mean another size outside get a prime."""
    taken = list(outer.index_by_name)
    sizes = {index.symbol: index.size for index in outer.indices if index.symbol}
    found: dict[str, Index] = {}
    for index in inner.indices:
        if index.name in legs:
            found[index.name] = outer.index_by_name[legs[index.name]]
            continue
        name = index.name if index.name not in taken else unused(_stem(index.name), taken)
        taken.append(name)
        fresh = replace(with_symbol_apart(index, sizes), name=name)
        if fresh.symbol is not None:
            sizes[fresh.symbol] = fresh.size
        found[index.name] = fresh
    return found


def with_symbol_apart(index: Index, sizes: Mapping[str, int | None]) -> Index:
    """An index whose symbol is primed if it stands for another size already."""
    if index.symbol is None or sizes.get(index.symbol, index.size) == index.size:
        return index
    stem, primes = _stem(index.symbol), 1
    while sizes.get(f"{stem}{primes + 1}", index.size) != index.size:
        primes += 1
    return replace(index, symbol=f"{stem}{primes + 1}", label=primed(stem, primes))


def _fresh_parts(inner: Diagram, taken: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in (*inner.holders, *inner.regions):
        name = part.name
        found[name] = name if name not in taken else unused(_stem(name), taken)
        taken.append(found[name])
    return found


def _stem(name: str) -> str:
    return name.rstrip("0123456789") or name


def _joined(outer: Diagram, node: Node, inner: Diagram) -> Diagram:
    inside = inner.structure.members[None]
    nodes = [n for old in outer.nodes for n in (inner.nodes if old is node else (old,))]
    regions = tuple(
        replace(
            region,
            members=tuple(
                name for old in region.members for name in (inside if old == node.name else (old,))
            ),
        )
        for region in outer.regions
    )
    indices = {index.name: index for index in (*outer.indices, *inner.indices)}
    return replace(
        outer,
        indices=tuple(indices.values()),
        nodes=tuple(nodes),
        convolutions=(*inner.convolutions, *outer.convolutions),
        regions=(*inner.regions, *regions),
    )


def with_reads(
    body: Body,
    arrays: Mapping[str, str],
    parts: Mapping[tuple[str, tuple[int, int]], str] | None = None,
) -> Body:
    """A body whose data nodes read other arrays, or whole arrays in the place of some rows.

    Args:
        body: what to change.
        arrays: the new array for each old one.
        parts: the new array for each old one and its rows.
    """
    if isinstance(body, Sum):
        diagrams = [_read(term.diagram, arrays, parts or {}) for term in body.terms]
        terms = zip(body.terms, diagrams, strict=True)
        return replace(body, terms=tuple(replace(term, diagram=new) for term, new in terms))
    return _read(body, arrays, parts or {})


def _read(
    diagram: Diagram,
    arrays: Mapping[str, str],
    parts: Mapping[tuple[str, tuple[int, int]], str],
) -> Diagram:
    nodes = []
    for node in diagram.nodes:
        if node.role is Role.DATA and node.source in arrays:
            node = replace(node, array=arrays[node.source])
        elif node.role is Role.DATA and node.rows and (node.source, node.rows) in parts:
            node = replace(node, array=parts[(node.source, node.rows)], rows=None)
        nodes.append(node)
    changed = any(new is not old for new, old in zip(nodes, diagram.nodes, strict=True))
    return replace(diagram, nodes=tuple(nodes)) if changed else diagram


@dataclass(frozen=True)
class Bare:
    """A diagram that only puts the axes of one node into another order."""

    node: Node
    order: tuple[int, ...]


def bare(diagram: Diagram) -> Bare | None:
    """The node of a diagram that does nothing else, and the order of its legs."""
    if len(diagram.nodes) != 1 or diagram.convolutions or diagram.regions:
        return None
    node = diagram.nodes[0]
    if len(node.indices) != len(diagram.output) or node.is_one_hot:
        return None
    return Bare(node, tuple(node.indices.index(leg) for leg in diagram.output))
