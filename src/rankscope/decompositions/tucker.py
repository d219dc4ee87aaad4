"""Tensors in bases of their own: what no fibre ever reaches is left out."""

import numpy

from rankscope.decompositions.factors import Factors, Reals


def compress(tensor: Reals) -> tuple[Reals, Factors]:
    """A smaller tensor with the same decompositions, and one orthonormal basis for each position.

    The tensor is the smaller one multiplied by the (size, smaller size) bases, up to rounding.

    Reference:
        De Lathauwer, De Moor & Vandewalle (2000), A multilinear singular value decomposition,
        doi:10.1137/S0895479896305696.
    """
    bases = tuple(_basis(tensor, position) for position in range(tensor.ndim))
    core = tensor
    for position, basis in enumerate(bases):
        core = numpy.moveaxis(numpy.tensordot(core, basis, (position, 0)), -1, position)
    return core, bases


def _basis(tensor: Reals, position: int) -> Reals:
    matrix = numpy.moveaxis(tensor, position, 0).reshape(tensor.shape[position], -1)
    left, singular_values, _ = numpy.linalg.svd(matrix, full_matrices=False)
    rounding = max(matrix.shape) * float(numpy.finfo(numpy.float64).eps)
    kept = int((singular_values > rounding * singular_values[0]).sum())
    basis: Reals = left[:, : max(1, kept)]
    return basis
