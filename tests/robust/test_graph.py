import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import SizeError, UnsupportedModuleError
from rankscope.networks import ResNet
from rankscope.robust import Graph, Reading, ResNet9, lipschitz_bound


def read_graph(
    model: nn.Module, shape: tuple[int, ...], *, wholes: tuple[type[nn.Module], ...] = ()
) -> Graph:
    return Reading(
        model, shape, wholes=lambda module: isinstance(module, wholes), reader="test"
    ).graph()


class Calls(nn.Module):
    """A model made of one function."""

    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function
        self.linear = nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> object:
        assert callable(self.function)
        return self.function(self, inputs)


def change_in_place(model: Calls, inputs: Tensor) -> Tensor:
    hidden = model.linear(inputs)
    hidden += 1
    hidden.relu_()
    hidden *= 2.0
    outputs: Tensor = functional.relu(hidden, inplace=True)
    return outputs


def change_what_is_used_again(model: Calls, inputs: Tensor) -> Tensor:
    hidden = model.linear(inputs)
    view = hidden[:, :2]
    view += 1
    outputs: Tensor = hidden * 1.0
    return outputs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (ResNet(8, width=4), (3, 8, 8)),
        (ResNet9(width=4, image=(3, 16, 16)), (3, 16, 16)),
        (Calls(change_in_place), (4,)),
        (Calls(change_what_is_used_again), (4,)),
        (Calls(lambda _, x: torch.cat([x, torch.ones(x.shape[0], 1) * 2], dim=1)), (4,)),
        (nn.Sequential(nn.Flatten(), nn.Linear(6, 3), nn.ReLU(inplace=True)), (2, 3)),
        (Calls(lambda _, x: x.view(x.shape[0], 2, -1).transpose(1, 2).mT.reshape(len(x), 4)), (4,)),
        (Calls(lambda m, x: torch.cat([*m.linear(x).chunk(2, dim=1)], dim=1)), (4,)),
    ],
)
def test_what_was_read_computes_what_the_model_computes(
    model: nn.Module, shape: tuple[int, ...]
) -> None:
    graph = read_graph(model, shape)
    inputs = torch.rand(5, *shape)
    with torch.no_grad():
        expected = copy.deepcopy(model).eval()(inputs)
        torch.testing.assert_close(graph.run(inputs), expected, rtol=1e-4, atol=1e-5)


class FixedBatch(nn.Module):
    """Writes the number of samples into its shapes, and moves them to the second axis."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 4))
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.cat([self.token.expand(int(inputs.shape[0]), 1, 4), inputs], dim=1)
        outputs: Tensor = self.attention(hidden, hidden, hidden)[0][:, 0]
        return outputs


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_a_batch_of_fixed_length_is_read_one_sample_at_a_time(batch: int) -> None:
    torch.manual_seed(0)
    model = FixedBatch().eval()
    graph = read_graph(model, (3, 4))
    inputs = torch.rand(batch, 3, 4)
    with torch.no_grad():
        torch.testing.assert_close(graph.run(inputs), model(inputs), rtol=1e-4, atol=1e-5)


def test_a_module_taken_whole_is_one_operation_and_names_are_paths() -> None:
    model = nn.Sequential(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()), nn.Flatten())
    names = [node.name for node in read_graph(model, (1, 5, 5)).nodes]
    assert names == ["0.0.conv2d", "0.1.relu", "1.view"]
    whole = read_graph(model, (1, 5, 5), wholes=(nn.Conv2d,)).nodes[0]
    assert (whole.name, whole.kind) == ("0.0", "Conv2d")
    assert isinstance(whole.module, nn.Conv2d)


def test_the_model_and_its_mode_stay_as_they_are() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    before = copy.deepcopy(model.state_dict())
    read_graph(model, (3,))
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert type(model[0]).forward == nn.Linear.forward
    assert "forward" not in vars(model[0])
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_what_the_output_does_not_need_is_left_out() -> None:
    graph = read_graph(Calls(lambda m, x: (m.linear(x).exp(), x + 1)[1]), (4,))
    assert [node.kind for node in graph.nodes] == ["add"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda m, x: x if x.sum(dim=1).allclose(x[:, 0]) else -x, "torch cannot export Calls"),
        (lambda m, x: x.tolist(), "depends on the numbers|got 0 tensors"),
        (lambda m, x: x * float(x[0, 0]), "torch cannot export Calls"),
        (lambda m, x: x * x[0, 0].item(), r"depends on the numbers|cannot export"),
        (lambda m, x: x - x.mean(dim=0), "takes samples together"),
        (lambda m, x: x - x.mean(dim=0, keepdim=True), "takes samples together"),
        (lambda m, x: x + x.flip(0), "takes samples together"),
        (lambda m, x: x + torch.rand_like(x), r"rand_like \(.*\): it is random"),
        (lambda m, x: functional.dropout(x), r"dropout \(.*\): it is random"),
        (lambda m, x: (x, x), "got 2 tensors"),
        (lambda m, x: torch.ones(2, 4), "got 1 tensors, of which 0"),
        (lambda m, x: x.expand(2, 4) + 0, r"shape \(2, 4\) out of a batch of 1; wanted one row"),
        (lambda m, x: x * torch.arange(x.shape[0])[:, None], "takes samples together"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(function: object, message: str) -> None:
    with pytest.raises(UnsupportedModuleError, match=message):
        lipschitz_bound(Calls(function), (4,))


def test_inputs_of_another_shape_are_refused() -> None:
    with pytest.raises(SizeError, match=r"Linear cannot be run on inputs of shape \(5,\): "):
        read_graph(nn.Linear(4, 2), (5,))
