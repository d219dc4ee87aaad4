import math
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from rankscope.errors import MissingExtraError
from rankscope.lab import find_experiment
from rankscope.lab.experiments import (
    REFERENCES,
    BlockConvolutions,
    ConvolutionExponential,
    LayerSize,
    OrthogonalityEntry,
    ReferenceConvolution,
    Row,
    RunContext,
    bjorck,
    build_layer,
    gradient_ratios,
    norm_ratios,
    orthogonalized,
)
from rankscope.lab.experiments.orthogonality import PUBLISHED, train_layer

ORTHOGONALITY = find_experiment("orthogonality")

# The reference layers are what their names say: orthogonal, or only never stretching.


CHANNELS, SIZE = 3, 6


def build(name: str, *, seed: int = 0) -> ReferenceConvolution:
    torch.manual_seed(seed)
    return REFERENCES[name](CHANNELS, SIZE).double().eval().requires_grad_(requires_grad=False)


def matrix_of(layer: ReferenceConvolution) -> Tensor:
    count = CHANNELS * SIZE * SIZE
    basis = torch.eye(count, dtype=torch.float64).reshape(count, CHANNELS, SIZE, SIZE)
    with torch.no_grad():
        outputs: Tensor = layer(basis).flatten(1)
    return outputs.T


@pytest.mark.parametrize(("name", "tolerance"), [("Cayley", 1e-12), ("BRO", 1e-12), ("SOC", 1e-8)])
def test_orthogonal_references_have_singular_values_one(name: str, tolerance: float) -> None:
    values = torch.linalg.svdvals(matrix_of(build(name)))
    torch.testing.assert_close(values, torch.ones_like(values), rtol=0, atol=tolerance)


def test_block_convolutions_are_orthogonal_if_the_iteration_converges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BlockConvolutions, "STEPS", 200)
    values = torch.linalg.svdvals(matrix_of(build("BCOP")))
    torch.testing.assert_close(values, torch.ones_like(values), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["RKO", "OSSN"])
def test_normalized_references_never_stretch_but_shrink(name: str) -> None:
    values = torch.linalg.svdvals(matrix_of(build(name)))
    assert float(values.max()) <= 1 + 1e-12
    assert float(values.min()) < 0.5


def test_spectral_normalization_leaves_short_kernels_alone() -> None:
    layer = build("OSSN")
    layer.free.mul_(0.1)
    inputs = torch.randn(1, CHANNELS, SIZE, SIZE, dtype=torch.float64)
    torch.testing.assert_close(layer(inputs), layer.convolve(inputs, layer.free))
    layer.free.mul_(100)
    torch.testing.assert_close(
        torch.linalg.svdvals(matrix_of(layer)).max(), torch.tensor(1.0, dtype=torch.float64)
    )


def test_clipping_is_exact_where_the_kernel_is_as_large_as_the_image() -> None:
    layer = REFERENCES["SVCM"](2, 3, 3).double().requires_grad_(requires_grad=False)
    layer.free.mul_(5)
    basis = torch.eye(18, dtype=torch.float64).reshape(18, 2, 3, 3)
    plain = torch.linalg.svdvals(layer.convolve(basis, layer.free).flatten(1))
    clipped = torch.linalg.svdvals(layer(basis).flatten(1))
    torch.testing.assert_close(clipped, plain.clamp(max=1))


def test_the_exponential_takes_fewer_terms_in_training() -> None:
    layer = build("SOC")
    inputs = torch.randn(1, CHANNELS, SIZE, SIZE, dtype=torch.float64)
    exact = layer(inputs)
    difference = float((layer.train()(inputs) - exact).norm() / inputs.norm())
    # What is left out begins with the sixth power of a map of norm at most 1, over 6!.
    assert 0 < difference <= math.e / math.factorial(6)


def test_the_exponential_of_a_convolution_is_that_of_its_matrix() -> None:
    layer = build("SOC")
    assert isinstance(layer, ConvolutionExponential)
    skew = layer.free - layer.free.transpose(0, 1).flip((2, 3))
    norm = layer.norm_bound(skew)
    basis = torch.eye(CHANNELS * SIZE**2, dtype=torch.float64).reshape(-1, CHANNELS, SIZE, SIZE)
    matrix = layer.convolve(basis, skew).flatten(1).T
    torch.testing.assert_close(matrix, -matrix.T)
    assert float(torch.linalg.matrix_norm(matrix, 2)) <= float(norm)
    torch.testing.assert_close(matrix_of(layer), torch.matrix_exp(matrix / norm), rtol=0, atol=1e-8)


def test_matrices_are_made_orthogonal() -> None:
    wide = torch.randn(3, 7, dtype=torch.float64)
    identity = torch.eye(3, dtype=torch.float64)
    result = orthogonalized(wide)
    torch.testing.assert_close(result @ result.T, identity)
    tall = bjorck(wide.T[None], 60)[0]
    torch.testing.assert_close(tall.T @ tall, identity)
    torch.testing.assert_close(tall, result.T)


# Our layer keeps norms and gradients, and the table says who else does.


SMALL = LayerSize(channels=8, image=6)


def row_of(layer: str, folder: Path) -> Row:
    entry = OrthogonalityEntry(layer, SMALL, num_layers=2, num_inputs=4, depths=(1, 5))
    return entry.run(RunContext(folder, None, 60.0))


@pytest.mark.parametrize("layer", ["ours", "Cayley", "BRO", "SOC"])
def test_orthogonal_layers_keep_norms_and_gradients(layer: str, tmp_path: Path) -> None:
    row = row_of(layer, tmp_path)
    # float32 holds 7 digits, and a sum of squares loses part of one.
    for column in ("mean - 1", "deviation", "furthest from 1"):
        assert row[column] == pytest.approx(0, abs=1e-5)
    assert row["gradient after 1"] == pytest.approx(1, abs=1e-5)
    assert row["gradient after 5"] == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("layer", ["RKO", "OSSN"])
def test_layers_that_only_never_stretch_lose_gradients_with_depth(
    layer: str, tmp_path: Path
) -> None:
    row = row_of(layer, tmp_path)
    mean, shallow, deep = row["mean - 1"], row["gradient after 1"], row["gradient after 5"]
    assert isinstance(mean, float)
    assert isinstance(shallow, float)
    assert isinstance(deep, float)
    assert mean < -0.2
    assert deep < shallow < 0.9


def test_orthogonal_taps_make_no_orthogonal_convolution(tmp_path: Path) -> None:
    """Each row of a matrix of 3 x 3 taps has norm 1, so that a kernel has norm √(8 · 8 · 3)."""
    row = row_of("torch", tmp_path)
    mean = row["mean - 1"]
    assert isinstance(mean, float)
    assert mean + 1 == pytest.approx(24**0.5, rel=0.3)


def test_in_float64_norms_are_kept_to_its_rounding(tmp_path: Path) -> None:
    entry = OrthogonalityEntry(
        "ours", SMALL, num_layers=2, num_inputs=4, depths=(), precision=torch.float64
    )
    row = entry.run(RunContext(tmp_path, None, 60.0))
    assert entry.name == "ours-float64"
    assert row["furthest from 1"] == pytest.approx(0, abs=1e-14)
    assert "published mean - 1" not in {name for name, value in row.items() if value is not None}


def test_norms_are_kept_after_training_which_changes_the_layer(tmp_path: Path) -> None:
    entry = OrthogonalityEntry("ours", SMALL, num_layers=1, num_inputs=4, depths=(), steps=20)
    row = entry.run(RunContext(tmp_path, None, 60.0))
    assert entry.name == "ours-after-20-steps"
    assert row["furthest from 1"] == pytest.approx(0, abs=1e-5)
    layer = build_layer("ours", SMALL)
    before = [parameter.clone() for parameter in layer.parameters()]
    train_layer(layer, SMALL, 3)
    assert not layer.training
    assert all(
        not torch.equal(now, then) for now, then in zip(layer.parameters(), before, strict=True)
    )


def test_an_entry_gives_the_same_again_and_leaves_the_generator_alone(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    assert row_of("BCOP", tmp_path) == row_of("BCOP", tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


def test_ratios_are_those_of_norms() -> None:
    double = nn.Conv2d(1, 1, 1, bias=False)
    double.weight.data.fill_(2.0)
    images = torch.randn(3, 1, 4, 4)
    torch.testing.assert_close(norm_ratios(double, images), torch.full((3,), 2.0).double())
    torch.testing.assert_close(gradient_ratios(double, images), torch.full((3,), 2.0).double())


def test_what_is_not_installed_is_left_out_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankscope.lab.experiments.orthogonality.find_spec", lambda _: None)
    row = row_of("AOC", tmp_path)
    assert row == {"layer": "AOC", "note": "left out: orthogonium is not installed"}
    with pytest.raises(MissingExtraError, match="AOC needs orthogonium"):
        build_layer("AOC", SMALL)


def test_what_is_installed_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package, layers = ModuleType("orthogonium"), ModuleType("orthogonium.layers")

    def adaptive(in_channels: int, out_channels: int, kernel: int, *, bias: bool) -> nn.Module:
        assert (in_channels, out_channels, kernel, bias) == (8, 8, 3, False)
        return nn.Identity()

    setattr(layers, "AdaptiveOrthoConv2d", adaptive)  # noqa: B010 - a module made by hand
    monkeypatch.setitem(sys.modules, "orthogonium", package)
    monkeypatch.setitem(sys.modules, "orthogonium.layers", layers)
    monkeypatch.setattr("rankscope.lab.experiments.orthogonality.find_spec", lambda _: object())
    assert row_of("AOC", tmp_path)["mean - 1"] == 0.0


def test_the_experiment_has_ours_all_references_and_the_sizes_of_the_source() -> None:
    names = [entry.name for entry in ORTHOGONALITY.entries]
    assert names == [
        "ours",
        *(name.lower() for name in REFERENCES),
        "aoc",
        "torch",
        "ours-float64",
        "ours-after-1000-steps",
        "aoc-after-1000-steps",
    ]
    assert set(PUBLISHED) < set(names)
    first = ORTHOGONALITY.entries[0]
    assert isinstance(first, OrthogonalityEntry)
    assert (first.num_layers, first.num_inputs, first.size) == (100, 256, LayerSize(64, 16, 3))
    assert first.depths[0] == 5
    assert first.depths[-1] == 50
