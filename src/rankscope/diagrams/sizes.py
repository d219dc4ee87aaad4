"""The size of every index: given, shared through a symbol, or forced by a convolution."""

from collections.abc import Iterable, Mapping
from itertools import chain, count

from opt_einsum import get_symbol

from rankscope.diagrams.diagram import Diagram, evaluate_scale
from rankscope.errors import SizeError, printable


def resolved_sizes(diagram: Diagram) -> dict[str, int]:
    """Size of every index, in the diagram's order.

    A size given to one index holds for all that share its symbol, and the output of a
    convolution follows from its input and its kernel.

    Example:
        >>> from rankscope.diagrams.parts import Index, Node
        >>> row = Diagram("row", (Index("i", 3),), (Node("A", ("i",)),), output=("i",))
        >>> resolved_sizes(row)
        {'i': 3}

    Raises:
        SizeError: if some are missing (the message lists them), or a convolution does not fit.
    """
    sizes = {index.name: index.size for index in diagram.indices if index.size is not None}
    _spread(diagram, sizes)
    # Chains need one round per link, because the output of one is the input of the next.
    for _ in diagram.convolutions:
        _infer_outputs(diagram, sizes)
        _spread(diagram, sizes)
    # Outputs of convolutions follow from the rest, so nobody has to give them.
    inferred = [convolution.output for convolution in diagram.convolutions]
    names = dict.fromkeys(
        index.symbol or index.name
        for index in diagram.indices
        if index.name not in sizes and index.name not in inferred
    )
    if names:
        first = next(iter(names))
        raise SizeError(
            f"Diagram {diagram.name!r} has no size for {printable(', '.join(names))}. Give each: "
            f"--size {first}=… on the command line, with_sizes({first}=…) in Python."
        )
    return {index.name: sizes[index.name] for index in diagram.indices}


def region_scale(diagram: Diagram, region: str, sizes: Mapping[str, int]) -> float:
    """The number a region multiplies its value by; 1.0 when it has no scale."""
    expression = diagram.region_by_name[region].scale
    if expression is None:
        return 1.0
    symbols = {index.symbol: sizes[index.name] for index in diagram.indices if index.symbol}
    return evaluate_scale(expression, {**sizes, **symbols})


def _spread(diagram: Diagram, sizes: dict[str, int]) -> None:
    by_symbol = {
        index.symbol: sizes[index.name]
        for index in diagram.indices
        if index.symbol and index.name in sizes
    }
    for index in diagram.indices:
        if index.symbol in by_symbol:
            sizes.setdefault(index.name, by_symbol[index.symbol])


def _infer_outputs(diagram: Diagram, sizes: dict[str, int]) -> None:
    for convolution in diagram.convolutions:
        if convolution.input not in sizes or convolution.kernel not in sizes:
            continue
        size = convolution.output_size(sizes[convolution.input], sizes[convolution.kernel])
        if size < 1 or sizes.setdefault(convolution.output, size) != size:
            raise SizeError(
                f"Convolution {convolution.name!r}: input {sizes[convolution.input]} and kernel "
                f"{sizes[convolution.kernel]} give an output of {size}, but index "
                f"{convolution.output!r} has size {sizes.get(convolution.output, 'at least 1')}."
            )


# --- One letter per index, for einsum strings -----------------------------------------------------


def letters(names: Iterable[str]) -> dict[str, str]:
    """A letter for each name: the name itself, or its first letter, or the next free one.

    Beyond 52, opt_einsum's further letters are used.

    Example:
        >>> letters(["batch", "b", "f", "feature", "f"])
        {'batch': 'B', 'b': 'b', 'f': 'f', 'feature': 'F'}
    """
    wanted = tuple(dict.fromkeys(names))
    used = dict.fromkeys(name for name in wanted if _is_letter(name))
    chosen: dict[str, str] = {}
    # One pass for all names: what one of them skipped is used.
    symbols = (symbol for symbol in map(get_symbol, count()) if symbol.isalpha())
    for name in wanted:
        if _is_letter(name):
            chosen[name] = name
            continue
        first = name[:1]
        own = [letter for letter in (first.lower(), first.upper()) if _is_letter(letter)]
        chosen[name] = next(letter for letter in chain(own, symbols) if letter not in used)
        used[chosen[name]] = None
    return chosen


def _is_letter(name: str) -> bool:
    return len(name) == 1 and name.isascii() and name.isalpha()
