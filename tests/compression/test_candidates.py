"""Candidates: what they cost is what they cost, and their errors are those that are made."""

import math

import pytest
import torch
from torch import Tensor, nn

from rankscope.compression import (
    Call,
    CandidateGenerator,
    ErrorNorm,
    Site,
    error_curve,
    ladder_of_ranks,
    quantization_error,
    read_sites,
    relative_error,
)
from rankscope.compression.candidates import Task, num_bytes
from rankscope.factorize import FORMATS, CoreStore, WeightShape, quantize


def site_of(module: nn.Module) -> Site:
    (site,) = read_sites(module).sites
    return site


@pytest.fixture
def grouped() -> Site:
    torch.manual_seed(0)
    return site_of(nn.Conv2d(12, 8, 3, groups=2, padding=1))


@pytest.mark.parametrize("name", ["svd", "tucker", "tensor-train", "r-tucker"])
def test_ladders_grow_from_ones_and_stay_below_the_weight(name: str) -> None:
    format, shape = FORMATS[name], WeightShape(32, 24, (3, 3))
    ladder = ladder_of_ranks(format, shape, num_steps=16)
    sizes = [format.num_parameters(shape, ranks) for ranks in ladder]
    assert sizes == sorted(set(sizes))
    assert 8 <= len(ladder) <= 16
    assert set(ladder[0]) == {1}
    assert sizes[-1] < shape.num_parameters


def test_a_ladder_has_no_steps_where_even_ranks_of_one_are_larger() -> None:
    assert ladder_of_ranks(FORMATS["svd"], WeightShape(2, 2), num_steps=8) == []


@pytest.mark.parametrize("name", ["svd", "tucker"])
@pytest.mark.parametrize("is_whitened", [False, True])
def test_curves_are_the_errors_of_the_groups_together(
    grouped: Site, generator: torch.Generator, name: str, is_whitened: bool
) -> None:
    format = FORMATS[name]
    inputs = torch.randn(2, 40, 6, generator=generator, dtype=torch.float64)
    factor = torch.linalg.cholesky(inputs.mT @ inputs)
    error_norm = ErrorNorm(factor) if is_whitened else None
    ladder = ladder_of_ranks(format, grouped.shape, num_steps=5)
    curve = error_curve(grouped, format, ladder, error_norm)
    target = grouped.weight.double()
    if is_whitened:
        target = torch.einsum("goihw,gij->gojhw", target, factor)
    for ranks, error in zip(ladder, curve, strict=True):
        rebuilt = [format.to_dense(format.decompose(g, ranks), grouped.shape) for g in target]
        made = float(torch.linalg.vector_norm(target - torch.stack(rebuilt)))
        made /= float(torch.linalg.vector_norm(target))
        # Of tucker, the curve is that of the start, which sweeps then improve.
        assert made <= error * (1 + 1e-6)
        assert error == pytest.approx(made, rel=1e-5 if name == "svd" else 0.3)


def test_formats_without_whitening_are_measured_on_outputs(generator: torch.Generator) -> None:
    site = site_of(nn.Linear(8, 16, bias=False))
    error_norm = ErrorNorm(torch.diag(torch.logspace(0, -2, 8, dtype=torch.float64)))
    format = FORMATS["r-tensor-train"]
    ladder = ladder_of_ranks(format, site.shape, num_steps=6)
    curve = error_curve(site, format, ladder, error_norm)
    for place in (0, -1):  # fitted, not interpolated
        rebuilt = format.to_dense(format.decompose(site.weight[0], ladder[place]), site.shape)
        made = relative_error(site.weight, rebuilt[None], error_norm)
        assert curve[place] == pytest.approx(made, rel=1e-4)
    assert all(0 <= error <= 1.5 for error in curve)


def test_a_weight_of_zeros_has_no_error() -> None:
    linear = nn.Linear(8, 8)
    nn.init.zeros_(linear.weight)
    assert error_curve(site_of(linear), FORMATS["svd"], [(1,), (2,)], None) == [0.0, 0.0]


@pytest.mark.parametrize("bits", [None, 8, 4])
def test_bytes_are_those_of_the_stored_cores(grouped: Site, bits: int | None) -> None:
    format, ranks = FORMATS["tucker"], (2, 3)
    cores = {
        name: torch.randn(2 * first, *rest)
        for name, (first, *rest) in format.core_shapes(grouped.shape, ranks).items()
    }
    store = CoreStore(cores)
    if bits is not None:
        store.quantize(bits)
    bias = 4 * 8
    assert (
        num_bytes(grouped, list(format.core_shapes(grouped.shape, ranks).values()), bits)
        == store.num_bytes + bias
    )


def test_a_menu_holds_the_dense_weight_first_and_counts_what_runs(grouped: Site) -> None:
    generator = CandidateGenerator((FORMATS["svd"], FORMATS["r-cp"]), bits=(None, 8), num_steps=6)
    options = generator.candidates_for(
        Task(grouped, (Call(5, (10, 9)),), ErrorNorm(multiplier=3.0))
    )
    assert options.dense.format is None
    assert options.dense.costs.flops == 2 * 5 * 90 * grouped.weight.numel()
    assert options.dense.costs.parameters == grouped.weight.numel() + 8
    for candidate in options.candidates[1:]:
        assert candidate.costs.bytes < options.dense.costs.bytes
        assert candidate.score == pytest.approx(3 * candidate.error**2)
    assert {candidate.bits for candidate in options.candidates} == {32, 8}


def test_errors_of_quantization_are_added_in_squares(grouped: Site) -> None:
    format = FORMATS["tucker"]
    generator = CandidateGenerator((format,), bits=(None, 4), num_steps=4)
    options = generator.candidates_for(Task(grouped, (), None))
    plain = {c.ranks: c.error for c in options.candidates if c.bits == 32}
    noise = quantization_error(grouped, 4)
    flat: Tensor = grouped.weight.flatten(0, 1)
    lost = (flat - quantize(flat, 4).dequantize()).norm() / flat.norm()
    assert noise == pytest.approx(float(lost))
    few = [c for c in options.candidates if c.bits == 4 and c.ranks in plain]
    assert few
    for candidate in few:
        assert candidate.error == pytest.approx(
            math.hypot(plain[candidate.ranks], math.sqrt(3) * noise)
        )


def test_refusals_say_which_format_and_why() -> None:
    generator = CandidateGenerator((FORMATS["tucker"], FORMATS["svd"]), num_steps=4)
    options = generator.candidates_for(Task(site_of(nn.Embedding(50, 10)), (), None))
    assert {candidate.format for candidate in options.candidates} == {None, "svd"}
    assert options.refusals == ("tucker: without a kernel, tucker is svd in disguise; use svd.",)
    tiny = generator.candidates_for(Task(site_of(nn.Linear(2, 2)), (), None))
    assert tiny.refusals[1] == "svd: no smaller even at ranks of one"


def test_cp_is_tried_unasked_only_where_its_fits_are_short() -> None:
    small, large = nn.Conv2d(8, 8, 3), nn.Conv2d(512, 512, 3, device="meta")
    cp = (FORMATS["cp"],)
    for module, is_tried in ((small, True), (large, False)):
        (site,) = read_sites(nn.Sequential(module)).sites
        task = Task(site, (), None)
        # A weight that is not tried is not looked at: this one has no numbers.
        made = CandidateGenerator(cp, num_steps=4, skips_dear=True).candidates_for(task)
        assert any(each.format == "cp" for each in made.candidates) == is_tried
        assert is_tried or made.refusals == (
            "cp: 2,359,296 numbers at ranks up to 2,283 take long to fit; ask for cp by name",
        )
