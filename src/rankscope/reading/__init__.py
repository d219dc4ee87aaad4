"""Reading modules: one trace of a forward pass, and what each of its operations means."""

from rankscope.reading.network import from_module, from_trace
from rankscope.reading.simplifying import inline
from rankscope.reading.trace import Trace, trace

__all__ = ["Trace", "from_module", "from_trace", "inline", "trace"]
