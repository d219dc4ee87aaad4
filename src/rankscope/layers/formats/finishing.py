"""The last step of a decomposition: cores as a layer holds them."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional


def finished(
    cores: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Cores of the shapes and the dtype wanted, all of the same norm.

    Bonds that a decomposition has no use for are filled up with zeros. Equal norms train and round
    best, and the product stays what it is.

    Example:
        >>> cores = {"a": torch.full((1, 1), 8.0), "b": torch.ones(1, 4)}
        >>> found = finished(cores, {"a": (1, 2), "b": (2, 4)}, torch.float32)
        >>> found["a"], found["b"]
        (tensor([[4., 0.]]), tensor([[2., 2., 2., 2.],
                [0., 0., 0., 0.]]))
    """
    norms = {name: float(torch.linalg.vector_norm(core)) for name, core in cores.items()}
    if not all(norms.values()):
        return {name: core.new_zeros(shapes[name], dtype=dtype) for name, core in cores.items()}
    # By logarithms: the product of the norms could overflow.
    share = math.exp(sum(map(math.log, norms.values())) / len(norms))
    return {
        name: functional.pad(core * (share / norms[name]), _missing(core, shapes[name]))
        .to(dtype)
        .contiguous()
        for name, core in cores.items()
    }


def _missing(core: Tensor, shape: tuple[int, ...]) -> list[int]:
    """As `pad` wants it: before and after, from the last position to the first."""
    pairs = zip(reversed(shape), reversed(core.shape), strict=True)
    return [count for wanted, size in pairs for count in (0, wanted - size)]
