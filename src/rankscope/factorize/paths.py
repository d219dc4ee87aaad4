"""Three ways to use a factorized weight, and which one is fastest where.

The *chain* never builds the weight: few multiplications, several calls, tensors in between. The
*rebuilt* weight is built from the cores in each forward pass and used once. The *merged* weight is
built once and kept for as long as the cores stay the same: parameters and files stay small, but in
memory the layer is as large as the dense one, and as fast.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import torch
from torch import Tensor, nn

from rankscope.diagrams.contraction import plan_contraction
from rankscope.factorize.formats.format import Format, Ranks, WeightShape, Window
from rankscope.factorize.formats.plain import DENSE
from rankscope.factorize.formats.reshaped import ReshapedFormat


class Path(StrEnum):
    """The way in which a layer computes its outputs."""

    CHAIN = "chain"
    REBUILT = "rebuilt"
    MERGED = "merged"


@dataclass(frozen=True)
class Machine:
    """Seconds per operation, entry and call of a machine; only the ratios matter.

    Args:
        operation: one of a dense convolution or matrix product (a multiply-add is two).
        thin_operation: one of a factor chain, whose matrices are narrow.
        number: writing one number and reading it again.
        moved_number: the same, to another place, as products over letters that lie apart need it.
        call: one operation, whatever its size, and what Python does around it.
    """

    operation: float
    thin_operation: float
    number: float
    moved_number: float
    call: float


# Measured by `python -m benchmarks layers`, rows "machine", one thread.
MACHINE = Machine(
    operation=1.5e-11, thin_operation=2.5e-11, number=4.3e-10, moved_number=2e-9, call=4e-5
)


@dataclass(frozen=True)
class PathCosts:
    """Estimated seconds of one forward pass on each path."""

    chain: float
    rebuilt: float
    merged: float


@lru_cache(maxsize=4096)
def estimate_paths(
    format: Format,
    shape: WeightShape,
    ranks: Ranks,
    window: Window,
    input_sizes: tuple[int, ...],
    batch: int,
) -> PathCosts:
    """What each path costs: operations, numbers that pass through memory, and calls.

    Args:
        format: of the weight.
        shape: of the weight of one group.
        ranks: of the format.
        window: how the kernel moves.
        input_sizes: places of one input; empty for a matrix.
        batch: number of inputs (of rows, for a matrix).
    """
    entries = window.groups * shape.num_parameters
    operations = DENSE.flops(shape, (), window, input_sizes, batch)
    dense = MACHINE.operation * operations + MACHINE.number * entries + MACHINE.call
    num_cores = len(format.legs(shape))
    building = (
        MACHINE.operation * window.groups * _building_flops(format, shape, ranks)
        + MACHINE.number * entries * 2
        + MACHINE.call * 3 * num_cores
    )
    between = batch * format.intermediates(shape, ranks, window, input_sizes)
    memory, calls = MACHINE.number * between, num_cores
    if isinstance(format, ReshapedFormat):
        inputs = batch * window.groups * shape.in_size * math.prod(input_sizes)
        memory, calls = MACHINE.moved_number * (between + inputs), 2 * num_cores
    operations = format.flops(shape, ranks, window, input_sizes, batch)
    chain = MACHINE.thin_operation * operations + memory + MACHINE.call * calls
    return PathCosts(chain=chain, rebuilt=dense + building, merged=dense)


@lru_cache(maxsize=4096)
def _building_flops(format: Format, shape: WeightShape, ranks: Ranks) -> int:
    """Operations of `Format.to_dense`, for one group."""
    return plan_contraction(format.diagram(shape, ranks)).flops


def choose_path(
    format: Format,
    shape: WeightShape,
    ranks: Ranks,
    window: Window,
    input_sizes: tuple[int, ...],
    batch: int,
    training: bool,
) -> Path:
    """The path with the lowest estimated time; while training, a merged weight would be stale.

    See `estimate_paths` for the arguments. Backward passes cost about twice the forward pass on
    every path, and change nothing.
    """
    costs = estimate_paths(format, shape, ranks, window, input_sizes, batch)
    if training:
        return Path.CHAIN if costs.chain <= costs.rebuilt else Path.REBUILT
    return Path.CHAIN if costs.chain <= costs.merged else Path.MERGED


def wants_gradients(tensors: Iterable[Tensor]) -> bool:
    """Whether a merged weight would cut the gradients of the tensors that it is built from."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


class MergedWeight:
    """The last weight that was built, kept until a tensor that it was built from changes.

    In-place changes (optimizers, `load_state_dict`), moves and conversions are noticed; a change
    behind PyTorch's back (`tensor.data.add_(1)`) is not: call `clear` after one. Copies and pickles
    start empty.
    """

    def __init__(self) -> None:
        self._seen: tuple[object, ...] = ()
        self._weight: Tensor | None = None

    def of(self, tensors: Iterable[Tensor], build: Callable[[], Tensor]) -> Tensor:
        """The weight; built without gradients if it is not the one that is kept."""
        tensors = tuple(tensors)
        pretend = any(type(tensor) not in (Tensor, nn.Parameter) for tensor in tensors)
        if torch.compiler.is_compiling() or pretend:
            return build()  # a traced graph keeps the cores, and builds for itself
        seen = tuple(_state(tensor) for tensor in tensors)
        if self._weight is None or seen != self._seen:
            # A weight made in inference mode could never be used where inputs have gradients.
            with torch.inference_mode(mode=False), torch.no_grad():
                self._weight, self._seen = build(), seen
        return self._weight

    def clear(self) -> None:
        """Forget the weight, and free its memory."""
        self._seen, self._weight = (), None

    def __reduce__(self) -> tuple[type["MergedWeight"], tuple[()]]:
        return MergedWeight, ()


def _state(tensor: Tensor) -> tuple[object, ...]:
    version = 0 if tensor.is_inference() else tensor._version
    return id(tensor), tensor.data_ptr(), version, tensor.dtype, tensor.device
