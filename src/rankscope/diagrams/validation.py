"""Checks that a diagram means something; every message names the culprit."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.parts import Convolution, Index, Region
from rankscope.diagrams.scale import scale_symbols
from rankscope.errors import DiagramError, SizeError

PADDING_MODES = ("zeros", "circular", "reflect", "replicate")


def check(diagram: Diagram) -> None:
    """Raise on the first thing that does not fit."""
    _check_names(diagram)
    _check_sizes(diagram)
    _check_index_names(diagram)
    _check_regions(diagram)
    for convolution in diagram.convolutions:
        _check_convolution(diagram, convolution)


def check_size(what: str, size: object) -> int:
    """Return a size that is a positive integer.

    Raises:
        SizeError: otherwise.
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise SizeError(f"The size of {what} must be a positive integer, got {size!r}.")
    return size


def resized(diagram: Diagram, sizes: Mapping[str, int]) -> tuple[Index, ...]:
    """The diagram's indices with sizes given by symbol or by index name."""
    names = {index.name for index in diagram.indices}
    symbols = {index.symbol for index in diagram.indices if index.symbol}
    for name, size in sizes.items():
        if name not in names | symbols:
            known = ", ".join(sorted(names | symbols)) or "none"
            raise SizeError(
                f"Diagram {diagram.name!r} has no index or symbol {name!r}; it has: {known}."
            )
        check_size(repr(name), size)
    found = []
    for index in diagram.indices:
        # A name is more specific than a symbol that several indices share.
        given = sizes.get(index.name) or sizes.get(index.symbol or index.name)
        found.append(replace(index, size=given or index.size))
    return tuple(found)


def _repeated(names: Iterable[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _check_names(diagram: Diagram) -> None:
    parts = (*diagram.holders, *diagram.regions)
    for what, names in (
        ("index", [index.name for index in diagram.indices]),
        ("node, convolution or region", [part.name for part in parts]),
        ("open leg", list(diagram.output)),
    ):
        twice = _repeated(names)
        if twice is not None:
            raise DiagramError(
                f"Diagram {diagram.name!r} has {names.count(twice)} times the {what} {twice!r}; "
                "names must differ."
            )


def _check_sizes(diagram: Diagram) -> None:
    by_symbol: dict[str, Index] = {}
    for index in diagram.indices:
        if index.size is not None:
            check_size(f"index {index.name!r}", index.size)
        if index.symbol is None or index.size is None:
            continue
        first = by_symbol.setdefault(index.symbol, index)
        if first.size != index.size:
            raise SizeError(
                f"Symbol {index.symbol!r} has two sizes: {first.size} on index {first.name!r} "
                f"and {index.size} on index {index.name!r}."
            )


def _check_index_names(diagram: Diagram) -> None:
    known = diagram.index_by_name
    for part in diagram.holders:
        for index in part.indices:
            if index not in known:
                names = ", ".join(known) or "none"
                raise DiagramError(
                    f"{part.name!r} has the unknown index {index!r}; known are: {names}."
                )
    for node in diagram.nodes:
        if node.narrow_side is not None and node.narrow_side not in node.indices:
            raise DiagramError(
                f"Node {node.name!r} names {node.narrow_side!r} as its narrow side, "
                f"but its indices are {node.indices}."
            )
    made = {index for part in diagram.holders for index in part.indices}
    for index in diagram.output:
        if index not in made:
            raise DiagramError(
                f"Open leg {index!r} of diagram {diagram.name!r} is on no node or convolution."
            )


def _check_regions(diagram: Diagram) -> None:
    holder: dict[str, str] = {}
    parts = {part.name for part in (*diagram.holders, *diagram.regions)}
    for region in diagram.regions:
        for member in region.members:
            if member not in parts:
                raise DiagramError(f"Region {region.name!r} holds the unknown member {member!r}.")
            if holder.setdefault(member, region.name) != region.name:
                raise DiagramError(
                    f"{member!r} is in two regions, {holder[member]!r} and {region.name!r}; "
                    "regions form a tree."
                )
        if not region.members:
            raise DiagramError(f"Region {region.name!r} is empty.")
    _check_no_cycle(diagram, holder)
    for region in diagram.regions:
        _check_legs(diagram, region)


def _check_no_cycle(diagram: Diagram, holder: Mapping[str, str]) -> None:
    for region in diagram.regions:
        seen, outer = {region.name}, holder.get(region.name)
        while outer is not None:
            if outer in seen:
                raise DiagramError(f"Region {region.name!r} contains itself; regions form a tree.")
            seen.add(outer)
            outer = holder.get(outer)


def _check_legs(diagram: Diagram, region: Region) -> None:
    leaving = diagram.structure.legs[region.name]
    for index in (*region.over, *(region.causal or ())):
        if index not in leaving:
            raise DiagramError(
                f"Region {region.name!r} applies {region.function.name} over index {index!r}, "
                f"which does not leave the region; leaving are: {', '.join(leaving) or 'none'}."
            )
    if region.function.normalizes and not region.over:
        raise DiagramError(
            f"Region {region.name!r} applies {region.function.name}, which needs `over`: "
            "the legs it normalizes."
        )
    if region.over and not region.function.normalizes:
        raise DiagramError(
            f"Region {region.name!r} applies {region.function.name} entry by entry, "
            f"so `over` must be empty, got {region.over}."
        )
    for symbol in scale_symbols(region.scale) if region.scale else ():
        if symbol not in {*diagram.symbols, *diagram.index_by_name}:
            raise DiagramError(
                f"The scale {region.scale!r} of region {region.name!r} uses the unknown symbol "
                f"{symbol!r}; known are: {', '.join(diagram.symbols)}."
            )


def _check_convolution(diagram: Diagram, convolution: Convolution) -> None:
    name, structure = convolution.name, diagram.structure
    if convolution.padding_mode not in PADDING_MODES:
        raise DiagramError(
            f"Convolution {name!r}: padding_mode must be one of {', '.join(PADDING_MODES)}, "
            f"got {convolution.padding_mode!r}."
        )
    check_size(f"the stride of convolution {name!r}", convolution.stride)
    check_size(f"the dilation of convolution {name!r}", convolution.dilation)
    if len(set(convolution.indices)) < 3:
        raise DiagramError(
            f"Convolution {name!r} needs three different legs, got {convolution.indices}."
        )
    for leg in (convolution.input, convolution.kernel):
        others = [owner for owner in structure.owners.get(leg, ()) if owner != name]
        if len(others) != 1 or leg in diagram.output:
            raise DiagramError(
                f"Convolution {name!r}: its leg {leg!r} must be held by exactly one other node "
                f"and stay closed, but it is held by {others or 'none'}"
                f"{' and open' if leg in diagram.output else ''}."
            )
    _check_convolution_sizes(diagram, convolution)


def _check_convolution_sizes(diagram: Diagram, convolution: Convolution) -> None:
    sizes = [diagram.index_by_name[leg].size for leg in convolution.indices]
    input_size, kernel_size, output_size = sizes
    if input_size is None or kernel_size is None:
        return
    expected = convolution.output_size(input_size, kernel_size)
    if expected < 1:
        raise SizeError(
            f"Convolution {convolution.name!r}: a kernel of {kernel_size} (dilation "
            f"{convolution.dilation}) does not fit an input of {input_size} with padding "
            f"{convolution.padding}."
        )
    if output_size is not None and output_size != expected:
        raise SizeError(
            f"Convolution {convolution.name!r}: input {input_size}, kernel {kernel_size}, stride "
            f"{convolution.stride}, padding {convolution.padding} and dilation "
            f"{convolution.dilation} give an output of {expected}, but index "
            f"{convolution.output!r} has size {output_size}."
        )
