"""Which operations are known, and why others are not."""

import torch
from torch import nn

from rankscope.errors import UnsupportedModuleError
from rankscope.robustness.affine_operations import AFFINE, LINEAR_MODULES
from rankscope.robustness.curves import CURVES, SORTING_MODULES
from rankscope.robustness.graph import Graph, Operation, read_graph
from rankscope.robustness.meaning import Meaning

_KNOWN = AFFINE | CURVES
_PRODUCT = "it multiplies values that both depend on the input, so that nothing bounds it"
_REFUSED = {
    "scaled_dot_product_attention": f"attention: {_PRODUCT}",
    "einsum": _PRODUCT,
    "bmm": _PRODUCT,
    "square": _PRODUCT,
    "pow": _PRODUCT,
    "rdiv": "it divides by a value that depends on the input, which may be as small as it likes",
    "bilinear": _PRODUCT,
    "exp": "its slope grows without bound",
    "layer_norm": "it divides by the deviation of its input, which may be as small as it likes",
    "group_norm": "it divides by the deviation of its input, which may be as small as it likes",
    "instance_norm": "it divides by the deviation of its input, which may be as small as it likes",
    "normalize": "it divides by the norm of its input, which may be as small as it likes",
}


# Attention, and gates that multiply.
_REFUSED_MODULES = (nn.MultiheadAttention, nn.RNNBase)


def read_meaning(operation: Operation) -> Meaning:
    """What an operation does to distances and intervals.

    Raises:
        UnsupportedModuleError: if that is not known, with the reason.
    """
    if operation.kind not in _KNOWN:
        reason = _REFUSED.get(operation.kind, "its Lipschitz constant is not known here")
        raise operation.refuse(reason)
    return _KNOWN[operation.kind](operation)


def read_meanings(
    model: nn.Module, input_shape: tuple[int, ...], *, dtype: torch.dtype | None = None
) -> tuple[Graph, tuple[Meaning, ...]]:
    """A model's operations, and what each of them does.

    Args:
        model: in any mode.
        input_shape: of one sample.
        dtype: of the inputs; None for that of the model's parameters.

    Raises:
        UnsupportedModuleError: if one of them is not known, with its name and the reason.
        SizeError: if the model does not take such inputs.
    """
    for path, module in model.named_modules():
        if isinstance(module, _REFUSED_MODULES):
            raise UnsupportedModuleError(f"{path} ({type(module).__name__}): {_PRODUCT}.")
    graph = read_graph(model, input_shape, wholes=LINEAR_MODULES + SORTING_MODULES, dtype=dtype)
    return graph, tuple(read_meaning(operation) for operation in graph.operations)
