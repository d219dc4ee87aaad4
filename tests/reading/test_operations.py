import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankscope.reading import from_module
from rankscope.reading.operations import ALIASES, OPERATIONS
from rankscope.errors import UnsupportedModuleError


def test_every_alias_names_an_operation() -> None:
    assert [name for name in ALIASES.values() if name not in OPERATIONS] == []
    assert [name for name in ALIASES if name in OPERATIONS] == []


class Unknown(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = {
            "cat": lambda: torch.cat([x, x]),
            "max": lambda: x.amax(0),
            "pool": lambda: F.max_pool1d(x, 2),
            "sqrt": lambda: x.sqrt(),
            "dropout": lambda: F.dropout(x),
            "bind": lambda: x.transpose(0, 1, 2),  # type: ignore[call-arg]
            "named": lambda: x.flatten(colour=3),  # type: ignore[call-arg]
            "embedding": lambda: F.embedding(x, x, max_norm=1.0),
            "softmax": lambda: F.softmax(x, 0, dtype=torch.float32),
            "property": lambda: x.real + 1,
            "value": lambda: x @ 3,
            "fixed": lambda: x + torch.ones(3, 4),
        }[self.name]()
        return found


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cat", r"the module \(cat\): joining tensors end to end is not a contraction"),
        ("max", r"\(amax\): a maximum or minimum is not a contraction"),
        ("pool", r"\(max_pool1d\): a maximum or minimum"),
        ("sqrt", r"\(sqrt\): this function has no diagram"),
        ("dropout", r"\(dropout\): p=0.5 is random in training mode"),
        ("bind", "it was given 4 arguments, but only input, dim0, dim1 are read"),
        ("named", "it was given colour, but only input, start_dim, end_dim are read"),
        ("embedding", "its argument 'max_norm' is not supported"),
        ("softmax", "its argument 'dtype' is not supported"),
        ("property", r"\(real\): this function has no diagram"),
        ("value", "its argument 'other' must be a tensor, got int"),
        ("fixed", r"a tensor of shape \(3, 4\) is made inside forward; register it as a buffer"),
    ],
)
def test_functions_without_a_diagram_are_refused_by_name(name: str, message: str) -> None:
    with pytest.raises(UnsupportedModuleError, match=message):
        from_module(Unknown(name), (3, 4))
