"""Reads PyTorch modules as networks of diagrams."""

from rankscope.diagrams.reading.arrays import module_arrays
from rankscope.diagrams.reading.inline import inline
from rankscope.diagrams.reading.read import from_module

__all__ = ["from_module", "inline", "module_arrays"]
