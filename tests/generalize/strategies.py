"""CP networks drawn at random, with every kind of operation that a layer trace reads."""

from dataclasses import asdict, dataclass
from functools import cache

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.factorize import CPConv2d, CPLinear, PaddingMode
from rankscope.generalize import Activations, LayerTrace, Sample, measure_activations, trace_layers

IMAGE = (3, 6, 6)
NUM_CLASSES = 3


class Residual(nn.Module):
    """The input plus what is made of it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = inputs + self.inner(inputs)
        return result


@dataclass(frozen=True, eq=False)
class Drawn:
    """A network, what was read of it, and how it does on a sample."""

    model: nn.Module
    trace: LayerTrace
    sample: Sample
    activations: Activations


def random_network(
    seed: int,
    *,
    is_circular: bool = False,
    stride: int = 1,
    is_residual: bool = False,
    has_normalization: bool = False,
) -> nn.Module:
    """Two convolutions, a residual one between them if asked for, pooling, and a matrix."""
    generator = torch.Generator().manual_seed(seed)
    mode: PaddingMode = "circular" if is_circular else "zeros"
    parts: list[nn.Module] = [
        CPConv2d(3, 4, 3, rank=5, stride=stride, padding=1, padding_mode=mode, generator=generator)
    ]
    parts += [_normalization(generator)] if has_normalization else []
    parts.append(nn.ReLU())
    inner = CPConv2d(4, 4, 3, rank=6, padding=1, padding_mode=mode, generator=generator)
    parts.append(Residual(nn.Sequential(inner, nn.ReLU())) if is_residual else inner)
    size = IMAGE[1] // stride
    parts += [nn.ReLU(), nn.MaxPool2d(size // 3), nn.Flatten()]
    parts.append(CPLinear(4 * 9, NUM_CLASSES, rank=3, generator=generator))
    model = nn.Sequential(*parts).double().eval().requires_grad_(requires_grad=False)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            weight.copy_(0.1 * torch.randn(weight.shape, generator=generator))
    return model


def _normalization(generator: torch.Generator) -> nn.Module:
    layer = nn.BatchNorm2d(4)
    layer.running_mean = torch.randn(4, generator=generator)
    layer.running_var = torch.rand(4, generator=generator) + 0.1
    layer.weight = nn.Parameter(torch.randn(4, generator=generator))
    return layer


def drawn(model: nn.Module, seed: int, *, count: int = 7) -> Drawn:
    """A network with a random sample."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, *IMAGE, generator=generator, dtype=torch.float64)
    sample = Sample(inputs, torch.randint(NUM_CLASSES, (count,), generator=generator))
    trace = trace_layers(model, IMAGE)
    return Drawn(model, trace, sample, measure_activations(trace, sample, batch_size=3))


@dataclass(frozen=True)
class Recipe:
    """What a network is made of; the network itself is made in the test."""

    seed: int
    is_circular: bool
    stride: int
    is_residual: bool
    has_normalization: bool

    def drawn(self) -> Drawn:
        """The network on a random sample."""
        return _drawn(self)


@cache
def _drawn(recipe: Recipe) -> Drawn:
    return drawn(random_network(**asdict(recipe)), recipe.seed)


def recipes() -> st.SearchStrategy[Recipe]:
    """Circular or zero padding, stride 1 or 2, with and without residuals and normalization."""
    return st.builds(
        Recipe,
        seed=st.just(0),  # each network is traced once; there are 16 of them
        is_circular=st.booleans(),
        stride=st.sampled_from((1, 2)),
        is_residual=st.booleans(),
        has_normalization=st.booleans(),
    )


# Of the three layers of every network that is drawn.
RANKS = st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(1, 3))
