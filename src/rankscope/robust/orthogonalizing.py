"""Existing networks with orthogonal convolutions in the place of their own."""

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import LayerError
from rankscope.robust.orthogonal import (
    Margins,
    OrthogonalConv1d,
    OrthogonalConv2d,
    circular_margins,
)
from rankscope.robust.paraunitary import Identity, OrthogonalKernel, ParaunitarySystem

_LAYERS = {nn.Conv1d: OrthogonalConv1d, nn.Conv2d: OrthogonalConv2d}
_REFUSED = (nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def orthogonalize(model: nn.Module, *, steps: int = 10) -> nn.Module:
    """A copy of a network whose convolutions are orthogonal, as near to its own as was found.

    Every `nn.Conv1d` and `nn.Conv2d` becomes the orthogonal layer of the same channels, groups,
    stride and dilation, on a circle, with the same bias. A kernel smaller than its stride would
    leave inputs out, so it grows to the stride, with the old taps first. An orthogonal kernel has
    a norm of its own: nearest is the one of largest inner product with the old kernel. For single
    taps that is the polar factor; otherwise rotations are such factors in turn, and `steps` of
    L-BFGS move all parameters. Normalization layers keep their statistics, which belong to the old
    scales: let them see data again before the network is used.

    Args:
        model: left as it is.
        steps: of L-BFGS for each convolution of more than one tap; 0 for none.

    Example:
        >>> network = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU())
        >>> changed = orthogonalize(network)
        >>> type(changed[0]).__name__, changed(torch.ones(1, 3, 8, 8)).shape
        ('OrthogonalConv2d', torch.Size([1, 8, 4, 4]))

    Raises:
        LayerError: if a convolution has three axes, is transposed, or changes sizes other than by
            its stride; the message names it. Or if there is none.
    """
    if steps < 0:
        raise LayerError(f"orthogonalize: steps must be at least 0, got {steps}.")
    changed = copy.deepcopy(model)
    found = {name: layer for name, layer in changed.named_modules() if type(layer) in _LAYERS}
    for name, layer in changed.named_modules():
        if isinstance(layer, _REFUSED) or (isinstance(layer, tuple(_LAYERS)) and name not in found):
            raise LayerError(
                f"orthogonalize: {name!r} is a {type(layer).__name__}; only nn.Conv1d and "
                f"nn.Conv2d can be replaced."
            )
    if not found:
        raise LayerError(f"orthogonalize: {type(model).__name__} has no convolution.")
    made = {name: _orthogonal(name, layer) for name, layer in found.items()}
    for name, layer in found.items():
        new = made[name]
        fit_kernel(new.kernel, _target(layer, new.kernel_size), steps=steps)
        if not name:
            return new.train(model.training)
        parent, _, own = name.rpartition(".")
        setattr(changed.get_submodule(parent), own, new.train(model.training))
    return changed


def fit_kernel(kernel: OrthogonalKernel, target: Tensor, *, steps: int) -> None:
    """Bring an orthogonal kernel as near to a tensor of its shape as is found.

    The kernel is linear in every rotation, so that the best one, given all other parameters, is a
    polar factor. Deterministic.
    """
    for _ in range(len(kernel.systems)):  # with one system the first is the best
        for system in kernel.systems:
            assert isinstance(system, ParaunitarySystem), "made by the kernel"
            _rotate(kernel, system, target)
    if steps == 0 or math.prod(kernel.kernel) == 1:
        return
    with torch.enable_grad():
        descent = torch.optim.LBFGS(
            kernel.parameters(), max_iter=steps, line_search_fn="strong_wolfe"
        )

        def distance() -> float:
            descent.zero_grad()
            loss = -(kernel() * target).sum() / target.norm()
            torch.autograd.backward(loss)
            return float(loss.detach())

        descent.step(distance)  # type: ignore[no-untyped-call]
    kernel.zero_grad()


def _rotate(kernel: OrthogonalKernel, system: ParaunitarySystem, target: Tensor) -> None:
    start = system.get_buffer("rotation_start")
    with torch.enable_grad():
        free = start.detach().clone().requires_grad_()
        # A buffer that takes part in the graph while its gradient is taken.
        system.rotation_start = free
        (slope,) = torch.autograd.grad((kernel() * target).sum(), free)
    # Where the kernel does not depend on the rotation, any completion is as good as the one it has.
    left, _, right = torch.linalg.svd((slope + 1e-6 * slope.norm() * start).double())
    system.rotation_start = (left @ right).to(start.dtype)


def _target(layer: nn.Conv1d | nn.Conv2d, kernel_size: Sequence[int]) -> Tensor:
    """The old kernel, with zeros where the new one has more taps."""
    missing = [
        number
        for size, old in zip(kernel_size[::-1], layer.kernel_size[::-1], strict=True)
        for number in (0, size - old)
    ]
    target = functional.pad(layer.weight.detach(), missing)
    if target.norm() == 0 or not target.isfinite().all():
        raise LayerError("orthogonalize: a kernel that is 0 or not finite has no nearest one.")
    return target


def _orthogonal(name: str, layer: nn.Conv1d | nn.Conv2d) -> OrthogonalConv1d | OrthogonalConv2d:
    kernel = tuple(
        max(taps, step) for taps, step in zip(layer.kernel_size, layer.stride, strict=True)
    )
    margins = _aligned_margins(name, layer, kernel)
    try:
        made = _LAYERS[type(layer)](
            layer.in_channels,
            layer.out_channels,
            kernel,
            layer.stride,
            dilation=layer.dilation,
            groups=layer.groups,
            bias=layer.bias is not None,
            initialization=Identity(),
        )
    except LayerError as error:
        raise LayerError(f"orthogonalize: {name!r} cannot be orthogonal. {error}") from error
    made = made.to(layer.weight.device, layer.weight.dtype)
    made.margins = margins
    if made.bias is not None and layer.bias is not None:
        made.bias.data.copy_(layer.bias.data)
    assert isinstance(made, OrthogonalConv1d | OrthogonalConv2d)
    return made


def _aligned_margins(name: str, layer: nn.Conv1d | nn.Conv2d, kernel: tuple[int, ...]) -> Margins:
    """Margins on a circle that keep every tap where it was, if the sizes are those of a circle."""
    usual = circular_margins(kernel, layer.stride, layer.dilation)
    if isinstance(layer.padding, str):
        if layer.padding == "same":
            return usual
        padding: tuple[int, ...] = (0,) * len(kernel)
    else:
        padding = layer.padding
    margins = []
    for axis, (before, after) in enumerate(usual):
        reach = layer.dilation[axis] * (layer.kernel_size[axis] - 1)
        own = padding[axis]
        if not reach + 1 - layer.stride[axis] <= 2 * own <= reach:
            raise LayerError(
                f"orthogonalize: {name!r} has kernel {layer.kernel_size}, stride {layer.stride}, "
                f"dilation {layer.dilation} and padding {padding}, which changes sizes other than "
                f"by the stride; on a circle it cannot be replaced."
            )
        total = before + after
        margins.append((own, total - own) if total >= own else (before, after))
    return tuple(margins)
