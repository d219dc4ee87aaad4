"""The inner steps of a tensor train, forward and backward, as few large matrix products.

A step contracts a core with a state and a feature vector. All three of its gradients, and the step
itself, are outer products of two of the three vectors times the core as a matrix: a shape that
matrix products are fast at, unlike the batched products that einsum makes of it.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rankscope.errors import SizeError

# Rows of outer products at a time: as many as stay in the cache.
_ROWS = 256


def contract_train(state: Tensor, features: Tensor, cores: Tensor) -> tuple[Tensor, Tensor]:
    r"""Carry a state through a chain of cores, without overflow.

    .. math:: h_t = \sum_{l,i} h_{t-1,l}\, f_{t,i}\, G_t[l, i, :]

    Args:
        state: (batch, bond), before the first step.
        features: (steps, batch, size), one vector for each step.
        cores: (steps, bond, size, bond), or one for all steps (1, bond, size, bond).

    Returns:
        The last state (batch, bond) but for a positive factor for each sample, and the logarithm
        of that factor (batch,). To the gradient the factors are constants, so that only the
        product of the two has the gradient of the last state.

    Raises:
        SizeError: if the shapes do not fit.
    """
    steps, batch, size = features.shape
    bond = state.shape[1]
    shapes = [(count, bond, size, bond) for count in (steps, 1)]
    if state.shape[0] != batch or tuple(cores.shape) not in shapes:
        raise SizeError(
            f"contract_train: features {tuple(features.shape)} and a state {tuple(state.shape)} "
            f"need a state ({batch}, bond) and cores (1 or {steps}, {bond}, {size}, {bond}), got "
            f"cores {tuple(cores.shape)}."
        )
    last, log_scale = _Train.apply(state, features.contiguous(), cores)  # type: ignore[no-untyped-call]
    return last, log_scale


class _Train(torch.autograd.Function):
    """States and gradients of states one after the other; all other gradients many at once."""

    @staticmethod
    def forward(
        context: Any, state: Tensor, features: Tensor, cores: Tensor
    ) -> tuple[Tensor, Tensor]:
        steps, batch, size = features.shape
        bond = state.shape[1]
        states = features.new_empty(steps + 1, batch, bond)
        scales = features.new_empty(steps, batch, 1)
        outer = features.new_empty(batch, bond, size)
        states[0] = state
        matrices = cores.reshape(-1, bond * size, bond)
        for step in range(steps):
            now, scale = states[step], scales[step]
            torch.amax(now.abs(), dim=1, keepdim=True, out=scale)
            now.div_(scale.masked_fill_(scale == 0, 1.0))
            torch.mul(now[:, :, None], features[step, :, None, :], out=outer)
            torch.mm(outer.view(batch, -1), matrices[step % len(cores)], out=states[step + 1])
        log_scale = scales.log().sum(dim=(0, 2))
        context.save_for_backward(states, features, cores, scales)
        context.mark_non_differentiable(log_scale)
        return states[steps].clone(), log_scale

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        states, features, cores, scales = context.saved_tensors
        gradients = _state_gradients(gradient, features, cores, scales)
        of_features, of_cores = _other_gradients(states, gradients, features, cores)
        return gradients[0], of_features, of_cores


def _state_gradients(gradient: Tensor, features: Tensor, cores: Tensor, scales: Tensor) -> Tensor:
    """Gradients (steps + 1, batch, bond) of all states, the first before its rescaling."""
    steps, batch, size = features.shape
    bond = gradient.shape[1]
    gradients = features.new_empty(steps + 1, batch, bond)
    outer = features.new_empty(batch, size, bond)
    gradients[steps] = gradient
    matrices = cores.reshape(-1, bond, size * bond).transpose(1, 2)
    for step in range(steps - 1, -1, -1):
        torch.mul(features[step, :, :, None], gradients[step + 1, :, None, :], out=outer)
        torch.mm(outer.view(batch, -1), matrices[step % len(cores)], out=gradients[step])
        gradients[step].div_(scales[step])
    return gradients


def _other_gradients(
    states: Tensor, gradients: Tensor, features: Tensor, cores: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of the features and of the cores, several steps of equal cores at a time."""
    steps, batch, size = features.shape
    bond = states.shape[2]
    at_once = 1 if len(cores) > 1 else max(1, _ROWS // batch)
    of_features = torch.empty_like(features)
    of_cores = features.new_zeros(len(cores), size, bond * bond)
    matrices = cores.transpose(2, 3).reshape(-1, bond * bond, size)
    outer = features.new_empty(at_once, batch, bond, bond)
    for start in range(0, steps, at_once):
        end = min(start + at_once, steps)
        before, after = states[start:end, :, :, None], gradients[start + 1 : end + 1, :, None, :]
        rows = torch.mul(before, after, out=outer[: end - start]).view(-1, bond * bond)
        core = start % len(cores)
        torch.mm(rows, matrices[core], out=of_features[start:end].view(-1, size))
        of_cores[core].addmm_(features[start:end].view(-1, size).T, rows)
    return of_features, of_cores.view(-1, size, bond, bond).transpose(1, 2)
