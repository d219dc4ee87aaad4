"""Diagrams: networks of named tensors that are drawn, priced, cut and run.

Names are imported when they are first used; none of them loads torch before it is needed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
