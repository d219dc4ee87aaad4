"""Forms to and from tensorly's tensors; tensorly itself is needed only to build its own."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from rankscope.errors import DecompositionError, MissingExtraError
from rankscope.factorize.cp import CP, component_sum
from rankscope.factorize.cp_direct import Solver
from rankscope.factorize.tensor_ring import TensorRing, contract_ring
from rankscope.factorize.tensor_train import TensorTrain, contract_train
from rankscope.factorize.truncation import MaxBond, frobenius_norm, to_scaled
from rankscope.factorize.tucker import Tucker, multiply_factors

Form = CP | Tucker | TensorTrain | TensorRing


def to_tensorly(form: Form) -> object:
    """The CPTensor, TuckerTensor, TTTensor or TRTensor that stands for the same tensor.

    Its arrays are those of the backend that tensorly is set to. Positions without a factor get
    the identity, which tensorly wants to see.

    Raises:
        MissingExtraError: if tensorly is not installed.

    Reference:
        Kossaifi, Panagakis, Anandkumar & Pantic (2019), TensorLy, arXiv:1610.09555.
    """
    try:
        tensorly = import_module("tensorly")
    except ImportError as error:
        raise MissingExtraError(what="to_tensorly", package="tensorly", extra="bench") from error

    def arrays(tensors: Sequence[Tensor]) -> list[object]:
        return [tensorly.tensor(tensor.cpu().numpy()) for tensor in tensors]

    if isinstance(form, CP):
        weights = torch.ones(form.num_components, dtype=form.factors[0].dtype)
        made = tensorly.cp_tensor.CPTensor((*arrays([weights]), arrays(form.factors)))
    elif isinstance(form, Tucker):
        factors = [
            form.factors.get(position, torch.eye(size, dtype=form.core.dtype))
            for position, size in enumerate(form.core.shape)
        ]
        made = tensorly.tucker_tensor.TuckerTensor((*arrays([form.core]), arrays(factors)))
    elif isinstance(form, TensorTrain):
        made = tensorly.tt_tensor.TTTensor(arrays(form.cores))
    else:
        made = tensorly.tr_tensor.TRTensor(arrays(form.cores))
    return made


def from_tensorly(tensor: object, *, original: Tensor | None = None) -> Form:
    """The form of one of tensorly's tensors, told by its attributes `weights`, `core`, `factors`.

    Args:
        tensor: with NumPy arrays or PyTorch tensors in it. A ring whose ends are 1 is a train.
        original: what it approximates, to measure the error against. Without it the form is
            taken for the tensor itself, with error 0.

    Raises:
        DecompositionError: if it has not the attributes of one of them, or another shape than
            the original.

    Reference:
        Kossaifi, Panagakis, Anandkumar & Pantic (2019), TensorLy, arXiv:1610.09555.
    """
    if not hasattr(tensor, "factors"):
        raise DecompositionError(
            f"from_tensorly needs a CPTensor, TuckerTensor, TTTensor or TRTensor, "
            f"got {type(tensor).__name__} without factors."
        )
    factors = _tensors(tensor.factors)
    if hasattr(tensor, "core"):
        (core,) = _tensors([tensor.core])
        by_position = dict(enumerate(factors))
        error = _error(multiply_factors(core, by_position), original)
        return Tucker(core, by_position, error, error)
    if hasattr(tensor, "weights"):
        return _cp(factors, tensor.weights, original)
    if any(factor.ndim != 3 for factor in factors):
        shapes = [tuple(factor.shape) for factor in factors]
        raise DecompositionError(
            f"from_tensorly needs cores of order 3 where there are no weights and no core, "
            f"got shapes {shapes}."
        )
    if factors[0].shape[0] == 1:
        error = _error(contract_train(factors), original)
        return TensorTrain(factors, error, error)
    return TensorRing(factors, _error(contract_ring(factors), original))


def _cp(factors: tuple[Tensor, ...], weights: Any, original: Tensor | None) -> CP:
    if weights is not None:
        factors = (factors[0] * torch.as_tensor(weights), *factors[1:])
    dense = component_sum(factors)
    whole = frobenius_norm(dense if original is None else original)
    norms = torch.stack([factor.norm(dim=0) for factor in factors]).prod(0)
    largest = float(norms.max()) / whole if whole else 0.0
    return CP(factors, _error(dense, original), largest, Solver.GIVEN)


def _tensors(arrays: Any) -> tuple[Tensor, ...]:
    return tuple(torch.as_tensor(array) for array in arrays)


def _error(dense: Tensor, original: Tensor | None) -> float:
    if original is None:
        return 0.0
    if dense.shape != original.shape:
        raise DecompositionError(
            f"from_tensorly: the form stands for shape {tuple(dense.shape)}, but the original has "
            f"shape {tuple(original.shape)}."
        )
    scaled = to_scaled(original, MaxBond(1), who="from_tensorly")
    return scaled.relative_error(dense.to(scaled.unit) / scaled.scale)
