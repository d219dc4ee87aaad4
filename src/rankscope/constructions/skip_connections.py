"""Skip connections: what they do to a network and to its derivative."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import jacrev

from rankscope.errors import ConstructionError

Branch = Callable[[Tensor], Tensor]


def compose(branches: Sequence[Branch], inputs: Tensor, *, with_skips: bool) -> Tensor:
    r"""Apply maps one after the other, each with or without its input added to its output.

    .. math:: x_{l+1} = f_l(x_l) \quad \text{or} \quad x_{l+1} = x_l + f_l(x_l)

    Reference:
        He, Zhang, Ren & Sun (2016), arXiv:1512.03385; Diehl (2023), section 1.6 (heading only).
    """
    for branch in branches:
        outputs = branch(inputs)
        if with_skips and outputs.shape != inputs.shape:
            raise ConstructionError(
                f"A skip connection adds input and output, got shapes {tuple(inputs.shape)} and "
                f"{tuple(outputs.shape)}."
            )
        inputs = inputs + outputs if with_skips else outputs
    return inputs


def branches(
    depth: int, width: int, *, generator: torch.Generator, gain: float = 1.0
) -> list[nn.Sequential]:
    """Random branches x -> A ReLU(B x + b), the entries of A and B of variance gain² / width.

    Raises:
        ConstructionError: if a size is not positive.
    """
    if depth < 1 or width < 1:
        raise ConstructionError(
            f"branches needs a positive depth and width, got {depth} and {width}."
        )
    made = []
    for _ in range(depth):
        inner, outer = (nn.Linear(width, width, dtype=torch.float64) for _ in range(2))
        with torch.no_grad():
            for layer in (inner, outer):
                layer.weight.normal_(0.0, gain * width**-0.5, generator=generator)
                layer.bias.zero_()
        made.append(nn.Sequential(inner, nn.ReLU(), outer))
    return made


@dataclass(frozen=True)
class JacobianRange:
    """How much a small step of the input can shrink or grow on its way to the output.

    Args:
        smallest: least singular value of the derivative.
        largest: greatest one.
        branch_norms: spectral norms of the branches' derivatives, where the signal meets them.
    """

    smallest: float
    largest: float
    branch_norms: tuple[float, ...]

    @property
    def skip_bounds(self) -> tuple[float, float]:
        """With skips, all singular values are between these two, by I + J with norm of J known.

        The lower one is 0 as soon as a branch's derivative has a norm of 1 or more.
        """
        low, high = 1.0, 1.0
        for norm in self.branch_norms:
            low, high = low * max(0.0, 1 - norm), high * (1 + norm)
        return low, high


def jacobian_range(maps: Sequence[Branch], inputs: Tensor, *, with_skips: bool) -> JacobianRange:
    r"""Singular values of the derivative at one input.

    .. math:: \prod_l (1 - \lVert J_l \rVert) \le \sigma_i\Big(\prod_l (I + J_l)\Big)
              \le \prod_l (1 + \lVert J_l \rVert)

    Raises:
        ConstructionError: if the input is no vector, or a branch changes its size under a skip.
    """
    if inputs.ndim != 1:
        raise ConstructionError(
            f"jacobian_range takes one input vector, got shape {tuple(inputs.shape)}."
        )
    norms, signal = [], inputs
    for branch in maps:
        norms.append(float(torch.linalg.matrix_norm(_derivative(branch, signal), 2)))
        signal = compose([branch], signal, with_skips=with_skips).detach()
    whole = _derivative(lambda start: compose(maps, start, with_skips=with_skips), inputs)
    values = torch.linalg.svdvals(whole)
    return JacobianRange(float(values[-1]), float(values[0]), tuple(norms))


def _derivative(function: Branch, inputs: Tensor) -> Tensor:
    found = jacrev(function)(inputs)
    assert isinstance(found, Tensor)
    return found.detach()
