"""Deep models through one module: state, training, compilation, and memory as planned."""

import copy
import io

import pytest
import torch

from rankscope.diagrams import (
    Diagram,
    Function,
    Index,
    Network,
    Node,
    Region,
    Role,
    Step,
    Sum,
    Term,
    class_name,
    to_module,
    to_source,
)


def from_source(source: str, name: str) -> torch.nn.Module:
    """Run a generated file and make its module."""
    names: dict[str, type[torch.nn.Module]] = {}
    exec(compile(source, "generated.py", "exec"), names)
    return names[class_name(name)]()


def linear(name: str, source: str, into: int, out: int) -> Sum:
    """source W^T + bias."""
    indices = (Index("b", 2), Index("i", into), Index("o", out))
    product = Diagram(
        "product",
        indices,
        (
            Node("X", ("b", "i"), Role.DATA, array=source),
            Node("W", ("o", "i"), array=f"{name}.weight"),
        ),
        ("b", "o"),
    )
    bias = Diagram(
        "bias",
        (indices[0], indices[2]),
        (Node("1", ("b",), Role.CONSTANT), Node("B", ("o",), array=f"{name}.bias")),
        ("b", "o"),
    )
    return Sum(name, (Term(product), Term(bias)))


def residual_network() -> Network:
    """y = x + 0.5 (V tanh(U x + a) + b), with the state_dict names of a Sequential."""
    first, second = linear("0", "x", 3, 4), linear("2", "hidden", 4, 3)
    activation = Diagram(
        "tanh",
        (Index("b", 2), Index("o", 4)),
        (Node("Z", ("b", "o"), Role.DATA, array="first"),),
        ("b", "o"),
        regions=(Region("T", ("Z",), Function("tanh")),),
    )
    skip = Diagram(
        "skip",
        (Index("b", 2), Index("o", 3)),
        (Node("X", ("b", "o"), Role.DATA, array="x"),),
        ("b", "o"),
    )
    branch = Diagram(
        "branch",
        (Index("b", 2), Index("o", 3)),
        (Node("S", ("b", "o"), Role.DATA, array="second"),),
        ("b", "o"),
    )
    return Network(
        "residual",
        (
            Step("first", first),
            Step("hidden", activation),
            Step("second", second),
            Step("y", Sum("y", (Term(skip), Term(branch, 0.5)))),
        ),
    )


def test_a_network_with_residuals_and_biases_equals_its_sequential() -> None:
    stack = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3)
    ).double()
    network = residual_network()
    module = to_module(network, stack.state_dict())
    data = torch.randn(2, 3).double()
    torch.testing.assert_close(module(data), data + 0.5 * stack(data))
    assert list(module.array_names.values()) == list(stack.state_dict())
    twin = from_source(to_source(network), "residual").double()
    twin.load_state_dict(module.state_dict())
    torch.testing.assert_close(twin(data), module(data))


def test_a_module_is_copied_saved_moved_and_trained() -> None:
    module = to_module(residual_network(), generator=torch.Generator().manual_seed(0))
    data = torch.randn(2, 3)
    expected = module(data)
    twin = to_module(residual_network())
    twin.load_state_dict(module.state_dict())
    torch.testing.assert_close(twin(data), expected)
    torch.testing.assert_close(copy.deepcopy(module)(data), expected)
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    torch.testing.assert_close(torch.load(buffer, weights_only=False)(data), expected)
    torch.testing.assert_close(module.double()(data.double()), expected.double())
    assert module.to("meta")(data.to("meta")).shape == (2, 3)
    twin(data).square().sum().backward()
    assert all(parameter.grad is not None for parameter in twin.parameters())


@pytest.mark.slow
@pytest.mark.usefixtures("compilable")
def test_a_module_compiles_and_exports_without_graph_breaks() -> None:
    module = to_module(residual_network())
    data = torch.randn(2, 3)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(data), module(data))
    for strict in (False, True):
        exported = torch.export.export(module, (data,), strict=strict).module()
        torch.testing.assert_close(exported(data), module(data))
