"""Two arithmetics for one definition of a network: real numbers, and residues modulo a prime.

A polynomial network is written once, as binary contractions and products; which numbers it
computes with is an argument.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from rankscope.errors import PrimeError, TooLargeError

_LIMB = 2**16
_EXACT = 2**53  # integers up to here are float64 numbers


class Arithmetic(ABC):
    """Contraction of two tensors, product and sum, in some kind of numbers."""

    @abstractmethod
    def contract(self, equation: str, left: Tensor, right: Tensor) -> Tensor:
        """The einsum of two tensors."""

    @abstractmethod
    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        """The product, entry by entry, broadcast."""

    @abstractmethod
    def add(self, left: Tensor, right: Tensor) -> Tensor:
        """The sum, entry by entry, broadcast."""


class Reals(Arithmetic):
    """Ordinary floating point, differentiable."""

    def contract(self, equation: str, left: Tensor, right: Tensor) -> Tensor:
        return torch.einsum(equation, left, right)

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        return left * right

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right


class Modulo(Arithmetic):
    """Exact arithmetic modulo a prime below 2^31 on int64 tensors with entries in 0..p-1.

    Contractions run as float64 einsums: the left factor is split into limbs of 16 bits where the
    prime and the number of summands need it, so that no sum exceeds 2^53.

    Example:
        >>> numbers = Modulo(7)
        >>> numbers.contract("ij,j->i", torch.tensor([[3, 4], [5, 6]]), torch.tensor([1, 2]))
        tensor([4, 3])
    """

    def __init__(self, prime: int) -> None:
        if not 2 <= prime < 2**31:
            raise PrimeError(f"Modulo: the prime must be from 2 to 2^31 - 1, got {prime}.")
        self.prime = prime

    def contract(self, equation: str, left: Tensor, right: Tensor) -> Tensor:
        depth = _inner_size(equation, left, right)
        if depth <= _EXACT // self.prime**2:
            return self._reduced(equation, left, right)
        limit = _EXACT // (min(self.prime, _LIMB) * self.prime)
        if depth > limit:
            raise TooLargeError(
                what=f"A sum of products {equation} modulo {self.prime}",
                entries=depth,
                limit=limit,
                instead="Use a smaller prime.",
            )
        high = self._reduced(equation, left // _LIMB, right)
        low = self._reduced(equation, left % _LIMB, right)
        return (high * _LIMB + low) % self.prime

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        return left * right % self.prime

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        return (left + right) % self.prime

    def _reduced(self, equation: str, left: Tensor, right: Tensor) -> Tensor:
        product = torch.einsum(equation, left.double(), right.double())
        return product.to(torch.int64) % self.prime


def _inner_size(equation: str, left: Tensor, right: Tensor) -> int:
    """How many products are summed into one entry."""
    inputs, output = equation.split("->")
    sizes: dict[str, int] = {}
    for letters, operand in zip(inputs.split(","), (left, right), strict=True):
        for letter, size in zip(letters, operand.shape, strict=True):
            sizes[letter] = max(sizes.get(letter, 1), size)
    return math.prod(size for name, size in sizes.items() if name not in output)
