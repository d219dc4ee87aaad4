from functools import wraps
from pathlib import Path

import numba
import numpy
import pytest

from rankscope.rank.residues import compiled


def double(number: float) -> float:
    return 2 * number


def test_a_compiled_function_computes_the_same() -> None:
    assert compiled(double)(4.0) == 8.0


def test_a_wrapped_function_is_compiled_without_its_wrapper() -> None:
    @wraps(double)
    def checked(number: float) -> float:
        raise AssertionError(str(number))

    assert compiled(checked)(4.0) == 8.0


def test_without_a_writable_cache_each_process_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    njit = numba.njit

    def refuses_to_cache(*, nogil: bool, cache: bool = False) -> object:
        if cache:
            raise RuntimeError("cannot cache function 'double': no locator available")
        return njit(nogil=nogil)

    monkeypatch.setattr(numba, "njit", refuses_to_cache)
    assert compiled(double)(4.0) == 8.0


def test_other_errors_of_the_compiler_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*, nogil: bool, cache: bool = False) -> object:
        raise RuntimeError(f"broken {nogil} {cache}")

    monkeypatch.setattr(numba, "njit", fails)
    with pytest.raises(RuntimeError, match="broken"):
        compiled(double)


def test_kernels_are_kept_between_processes() -> None:
    from rankscope.rank import residues as kernels

    kernels.reduce_block(numpy.zeros((1, 1)), (0, 1), 0, 7.0)
    folder = Path(kernels.reduce_block.stats.cache_path)  # type: ignore[attr-defined]
    assert list(folder.glob("residues.reduce_block*.nbi"))
