"""Reading modules: one trace of a forward pass, and what each of its operations means."""

from rankscope.reading.captions import captioned
from rankscope.reading.drafting import Drafting
from rankscope.reading.drafts import Draft, Operand, Slide
from rankscope.reading.network import from_module, from_trace
from rankscope.reading.simplifying import inline
from rankscope.reading.trace import Trace, trace
from rankscope.reading.views import (
    ArrayView,
    Piece,
    expanded,
    guess,
    merged,
    permuted,
    reshaped,
    scaled,
    squeezed,
    unsqueezed,
    whole,
)

__all__ = [
    "ArrayView",
    "Draft",
    "Drafting",
    "Operand",
    "Piece",
    "Slide",
    "Trace",
    "captioned",
    "expanded",
    "from_module",
    "from_trace",
    "guess",
    "inline",
    "merged",
    "permuted",
    "reshaped",
    "scaled",
    "squeezed",
    "trace",
    "unsqueezed",
    "whole",
]
