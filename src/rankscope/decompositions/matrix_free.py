"""The damped normal equations of a sum of outer products, solved without forming their matrix.

J^T J is made of small Gram matrices, see `gauss_newton.normal_matrix`: a product with it costs as
much as a few products of the factors with matrices (num_components, num_components).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy
from scipy.linalg import cho_solve

from rankscope.decompositions.factors import Factors, Reals
from rankscope.decompositions.gauss_newton import Solve

# Steps need no better solution: the next one starts from other factors.
_RELATIVE_RESIDUAL = 0.02
_MAX_ITERATIONS = 30


@dataclass(frozen=True, eq=False)
class NormalOperator:
    """J^T J at given factors, as an operator on stacked factors (sum of sizes, num_components)."""

    factors: Factors

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """The rows of each factor within a stack."""
        ends = numpy.cumsum([0, *(len(factor) for factor in self.factors)])
        return tuple(slice(*pair) for pair in pairwise(ends))

    @cached_property
    def _grams(self) -> Factors:
        return tuple(factor.T @ factor for factor in self.factors)

    def gram_without(self, *positions: int) -> Reals:
        """The entrywise product of the factors' Gram matrices but those of some positions."""
        count = self.factors[0].shape[1]
        product = numpy.ones((count, count))
        for position, gram in enumerate(self._grams):
            if position not in positions:
                product = product * gram
        return product

    @cached_property
    def _diagonal(self) -> Factors:
        return tuple(self.gram_without(position) for position in range(len(self.factors)))

    @cached_property
    def _off_diagonal(self) -> dict[tuple[int, int], Reals]:
        every = range(len(self.factors))
        upper = {(k, m): self.gram_without(k, m) for k in every for m in every if k < m}
        return upper | {(m, k): gram for (k, m), gram in upper.items()}

    def apply(self, stack: Reals) -> Reals:
        r"""Multiply a stack of factors V by J^T J.

        .. math:: (J^T J V)^{(k)} = V^{(k)} \Gamma^{(k)} + F^{(k)} \sum_{l \ne k}
                  (\Gamma^{(kl)} \circ F^{(l)T} V^{(l)})^T
        """
        parts = [stack[rows] for rows in self.slices]
        inner = [factor.T @ part for factor, part in zip(self.factors, parts, strict=True)]
        result = numpy.empty_like(stack)
        for position, rows in enumerate(self.slices):
            mixed = numpy.zeros_like(self._diagonal[position])
            for other, product in enumerate(inner):
                if other != position:
                    mixed += self._off_diagonal[position, other] * product
            result[rows] = parts[position] @ self._diagonal[position]
            result[rows] += self.factors[position] @ mixed.T
        return result

    def inverse_blocks(self, damping: float) -> Factors | None:
        """The inverse of the damped diagonal block of each position: the preconditioner."""
        identity = numpy.eye(self.factors[0].shape[1])
        try:
            roots = [numpy.linalg.cholesky(block + damping * identity) for block in self._diagonal]
        except numpy.linalg.LinAlgError:
            return None  # rounding made one indefinite: more damping is needed
        return tuple(cho_solve((root, True), identity) for root in roots)


def matrix_free_equations(factors: Factors) -> Solve:
    """Solve the damped normal equations by preconditioned conjugate gradients, inexactly.

    Reference:
        Sorber, Van Barel & De Lathauwer (2013), Optimization-based algorithms for tensor
        decompositions, Sec. 4, doi:10.1137/120868323.
    """
    operator = NormalOperator(factors)

    def solve(slope: Reals, damping: float) -> Reals | None:
        blocks = operator.inverse_blocks(damping)
        if blocks is None:
            return None
        stack = slope.reshape(-1, factors[0].shape[1])
        return -_conjugate_gradients(operator, blocks, stack, damping).ravel()

    return solve


def _conjugate_gradients(
    operator: NormalOperator, blocks: Factors, right: Reals, damping: float
) -> Reals:
    solution, residual = numpy.zeros_like(right), right.copy()
    enough = _RELATIVE_RESIDUAL * float(numpy.linalg.norm(right))
    direction, before = numpy.zeros_like(right), math.inf
    for _ in range(_MAX_ITERATIONS):
        if float(numpy.linalg.norm(residual)) <= enough:
            break
        ready = _blockwise(operator, blocks, residual)
        weight = float(numpy.vdot(residual, ready))
        direction = ready + (weight / before) * direction
        product = operator.apply(direction) + damping * direction
        length = weight / float(numpy.vdot(direction, product))
        solution += length * direction
        residual -= length * product
        before = weight
    return solution


def _blockwise(operator: NormalOperator, blocks: Factors, stack: Reals) -> Reals:
    return numpy.concatenate(
        [stack[rows] @ block for rows, block in zip(operator.slices, blocks, strict=True)]
    )
