"""The values of a function on every combination of its templates."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rankscope.errors import TemplateError, TooLargeError

# Takes (batch, order, *shape of a template), gives (batch,).
BatchedFunction = Callable[[Tensor], Tensor]


def grid_tensor(
    function: BatchedFunction,
    templates: Tensor | Sequence[Tensor],
    *,
    order: int,
    batch_size: int = 4096,
    max_entries: int = 2**26,
) -> Tensor:
    r"""Tabulate a function on all combinations of templates.

    .. math:: A(y)_{j_1 \dots j_N} = y(t^{(j_1)}, \dots, t^{(j_N)})

    Args:
        function: takes a batch of inputs, (batch, order, *template), and gives (batch,) values.
        templates: (count, *template) for all positions, or one such tensor for each position.
        order: how many inputs the function has (N).
        batch_size: how many combinations the function is given at once.
        max_entries: refuse larger grids rather than fill the memory.

    Example:
        >>> import torch
        >>> grid = grid_tensor(lambda inputs: inputs.prod(dim=1), torch.tensor([2, 3]), order=3)
        >>> grid.shape, grid[0, 1, 1].item()
        (torch.Size([2, 2, 2]), 18)

    Raises:
        TemplateError: if templates do not fit, or the function gives values of the wrong shape
            or values that are not finite.
        TooLargeError: if there are more than `max_entries` combinations.

    Reference:
        Cohen & Shashua (2017), Sec. 2, arXiv:1605.06743, for the same templates at all positions.
    """
    lists = _one_list_each(templates, order)
    shape = tuple(len(choices) for choices in lists)
    num_entries = math.prod(shape)
    if num_entries > max_entries:
        raise TooLargeError(
            what=f"grid_tensor of {' x '.join(map(str, shape))}",
            entries=num_entries,
            limit=max_entries,
            instead="Use fewer templates, a sample of rows and columns, or raise max_entries.",
        )
    if batch_size < 1:
        raise TemplateError(f"grid_tensor: batch_size must be at least 1, got {batch_size}.")
    parts = []
    for start in range(0, num_entries, batch_size):
        numbers = torch.arange(start, min(start + batch_size, num_entries))
        choice = torch.unravel_index(numbers, shape)
        inputs = torch.stack([options[at] for options, at in zip(lists, choice, strict=True)], 1)
        parts.append(_checked(function(inputs), inputs))
    return torch.cat(parts).reshape(shape)


def _one_list_each(templates: Tensor | Sequence[Tensor], order: int) -> list[Tensor]:
    if order < 1:
        raise TemplateError(f"grid_tensor: a function has at least 1 input, got order {order}.")
    lists = [templates] * order if isinstance(templates, Tensor) else list(templates)
    if len(lists) != order:
        raise TemplateError(
            f"grid_tensor: {order} positions need {order} lists of templates, got {len(lists)}."
        )
    for position, choices in enumerate(lists):
        if choices.ndim < 1 or len(choices) == 0:
            raise TemplateError(
                f"grid_tensor: position {position} needs at least 1 template, "
                f"got a tensor of shape {tuple(choices.shape)}."
            )
        if choices.shape[1:] != lists[0].shape[1:]:
            raise TemplateError(
                f"grid_tensor: all templates must have the shape {tuple(lists[0].shape[1:])} of "
                f"those at position 0, got {tuple(choices.shape[1:])} at position {position}."
            )
    return lists


def _checked(values: Tensor, inputs: Tensor) -> Tensor:
    if values.shape != inputs.shape[:1]:
        raise TemplateError(
            f"grid_tensor: the function must give one value for each of {len(inputs)} inputs, "
            f"shape ({len(inputs)},), got shape {tuple(values.shape)} "
            f"from inputs of shape {tuple(inputs.shape)}."
        )
    finite = torch.isfinite(values)
    if not bool(finite.all()):
        first = int(torch.nonzero(~finite)[0])
        raise TemplateError(
            f"grid_tensor: the function must be finite, got {values[first].item()} "
            f"({int((~finite).sum())} of {len(values)} values of a batch are not). "
            f"Choose templates where it is."
        )
    return values.detach()
