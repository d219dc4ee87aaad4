"""What the axes of a module's tensors stand for, and the letters they get in a picture."""

from dataclasses import dataclass

from rankscope.diagrams.parts import IndexKind


@dataclass(frozen=True)
class Sort:
    """The letter that starts an index's name, its symbol, and its kind."""

    letter: str
    symbol: str
    kind: IndexKind = IndexKind.GENERIC


GENERIC = Sort("i", "I")
BATCH = Sort("b", "B", IndexKind.BATCH)
SEQUENCE = Sort("n", "N", IndexKind.SEQUENCE)
KEY = Sort("m", "M", IndexKind.SEQUENCE)
FEATURE = Sort("f", "F", IndexKind.FEATURE)
CHANNEL = Sort("c", "C", IndexKind.FEATURE)
GROUP = Sort("g", "G")
HEAD = Sort("h", "H", IndexKind.HEAD)
HEAD_FEATURE = Sort("d", "D", IndexKind.FEATURE)
VOCABULARY = Sort("v", "V")
DEPTH = Sort("z", "T", IndexKind.SPACE)
HEIGHT = Sort("y", "H", IndexKind.SPACE)
WIDTH = Sort("x", "W", IndexKind.SPACE)
LENGTH = Sort("x", "L", IndexKind.SPACE)
PART = Sort("p", "P")

SPACES: dict[int, tuple[Sort, ...]] = {
    1: (LENGTH,),
    2: (HEIGHT, WIDTH),
    3: (DEPTH, HEIGHT, WIDTH),
}
KERNELS: dict[int, tuple[Sort, ...]] = {
    1: (Sort("u", "K", IndexKind.SPACE),),
    2: (Sort("u", "K", IndexKind.SPACE), Sort("v", "K", IndexKind.SPACE)),
    3: (
        Sort("t", "K", IndexKind.SPACE),
        Sort("u", "K", IndexKind.SPACE),
        Sort("v", "K", IndexKind.SPACE),
    ),
}


def guess(order: int) -> tuple[Sort, ...]:
    """The usual meaning of the axes of an input, until a layer says otherwise.

    Example:
        >>> [sort.symbol for sort in guess(4)]
        ['B', 'C', 'H', 'W']
    """
    usual: dict[int, tuple[Sort, ...]] = {
        1: (FEATURE,),
        2: (BATCH, FEATURE),
        3: (BATCH, SEQUENCE, FEATURE),
        4: (BATCH, CHANNEL, *SPACES[2]),
        5: (BATCH, CHANNEL, *SPACES[3]),
    }
    return usual.get(order, (GENERIC,) * order)


def parts_of(sort: Sort, count: int) -> tuple[Sort, ...]:
    """The meaning of the parts of a split axis: features are split into heads."""
    if sort.kind is not IndexKind.FEATURE or sort is HEAD_FEATURE:
        return (sort,) * count
    return ((PART,) * max(0, count - 2) + (HEAD, HEAD_FEATURE))[-count:] if count > 1 else (sort,)
