"""The masks of an attention, as one tensor that is added to its scores."""

import torch
from torch import Tensor

from rankscope.errors import LayerError


def merged_mask(
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    *,
    query: Tensor,
    key: Tensor,
    num_maps: int,
) -> Tensor | None:
    """What is added to the scores (batch, maps, queries, keys); None if nothing is.

    The result has order 4, with size 1 where it is the same for all. As in PyTorch, True and -inf
    both mean "do not look there", and other numbers are added as they are. A mask of order 3 has
    one matrix for each sample and each group of maps, groups being equal and of neighbours: R
    maps that came from H heads take the masks of the H heads.

    Args:
        key_padding_mask: (batch, keys).
        attn_mask: (queries, keys), or (batch * groups, queries, keys).
        query: (batch, queries, features), whose dtype the result has.
        key: (batch, keys, features).
        num_maps: for each sample.

    Example:
        >>> padding = torch.tensor([[False, True]])
        >>> merged_mask(
        ...     padding, None, query=torch.zeros(1, 5, 3), key=torch.zeros(1, 2, 3), num_maps=8
        ... )
        tensor([[[[0., -inf]]]])

    Raises:
        LayerError: if a mask has another shape, or is neither boolean nor floating-point.
    """
    masks = []
    if attn_mask is not None:
        masks.append(_order_four(attn_mask, query, key, num_maps))
    if key_padding_mask is not None:
        if key_padding_mask.shape != key.shape[:2]:
            raise LayerError(
                f"key_padding_mask must have shape {tuple(key.shape[:2])}, (batch, keys); "
                f"got {tuple(key_padding_mask.shape)}."
            )
        masks.append(key_padding_mask[:, None, None, :])
    added = [_additive(mask, query.dtype) for mask in masks]
    if len(added) == 2:
        return added[0] + added[1]
    return added[0] if added else None


def _order_four(mask: Tensor, query: Tensor, key: Tensor, num_maps: int) -> Tensor:
    batch, num_queries, num_keys = query.shape[0], query.shape[1], key.shape[1]
    if tuple(mask.shape) == (num_queries, num_keys):
        return mask[None, None]
    groups = mask.shape[0] // batch if mask.dim() == 3 else 0
    wanted = (batch * groups, num_queries, num_keys)
    if groups < 1 or num_maps % groups or tuple(mask.shape) != wanted:
        raise LayerError(
            f"attn_mask must have shape {(num_queries, num_keys)}, or {batch} times a divisor of "
            f"{num_maps} such matrices, for {batch} samples and {num_maps} maps; "
            f"got {tuple(mask.shape)}."
        )
    of_groups = mask.reshape(batch, groups, num_queries, num_keys)
    return of_groups.repeat_interleave(num_maps // groups, dim=1) if groups > 1 else of_groups


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype == torch.bool:
        empty = torch.zeros_like(mask, dtype=dtype)
        return empty.masked_fill(mask, float("-inf"))
    if not mask.is_floating_point():
        raise LayerError(
            f"A mask must be boolean (True: do not look there) or floating-point (added to the "
            f"scores), got {mask.dtype}; convert it with .bool()."
        )
    return mask.to(dtype)
