"""A factorized layer as steps of a network of diagrams, from the chain of its format."""

import math
from collections.abc import Sequence
from dataclasses import replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Step, Sum, Term
from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.layers.formats.format import BATCH

Indices = tuple[Index, ...]


def layer_steps(
    name: str,
    chain: Diagram,
    source: str,
    *,
    rows: Indices,
    prefix: str,
    bias: str | None,
) -> tuple[Step, ...]:
    """The contraction of a chain, and the sum with the bias if there is one.

    Inputs of the whole network have one index of channels, and so do its outputs, whatever a
    format or groups make of them: a step before and the sum behind read them so.

    Args:
        name: of the array that the last step makes, (rows, channels, positions).
        chain: of a format, see `Format.chain` and `Format.row_chain`.
        source: array of the inputs, (rows, channels, positions).
        rows: the indices of inputs and outputs that stand for the index `n` of the chain.
        prefix: of the cores' arrays.
        bias: its array, if there is one.
    """
    given = chain.nodes[0]
    entering = _features(chain, given.indices) if given.role is Role.DATA else ()
    steps: tuple[Step, ...] = ()
    if len(entering) > 1 and not given.is_one_hot:
        positions = _positions(chain, given.indices)
        whole = _read(f"{name} input", source, (*rows, _merged(entering), *positions))
        steps, source = (Step(whole.name, whole),), whole.name
    product = replace(_on_rows(chain, rows, source, prefix), name=f"{name} product")
    leaving = _features(chain, chain.output)
    if bias is None and len(leaving) == 1:
        return *steps, Step(name, product)
    first = Step(product.name, product, rf"\mathbf{{{name}}}_{{0}}")
    positions = _positions(chain, chain.output)
    read = _read(name, first.name, (*rows, _merged(leaving), *positions))
    terms = [Term(read)]
    if bias is not None:
        # The same bias in every row and place: ones times it.
        beside = tuple(index.name for index in (*rows, *positions))
        ones = (Node("ones", beside, Role.CONSTANT, r"\mathbf{1}"),) if beside else ()
        node = Node("b", ("t",), label=r"\mathbf{b}", array=bias)
        terms.append(Term(replace(read, name="bias", nodes=(*ones, node))))
    return *steps, first, Step(name, Sum(name, tuple(terms)))


def row_indices(sizes: Sequence[int]) -> Indices:
    """Indices n, n2, n3, ... for the rows of inputs."""
    names = (BATCH if place == 1 else f"{BATCH}{place}" for place in range(1, len(sizes) + 1))
    return tuple(
        Index(name, size, kind=IndexKind.BATCH) for name, size in zip(names, sizes, strict=True)
    )


def _on_rows(chain: Diagram, rows: Indices, source: str, prefix: str) -> Diagram:
    """The chain with other rows; its inputs and cores read the arrays of the layer."""

    def legs(indices: tuple[str, ...]) -> tuple[str, ...]:
        names = tuple(index.name for index in rows)
        return tuple(leg for own in indices for leg in (names if own == BATCH else (own,)))

    nodes = tuple(
        replace(
            node, indices=legs(node.indices), array=source + node.name[1:], name=node.name.upper()
        )
        if node.role is Role.DATA
        else replace(node, indices=legs(node.indices), array=f"{prefix}{node.name}")
        for node in chain.nodes
    )
    others = tuple(index for index in chain.indices if index.name != BATCH)
    return replace(chain, indices=(*rows, *others), nodes=nodes, output=legs(chain.output))


def _features(chain: Diagram, legs: tuple[str, ...]) -> Indices:
    held = [chain.index_by_name[leg] for leg in legs if leg != BATCH]
    return tuple(index for index in held if index.kind is not IndexKind.SPACE)


def _positions(chain: Diagram, legs: tuple[str, ...]) -> Indices:
    held = [chain.index_by_name[leg] for leg in legs]
    return tuple(index for index in held if index.kind is IndexKind.SPACE)


def _merged(features: Indices) -> Index:
    return Index("t", math.prod(index.size or 1 for index in features), kind=IndexKind.FEATURE)


def _read(name: str, source: str, indices: Indices) -> Diagram:
    """An array as it is."""
    legs = tuple(index.name for index in indices)
    return Diagram(name, indices, (Node("X", legs, Role.DATA, array=source),), legs)
