"""Fewer, fuller steps: a value that is read once is drawn where it is read.

A step that is one diagram goes into the diagram that reads it, and stays one picture:
Linear-ReLU-Linear without biases becomes the picture of a perceptron. A step that is a sum goes
only into a term that does nothing but read it. A joint layer that is read in parts (queries, keys,
values) becomes one step for each part. The value of the network does not change.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import (
    Body,
    Box,
    Call,
    Network,
    Step,
    Sum,
    Term,
    diagrams_of,
    nodes_of,
    output_shape,
)
from rankscope.diagrams.parts import PARAMETER_ROLES, Convolution, Index, Node, Region, Role
from rankscope.reading.captions import PARTS, is_joint, marked, part_name
from rankscope.reading.drafting import primed, unused

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
    fresh_by_name: dict[str, Index] = {}
    for index in inner.indices:
        if index.name in legs:
            fresh_by_name[index.name] = outer.index_by_name[legs[index.name]]
            continue
        name = index.name if index.name not in taken else unused(_stem(index.name), taken)
        taken.append(name)
        fresh = replace(with_symbol_apart(index, sizes), name=name)
        if fresh.symbol is not None:
            sizes[fresh.symbol] = fresh.size
        fresh_by_name[index.name] = fresh
    return fresh_by_name


def with_symbol_apart(index: Index, sizes: Mapping[str, int | None]) -> Index:
    """An index whose symbol is primed if it stands for another size already."""
    if index.symbol is None or sizes.get(index.symbol, index.size) == index.size:
        return index
    stem, primes = _stem(index.symbol), 1
    while sizes.get(f"{stem}{primes + 1}", index.size) != index.size:
        primes += 1
    return replace(index, symbol=f"{stem}{primes + 1}", label=primed(stem, primes))


def _fresh_parts(inner: Diagram, taken: list[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for part in (*inner.holders, *inner.regions):
        name = part.name
        names[name] = name if name not in taken else unused(_stem(name), taken)
        taken.append(names[name])
    return names


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
    if isinstance(body, Call):
        return replace(body, diagram=_read(body.diagram, arrays, parts or {}))
    if isinstance(body, Box):
        return body  # Nothing is renamed after modules have become boxes.
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


def inline(network: Network, *, max_nodes: int = 12) -> Network:
    """Put every step that is read exactly once into its reader, where that is possible.

    Args:
        network: what to simplify.
        max_nodes: no diagram grows beyond this many nodes, so that it stays readable.

    Example:
        >>> from rankscope.diagrams.parts import Index
        >>> def layer(number: int) -> Step:
        ...     nodes = (
        ...         Node("X", ("i",), Role.DATA, array=f"x{number}"),
        ...         Node("W", ("i", "j"), array=f"w{number}"),
        ...     )
        ...     indices = (Index("i", 4), Index("j", 4))
        ...     return Step(f"x{number + 1}", Diagram("layer", indices, nodes, ("j",)))
        >>> [step.name for step in inline(Network("deep", (layer(0), layer(1)))).steps]
        ['x2']
    """
    return _Inlining(network, max_nodes).run()


class _Inlining:
    """The steps by name, and who reads what; a step that moves takes its reads along."""

    def __init__(self, network: Network, max_nodes: int) -> None:
        self.network, self.max_nodes = network, max_nodes
        self.steps: dict[str, Step] = {step.name: step for step in network.steps}
        # Moving a step moves its reads but makes none, so they are counted once.
        self.times_read = Counter(network.results)
        self.readers: dict[str, set[str]] = {}
        for step in network.steps:
            for source in _sources(step.body):
                self.times_read[source] += 1
                self.readers.setdefault(source, set()).add(step.name)
        # What comes out keeps its name.
        self.kept = set(network.results)

    def run(self) -> Network:
        for name in [step.name for step in self.network.steps]:
            step = self.steps.get(name)
            if step is not None:
                self._move(step)
        return replace(self.network, steps=tuple(self.steps.values()))

    def _move(self, source: Step) -> None:
        if self.times_read[source.name] != 1 or source.name in self.kept:
            return
        (reader_name,) = self.readers[source.name]
        reader = self.steps[reader_name]
        if not isinstance(reader.body, Diagram | Sum) or not isinstance(source.body, Diagram | Sum):
            return
        node = next(
            node
            for node in nodes_of(reader.body)
            if node.source == source.name and node.role is Role.DATA
        )
        body = _inlined(reader.body, node, source.body, self.max_nodes)
        if body is None:
            return
        del self.steps[source.name]
        for read in _sources(source.body):
            self.readers[read].discard(source.name)
            self.readers[read].add(reader_name)
        self.steps[reader_name] = replace(reader, body=body)
        is_reordered = isinstance(reader.body, Diagram) and bare(reader.body) is not None
        if is_reordered and reader_name not in self.kept:
            self._rename(reader_name, source)

    def _rename(self, old: str, source: Step) -> None:
        """A reader that only reordered a step takes its name."""
        new = source.name
        made = replace(self.steps[old], name=new, label=source.label)
        self.steps = {
            (new if name == old else name): (made if name == old else step)
            for name, step in self.steps.items()
        }
        for read in _sources(made.body):
            self.readers[read].discard(old)
            self.readers[read].add(new)
        self.readers[new] = self.readers.pop(old, set())
        self.times_read[new] = self.times_read.pop(old, 0)
        for name in self.readers[new]:
            reader = self.steps[name]
            self.steps[name] = replace(reader, body=with_reads(reader.body, {old: new}))
        self._move(made)


def _sources(body: Body) -> list[str]:
    """Arrays of data that a body reads, one for each read."""
    return [node.source for node in nodes_of(body) if node.role is Role.DATA]


def _inlined(
    reader: Diagram | Sum, node: Node, source: Diagram | Sum, max_nodes: int
) -> Diagram | Sum | None:
    if isinstance(reader, Diagram):
        inlined = _term_inlined(Term(reader), node, source, max_nodes)
        if inlined is None:
            return None
        alone = len(inlined) == 1 and inlined[0].coefficient == 1.0
        return inlined[0].diagram if alone else Sum(reader.name, inlined, reader.title)
    terms: list[Term] = []
    for term in reader.terms:
        # The node is compared by identity: another term may have an equal one.
        holds = any(candidate is node for candidate in term.diagram.nodes)
        inlined = _term_inlined(term, node, source, max_nodes) if holds else (term,)
        if inlined is None:
            return None
        terms.extend(inlined)
    return replace(reader, terms=tuple(terms))


def _term_inlined(
    term: Term, node: Node, source: Diagram | Sum, max_nodes: int
) -> tuple[Term, ...] | None:
    if isinstance(source, Sum):
        return _terms_inlined(term, source)
    if len(term.diagram.nodes) + len(source.nodes) - 1 > max_nodes:
        return None
    spliced = splice(term.diagram, node, source)
    return None if spliced is None else (replace(term, diagram=spliced),)


def _terms_inlined(term: Term, source: Sum) -> tuple[Term, ...] | None:
    reader = bare(term.diagram)
    if reader is None:
        return None
    terms = []
    for part in source.terms:
        diagram = _reordered(part.diagram, term.diagram, reader)
        if diagram is None:
            return None
        terms.append(Term(diagram, part.coefficient * term.coefficient))
    return tuple(terms)


def _reordered(diagram: Diagram, reader: Diagram, only: Bare) -> Diagram | None:
    """A term of a sum, with its legs cut and ordered as a bare reader has them."""
    sizes = [reader.index_by_name[index].size for index in only.node.indices]
    cut = cut_legs(diagram, [size for size in sizes if size is not None])
    if cut is None:
        return None
    named = renamed(cut, reader, only.node)
    return replace(named, output=reader.output)


Rows = tuple[int, int]


@dataclass(frozen=True)
class Part:
    """Some rows of a step, and the step that computes them alone."""

    rows: Rows
    step: Step


def split_rows(network: Network, num_rows: Mapping[str, int]) -> Network:
    """Replace every step that is read in parts by the parts, where that is possible.

    Args:
        network: what to change.
        num_rows: length of the first axis of each parameter array.
    """
    spans: dict[str, list[Rows | None]] = {}
    for node in nodes_of(network):
        if node.role is Role.DATA:
            spans.setdefault(node.source, []).append(node.rows)
    for name in network.results:
        spans.setdefault(name, []).append(None)
    taken = {*(name for step in network.steps for name in step.arrays), *spans, *network.inputs}
    steps: list[Step] = []
    names: dict[tuple[str, Rows], str] = {}
    for step in network.steps:
        read = replace(step, body=with_reads(step.body, {}, names))
        wanted = spans.get(step.name, [None])
        some = sorted({rows for rows in wanted if rows is not None})
        is_whole = None in wanted or not isinstance(step.body, Diagram | Sum)
        parts = [] if is_whole else _parts(read, some, num_rows, taken)
        steps += [part.step for part in parts] or [read]
        names |= {(step.name, part.rows): part.step.name for part in parts}
    return replace(network, steps=tuple(steps))


def _parts(
    step: Step, spans: Sequence[Rows], num_rows: Mapping[str, int], taken: Collection[str]
) -> list[Part]:
    weights = [node.source for node in nodes_of(step.body) if node.role in PARAMETER_ROLES]
    has_roles = len(spans) == len(PARTS) and all(is_joint(weight) for weight in weights)
    names = [*PARTS] if has_roles else [f"part{n + 1}" for n in range(len(spans))]
    marks = [*PARTS.values()] if has_roles else [f"({n + 1})" for n in range(len(spans))]
    parts = []
    for span, mark, name in zip(spans, marks, names, strict=True):
        body = _narrowed(step.body, span, num_rows, mark)
        if body is None:
            return []
        label = rf"\mathbf{{{mark}}}" if has_roles else None
        wanted = part_name(step.name, name) if has_roles else f"{step.name}.{name}"
        parts.append(Part(span, Step(unused(wanted, taken), body, label)))
    return parts


def _narrowed(body: Body, span: Rows, num_rows: Mapping[str, int], mark: str) -> Body | None:
    diagrams = []
    for diagram in diagrams_of(body):
        narrowed = _narrowed_diagram(diagram, span, num_rows, mark)
        if narrowed is None:
            return None
        diagrams.append(narrowed)
    if not isinstance(body, Sum):
        return diagrams[0]
    terms = zip(body.terms, diagrams, strict=True)
    return replace(body, terms=tuple(replace(term, diagram=narrowed) for term, narrowed in terms))


def _narrowed_diagram(
    diagram: Diagram, span: Rows, num_rows: Mapping[str, int], mark: str
) -> Diagram | None:
    """The diagram with some rows of its first open leg, or None if they are not parameters'."""
    leg = diagram.output[0]
    size = diagram.index_by_name[leg].size
    held = [i for c in diagram.convolutions for i in c.indices]
    held += [i for region in diagram.regions for i in (*region.over, *(region.causal or ()))]
    if size is None or leg in held:
        return None
    nodes = []
    for node in diagram.nodes:
        narrowed = _narrowed_node(node, leg, size, span, num_rows)
        if narrowed is None:
            return None
        changed = narrowed is not node and node.role is not Role.CONSTANT
        nodes.append(replace(narrowed, label=marked(node.tex, mark)) if changed else narrowed)
    start, stop = span
    if stop - start == 1:
        return _without_index(replace(diagram, nodes=tuple(nodes)), leg)
    others = {i.symbol: i.size for i in diagram.indices if i.symbol and i.name != leg}
    narrow = replace(diagram.index_by_name[leg], size=stop - start)
    fresh = with_symbol_apart(narrow, others)
    indices = tuple(fresh if index.name == leg else index for index in diagram.indices)
    return replace(diagram, indices=indices, nodes=tuple(nodes))


def _without_index(diagram: Diagram, name: str) -> Diagram:
    """The diagram without an index of which one position is left."""
    return replace(
        diagram,
        indices=tuple(index for index in diagram.indices if index.name != name),
        nodes=tuple(
            replace(node, indices=tuple(index for index in node.indices if index != name))
            for node in diagram.nodes
        ),
        output=tuple(index for index in diagram.output if index != name),
    )


def _narrowed_node(
    node: Node, leg: str, size: int, span: Rows, num_rows: Mapping[str, int]
) -> Node | None:
    if leg not in node.indices or node.role is Role.CONSTANT:
        return node
    first, last = node.rows or (0, num_rows.get(node.source, 0))
    is_leading = node.role in PARAMETER_ROLES and node.indices[0] == leg
    if not is_leading or node.indices.count(leg) > 1 or last <= first or (last - first) % size:
        return None
    unit = (last - first) // size
    return replace(node, array=node.source, rows=(first + span[0] * unit, first + span[1] * unit))
