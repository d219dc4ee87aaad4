"""Compiling loops to machine code, once."""

import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def compiled(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile a function of numbers and NumPy arrays on its first call.

    The machine code is kept beside the source, or in the user's cache folder if the package is
    installed read-only; where neither can be written, each process compiles for itself.
    Floating-point arithmetic is IEEE's own (no `fastmath`): our exactness proofs rest on it.
    """
    # A run-time type checker may have wrapped the function; numba needs the original.
    original = inspect.unwrap(function)
    try:
        fast = numba.njit(cache=True, nogil=True)(original)
    except RuntimeError as error:
        if "cannot cache function" not in str(error):
            raise
        fast = numba.njit(nogil=True)(original)
    return cast(Callable[Parameters, Result], fast)
