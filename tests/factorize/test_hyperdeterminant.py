"""The eight real orbits of 2 x 2 x 2 tensors, and ranks that follow the precision."""

import json
from fractions import Fraction
from pathlib import Path

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.cli.main import main
from rankscope.errors import DecompositionError
from rankscope.factorize import (
    Orbit,
    cp_error_curve,
    cp_rank,
    decide_orbit,
    draw_error_curve,
    hyperdeterminant,
)

NORMAL_FORMS = {
    Orbit.ZERO: (0, 0, 0, 0, 0, 0, 0, 0),
    Orbit.PRODUCT: (1, 0, 0, 0, 0, 0, 0, 0),
    Orbit.FIRST_APART: (1, 0, 0, 1, 0, 0, 0, 0),
    Orbit.SECOND_APART: (1, 0, 0, 0, 0, 1, 0, 0),
    Orbit.THIRD_APART: (1, 0, 0, 0, 0, 0, 1, 0),
    Orbit.GHZ: (1, 0, 0, 0, 0, 0, 0, 1),
    Orbit.COMPLEX: (-1, 0, 0, 1, 0, 1, 1, 0),
    Orbit.W: (0, 1, 1, 0, 1, 0, 0, 0),
}
RANKS = dict(zip(NORMAL_FORMS, (0, 1, 2, 2, 2, 2, 3, 3), strict=True))

invertible = st.tuples(*[st.integers(-4, 4)] * 4).filter(lambda m: m[0] * m[3] != m[1] * m[2])


@settings(deadline=None, max_examples=20)
@given(
    orbit=st.sampled_from(list(Orbit)), bases=st.tuples(*[invertible] * 3), below=st.integers(1, 9)
)
def test_every_orbit_is_known_in_any_bases(
    orbit: Orbit, bases: tuple[tuple[int, ...], ...], below: int
) -> None:
    tensor = numpy.array(NORMAL_FORMS[orbit]).reshape(2, 2, 2)
    turns = [numpy.array(base).reshape(2, 2) for base in bases]
    tensor = numpy.einsum("abc,ia,jb,kc->ijk", tensor, *turns)
    assert decide_orbit(tensor) is orbit
    assert orbit.rank == RANKS[orbit]
    fractions = numpy.array([Fraction(int(n), below) for n in tensor.ravel()], dtype=object)
    assert decide_orbit(fractions) is orbit
    for given_tensor in (tensor, fractions.reshape(2, 2, 2), tensor.astype(float)):
        found = cp_rank(given_tensor)
        assert found.lower == found.upper == orbit.rank
        assert "over the reals" in str(found)
        assert found.upper_fit.relative_error <= 1e-10


@given(entries=st.lists(st.integers(-9, 9), min_size=8, max_size=8))
def test_the_hyperdeterminant_is_that_of_cayley(entries: list[int]) -> None:
    a, b, c, d, e, f, g, h = entries
    squares = a * a * h * h + b * b * g * g + c * c * f * f + d * d * e * e
    mixed = a * h * (b * g + c * f + d * e) + b * g * (c * f + d * e) + c * f * d * e
    assert hyperdeterminant(entries) == squares - 2 * mixed + 4 * (a * d * f * g + b * c * e * h)


@pytest.mark.slow
def test_floats_near_a_border_are_not_decided() -> None:
    tensor = numpy.array(NORMAL_FORMS[Orbit.W], dtype=float).reshape(2, 2, 2)
    tensor[1, 1, 1] = 1e-13
    found = cp_rank(tensor)
    assert (found.lower, found.upper) == (2, 3)


def test_other_numbers_are_refused() -> None:
    with pytest.raises(DecompositionError, match="eight entries, got 3"):
        decide_orbit([1, 2, 3])
    with pytest.raises(DecompositionError, match="rational numbers"):
        decide_orbit([1j] * 8)
    with pytest.raises(DecompositionError, match="rational numbers"):
        decide_orbit([float("nan")] * 8)
    with pytest.raises(DecompositionError, match="fractions of 64-bit integers"):
        cp_rank(numpy.array([Fraction(1, 2**64 + n) for n in range(8)]).reshape(2, 2, 2))


def sum_of_three(dtype: torch.dtype) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    factors = [torch.randn(4, 3, generator=draw, dtype=torch.float64) for _ in range(3)]
    return torch.einsum("ar,br,cr->abc", *factors).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_the_rank_follows_the_precision(dtype: torch.dtype) -> None:
    found = cp_rank(sum_of_three(dtype))
    assert found.lower == found.upper == 3


def test_the_curve_falls_to_the_rank(tmp_path: Path) -> None:
    tensor = sum_of_three(torch.float32)
    curve = cp_error_curve(tensor, cp_rank(tensor))
    assert len(curve.errors) == 3
    assert list(curve.errors) == sorted(curve.errors, reverse=True)
    assert curve.errors[-1] <= curve.wanted < curve.errors[-2]
    first = numpy.linalg.norm(tensor.double().numpy())
    best = max(numpy.linalg.svd(tensor.double().reshape(4, 16).numpy())[1]) / first
    assert curve.errors[0] >= numpy.sqrt(1 - best**2) - 1e-6  # no product is nearer than a matrix
    drawn = draw_error_curve(curve, tmp_path / "curve.svg")
    assert drawn.read_text(encoding="utf-8").count("<svg") == 1


@pytest.mark.slow
def test_the_command_reads_a_file_and_names_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numpy.save(tmp_path / "w.npy", numpy.array(NORMAL_FORMS[Orbit.W]).reshape(2, 2, 2))
    picture = tmp_path / "w.svg"
    assert main(["cp-rank", str(tmp_path / "w.npy"), "--json", "-o", str(picture)]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["lower"], record["upper"], record["shape"]) == (3, 3, [2, 2, 2])
    assert [row["components"] for row in record["errors"]] == [1, 2, 3]
    assert picture.exists()
    numpy.savez(tmp_path / "two.npz", a=numpy.ones((2, 2)), b=numpy.ones((2, 2)))
    assert main(["cp-rank", str(tmp_path / "two.npz"), "--name", "b"]) == 0
    assert "CP rank 1" in capsys.readouterr().out
    for words, message in (
        (["two.npz"], "holds 2 tensors (a, b): choose one with --name"),
        (["two.npz", "--name", "c"], "there is no 'c'"),
        (["none.npy"], "No such file"),
        (["w.txt"], "wanted .safetensors"),
    ):
        (tmp_path / "w.txt").write_text("1", encoding="utf-8")
        assert main(["cp-rank", str(tmp_path / words[0]), *words[1:]]) == 2
        assert message in capsys.readouterr().err
