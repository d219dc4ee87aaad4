"""A diagram: named tensors joined by named indices, with barriers that must be finished first.

Three ideas carry everything else. An *index name* is one wire, on any number of nodes (three
or more ends are a hyperedge). A *region* is a nested diagram whose value goes through a
function before anything outside may touch it. A *convolution* joins an input leg and a kernel
leg into an output leg without ever existing as a dense 0/1 tensor. All of it is plain,
immutable, hashable data: an edit returns a new diagram.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from rankscope.diagrams.parts import Convolution, Index, Node, Region
from rankscope.diagrams.structure import Structure


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
        from rankscope.diagrams.validation import check

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
    def structure(self) -> Structure:
        """The tree of regions, and which legs leave each."""
        return Structure(self.nodes, self.convolutions, self.regions, self.output)

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
        from rankscope.diagrams.validation import resized

        return replace(self, indices=resized(self, sizes))
