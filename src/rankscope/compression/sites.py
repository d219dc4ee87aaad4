"""Reads a model: every weight that could be written smaller, and why the others are left alone.

reading = read_sites(model)
reading.sites           # weights of nn.Linear, Conv1d/2d, Embedding, attention, LSTM and GRU
reading.uncompressed    # every other module with parameters, with the reason

A weight that several modules share, such as a table of tokens that is also the head, is one site.
Numbers are looked at only to refuse NaN: a model on the meta device is read as any other.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from rankscope.errors import CompressionError
from rankscope.factorize.convolution import ConvolutionSettings
from rankscope.factorize.experts import EXPERT_PARTS, is_packed_experts, packed_weight
from rankscope.factorize.formats.format import WeightShape, Window
from rankscope.factorize.linear import linear_of

# --- The weights that a supported module holds, by the names under which they are compressed ------


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
        is_packed: whether the kernel's places are experts, of which a sample uses one.
    """

    name: str
    weight: Tensor
    bias: int
    window: Window = field(default_factory=Window)
    beside: int = 0
    is_packed: bool = False


def parts_of(module: nn.Module) -> Iterator[Part]:  # noqa: C901 - one case for each class
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
        case nn.Module() if is_packed_experts(module):
            for name in EXPERT_PARTS:
                weight = packed_weight(module.get_parameter(name).detach())
                yield Part(name, weight[None], 0, is_packed=True)
        case nn.Module() if is_transposed_linear(module):
            weight, bias = module.get_parameter("weight"), module.get_parameter("bias")
            yield Part("weight", weight.detach().mT[None], _size(bias))
        case nn.Embedding():
            # The vector of the padding is not to train, so that it is kept for itself.
            beside = 0 if module.padding_idx is None else module.embedding_dim
            yield Part("weight", module.weight.detach()[None], 0, beside=beside)


def is_transposed_linear(module: nn.Module) -> bool:
    """Whether it is the `Conv1D` of transformers: a linear layer whose weight is stored (in, out).

    By name, so that transformers is not loaded for models that do not come from it.
    """
    kind = type(module)
    return kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"


def as_linear(module: nn.Module) -> nn.Linear:
    """A linear layer as PyTorch has it, of a module that is one or a `Conv1D` of transformers."""
    if isinstance(module, nn.Linear):
        return module
    assert is_transposed_linear(module), "the last of the classes that are sites"
    weight = module.get_parameter("weight").detach().mT
    return linear_of(weight, module.get_parameter("bias")).train(module.training)


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


# --- Why the parameters of a module are left as they are ------------------------------------------


FACTORIZED_PACKAGE = "rankscope.factorize."
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
class SharedNames:
    """Names under which the same parameter, or the same module, stands in a model."""

    parameters: Mapping[object, tuple[str, ...]]
    modules: Mapping[int, tuple[str, ...]]
    holders: Mapping[str, nn.Module]


def shared_names(model: nn.Module) -> SharedNames:
    """All names of every parameter and of every module."""
    parameters: dict[object, list[str]] = defaultdict(list)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        parameters[identity(parameter)].append(name)
    modules: dict[int, list[str]] = defaultdict(list)
    holders = dict(model.named_modules(remove_duplicate=False))
    for name, module in holders.items():
        modules[id(module)].append(name)
    return SharedNames(
        {key: tuple(names) for key, names in parameters.items()},
        {key: tuple(names) for key, names in modules.items()},
        holders,
    )


def identity(parameter: nn.Parameter) -> object:
    """The same for two parameters that share their numbers."""
    if parameter.is_meta or not parameter.numel():
        return id(parameter)
    return parameter.data_ptr(), tuple(parameter.shape)


def refusal(name: str, module: nn.Module, shared: SharedNames) -> Refusal | None:
    """Why a module is left alone; None if its weights are sites."""
    if type(module).__module__.startswith(FACTORIZED_PACKAGE):
        return Refusal("already factorized", covers_children=True)
    if parametrize.is_parametrized(module):
        return Refusal(
            "parametrized: its weight is computed from others on every call", covers_children=True
        )
    support = SUPPORTED.get(type(module))
    if support is None and not (is_transposed_linear(module) or is_packed_experts(module)):
        return Refusal(_unsupported_reason(module))
    of_class = None if support is None else support(module)
    reason = of_class or _changed_reason(module) or _shared_reason(name, module, shared)
    # What is inside an attention module belongs to it, whatever is decided.
    return Refusal(reason, covers_children=True) if reason else None


def _unsupported_reason(module: nn.Module) -> str:
    kind = type(module).__name__
    if isinstance(module, NORMALIZATIONS):
        return "normalization: too few numbers to gain anything"
    if isinstance(module, TRANSPOSED):
        return f"transposed convolution ({kind}): not supported"
    return f"unsupported class {kind}"


def _changed_reason(module: nn.Module) -> str | None:
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


def _shared_reason(name: str, module: nn.Module, shared: SharedNames) -> str | None:
    others = [other for other in shared.modules[id(module)] if other != name]
    if others:
        return f"shared module, also used as {', '.join(others)}"
    for part, parameter in module.named_parameters():
        others = _other_names(name, part, parameter, shared)
        if not others or (type(module) in _SINGLE and part == "bias"):
            continue  # a bias stays the parameter that it is, wherever else it stands
        if type(module) not in _TABLES or not all(_is_table(other, shared) for other in others):
            return f"tied: {part} is also {', '.join(others)}"
    return None


def _other_names(name: str, part: str, parameter: nn.Parameter, shared: SharedNames) -> list[str]:
    own = f"{name}.{part}" if name else part
    return [other for other in shared.parameters[identity(parameter)] if other != own]


def _is_table(name: str, shared: SharedNames) -> bool:
    """Whether a parameter is the weight of a module that can share one as a site."""
    holder_name, _, part = name.rpartition(".")
    holder = shared.holders[holder_name]
    return (
        part == "weight"
        and type(holder) in _TABLES
        and len(shared.modules[id(holder)]) == 1
        and not parametrize.is_parametrized(holder)
        and SUPPORTED[type(holder)](holder) is None
        and _changed_reason(holder) is None
    )


def tied_modules(name: str, module: nn.Module, shared: SharedNames) -> list[str]:
    """The names of the other modules that hold the weight of a supported module."""
    if type(module) not in _TABLES:
        return []
    others = _other_names(name, "weight", module.get_parameter("weight"), shared)
    return [other.rpartition(".")[0] for other in others]


def _of_linear(module: nn.Module) -> str | None:
    return None


def _of_convolution_refusals(module: nn.Module) -> str | None:
    assert isinstance(module, nn.Conv1d | nn.Conv2d)
    if module.in_channels == module.groups:
        if module.groups == 1:
            return "reads a single channel: there are no channels to factor"
        return f"depthwise: each of its {module.groups} groups sees one channel"
    return None


def _of_embedding(module: nn.Module) -> str | None:
    assert isinstance(module, nn.Embedding)
    switches = {
        "max_norm": module.max_norm is not None,
        "sparse": module.sparse,
        "scale_grad_by_freq": module.scale_grad_by_freq,
    }
    asked = [name for name, is_on in switches.items() if is_on]
    if asked:
        return f"embedding with {' and '.join(asked)}: not supported"
    return None


def _of_attention_refusals(module: nn.Module) -> str | None:
    assert isinstance(module, nn.MultiheadAttention)
    return None


def _of_recurrent_refusals(module: nn.Module) -> str | None:
    assert isinstance(module, nn.LSTM | nn.GRU)
    return None


# Exact classes: a subclass may compute something else in its forward.
SUPPORTED: Mapping[type[nn.Module], Callable[[nn.Module], str | None]] = {
    nn.Linear: _of_linear,
    nn.Conv1d: _of_convolution_refusals,
    nn.Conv2d: _of_convolution_refusals,
    nn.Embedding: _of_embedding,
    nn.MultiheadAttention: _of_attention_refusals,
    nn.LSTM: _of_recurrent_refusals,
    nn.GRU: _of_recurrent_refusals,
}
# Classes of one weight; of these, the ones that may share it with another module.
_SINGLE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Embedding)
_TABLES = (nn.Linear, nn.Embedding)


AS_ASKED = "left alone as asked"


@dataclass(frozen=True)
class Uncompressed:
    """A module whose parameters stay as they are, and why; those tied to others count once."""

    name: str
    kind: str
    shape: tuple[int, ...]
    bits: int
    num_parameters: int
    reason: str


@dataclass(frozen=True, eq=False)
class Site:
    """One weight that could be written smaller.

    Args:
        name: as rows of a plan say it: of the module, or `module.part` where it has several.
        module_name: of the module that holds it; empty for the model itself.
        part: "weight"; "query", "key", "value" or "out"; or "weight_ih_l0" and the like.
        kind: class of the module.
        weight: (groups, out_size, in_size, *kernel), a view of the model's own.
        window: how its kernel moves; a matrix has none.
        bias: how many further parameters its row counts.
        beside: how many of its own numbers stay as they are beside the cores.
        also: names of other modules that hold the same weight.
        is_packed: whether the kernel's places are experts, of which a sample uses one.
    """

    name: str
    module_name: str
    part: str
    kind: str
    weight: Tensor
    window: Window
    bias: int
    beside: int = 0
    also: tuple[str, ...] = ()
    is_packed: bool = False

    @cached_property
    def shape(self) -> WeightShape:
        """Shape of the weight of one group."""
        return WeightShape.of(self.weight[0])

    @property
    def groups(self) -> int:
        """How many weights of that shape there are."""
        return len(self.weight)

    @property
    def bits(self) -> int:
        """Bits of each number, as trained."""
        return 8 * self.weight.element_size()

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape in which PyTorch stores the weight, all groups together."""
        return (self.groups * self.shape.out_size, *self.shape.sizes[1:])

    @property
    def num_parameters(self) -> int:
        """Number of parameters, the bias included."""
        return self.weight.numel() + self.bias

    def uncompressed(self, reason: str) -> "Uncompressed":
        """The row of a site that stays dense."""
        return Uncompressed(
            self.name, self.kind, self.stored_shape, self.bits, self.num_parameters, reason
        )


@dataclass(frozen=True, eq=False)
class Reading:
    """All modules of a model that have parameters, in its order; parameters are counted once."""

    entries: tuple[Site | Uncompressed, ...]

    @property
    def sites(self) -> tuple[Site, ...]:
        """The weights that could be compressed."""
        return tuple(entry for entry in self.entries if isinstance(entry, Site))

    @property
    def uncompressed(self) -> tuple[Uncompressed, ...]:
        """The modules that stay as they are."""
        return tuple(entry for entry in self.entries if isinstance(entry, Uncompressed))


def read_sites(model: nn.Module, *, leave: Sequence[str] = ()) -> Reading:
    """Find every weight of a model, and sort them into sites and those left alone.

    Args:
        model: any module; it is only looked at.
        leave: names of modules or weights to leave alone, `*` for any part of a name.

    Example:
        >>> model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))
        >>> [(site.name, site.kind) for site in read_sites(model).sites]
        [('0', 'Linear')]
        >>> [left.reason for left in read_sites(model).uncompressed]
        ['normalization: too few numbers to gain anything']

    Raises:
        CompressionError: if a parameter is not finite or not initialized, or `leave` names nothing.
    """
    _check_finite(model)
    reading = Reading(tuple(_entries(model, tuple(leave))))
    names = [entry.name for entry in reading.entries]
    for pattern in leave:
        if not any(_matches(name, (pattern,)) for name in names):
            raise CompressionError(
                f"leave: no module with parameters matches {pattern!r}; there are "
                f"{len(names)}: {', '.join(names[:8])}{', ...' * (len(names) > 8)}."
            )
    return reading


def _check_finite(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise CompressionError(
                f"{name} has no shape yet (a lazy module); run the model once on data first."
            )
        if parameter.is_meta:
            continue
        # One parameter at a time, and a sum before a mask: memory stays that of the model.
        if parameter.is_floating_point() and not bool(torch.isfinite(parameter.detach().sum())):
            bad = int((~torch.isfinite(parameter.detach())).sum())
            if bad:
                raise CompressionError(
                    f"{name} holds {bad:,} NaN or infinite numbers of {parameter.numel():,}; "
                    "repair or reload the weights before compressing."
                )


def _entries(model: nn.Module, leave: tuple[str, ...]) -> Iterator[Site | Uncompressed]:
    shared = shared_names(model)
    counted: set[object] = set()
    owners: dict[str, str] = {}  # of a weight that is tied, by the module that also holds it
    covered_prefix: str | None = None  # prefix of the modules inside one that spoke for all
    for name, module in model.named_modules():
        if covered_prefix is not None and name.startswith(covered_prefix):
            continue
        refused = refusal(name, module, shared)
        covers_children = refused is None or refused.covers_children
        covered_prefix = (f"{name}." if name else "") if covers_children else None
        held = dict(module.named_parameters(recurse=covers_children))
        if not held:
            continue
        tied = tied_modules(name, module, shared) if refused is None else []
        is_left = any(_matches(each, leave) for each in (name, *tied))
        if refused is None and not is_left and name not in owners:
            owners |= dict.fromkeys(tied, name)
            members = [module, *(shared.holders[other] for other in tied)]
            counted |= {identity(p) for each in members for p in each.parameters()}
            yield from _sites(name, members, tuple(tied), leave)
            continue
        reason = refused.reason if refused else AS_ASKED
        if name in owners:
            reason = f"tied: its weight is that of {owners[name]}, and changes with it"
        fresh = {identity(parameter): parameter for parameter in held.values()}
        num_new = sum(p.numel() for key, p in fresh.items() if key not in counted)
        counted |= set(fresh)
        largest = max(held.values(), key=Tensor.numel)
        kind, bits = type(module).__name__, 8 * largest.element_size()
        yield Uncompressed(name, kind, tuple(largest.shape), bits, num_new, reason)


def _sites(
    name: str, members: Sequence[nn.Module], tied: tuple[str, ...], leave: Sequence[str]
) -> Iterator[Site | Uncompressed]:
    """The sites of a module, which several others may share."""
    module, *others = members
    parts = list(parts_of(module))
    further = [part for other in others for part in parts_of(other)]
    for part in parts:
        own_name = name if len(parts) == 1 else ".".join(filter(None, (name, part.name)))
        bias = part.bias + sum(other.bias for other in further)
        beside = part.beside + sum(other.beside for other in further)
        kind = type(module).__name__
        held = (part.weight, part.window, bias, beside, tied, part.is_packed)
        site = Site(own_name, name, part.name, kind, *held)
        is_left = _matches(own_name, leave)
        yield site.uncompressed(AS_ASKED) if is_left else site


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) or name.startswith(f"{pattern}.") for pattern in patterns)
