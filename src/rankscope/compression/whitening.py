r"""Weights as their inputs see them: errors of outputs instead of errors of weights.

.. math:: \|D (W - W') L\| = \|D W L - (D W L)'\|

if W' = D⁻¹ (D W L)' L⁻¹: the whitened weight is decomposed, and only the cores that carry `in_size`
and `out_size` alone are multiplied back. Formats that cut these sizes into factors have no such
cores; they decompose the weight as it is, and the error is measured behind it.

Reference:
    Wang et al. (2024), "SVD-LLM", Sec. 3.1 (truncation-aware whitening), arXiv:2403.07378.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from rankscope.compression.scores import Weighing
from rankscope.layers.formats.format import Format

# Above this many entries float32 is exact enough, and float64 would double the memory.
MAX_DOUBLE = 2**22


def is_plain(weighing: Weighing | None) -> bool:
    """Whether errors are those of the weight itself."""
    return weighing is None or (weighing.factor is None and weighing.rows is None)


def whiten(weight: Tensor, weighing: Weighing | None) -> Tensor:
    """D W L of a weight (groups, out_size, in_size, *kernel), in float64 (float32 if large)."""
    exact = weight.to(torch.float64 if weight.numel() <= MAX_DOUBLE else torch.float32)
    if weighing is None:
        return exact
    if weighing.factor is not None:
        factor = _grouped(weighing.factor).to(exact)
        last = exact.movedim(2, -1)  # (groups, out_size, *kernel, in_size)
        product = last.flatten(1, -2) @ factor
        exact = product.reshape(last.shape).movedim(-1, 2)
    if weighing.rows is not None:
        exact = exact * weighing.rows.to(exact).reshape(1, -1, *(1,) * (exact.ndim - 2))
    return exact


def relative_error(weight: Tensor, rebuilt: Tensor, weighing: Weighing | None) -> float:
    """‖D (W - W') L‖ / ‖D W L‖, and 0 if the weight is 0 and rebuilt so."""
    size = float(torch.linalg.vector_norm(whiten(weight, weighing)))
    error = float(torch.linalg.vector_norm(whiten(weight - rebuilt, weighing)))
    return error / size if size else float(error > 0)


def can_whiten(format: Format, weighing: Weighing | None) -> bool:
    """Whether the format can decompose a whitened weight and take the whitening back."""
    if weighing is None or is_plain(weighing):
        return False
    if weighing.factor is not None and format.input_core is None:
        return False
    return weighing.rows is None or format.output_core is not None


def take_back(
    cores: Mapping[str, Tensor],
    format: Format,
    weighing: Weighing,
    *,
    groups: int = 1,
) -> dict[str, Tensor]:
    """Cores of W' from those of (D W L)'; cores of groups stand one after the other."""
    restored = dict(cores)
    if weighing.factor is not None:
        assert format.input_core is not None
        name, position = format.input_core
        factor = _grouped(weighing.factor).to(torch.float64)
        restored[name] = _solve(restored[name], position, factor, groups)
    if weighing.rows is not None:
        last = format.output_core
        assert last is not None
        core = restored[last]
        rows = weighing.rows.to(core.device, torch.float64)
        rows = rows.repeat(len(core) // len(rows))  # once for each group
        restored[last] = (core.double() / rows.reshape(-1, *(1,) * (core.ndim - 1))).to(core.dtype)
    return {name: core.contiguous() for name, core in restored.items()}


def _grouped(factor: Tensor) -> Tensor:
    return factor if factor.ndim == 3 else factor[None]


def _solve(core: Tensor, position: int, factor: Tensor, groups: int) -> Tensor:
    """The core times L⁻¹ at the position that carries `in_size`."""
    apart = core.double().reshape(groups, core.shape[0] // groups, *core.shape[1:])
    last = apart.movedim(position + 1, -1)
    rows = last.flatten(1, -2) if last.ndim > 2 else last[:, None]
    solved: Tensor = torch.linalg.solve_triangular(
        factor.to(core.device), rows, upper=False, left=False
    )
    return solved.reshape(last.shape).movedim(-1, position + 1).reshape(core.shape).to(core.dtype)
