"""A diagram that is edited: an immutable document, the edits it knows, and undo.

An edit is plain data with a method `apply` that gives a new document or refuses by name. Nothing
here draws; a page, a notebook or a script sends the same edits.

Example:
    >>> from rankscope.diagrams.editing import AddTensor, Connect
    >>> history = History().applied(AddTensor(legs=("i", "j"))).applied(AddTensor(legs=("k", "l")))
    >>> history = history.applied(Connect("j", "k"))
    >>> [node.indices for node in history.present.diagram.nodes], history.present.diagram.output
    ([('i', 'j'), ('j', 'l')], ('i', 'l'))
    >>> history.undone().undone().undone().present.diagram.nodes
    ()
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rankscope.budget import require_within
from rankscope.diagrams.diagram import Diagram

MOST_TENSORS = 500
MOST_KEPT = 1000  # documents that undo remembers
Point = tuple[float, float]


@dataclass(frozen=True)
class Template:
    """A family that a document was made of, with its settings as text."""

    name: str
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Document:
    """A diagram, where its tensors were put, and what was contracted by hand.

    Args:
        diagram: what is edited.
        positions: of pinned tensors, in units of the layout's grid.
        template: the family it still is; None once an edit changed more than its settings.
        spent: operations of the contractions that were done by hand.
        best_before: operations of the best order before the first of them; None if there is none.
    """

    diagram: Diagram
    positions: Mapping[str, Point] = field(default_factory=dict)
    template: Template | None = None
    spent: int = 0
    best_before: int | None = None


EMPTY = Document(Diagram("diagram", (), (), ()))


class Edit(ABC):
    """One change of a document."""

    @abstractmethod
    def apply(self, document: Document) -> Document:
        """The changed document.

        Raises:
            RankscopeError: if the edit makes no sense there; the document stays as it was.
        """


@dataclass(frozen=True)
class History:
    """A document with those before and after it; every state stays as it is."""

    present: Document = EMPTY
    past: tuple[Document, ...] = ()
    future: tuple[Document, ...] = ()

    def applied(self, edit: Edit, *, continues: bool = False) -> "History":
        """The history after an edit; one that continues the last edit replaces its result.

        Raises:
            RankscopeError: if the edit is refused.
        """
        document = edit.apply(self.present)
        require_within("A diagram", "tensors", len(document.diagram.nodes), MOST_TENSORS)
        if document == self.present:
            return self
        if continues and self.past:
            return History(document, self.past)
        return History(document, (*self.past, self.present)[-MOST_KEPT:])

    def undone(self) -> "History":
        """One step back, or where it is if there is none."""
        if not self.past:
            return self
        return History(self.past[-1], self.past[:-1], (self.present, *self.future))

    def redone(self) -> "History":
        """One step forward again."""
        if not self.future:
            return self
        return History(self.future[0], (*self.past, self.present), self.future[1:])


def kept_positions(positions: Mapping[str, Point], diagram: Diagram) -> Mapping[str, Point]:
    """Positions of tensors that the diagram still has."""
    names = {part.name for part in diagram.holders}
    return {name: point for name, point in positions.items() if name in names}


def changed_to(document: Document, diagram: Diagram) -> Document:
    """The document with another diagram, which is no template any more."""
    title = None if document.template is not None else diagram.title
    return replace(
        document,
        diagram=replace(diagram, title=title),
        positions=kept_positions(document.positions, diagram),
        template=None,
    )
