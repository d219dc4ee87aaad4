import sys
from types import SimpleNamespace

import numpy
import pytest
import tensorly
import torch
from tensorly.cp_tensor import CPTensor
from tensorly.decomposition import parafac, tensor_ring, tensor_train, tucker

from rankscope.errors import DecompositionError, MissingExtraError
from rankscope.factorize import (
    CP,
    MaxBond,
    TensorRing,
    TensorTrain,
    Tucker,
    decompose_cp,
    decompose_tensor_ring,
    decompose_tensor_train,
    decompose_tucker,
    from_tensorly,
    to_tensorly,
)
from rankscope.factorize.tensorly_tensors import Form

TENSOR = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
SUM = decompose_cp(TENSOR, MaxBond(3))
TRAIN = decompose_tensor_train(TENSOR, MaxBond(2))
FORMS: list[Form] = [
    SUM,
    decompose_tucker(TENSOR, MaxBond(2)),
    decompose_tucker(TENSOR, MaxBond(2), positions=(0, 2)),
    TRAIN,
    decompose_tensor_ring(TENSOR, MaxBond(2)),
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: type(form).__name__)
def test_forms_stand_for_the_same_tensor_there_and_back(form: Form) -> None:
    theirs = to_tensorly(form)
    dense = torch.from_numpy(theirs.to_tensor())  # type: ignore[attr-defined]
    torch.testing.assert_close(dense, form.to_dense())
    back = from_tensorly(theirs, original=TENSOR)
    assert type(back) is type(form)
    torch.testing.assert_close(back.to_dense(), form.to_dense())
    assert back.relative_error == pytest.approx(form.relative_error, abs=1e-12)
    assert from_tensorly(theirs).relative_error == 0.0


@pytest.mark.parametrize(
    ("theirs", "kind"),
    [
        (parafac(TENSOR.numpy(), 2, normalize_factors=True), CP),
        (tucker(TENSOR.numpy(), [2, 3, 2]), Tucker),
        (tensor_train(TENSOR.numpy(), [1, 2, 3, 1]), TensorTrain),
        (tensor_ring(TENSOR.numpy(), [2, 2, 3, 2]), TensorRing),
    ],
)
def test_their_decompositions_are_measured(theirs: object, kind: type) -> None:
    form = from_tensorly(theirs, original=TENSOR)
    assert isinstance(form, kind)
    dense = torch.from_numpy(theirs.to_tensor())  # type: ignore[attr-defined]
    torch.testing.assert_close(form.to_dense(), dense)
    error = float((dense - TENSOR).norm() / TENSOR.norm())
    assert form.relative_error == pytest.approx(error, rel=1e-9)


def test_components_are_measured_against_the_tensor() -> None:
    factors = [numpy.ones((size, 1)) for size in (2, 3, 4)]
    form = from_tensorly(CPTensor((numpy.array([2.0]), factors)))
    assert isinstance(form, CP)
    assert form.largest_component_norm == pytest.approx(1.0)
    torch.testing.assert_close(form.to_dense(), torch.full((2, 3, 4), 2.0, dtype=torch.float64))
    doubled = from_tensorly(CPTensor((None, factors)), original=torch.full((2, 3, 4), 2.0))
    assert isinstance(doubled, CP)
    assert doubled.largest_component_norm == pytest.approx(0.5)
    assert doubled.relative_error == pytest.approx(0.5)


def test_tensors_of_pytorch_are_taken_as_they_are() -> None:
    form = from_tensorly(SimpleNamespace(factors=list(TRAIN.cores)))
    assert isinstance(form, TensorTrain)
    torch.testing.assert_close(form.to_dense(), TRAIN.to_dense())


def test_other_things_are_refused() -> None:
    with pytest.raises(DecompositionError, match="or TRTensor, got int without factors"):
        from_tensorly(3)
    with pytest.raises(DecompositionError, match=r"cores of order 3 .* got shapes \[\(2, 3\)\]"):
        from_tensorly(SimpleNamespace(factors=[torch.ones(2, 3)]))
    theirs = to_tensorly(SUM)
    with pytest.raises(DecompositionError, match=r"shape \(4, 5, 6\), .* shape \(4, 5\)"):
        from_tensorly(theirs, original=torch.ones(4, 5))


def test_without_tensorly_its_tensors_cannot_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tensorly.__version__
    monkeypatch.setitem(sys.modules, "tensorly", None)
    with pytest.raises(MissingExtraError, match=r"to_tensorly needs tensorly, .* not installed"):
        to_tensorly(SUM)
