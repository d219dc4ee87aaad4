"""Why the parameters of a module are left as they are."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import nn
from torch.nn.utils import parametrize

FACTORIZED_ROOM = "rankscope.layers."
NORMALIZATIONS = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    nn.LocalResponseNorm,
)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


@dataclass(frozen=True)
class Refusal:
    """A reason in words, and whether it also speaks for the modules inside."""

    reason: str
    covers_children: bool = False


@dataclass(frozen=True)
class Twins:
    """Names under which the same parameter, or the same module, stands in a model."""

    parameters: Mapping[object, tuple[str, ...]]
    modules: Mapping[int, tuple[str, ...]]


def twins(model: nn.Module) -> Twins:
    """All names of every parameter and of every module."""
    parameters: dict[object, list[str]] = defaultdict(list)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        parameters[identity(parameter)].append(name)
    modules: dict[int, list[str]] = defaultdict(list)
    for name, module in model.named_modules(remove_duplicate=False):
        modules[id(module)].append(name)
    return Twins(
        {key: tuple(names) for key, names in parameters.items()},
        {key: tuple(names) for key, names in modules.items()},
    )


def identity(parameter: nn.Parameter) -> object:
    """The same for two parameters that share their numbers."""
    if parameter.is_meta or not parameter.numel():
        return id(parameter)
    return parameter.data_ptr(), tuple(parameter.shape)


def refusal(name: str, module: nn.Module, shared: Twins) -> Refusal | None:
    """Why a module is left alone; None if its weights are sites."""
    if type(module).__module__.startswith(FACTORIZED_ROOM):
        return Refusal("already factorized", covers_children=True)
    if parametrize.is_parametrized(module):
        return Refusal(
            "parametrized: its weight is computed from others on every call", covers_children=True
        )
    support = SUPPORTED.get(type(module))
    if support is None:
        return Refusal(_unsupported(module))
    of_class = support(module)
    reason = of_class or _changed(module) or _shared(name, module, shared)
    # What is inside an attention module belongs to it, whatever is decided.
    return Refusal(reason, covers_children=True) if reason else None


def _unsupported(module: nn.Module) -> str:
    kind = type(module).__name__
    if isinstance(module, NORMALIZATIONS):
        return "normalization: too few numbers to gain anything"
    if isinstance(module, TRANSPOSED):
        return f"transposed convolution ({kind}): not supported"
    return f"unsupported class {kind}"


def _changed(module: nn.Module) -> str | None:
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    count = sum(map(len, hooks))
    if count:
        return f"has {count} hook{'s' * (count > 1)} that would be lost"
    if "forward" in vars(module):
        return "its forward was replaced on the instance"
    if not all(parameter.is_floating_point() for parameter in module.parameters()):
        return "weights that are not real floating-point numbers"
    return None


def _shared(name: str, module: nn.Module, shared: Twins) -> str | None:
    others = [other for other in shared.modules[id(module)] if other != name]
    if others:
        return f"shared module, also used as {', '.join(others)}"
    prefix = f"{name}." if name else ""
    for part, parameter in module.named_parameters():
        others = [n for n in shared.parameters[identity(parameter)] if n != prefix + part]
        if others:
            return f"tied: {part} is also {', '.join(others)}"
    return None


def _of_linear(module: nn.Module) -> str | None:
    return None


def _of_convolution(module: nn.Module) -> str | None:
    assert isinstance(module, nn.Conv1d | nn.Conv2d)
    if module.in_channels == module.groups:
        if module.groups == 1:
            return "reads a single channel: there are no channels to factor"
        return f"depthwise: each of its {module.groups} groups sees one channel"
    return None


def _of_embedding(module: nn.Module) -> str | None:
    assert isinstance(module, nn.Embedding)
    wishes = {
        "max_norm": module.max_norm is not None,
        "sparse": module.sparse,
        "scale_grad_by_freq": module.scale_grad_by_freq,
    }
    asked = [name for name, is_on in wishes.items() if is_on]
    if asked:
        return f"embedding with {' and '.join(asked)}: not supported"
    return None


def _of_attention(module: nn.Module) -> str | None:
    assert isinstance(module, nn.MultiheadAttention)
    return None


def _of_recurrent(module: nn.Module) -> str | None:
    assert isinstance(module, nn.LSTM | nn.GRU)
    return None


# Exact classes: a subclass may compute something else in its forward.
SUPPORTED: Mapping[type[nn.Module], Callable[[nn.Module], str | None]] = {
    nn.Linear: _of_linear,
    nn.Conv1d: _of_convolution,
    nn.Conv2d: _of_convolution,
    nn.Embedding: _of_embedding,
    nn.MultiheadAttention: _of_attention,
    nn.LSTM: _of_recurrent,
    nn.GRU: _of_recurrent,
}
