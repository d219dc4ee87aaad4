"""The weights that a supported module holds, by the names under which they are compressed."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import Tensor, nn

from rankscope.layers.convolution import ConvolutionSettings
from rankscope.layers.formats.format import Window

PROJECTIONS = ("query", "key", "value")


@dataclass(frozen=True, eq=False)
class Part:
    """One weight (groups, out_size, in_size, *kernel), and what goes with it.

    Args:
        name: of the weight in its module.
        weight: a view.
        bias: how many biases belong to it.
        window: how its kernel moves.
        beside: how many of its own numbers stay as they are beside the cores.
    """

    name: str
    weight: Tensor
    bias: int
    window: Window = field(default_factory=Window)
    beside: int = 0


def parts_of(module: nn.Module) -> Iterator[Part]:
    """The weights of a module whose class is supported, as views."""
    match module:
        case nn.MultiheadAttention():
            yield from _of_attention(module)
        case nn.LSTM() | nn.GRU():
            yield from _of_recurrent(module)
        case nn.Conv1d() | nn.Conv2d():
            yield _of_convolution(module)
        case nn.Linear():
            yield Part("weight", module.weight.detach()[None], _size(module.bias))
        case nn.Embedding():
            # The vector of the padding is not to train, so that it is kept for itself.
            beside = 0 if module.padding_idx is None else module.embedding_dim
            yield Part("weight", module.weight.detach()[None], 0, beside=beside)


def _size(bias: Tensor | None) -> int:
    return 0 if bias is None else bias.numel()


def _of_convolution(module: nn.Conv1d | nn.Conv2d) -> Part:
    weight = module.weight.detach()
    weight = weight.view(module.groups, -1, *weight.shape[1:])
    window = ConvolutionSettings.of(module).window
    return Part("weight", weight, _size(module.bias), window)


def _of_attention(module: nn.MultiheadAttention) -> Iterator[Part]:
    packed = module.in_proj_weight
    weights = (
        (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        if packed is None
        else packed.chunk(3)
    )
    further = {"key": _size(module.bias_k), "value": _size(module.bias_v)}
    for name, weight in zip(PROJECTIONS, weights, strict=True):
        bias = _size(module.in_proj_bias) // 3 + further.get(name, 0)
        yield Part(name, weight.detach()[None], bias)
    out = module.out_proj
    yield Part("out", out.weight.detach()[None], _size(out.bias))


def _of_recurrent(module: nn.LSTM | nn.GRU) -> Iterator[Part]:
    held = dict(module.named_parameters())
    for name, weight in held.items():
        if name.startswith("weight"):
            bias = held.get(name.replace("weight", "bias", 1))
            yield Part(name, weight.detach()[None], _size(bias))
