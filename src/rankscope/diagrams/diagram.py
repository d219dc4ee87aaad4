"""Diagrams of named tensors: what is inside what, and checks that name the culprit."""

import ast
import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from rankscope.diagrams.parts import Convolution, Index, Node, Region
from rankscope.display import counted, picture
from rankscope.errors import DiagramError, SizeError, printable

# --- Questions about a diagram: who is inside which region, and which legs leave it ---------------


@dataclass(frozen=True)
class Operand:
    """A finished value that takes part in a region's contraction: a node, or an inner region."""

    name: str
    indices: tuple[str, ...]


class RegionTree:
    """The tree of regions of one diagram, and the legs that cross it.

    Example:
        >>> from rankscope.diagrams.diagram import Diagram
        >>> from rankscope.diagrams.parts import Index, Node, Region
        >>> from rankscope.diagrams.parts import Function
        >>> layer = Diagram(
        ...     "layer",
        ...     (Index("b"), Index("f"), Index("h"), Index("o")),
        ...     (Node("X", ("b", "f")), Node("V", ("f", "h")), Node("W", ("h", "o"))),
        ...     output=("b", "o"),
        ...     regions=(Region("R", ("X", "V"), Function("relu")),),
        ... )
        >>> layer.structure.evaluation_order
        ('R', None)
        >>> layer.structure.legs["R"]
        ('b', 'h')
        >>> layer.structure.operands[None]
        (Operand(name='R', indices=('b', 'h')), Operand(name='W', indices=('h', 'o')))
    """

    def __init__(
        self,
        nodes: tuple[Node, ...],
        convolutions: tuple[Convolution, ...],
        regions: tuple[Region, ...],
        output: tuple[str, ...],
    ) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._convolutions = {convolution.name: convolution for convolution in convolutions}
        self._regions = {region.name: region for region in regions}
        self._holders: tuple[Node | Convolution, ...] = (*nodes, *convolutions)
        self._output = output

    @cached_property
    def parent(self) -> dict[str, str | None]:
        """The region that directly holds a node, convolution or region."""
        held = {m: region.name for region in self._regions.values() for m in region.members}
        everything = (*self._regions, *self._nodes, *self._convolutions)
        return {name: held.get(name) for name in everything}

    @cached_property
    def members(self) -> dict[str | None, tuple[str, ...]]:
        """Direct members; the outermost region lists regions, then nodes, then convolutions."""
        members: dict[str | None, tuple[str, ...]] = {
            region.name: region.members for region in self._regions.values()
        }
        members[None] = tuple(name for name, region in self.parent.items() if region is None)
        return members

    @cached_property
    def evaluation_order(self) -> tuple[str | None, ...]:
        """Regions in the order they must be finished: inner ones first, the outermost last."""
        # Outer before inner, last member first; reversed, that is inner before outer. A loop,
        # because a deep network nests more regions than Python recurses.
        ordered: list[str | None] = []
        waiting: list[str | None] = [None]
        while waiting:
            region = waiting.pop()
            ordered.append(region)
            waiting.extend(name for name in self.members[region] if name in self._regions)
        return tuple(reversed(ordered))

    @cached_property
    def nodes_inside(self) -> dict[str | None, tuple[str, ...]]:
        """Nodes of each region at any depth."""
        return self._inside(self._nodes)

    @cached_property
    def convolutions_inside(self) -> dict[str | None, tuple[str, ...]]:
        """Convolutions of each region at any depth."""
        return self._inside(self._convolutions)

    def _inside(self, wanted: Collection[str]) -> dict[str | None, tuple[str, ...]]:
        inside: dict[str | None, tuple[str, ...]] = {}
        for region in self.evaluation_order:
            names: list[str] = []
            for member in self.members[region]:
                names.extend(inside.get(member, (member,) if member in wanted else ()))
            inside[region] = tuple(names)
        return inside

    @cached_property
    def legs(self) -> dict[str | None, tuple[str, ...]]:
        """The legs each region offers: used outside it, or open; for None, the open legs."""
        legs: dict[str | None, tuple[str, ...]] = {None: self._output}
        for region in self._regions:
            inside = {*self.nodes_inside[region], *self.convolutions_inside[region]}
            outside = set(self._output)
            ordered: dict[str, None] = {}
            for part in self._holders:
                if part.name not in inside:
                    outside.update(part.indices)
            for node in self.nodes_inside[region]:
                ordered.update(dict.fromkeys(self._nodes[node].indices))
            for convolution in self.convolutions_inside[region]:
                ordered[self._convolutions[convolution].output] = None
            legs[region] = tuple(index for index in ordered if index in outside)
        return legs

    @cached_property
    def operands(self) -> dict[str | None, tuple[Operand, ...]]:
        """What each region contracts: inner regions with their legs, nodes with their indices."""
        held = {name: node.indices for name, node in self._nodes.items()}
        held |= {region: self.legs[region] for region in self._regions}
        return {
            region: tuple(Operand(name, held[name]) for name in names if name in held)
            for region, names in self.members.items()
        }

    @cached_property
    def convolutions(self) -> dict[str | None, tuple[str, ...]]:
        """Convolutions that are direct members of each region."""
        wanted = self._convolutions
        return {
            region: tuple(name for name in names if name in wanted)
            for region, names in self.members.items()
        }

    @cached_property
    def owners(self) -> dict[str, tuple[str, ...]]:
        """Nodes and convolutions that hold each index, once per axis, in order of declaration."""
        owners: dict[str, list[str]] = {}
        for part in self._holders:
            for index in part.indices:
                owners.setdefault(index, []).append(part.name)
        return {index: tuple(names) for index, names in owners.items()}


# --- A diagram: named tensors joined by named indices, with barriers that must be finished first


@dataclass(frozen=True)
class Diagram:
    """Nodes, convolutions and regions, and the ordered legs that stay open.

    Example:
        >>> product = Diagram(
        ...     "product",
        ...     (Index("i", 2), Index("j", 3), Index("k", 4)),
        ...     (Node("A", ("i", "j")), Node("B", ("j", "k"))),
        ...     output=("i", "k"),
        ... )
        >>> product.sizes
        {'i': 2, 'j': 3, 'k': 4}

    Raises:
        DiagramError: if something does not fit; the message names the culprit.
        SizeError: if a size is not a positive integer, or one index has two.
    """

    name: str
    indices: tuple[Index, ...]
    nodes: tuple[Node, ...]
    output: tuple[str, ...]
    convolutions: tuple[Convolution, ...] = ()
    regions: tuple[Region, ...] = ()
    title: str | None = None

    def __post_init__(self) -> None:
        # Imported here because the checks are written in terms of Diagram.
        from rankscope.diagrams.diagram import check

        check(self)

    @property
    def holders(self) -> tuple[Node | Convolution, ...]:
        """Everything that holds indices: nodes, then convolutions."""
        return (*self.nodes, *self.convolutions)

    @cached_property
    def index_by_name(self) -> dict[str, Index]:
        """Indices by name."""
        return {index.name: index for index in self.indices}

    @cached_property
    def node_by_name(self) -> dict[str, Node]:
        """Nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def convolution_by_name(self) -> dict[str, Convolution]:
        """Convolutions by name."""
        return {convolution.name: convolution for convolution in self.convolutions}

    @cached_property
    def region_by_name(self) -> dict[str, Region]:
        """Regions by name."""
        return {region.name: region for region in self.regions}

    @cached_property
    def structure(self) -> RegionTree:
        """The tree of regions, and which legs leave each."""
        return RegionTree(self.nodes, self.convolutions, self.regions, self.output)

    def __repr__(self) -> str:
        parts = [
            counted(len(self.nodes), "tensor"),
            *(
                counted(len(some), what)
                for some, what in ((self.convolutions, "convolution"), (self.regions, "region"))
                if some
            ),
            f"open legs {', '.join(self.output) or 'none'}",
        ]
        return f"<Diagram {printable(self.name)}: {', '.join(parts)}>"

    def _repr_svg_(self) -> str | None:
        return picture(self)

    @property
    def sizes(self) -> dict[str, int | None]:
        """Size of every index, None where it is not known."""
        return {index.name: index.size for index in self.indices}

    @property
    def symbols(self) -> dict[str, int | None]:
        """Size of every symbol, in order of appearance; an index without one is its own symbol."""
        return {index.symbol or index.name: index.size for index in self.indices}

    def with_sizes(self, **sizes: int) -> "Diagram":
        """Give sizes to symbols, or to indices by name.

        Raises:
            SizeError: if a name is neither, or a size is not a positive integer.
        """
        from rankscope.diagrams.diagram import resized

        return replace(self, indices=resized(self, sizes))


# --- Scale factors such as "D**-0.5", read by a tiny grammar and never by `eval` ------------------


OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}

LONGEST = 200


def scale_symbols(expression: str) -> tuple[str, ...]:
    """The symbols a scale uses, in order of appearance.

    Example:
        >>> scale_symbols("(D*H)**-0.5")
        ('D', 'H')
    """
    symbols = [part.id for part in ast.walk(_parse(expression)) if isinstance(part, ast.Name)]
    return tuple(dict.fromkeys(symbols))


def evaluate_scale(expression: str, sizes: Mapping[str, int | None]) -> float:
    """The number a scale stands for.

    Example:
        >>> evaluate_scale("D**-0.5", {"D": 64})
        0.125

    Raises:
        DiagramError: if the text is not made of symbols, numbers, + - * / ** and parentheses.
        SizeError: if a symbol has no size.
    """
    return _value(_parse(expression), sizes, expression)


def _parse(expression: str) -> ast.expr:
    # Python's parser runs out of stack on long input, and so would we on deep nesting.
    if len(expression) > LONGEST:
        raise DiagramError(
            f"Scale {expression[:20]!r}… has {len(expression):,} characters; "
            f"at most {LONGEST} can be read."
        )
    try:
        tree = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise DiagramError(f"Scale {expression!r} is not an arithmetic expression.") from error
    for part in ast.walk(tree):
        if not isinstance(
            part,
            ast.BinOp | ast.UnaryOp | ast.USub | ast.Name | ast.Load | ast.Constant | ast.operator,
        ):
            raise DiagramError(
                f"Scale {expression!r} may hold symbols, numbers, + - * / ** and parentheses, "
                f"got {type(part).__name__}."
            )
    return tree


def _value(part: ast.expr, sizes: Mapping[str, int | None], expression: str) -> float:
    match part:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=symbol):
            size = sizes.get(symbol)
            if size is None:
                raise SizeError(f"Scale {expression!r} needs a size for {symbol}; give {symbol}=….")
            return float(size)
        case ast.UnaryOp(operand=inner):
            return -_value(inner, sizes, expression)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATIONS:
            try:
                value = OPERATIONS[type(op)](
                    _value(left, sizes, expression), _value(right, sizes, expression)
                )
            except (ZeroDivisionError, OverflowError) as error:
                raise DiagramError(f"Scale {expression!r} has no finite value.") from error
            return _real(value, expression)
        case _:
            raise DiagramError(f"Scale {expression!r} holds {ast.unparse(part)!r}, not a number.")


def _real(value: float | complex, expression: str) -> float:
    if isinstance(value, complex):
        raise DiagramError(f"Scale {expression!r} is not a real number.")
    return float(value)


# --- Checks that a diagram means something; every message names the culprit -----------------------


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
    indices = []
    for index in diagram.indices:
        # A name is more specific than a symbol that several indices share.
        given = sizes.get(index.name) or sizes.get(index.symbol or index.name)
        indices.append(replace(index, size=given or index.size))
    return tuple(indices)


def _first_repeated(names: Iterable[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _check_names(diagram: Diagram) -> None:
    parts = (*diagram.holders, *diagram.regions)
    for what, names in (
        ("index", [index.name for index in diagram.indices]),
        ("node, convolution or region", [part.name for part in parts]),
        ("open leg", list(diagram.output)),
    ):
        twice = _first_repeated(names)
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
