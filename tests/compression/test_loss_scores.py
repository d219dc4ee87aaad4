"""Scores by the measured loss, runs from a kept state, factors fitted to the original outputs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.compression import (
    Anchoring,
    Budget,
    Divergence,
    ErrorNorm,
    Loss,
    LossCurve,
    RelativeSquaredError,
    compress,
    find_chain,
    plan_compression,
    read_sites,
    whiten,
)
from rankscope.compression.chain import output_tensor
from rankscope.compression.loss_scores import truncations
from rankscope.errors import CompressionError
from rankscope.factorize import FORMATS
from rankscope.workers import Workers

SVD = [FORMATS["svd"]]


class Block(nn.Module):
    def __init__(self, width: int, *, in_tuple: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(width, 2 * width)
        self.second = nn.Linear(2 * width, width)
        self.in_tuple = in_tuple

    def forward(self, states: Tensor, *, scale: float = 1.0) -> Tensor | tuple[Tensor, str]:
        outputs = states + scale * self.second(torch.relu(self.first(states)))
        return (outputs, "more") if self.in_tuple else outputs


class Stack(nn.Module):
    """Tokens, a row of blocks that are given a keyword beside the state, a head."""

    def __init__(self, depth: int = 3, width: int = 8, *, in_tuple: bool = False) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, width)
        self.blocks = nn.ModuleList(Block(width, in_tuple=in_tuple) for _ in range(depth))
        self.head = nn.Linear(width, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.tokens(tokens)
        for block in self.blocks:
            given = block(states, scale=0.5)
            states = given[0] if isinstance(given, tuple) else given
        logits: Tensor = self.head(states)
        return logits


def stack(**options: bool) -> Stack:
    torch.manual_seed(3)
    return Stack(**options).eval()


def batches(count: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(11, (4, 6), generator=generator) for _ in range(count)]


# --- The curve ------------------------------------------------------------------------------------

positive = st.floats(1e-6, 1e3)


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=5), positive, positive)
def test_a_curve_goes_through_its_points_and_never_falls(
    points: list[tuple[float, float]], first: float, second: float
) -> None:
    curve = LossCurve.through(points)
    for error, loss in curve.points:
        assert curve(error) == pytest.approx(loss)
    low, high = sorted((first, second))
    assert curve(low) <= curve(high) * (1 + 1e-9)
    assert curve(0.0) == 0.0


def test_a_quadratic_loss_is_followed_everywhere() -> None:
    curve = LossCurve.through([(error, 3 * error) for error in (0.01, 0.2, 0.5)])
    assert [curve(error) for error in (1e-4, 0.1, 0.3, 2.0)] == pytest.approx([3e-4, 0.3, 0.9, 6.0])


def test_below_the_first_point_the_loss_grows_like_the_squared_error() -> None:
    curve = LossCurve.through([(0.1, 0.02), (0.4, 0.32)])  # steeper between the points
    assert curve(0.025) == pytest.approx(0.02 / 4)


def test_a_weight_that_changes_nothing_counts_nothing() -> None:
    assert LossCurve.through([(0.1, 0.0), (0.5, 0.0)])(0.3) == 0.0


# --- Distances ------------------------------------------------------------------------------------


def test_the_divergence_is_the_definition_and_a_mean_over_places() -> None:
    generator = torch.Generator().manual_seed(0)
    outputs, others = torch.randn(2, 3, 4, 7, generator=generator)
    shares, estimates = outputs.softmax(-1).double(), others.softmax(-1).double()
    wanted = (shares * (shares / estimates).log()).sum(-1).mean()
    measured = Divergence().distance(others, Divergence().reference(outputs))
    assert measured == pytest.approx(float(wanted), rel=1e-5)
    assert Divergence().distance(outputs, Divergence().reference(outputs)) == 0.0


def test_masked_classes_do_not_count() -> None:
    outputs = torch.tensor([[1.0, 2.0, -torch.inf]])
    assert Divergence().distance(outputs, Divergence().reference(outputs)) == 0.0


def test_the_output_error_is_relative() -> None:
    assert (
        RelativeSquaredError().distance(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 0.0]))
        == 16 / 9
    )
    assert RelativeSquaredError().distance(torch.zeros(2), torch.zeros(2)) == 0.0


# --- Runs from a kept state -----------------------------------------------------------------------


@pytest.mark.parametrize("in_tuple", [False, True])
def test_a_model_run_from_any_block_gives_the_same_bits(in_tuple: bool) -> None:
    model, batch = stack(in_tuple=in_tuple), batches()[0]
    with torch.no_grad():
        chain = find_chain(model, batch)
        assert chain is not None
        assert chain.names == ("blocks.0", "blocks.1", "blocks.2")
        wanted = model(batch)
        state = chain.state_before(0, batch)
        for number in range(3):
            state = chain.state_before(number, batch, (max(number - 1, 0), state))
            assert torch.equal(output_tensor(chain.run_from(number, state, batch)), wanted)
    assert not any("forward" in vars(module) for module in model.modules())


class Branches(nn.Module):
    """The blocks stand side by side, not in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.blocks[0](inputs) + self.blocks[1](inputs)
        return outputs


@pytest.mark.parametrize(
    ("build", "shape"), [(Branches, (2, 4)), (lambda: nn.Sequential(nn.Linear(4, 4)), (2, 4))]
)
def test_what_is_no_row_of_blocks_is_no_chain(
    build: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    assert find_chain(build(), torch.zeros(shape)) is None


# --- The scoring ----------------------------------------------------------------------------------


def test_a_curve_is_the_loss_of_the_model_with_one_weight_cut_and_the_model_is_left_alone() -> None:
    """The cut and its loss from the definitions: SVD of W L, taken back, one run of the model."""
    model, data, ridge = stack(), batches(), 1e-3
    before = {name: value.clone() for name, value in model.state_dict().items()}
    scoring = Loss(data, distance=Divergence(), points=1, ridge=ridge)
    scoring.prepare(model)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    norm = scoring.error_norm("blocks.1.second")
    assert norm is not None
    assert isinstance(norm.curve, LossCurve)
    [(squared_error, loss)] = norm.curve.points

    layer = model.blocks[1].get_submodule("second")
    assert isinstance(layer, nn.Linear)
    seen: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with torch.no_grad():
        references = [Divergence().reference(model(batch)) for batch in data]
        handle.remove()
        rows = torch.cat([given.flatten(0, 1) for given in seen]).double()
        moments = rows.T @ rows / len(rows)
        moments += ridge * moments.diagonal().mean() * torch.eye(16).double()
        factor = torch.linalg.cholesky(moments)
        left, values, right = torch.linalg.svd(layer.weight.double() @ factor, full_matrices=False)
        rank = round((8 * 16 // (8 + 16)) / 2)
        cut = (left[:, :rank] * values[:rank]) @ right[:rank] @ torch.linalg.inv(factor)
        assert squared_error == pytest.approx(
            float(values[rank:].square().sum() / values.square().sum())
        )
        layer.weight.copy_(cut)
        distances = [
            Divergence().distance(model(batch), reference)
            for batch, reference in zip(data, references, strict=True)
        ]
    assert loss == pytest.approx(sum(distances) / len(distances), rel=1e-3)


def test_losses_do_not_depend_on_who_measures_them() -> None:
    model, data = stack(), batches()
    plans = [
        plan_compression(
            model,
            Budget(0.7),
            formats=SVD,
            scores=Loss(data, distance=Divergence(), workers=Workers(backend, 2)),
            workers=Workers(backend, 2),
        )
        for backend in ("sequential", "threading")
    ]
    assert plans[0].rows == plans[1].rows


def test_a_weight_that_the_outputs_ignore_is_given_up_first() -> None:
    class Deaf(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heard, self.ignored = nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, inputs: Tensor) -> Tensor:
            outputs: Tensor = self.heard(inputs) + 0.0 * self.ignored(inputs)
            return outputs

    torch.manual_seed(0)
    data = [torch.randn(32, 16)]
    plan = plan_compression(Deaf(), Budget(0.6), formats=SVD, scores=Loss(data))
    kept = {row.name: row.kept for row in plan.rows}
    assert kept["heard"] == 16 * 17
    assert kept["ignored"] < 100


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(CompressionError, match="at least 1 point and 1 measured batch, got 0 and"):
        Loss(batches(), points=0)
    with pytest.raises(CompressionError, match="wanted at least 1 batch, got 0"):
        Loss([]).prepare(stack())


# --- Anchored factors -----------------------------------------------------------------------------


def test_a_full_correction_is_the_least_squares_fit_to_the_original_outputs() -> None:
    """M = W E[x x'ᵀ] E[x' x'ᵀ]⁻¹, checked against lstsq on the very inputs."""
    torch.manual_seed(1)
    first, second = nn.Linear(6, 6).double(), nn.Linear(6, 4).double()
    model = nn.Sequential(first, second)
    inputs = torch.randn(50, 6, dtype=torch.float64)
    anchoring = Anchoring(model, ["0", "1"], [inputs], ridge=1e-14, share=1.0)
    assert anchoring.levels == [["0"], ["1"]]
    changed = nn.Linear(6, 6).double()
    changed.bias.data.copy_(first.bias.data)
    changed.weight.data.copy_(first.weight.data + 0.3 * torch.randn(6, 6).double())
    anchoring.put("0", changed)
    target = anchoring.targets(["1"])["1"]
    with torch.no_grad():
        original, compressed = first(inputs), changed(inputs)
        wanted = torch.linalg.lstsq(compressed, original @ second.weight.T).solution.T
    torch.testing.assert_close(
        target.module.get_parameter("weight").data, wanted, rtol=1e-6, atol=1e-8
    )


def test_modules_that_read_one_input_are_one_level_and_targets_start_as_the_weights() -> None:
    model, data = stack(), batches()
    names = [site.module_name for site in read_sites(model).sites]
    anchoring = Anchoring(model, names, data, ridge=1e-6)
    assert [name for level in anchoring.levels for name in level] == names
    for level in anchoring.levels:
        for name, target in anchoring.targets(level).items():
            # Nothing was compressed yet: x = x', so that M = W.
            torch.testing.assert_close(
                target.module.weight, model.get_submodule(name).weight, rtol=1e-4, atol=1e-4
            )
            anchoring.put(name, model.get_submodule(name))


def test_the_compressed_model_meets_the_budget_and_is_nearer_than_by_weights() -> None:
    model, data = stack(), batches(6)
    by_loss = compress(model, 0.6, Loss(data, distance=Divergence()), formats=SVD)
    by_weights = compress(model, 0.6, formats=SVD)
    assert by_loss.plan.scoring == "loss"
    assert by_loss.plan.kept.parameters <= 0.6 * by_loss.plan.dense.parameters
    with torch.no_grad():
        reference = Divergence().reference(model(data[0]))
        distances = [
            Divergence().distance(small.model(data[0]), reference)
            for small in (by_loss, by_weights)
        ]
    assert distances[0] < distances[1]


def test_what_was_measured_is_kept_and_not_measured_again(tmp_path: Path) -> None:
    model, memory = stack(), tmp_path / "losses.json"
    scoring = Loss(batches(), distance=Divergence(), memory=memory)
    scoring.prepare(model)
    document = json.loads(memory.read_text())
    assert set(document["curves"]) == {site.name for site in read_sites(model).sites}
    # A number in the file shows who reads it: the same call does, one for another model does not.
    document["curves"]["head"] = [[0.5, 7.0]]
    memory.write_text(json.dumps(document))
    scoring.prepare(model)
    norm = scoring.error_norm("head")
    assert norm is not None
    assert norm.score(0.5**0.5) == pytest.approx(7.0)
    with torch.no_grad():
        model.head.weight.mul_(2)
    scoring.prepare(model)
    changed = scoring.error_norm("head")
    assert changed is not None
    assert changed.score(0.5**0.5) != pytest.approx(7.0)


@given(data=st.data(), sizes=st.tuples(*[st.integers(2, 6)] * 2), groups=st.integers(1, 2))
def test_truncations_are_the_best_of_their_rank_in_the_norm_of_the_error(
    data: st.DataObject, sizes: tuple[int, int], groups: int
) -> None:
    """Eckart & Young of D W L, for kernels, groups, tall and wide weights."""
    out_size, in_size = sizes
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    kernel = data.draw(st.sampled_from([(1,), (3,)]))
    layer = nn.Conv1d(groups * in_size, groups * out_size, kernel, groups=groups).double()
    (site,) = read_sites(layer).sites
    factor = random(groups, in_size, in_size).tril() + 3 * torch.eye(in_size).double()
    rows = random(out_size).abs() + 0.5
    norm = ErrorNorm(
        factor=factor if data.draw(st.booleans()) else None,
        rows=rows if data.draw(st.booleans()) else None,
    )
    whitened = whiten(site.weight, norm).flatten(2)
    spectrum = torch.linalg.svdvals(whitened).square()
    for squared_error, weight in truncations(site, norm, 3):
        cut = whiten(weight, norm).flatten(2)
        ranks = {int(torch.linalg.matrix_rank(group, rtol=1e-9)) for group in cut}
        (rank,) = ranks
        tail = spectrum[:, rank:].sum() / spectrum.sum()
        error = (cut - whitened).square().sum() / whitened.square().sum()
        torch.testing.assert_close(torch.tensor(squared_error).double(), tail)
        torch.testing.assert_close(error, tail)
