"""A diagram that is edited: an immutable document, the edits it knows, undo and redo."""

from rankscope.diagrams.editing.barriers import Contract, Pin, Release, SetBarrier, Wrap
from rankscope.diagrams.editing.document import EMPTY, Document, Edit, History, Template
from rankscope.diagrams.editing.factoring import Factor, Form
from rankscope.diagrams.editing.wholes import (
    Clear,
    UseDiagram,
    UseEinsum,
    UseTemplate,
    usual_settings,
)
from rankscope.diagrams.editing.wires import (
    AddLeg,
    AddTensor,
    Connect,
    Detach,
    Remove,
    Rename,
    SetKind,
    SetOpen,
    SetRole,
    SetSize,
)

__all__ = [
    "EMPTY",
    "AddLeg",
    "AddTensor",
    "Clear",
    "Connect",
    "Contract",
    "Detach",
    "Document",
    "Edit",
    "Factor",
    "Form",
    "History",
    "Pin",
    "Release",
    "Remove",
    "Rename",
    "SetBarrier",
    "SetKind",
    "SetOpen",
    "SetRole",
    "SetSize",
    "Template",
    "UseDiagram",
    "UseEinsum",
    "UseTemplate",
    "Wrap",
    "usual_settings",
]
