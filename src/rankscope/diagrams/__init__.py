"""The common language: networks of named tensors that are drawn, priced, cut and run."""

from typing import Any


def __getattr__(name: str) -> Any:
    # Loaded when asked for: reading needs torch.export, drawing does not.
    if name == "module_arrays":
        from rankscope.reading import module_arrays

        return module_arrays
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
