"""Experts whose matrices are stored as cores, and used one expert at a time.

The layers of transformers that choose experts for each token pack their matrices into one tensor
(experts, out, in). As a weight (out, in) with one position, the expert, it takes every format of a
one-dimensional kernel: Tucker, CP and tensor train then share factors among experts.
"""

import copy
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from rankscope.factorize.cores import CoreStore
from rankscope.factorize.formats.format import Cores, Format, Ranks, WeightShape

EXPERT_PARTS = ("gate_up_proj", "down_proj")
_EXPERT = "h"  # the index of the cores that stands for the expert


def is_packed_experts(module: nn.Module) -> bool:
    """Whether it is a module of transformers with gated experts, packed (experts, out, in).

    By names and layout, so that transformers is not loaded for models that do not come from it.
    """
    held = dict(module.named_parameters())
    wanted = {"has_gate": True, "has_bias": False, "is_transposed": False, "is_concatenated": True}
    return (
        type(module).__module__.startswith("transformers.models.")
        and type(module).__name__.endswith("Experts")
        and set(held) == set(EXPERT_PARTS)
        and all(parameter.ndim == 3 for parameter in held.values())
        and all(getattr(module, name, None) == value for name, value in wanted.items())
        and not getattr(module, "has_post_expert_norm", False)
        and callable(getattr(module, "_apply_gate", None))
    )


def packed_weight(parameter: Tensor) -> Tensor:
    """(experts, out, in) as a weight (out, in, experts), a view."""
    return parameter.permute(1, 2, 0)


class PackedCores(nn.Module):
    """The matrices of all experts as cores of one format.

    Args:
        format: of a weight with one position, the expert.
        ranks: of the format.
        shape: (out, in, experts).
        cores: of the shapes that the format says.
    """

    def __init__(self, format: Format, ranks: Ranks, shape: WeightShape, cores: Cores) -> None:
        super().__init__()
        self.format, self.ranks, self.shape = format, ranks, shape
        self.cores = CoreStore(dict(cores))

    def forward(self, inputs: Tensor, expert: int) -> Tensor:
        """(count, in) times the matrix of one expert, core after core: it is never built."""
        legs = self.format.legs(self.shape)
        (outputs,), (entering,) = self.format.open_legs(self.shape)
        numbers = {"rows": 0, entering: 1}
        operands: list[Any] = [inputs, [0, 1]]
        for name, core in self.cores.tensors().items():
            held = legs[name]
            if _EXPERT in held:
                core = core.select(held.index(_EXPERT), expert)
            kept = [numbers.setdefault(leg, len(numbers)) for leg in held if leg != _EXPERT]
            operands += [core, kept]
        result: Tensor = torch.einsum(*operands, [0, numbers[outputs]])
        return result

    def packed(self) -> Tensor:
        """The matrices (experts, out, in)."""
        weight = self.format.to_dense(self.cores.tensors(), self.shape)
        return weight.permute(2, 0, 1)

    def extra_repr(self) -> str:
        """Sizes, format and ranks."""
        out_size, in_size, count = self.shape.sizes
        return f"{count} of {in_size} -> {out_size}, {self.format.name} at ranks {self.ranks}"


class FactorizedExperts(nn.Module):
    """Used like the experts of transformers: tokens, their experts, and the weights of these.

    Args:
        dense: whose place it takes; its activation and sizes are kept.
        parts: cores for some of the packed tensors, by their names; the others stay as they are.
    """

    def __init__(self, dense: nn.Module, parts: Mapping[str, PackedCores]) -> None:
        super().__init__()
        # Of the dense module everything but its parameters; in a tuple, so that it is no child.
        template = copy.copy(dense)
        template._parameters = dict.fromkeys(EXPERT_PARTS)
        self._template = (template,)
        for name in EXPERT_PARTS:
            if name in parts:
                # Names that no rule of transformers for packed tensors matches.
                self.add_module(f"cores_of_{name}", parts[name])
            else:
                self.register_parameter(
                    name, nn.Parameter(dense.get_parameter(name).detach().clone())
                )
        self.train(dense.training)

    def part(self, name: str) -> PackedCores:
        """The cores of one packed tensor."""
        return cast(PackedCores, self.get_submodule(f"cores_of_{name}"))

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """(tokens, width), the experts of each token and their weights (tokens, chosen)."""
        outputs = torch.zeros_like(hidden_states)
        gate: Any = self._template[0]
        for expert in torch.unique(top_k_index).tolist():
            if not 0 <= expert < gate.num_experts:
                continue  # of another process
            tokens, places = torch.where(top_k_index == expert)
            inner = gate._apply_gate(self._times("gate_up_proj", hidden_states[tokens], expert))
            given = self._times("down_proj", inner, expert) * top_k_weights[tokens, places, None]
            outputs.index_add_(0, tokens, given.to(outputs.dtype))
        return outputs

    def _times(self, name: str, inputs: Tensor, expert: int) -> Tensor:
        if name in self._parameters:
            return nn.functional.linear(inputs, self.get_parameter(name)[expert])
        product: Tensor = self.part(name)(inputs, expert)
        return product

    def to_dense(self) -> nn.Module:
        """The experts that it stands for."""
        dense = copy.copy(self._template[0])
        dense._parameters = {
            name: nn.Parameter(
                self._parameters[name].detach().clone()  # type: ignore[union-attr]
                if name in self._parameters
                else self.part(name).packed().detach().contiguous()
            )
            for name in EXPERT_PARTS
        }
        return dense.train(self.training)
