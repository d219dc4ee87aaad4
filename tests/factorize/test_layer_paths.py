"""The three paths, and when a merged weight is built anew."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.factorize import (
    FORMATS,
    MergedWeight,
    Path,
    WeightShape,
    Window,
    choose_path,
    estimate_paths,
)
from rankscope.factorize.paths import wants_gradients

SHAPE = WeightShape(64, 64, (3, 3))
WINDOW = Window((1, 1), (1, 1), (1, 1))


class _Counted:
    """Builds a weight, and counts how often."""

    def __init__(self, *tensors: Tensor) -> None:
        self.tensors, self.count = tensors, 0

    def __call__(self) -> Tensor:
        self.count += 1
        return sum((2 * tensor for tensor in self.tensors), torch.zeros(()))


def test_few_multiplications_go_by_the_chain_and_many_by_the_dense_weight() -> None:
    tucker = FORMATS["tucker"]
    few = choose_path(tucker, SHAPE, (14, 14), WINDOW, (32, 32), 64, training=False)
    assert few is Path.CHAIN
    full = tucker.full_ranks(SHAPE)
    assert choose_path(tucker, SHAPE, full, WINDOW, (32, 32), 64, training=False) is Path.MERGED
    assert choose_path(tucker, SHAPE, full, WINDOW, (32, 32), 64, training=True) is Path.REBUILT


@settings(deadline=None)
@given(
    st.sampled_from(["svd", "tucker", "r-tucker", "r-tensor-train", "r-tensor-ring"]),
    st.integers(1, 20),
    st.integers(1, 64),
    st.booleans(),
)
def test_the_choice_is_the_lowest_estimate_that_is_allowed(
    name: str, size: int, batch: int, training: bool
) -> None:
    format = FORMATS[name]
    ranks = format.largest_ranks(SHAPE, 4000)
    assert ranks is not None
    costs = estimate_paths(format, SHAPE, ranks, WINDOW, (size, size), batch)
    assert costs.rebuilt > costs.merged > 0
    chosen = choose_path(format, SHAPE, ranks, WINDOW, (size, size), batch, training)
    other = costs.rebuilt if training else costs.merged
    assert (chosen is Path.CHAIN) == (costs.chain <= other)


def test_a_matrix_has_no_places() -> None:
    shape, svd = WeightShape(4096, 1024), FORMATS["svd"]
    assert choose_path(svd, shape, (82,), Window(), (), 64, training=False) is Path.CHAIN
    assert choose_path(svd, shape, (1024,), Window(), (), 64, training=False) is Path.MERGED


def test_a_merged_weight_is_built_once_while_nothing_changes() -> None:
    tensor = torch.ones(2)
    build, merged = _Counted(tensor), MergedWeight()
    for _ in range(3):
        torch.testing.assert_close(merged.of([tensor], build), 2 * tensor)
    assert build.count == 1


Change = Callable[[nn.Linear], object]
CHANGES: dict[str, Change] = {
    "in place": lambda layer: layer.weight.zero_(),
    "loaded": lambda layer: layer.load_state_dict({"weight": torch.zeros(2, 2)}),
    "assigned": lambda layer: layer.load_state_dict({"weight": torch.zeros(2, 2)}, assign=True),
    "converted": lambda layer: layer.to(torch.float64),
    "another parameter": lambda layer: setattr(layer, "weight", nn.Parameter(torch.zeros(2, 2))),
    "another storage": lambda layer: setattr(layer.weight, "data", torch.zeros(2, 2)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_merged_weight_is_built_anew_when_a_tensor_changed(change: Change) -> None:
    layer, merged = nn.Linear(2, 2, bias=False), MergedWeight()
    merged.of([layer.weight], lambda: layer.weight * 2)
    with torch.no_grad():
        change(layer)
    wanted = layer.weight.detach() * 2
    torch.testing.assert_close(merged.of([layer.weight], lambda: layer.weight * 2), wanted)


def test_a_change_behind_the_back_is_seen_after_clearing() -> None:
    tensor = torch.ones(2)
    build, merged = _Counted(tensor), MergedWeight()
    merged.of([tensor], build)
    tensor.data.add_(1)
    merged.clear()
    torch.testing.assert_close(merged.of([tensor], build), torch.full((2,), 4.0))


def test_a_merged_weight_made_in_inference_mode_serves_where_inputs_have_gradients() -> None:
    parameter, merged = nn.Parameter(torch.ones(2, 2)), MergedWeight()
    with torch.inference_mode():
        merged.of([parameter], lambda: parameter * 2)
    inputs = torch.ones(2, 2, requires_grad=True)
    weight = merged.of([parameter], lambda: parameter * 3)
    assert not weight.requires_grad
    (gradient,) = torch.autograd.grad((inputs @ weight).sum(), inputs)
    torch.testing.assert_close(gradient, torch.full((2, 2), 4.0))


def test_tensors_made_in_inference_mode_can_be_merged() -> None:
    with torch.inference_mode():
        tensor = torch.ones(2)
        torch.testing.assert_close(MergedWeight().of([tensor], lambda: tensor * 2), tensor * 2)


def test_copies_start_empty() -> None:
    tensor = torch.ones(2)
    build, merged = _Counted(tensor), MergedWeight()
    merged.of([tensor], build)
    for twin in (copy.deepcopy(merged), pickle.loads(pickle.dumps(merged))):
        twin.of([tensor], build)
    assert build.count == 3


def test_tensors_that_only_pretend_are_never_kept() -> None:
    class Pretending(Tensor):
        pass

    tensor = torch.ones(2).as_subclass(Pretending)
    build, merged = _Counted(torch.ones(2)), MergedWeight()
    for _ in range(2):
        merged.of([tensor], build)
    assert build.count == 2


def test_gradients_are_wanted_only_where_they_are_recorded() -> None:
    parameter, constant = nn.Parameter(torch.ones(1)), torch.ones(1)
    assert wants_gradients([constant, parameter])
    assert not wants_gradients([constant])
    with torch.no_grad():
        assert not wants_gradients([parameter])
