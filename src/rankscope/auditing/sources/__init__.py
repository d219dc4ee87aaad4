"""Models opened safely: what they hold is known before any of it is read, and nothing is run."""

from rankscope.auditing.sources.opening import open_model
from rankscope.auditing.sources.source import OpenedModel, TensorEntry, TensorSource

__all__ = ["OpenedModel", "TensorEntry", "TensorSource", "open_model"]
