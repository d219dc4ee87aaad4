from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from rankscope.diagrams import Network, collapse, input_arrays, to_module
from rankscope.diagrams.cost import cost
from rankscope.reading import from_module

Check = Callable[..., Network]


class Block(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.fc1, self.fc2 = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        self.register_buffer("mask", torch.ones(16, 16).tril().view(1, 1, 16, 16))

    mask: Tensor

    def forward(self, x: Tensor) -> Tensor:
        batch, length, size = x.shape
        parts = self.c_attn(self.norm1(x)).split(size, dim=2)
        query, key, value = (
            part.view(batch, length, self.heads, size // self.heads).transpose(1, 2)
            for part in parts
        )
        scores = query @ key.transpose(-2, -1) * key.size(-1) ** -0.5
        scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, -float("inf"))
        found = (F.softmax(scores, dim=-1) @ value).transpose(1, 2).contiguous()
        x = x + self.c_proj(found.view(batch, length, size))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))  # type: ignore[no-any-return]


class LanguageModel(nn.Module):
    """A small GPT: tied weights, table of positions, joint projections, causal mask."""

    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 8), nn.Embedding(16, 8)
        self.drop, self.norm = nn.Dropout(0.1), nn.LayerNorm(8)
        self.blocks = nn.ModuleList([Block(8, 2) for _ in range(depth)])
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        _, length = tokens.size()
        assert length <= 16, "too long"
        places = torch.arange(0, length, dtype=torch.long, device=tokens.device)
        x = self.drop(self.tokens(tokens) + self.places(places))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


class ImageModel(nn.Module):
    """Convolutions with residuals, normalizations and pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)
        )
        self.deep = nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False)
        self.wide = nn.Sequential(nn.GroupNorm(2, 4), nn.Conv2d(4, 6, 1, stride=2))
        self.pool, self.flat, self.head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        identity = x
        out = self.deep(x)
        out += identity
        return self.head(self.flat(self.pool(self.wide(out))))  # type: ignore[no-any-return]


@pytest.mark.slow
def test_a_small_language_model_is_read(assert_reads: Check) -> None:
    model = LanguageModel()
    network = assert_reads(model, (2, 5), below=11)
    assert max(block.count for block in collapse(network)) == 3
    # The weight of the head is the table of tokens; of 16 places, 5 are used.
    unused = (16 - 5) * 8
    assert cost(network).parameters == sum(w.numel() for w in model.parameters()) - unused


@pytest.mark.slow
def test_a_small_image_model_is_read(assert_reads: Check) -> None:
    assert_reads(ImageModel(), (2, 3, 6, 8))


@pytest.mark.parametrize("bias", [True, False])
def test_a_perceptron_is_read(bias: bool, assert_reads: Check) -> None:
    layers = [nn.Linear(6, 5, bias=bias), nn.Tanh(), nn.Linear(5, 4, bias=bias), nn.ReLU()]
    assert_reads(nn.Sequential(*layers, nn.Linear(4, 3, bias=bias), nn.LogSoftmax(-1)), (4, 6))


class Random(nn.Module):
    """A module drawn at random: a list of moves on a tensor."""

    def __init__(self, moves: list[str]) -> None:
        super().__init__()
        self.moves = moves
        self.gain = nn.Parameter(torch.ones(2, 3, 4))

    def forward(self, x: Tensor) -> Tensor:
        start = x
        for move in self.moves:
            x = self._moved(move, x, start)
        return x

    def _moved(self, move: str, x: Tensor, start: Tensor) -> Tensor:
        first = x.shape[0]
        found: Tensor = {
            "relu": lambda: torch.relu(x - 0.1),
            "softmax": lambda: (x / 2).softmax(0),
            "swap": lambda: x.transpose(0, -1),
            "roll": lambda: x.reshape(*x.shape[1:], first),
            "flat": lambda: x.reshape(-1, x.shape[-1]),
            "cut": lambda: x.reshape(24 // 3, 3) if x.numel() == 24 else x,
            "part": lambda: x[: (first + 1) // 2] * 2,
            "last": lambda: x[..., -1:] + x,
            "square": lambda: x * x,
            "gram": lambda: (x.flatten(1) @ x.flatten(1).T)[None] if first > 1 else x[None],
            "gain": lambda: x * self.gain if x.shape == self.gain.shape else -x,
            "skip": lambda: start + x if x.shape == start.shape else x + 1,
            "mean": lambda: x.mean(-1, keepdim=True) - x,
            "sum": lambda: x.sum(0, keepdim=True).expand(3, *x.shape[1:]) + 0,
        }[move]()
        return found


MOVES = [
    "relu",
    "softmax",
    "swap",
    "roll",
    "flat",
    "cut",
    "part",
    "last",
    "square",
    "gram",
    "gain",
    "skip",
    "mean",
    "sum",
]


@pytest.mark.slow
@settings(
    deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(moves=st.lists(st.sampled_from(MOVES), min_size=1, max_size=6))
def test_any_sequence_of_moves_is_read(moves: list[str], assert_reads: Check) -> None:
    assert_reads(Random(moves), (2, 3, 4))


class Renamed(nn.Module):
    """Its input has the name of one of its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.x


def test_an_input_never_shares_its_name_with_a_parameter() -> None:
    assert input_arrays(from_module(Renamed(), (2, 3))) == ("x_input",)


def test_inputs_are_read_in_the_shape_they_are_given_in() -> None:
    network = from_module(nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Softmax(1)), (4, 6))
    assert network.input_shapes == ((4, 6),)
    assert to_module(network)(torch.rand(4, 6)).shape == (4, 2, 3)


class Many(nn.Module):
    def forward(self, *tensors: Tensor) -> Tensor:
        return tensors[0] + tensors[1]


def test_the_network_has_the_name_of_the_class_or_the_one_given() -> None:
    assert from_module(nn.Tanh(), (2,)).name == "Tanh"
    assert from_module(nn.Tanh(), (2,), name="squash").name == "squash"
