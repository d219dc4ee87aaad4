"""Edits that replace the whole diagram: nothing, a template, an equation, a document."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.editing.document import (
    EMPTY,
    Document,
    Edit,
    Template,
    kept_positions,
)
from rankscope.diagrams.einsum import Equation, from_einsum
from rankscope.diagrams.families.catalogue import FAMILIES, build_family
from rankscope.diagrams.parts import Role
from rankscope.errors import DiagramError

# What a template's settings are until they are set, so that every picture has numbers.
_USUAL = MappingProxyType(
    {"order": "4", "size": "16", "rank": "4", "out": "16", "I": "64", "J": "32", "K": "64"}
    | {"N": "512", "M": "512", "F": "768", "H": "12", "D": "64", "G": "4", "R": "64"}
    | {"S": "64", "T": "128", "k": "3", "R1": "16", "R2": "32", "W": "32", "stride": "1"}
    | {"padding": "1", "widths": "784,128,10"}
)
_OWN: Mapping[str, Mapping[str, str | None]] = MappingProxyType(
    {"tucker2-conv": {"H": "32"}, "single-head": {"H": None}}
)
_LEFT_OUT = ("B", "count")


@dataclass(frozen=True)
class Clear(Edit):
    """Start with nothing."""

    def apply(self, document: Document) -> Document:
        return EMPTY


@dataclass(frozen=True)
class UseTemplate(Edit):
    """Take a family; settings that are not given have usual values.

    Raises:
        FamilyError: if the family, a setting or a value is not known.
        DiagramError: if the family is a sum of several diagrams.
    """

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def apply(self, document: Document) -> Document:
        settings = {**usual_settings(self.name), **self.settings}
        built = build_family(self.name, settings)
        if not isinstance(built, Diagram):
            raise DiagramError(
                f"The family {self.name!r} is a sum of several diagrams; here one is edited."
            )
        same = document.template is not None and document.template.name == self.name
        positions = kept_positions(document.positions, built) if same else {}
        return Document(built, positions, Template(self.name, settings))


def usual_settings(name: str) -> dict[str, str]:
    """Values of a family's settings that give every leg a size.

    Example:
        >>> usual_settings("matrix-product")
        {'I': '64', 'J': '32', 'K': '64'}
    """
    if name not in FAMILIES:
        return {}
    words = [setting.name for setting in FAMILIES[name].settings]
    if "widths" in words:
        words.remove("F")  # they say the same
    usual: dict[str, str | None] = {**_USUAL, **_OWN.get(name, {})}
    values = {word: usual.get(word) for word in words if word not in _LEFT_OUT}
    return {word: value for word, value in values.items() if value is not None}


@dataclass(frozen=True)
class UseEinsum(Edit):
    """Read an equation; with as many operands as tensors, their names and roles stay.

    Raises:
        EinsumError: if the equation cannot be read; its `position` is that of the letter.
    """

    text: str

    def apply(self, document: Document) -> Document:
        operands = Equation.read(self.text).operands
        old = document.diagram
        names, parameters = None, tuple(range(len(operands)))
        if len(old.nodes) == len(operands):
            names = [node.name for node in old.nodes]
            parameters = tuple(
                place for place, node in enumerate(old.nodes) if node.role is not Role.DATA
            )
        letters = {letter for operand in operands for letter in operand}
        sizes = {name: size for name, size in old.sizes.items() if name in letters and size}
        usual = {letter: 16 for letter in letters if len(letter) == 1}
        diagram = from_einsum(
            self.text, sizes=usual | sizes, parameters=parameters, names=names, name=old.name
        )
        return Document(diagram, kept_positions(document.positions, diagram))


@dataclass(frozen=True)
class UseDiagram(Edit):
    """Take a diagram that was made elsewhere."""

    diagram: Diagram

    def apply(self, document: Document) -> Document:
        return Document(self.diagram)
