"""What one module's inputs looked like: an observer for each class that can be compressed."""

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from rankscope.compression.moments import SecondMoments
from rankscope.compression.recurrent_inputs import RecurrentLayers
from rankscope.compression.scores import Weighing


class Observer(ABC):
    """Sees every call of one module, and says in the end how its weights' errors are weighed."""

    @abstractmethod
    def see(self, arguments: Mapping[str, object]) -> None:
        """Look at the arguments of one call, by name."""

    @abstractmethod
    def weighings(self, ridge: float, *, who: str) -> dict[str, Weighing | None]:
        """By part of the module; None for a part that no data reached."""


class VectorInputs(Observer):
    """The inputs of a linear map, all positions alike."""

    def __init__(self, module: nn.Linear) -> None:
        self._moments = SecondMoments(module.in_features)

    def see(self, arguments: Mapping[str, object]) -> None:
        self._moments.add(_rows(_tensor(arguments, "input")))

    def weighings(self, ridge: float, *, who: str) -> dict[str, Weighing | None]:
        return {"weight": weighing_of(self._moments, ridge, who=who)}


class ChannelInputs(Observer):
    """The channels of a convolution's inputs, over all positions, each group apart.

    What neighbouring positions have in common, and zeros that are padded, are not counted: the
    error is then that of outputs on independent positions.
    """

    def __init__(self, module: nn.Conv1d | nn.Conv2d) -> None:
        self._groups = module.groups
        self._channel = -1 - len(module.kernel_size)
        self._moments = SecondMoments(module.in_channels // module.groups, module.groups)

    def see(self, arguments: Mapping[str, object]) -> None:
        channels = _tensor(arguments, "input").movedim(self._channel, 0)
        num_channels = len(channels) // self._groups
        self._moments.add(channels.reshape(self._groups, num_channels, -1).mT)

    def weighings(self, ridge: float, *, who: str) -> dict[str, Weighing | None]:
        return {"weight": weighing_of(self._moments, ridge, who=who)}


class LookedUp(Observer):
    """How often each row of an embedding is looked up.

    Every row counts once more than it was seen, so that rows the data lack are not given up.
    """

    def __init__(self, module: nn.Embedding) -> None:
        self._counts = torch.zeros(module.num_embeddings, dtype=torch.float64)

    def see(self, arguments: Mapping[str, object]) -> None:
        indices = _tensor(arguments, "input").flatten().cpu()
        self._counts += torch.bincount(indices, minlength=len(self._counts))

    def weighings(self, ridge: float, *, who: str) -> dict[str, Weighing | None]:
        if not bool(self._counts.any()):
            return {"weight": None}
        frequencies = (self._counts + 1) / (self._counts + 1).sum()
        return {"weight": Weighing(rows=frequencies.sqrt())}


class AttentionInputs(Observer):
    """The inputs of the four projections of an attention layer; keys that are masked are left out.

    The output projection's inputs are the heads' outputs, side by side: a copy of the layer whose
    output projection is the identity gives them.
    """

    def __init__(self, module: nn.MultiheadAttention) -> None:
        self._batch_first = module.batch_first
        self._heads = copy.deepcopy(module).eval()
        out = self._heads.out_proj
        out.weight.data = torch.eye(module.embed_dim).to(out.weight)
        if out.bias is not None:
            out.bias.data = torch.zeros_like(out.bias)
        sizes = {"query": module.embed_dim, "key": module.kdim, "value": module.vdim}
        self._moments = {
            name: SecondMoments(size) for name, size in {**sizes, "out": module.embed_dim}.items()
        }

    def see(self, arguments: Mapping[str, object]) -> None:
        seen = self._seen_keys(arguments.get("key_padding_mask"))
        for name in ("query", "key", "value"):
            inputs = _tensor(arguments, name)
            rows = inputs if seen is None or name == "query" else inputs[seen]
            self._moments[name].add(_rows(rows))
        heads, _ = self._heads(**arguments)
        self._moments["out"].add(_rows(heads))

    def _seen_keys(self, mask: object) -> Tensor | None:
        if not isinstance(mask, Tensor):
            return None
        seen = ~mask if mask.dtype == torch.bool else ~torch.isneginf(mask)
        return seen if self._batch_first or seen.ndim == 1 else seen.mT

    def weighings(self, ridge: float, *, who: str) -> dict[str, Weighing | None]:
        return {
            name: weighing_of(moments, ridge, who=f"{who}, {name}")
            for name, moments in self._moments.items()
        }


class RecurrentInputs(Observer):
    """The inputs and the states that enter each layer and direction of an LSTM or a GRU."""

    def __init__(self, module: nn.LSTM | nn.GRU) -> None:
        self._layers = RecurrentLayers(module)
        self._moments = {
            name: SecondMoments(weight.shape[1])
            for name, weight in module.named_parameters()
            if name.startswith(("weight_ih", "weight_hh"))
        }

    def see(self, arguments: Mapping[str, object]) -> None:
        for name, vectors in self._layers.inputs(arguments["input"], arguments.get("hx")):
            self._moments[name].add(_rows(vectors))

    def weighings(self, ridge: float, *, who: str) -> dict[str, Weighing | None]:
        return {
            name: weighing_of(moments, ridge, who=f"{who}, {name}")
            for name, moments in self._moments.items()
        }


def observer_of(module: nn.Module) -> Observer | None:
    """The observer that fits a module's class."""
    found = _OBSERVERS.get(type(module))
    return None if found is None else found(module)


# Exact classes, like the planner's: a subclass may use its weights in another way.
_OBSERVERS: Mapping[type[nn.Module], Callable[..., Observer]] = {
    nn.Linear: VectorInputs,
    nn.Conv1d: ChannelInputs,
    nn.Conv2d: ChannelInputs,
    nn.Embedding: LookedUp,
    nn.MultiheadAttention: AttentionInputs,
    nn.LSTM: RecurrentInputs,
    nn.GRU: RecurrentInputs,
}


def bound_arguments(
    module: nn.Module, arguments: tuple[object, ...], named: Mapping[str, object]
) -> dict[str, object]:
    """The arguments of a call by the names that the module's `forward` gives them."""
    return inspect.signature(module.forward).bind(*arguments, **named).arguments


def weighing_of(moments: SecondMoments, ridge: float, *, who: str) -> Weighing | None:
    """Errors of outputs on inputs with these moments."""
    factor = moments.factor(ridge, who=who)
    if factor is None:
        return None
    return Weighing(factor=factor[0] if len(factor) == 1 else factor)


def _rows(vectors: Tensor) -> Tensor:
    return vectors.reshape(1, -1, vectors.shape[-1])


def _tensor(arguments: Mapping[str, object], name: str) -> Tensor:
    found = arguments[name]
    assert isinstance(found, Tensor)
    return found
