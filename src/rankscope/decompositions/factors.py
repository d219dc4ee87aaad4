"""Sums of outer products, written as one factor matrix for each position of a tensor."""

from collections.abc import Sequence

import numpy
from numpy.typing import NDArray

Reals = NDArray[numpy.float64]
Factors = tuple[Reals, ...]  # one (size, num_components) for each position

_BLOCK = 1024  # components added up at a time, to save memory


def outer_columns(factors: Sequence[Reals]) -> Reals:
    """The outer product of the factors' columns, one by one: (product of sizes, num_components)."""
    product = factors[0]
    for factor in factors[1:]:
        product = (product[:, None, :] * factor).reshape(-1, factor.shape[1])
    return product


def compose(factors: Factors) -> Reals:
    r"""Add up the components.

    .. math:: T_{j_1 \dots j_N} = \sum_{s=1}^{R} \prod_{k=1}^{N} F^{(k)}_{j_k s}
    """
    middle = len(factors) // 2
    total = numpy.zeros(tuple(len(factor) for factor in factors))
    for start in range(0, factors[0].shape[1], _BLOCK):
        block = [factor[:, start : start + _BLOCK] for factor in factors]
        product = outer_columns(block[:middle]) @ outer_columns(block[middle:]).T
        total += product.reshape(total.shape)
    return total


def project(tensor: Reals, factors: Factors) -> Factors:
    r"""Contract a tensor with the outer products of all factors but one, for each one in turn.

    .. math:: G^{(k)}_{j_k s} = \sum_{j_1 \dots \hat{j_k} \dots j_N} T_{j_1 \dots j_N}
              \prod_{l \ne k} F^{(l)}_{j_l s}

    Positions are halved again and again, and both halves share what was contracted before them.

    Reference:
        Phan, Tichavský & Cichocki (2013), arXiv:1204.1586.
    """
    middle = len(factors) // 2
    left, right = factors[:middle], factors[middle:]
    matrix = tensor.reshape(-1, len(outer_columns(right)))
    return _split(matrix @ outer_columns(right), left) + _split(
        matrix.T @ outer_columns(left), right
    )


def _split(partial: Reals, factors: Factors) -> Factors:
    """The same for a tensor that already has the component as its last position."""
    if len(factors) == 1:
        return (partial,)
    middle = len(factors) // 2
    left, right = outer_columns(factors[:middle]), outer_columns(factors[middle:])
    cube = partial.reshape(len(left), len(right), -1)
    return _split(numpy.einsum("abs,bs->as", cube, right), factors[:middle]) + _split(
        numpy.einsum("abs,as->bs", cube, left), factors[middle:]
    )


def component_norms(factors: Factors) -> Reals:
    """The Frobenius norm of each outer product."""
    norms = numpy.array([numpy.linalg.norm(factor, axis=0) for factor in factors])
    product: Reals = norms.prod(axis=0)
    return product


def balance(factors: Factors) -> Factors:
    """Give all vectors of a component the same length, which does not change the sum.

    A component with a vector 0 becomes 0 throughout.
    """
    norms = numpy.array([numpy.linalg.norm(factor, axis=0) for factor in factors])
    common = norms.prod(axis=0) ** (1 / len(factors))
    scales = numpy.divide(common, norms, out=numpy.zeros_like(norms), where=norms > 0)
    return tuple(factor * scale for factor, scale in zip(factors, scales, strict=True))
