"""A trace computes what the module computes, in the same structure, for any batch."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rankscope.errors import SizeError, UnsupportedModuleError
from rankscope.reading import trace


class InPlace(nn.Module):
    def forward(self, inputs: Tensor) -> tuple[Tensor, dict[str, object]]:
        doubled = inputs * 2
        part = doubled[:, :3]
        part.mul_(5)
        part[:, 0] = 1.0
        return doubled + part.sum(), {"whole": doubled, "rest": (part, None)}


@pytest.mark.slow
def test_writing_in_place_is_read_as_functions_of_values() -> None:
    inputs = torch.randn(3, 5)
    expected, made = InPlace()(inputs), trace(InPlace(), inputs).run(inputs)
    torch.testing.assert_close(made[0], expected[0])
    torch.testing.assert_close(made[1]["rest"][0], expected[1]["rest"][0])
    assert made[1]["rest"][1] is None


def add_to_a_view(inputs: Tensor) -> Tensor:
    made = inputs * 2
    made.flatten(1).add_(1)
    return made


def add_to_what_is_read_later(inputs: Tensor) -> Tensor:
    made = inputs.exp()
    return made.add_(1) * made


def read_a_view_made_before(inputs: Tensor) -> Tensor:
    made = inputs.exp()
    seen = made.transpose(1, 2)
    made.add_(1)
    return seen * 2


def flatten_a_transpose(inputs: Tensor) -> Tensor:
    return inputs.transpose(1, 2).exp().flatten(1)


def add_after_dropout(inputs: Tensor) -> Tensor:
    made = inputs.exp()
    return nn.functional.dropout(made, training=False).add_(made) + made


def add_in_a_lower_precision(inputs: Tensor) -> Tensor:
    return inputs.exp().add_(inputs.double()).sin_()


def add_to_a_part(inputs: Tensor) -> Tensor:
    made = inputs.exp()
    made.chunk(2, -1)[0].mul_(3)
    return made.contiguous().add_(1) + made


def add_to_a_reshaped_transpose(inputs: Tensor) -> Tensor:
    made = inputs.transpose(1, 2).contiguous()
    return made.reshape(made.shape[0] * 2, -1).relu_() + made.to(torch.float32).sum()


def norm_and_add(inputs: Tensor) -> Tensor:
    size = inputs.shape[1]
    normed = nn.functional.batch_norm(inputs, torch.zeros(size), torch.ones(size))
    parted: Tensor = nn.Unflatten(-1, (2, 3))(normed.relu_().add_(inputs))
    return parted


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [
        add_to_a_view,
        add_to_what_is_read_later,
        read_a_view_made_before,
        flatten_a_transpose,
        add_after_dropout,
        add_in_a_lower_precision,
        add_to_a_part,
        add_to_a_reshaped_transpose,
        norm_and_add,
    ],
)
def test_whoever_sees_a_tensor_that_is_changed_sees_the_change(
    function: Callable[[Tensor], Tensor],
) -> None:
    class Module(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return function(inputs)

    inputs = torch.randn(3, 4, 6)
    read = trace(Module(), inputs)
    for length in (3, 5) if read.has_free_batch else (3,):
        inputs = torch.randn(length, 4, 6)
        torch.testing.assert_close(read.run(inputs), function(inputs.clone()))
    for operation in read.operations:
        assert not operation.kind.endswith("_"), operation.kind


def test_a_batch_of_another_length_runs_where_the_module_allows_it() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten()).eval()
    read = trace(model, (2, 2, 5, 6))
    inputs = torch.randn(7, 2, 5, 6)
    assert read.has_free_batch
    torch.testing.assert_close(read.run(inputs), model(inputs))
    fixed = trace(model, (2, 2, 5, 6), free_batch=False)
    assert not fixed.has_free_batch
    torch.testing.assert_close(fixed.run(inputs[:2]), model(inputs[:2]))


def test_a_module_that_branches_on_numbers_is_refused_with_the_reason_of_torch() -> None:
    class Branching(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return inputs if inputs.sum() > 0 else -inputs

    with pytest.raises(UnsupportedModuleError, match="torch cannot export Branching: "):
        trace(Branching(), (2, 3))


def test_an_example_that_does_not_fit_is_refused_with_its_shape() -> None:
    with pytest.raises(SizeError, match=r"Linear cannot be run on \(2, 5\)"):
        trace(nn.Linear(4, 3), (2, 5))


def test_weights_made_of_parameters_are_folded_and_the_batch_stays_free() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    folded = trace(nn.Sequential(layer, nn.Flatten()), (2, 3)).constants_folded()
    assert [operation.kind for operation in folded.operations] == ["linear"]
    assert folded.has_free_batch
    weight = folded.arrays[folded.operations[0]["weight"]]
    torch.testing.assert_close(weight, layer.weight.detach())
    inputs = torch.rand(5, 3)
    torch.testing.assert_close(folded.run(inputs), layer(inputs).detach())


def test_every_run_of_a_module_has_a_mark() -> None:
    layer = nn.Linear(3, 3)
    model = nn.Sequential(nn.Sequential(layer), nn.Sequential(layer))
    first, second = trace(model, (2, 3)).operations
    assert first.calls == ("", "0", "0.0")
    assert second.calls == ("", "1", "1.0")
    twice = trace(Twice(layer), (2, 3)).operations
    assert [operation.calls[-1] for operation in twice] == ["layer", "layer@1"]


class Twice(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.layer(self.layer(inputs))
        return outputs
