"""Networks that read tokens one by one, on pairs of sample points.

What depends on one side only is computed once for each point of that side: its axis of the other
side has size 1, and products broadcast.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence

import numpy
import torch
from torch import Tensor

from rankscope.architectures.arithmetic import Arithmetic, Modulo
from rankscope.architectures.network import PairwiseFunction, PolynomialNetwork
from rankscope.separation.measuring.split_function import Residues, SplitFunction


class TokenNetwork(PolynomialNetwork):
    """A network of linear maps and products of what it made of single tokens."""

    @abstractmethod
    def evaluate(
        self, numbers: Arithmetic, weights: Mapping[str, Tensor], tokens: Sequence[Tensor]
    ) -> Tensor:
        """The outputs (rows, columns) for tokens (rows or 1, columns or 1, size) that broadcast."""

    def compute(self, numbers: Arithmetic, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        return self.evaluate(numbers, weights, inputs[:, None].unbind(2))[:, 0]

    def split_class(self) -> Callable[..., SplitFunction]:
        """The output as a function of the two sides, what sees one side only computed once."""
        return BroadcastFunction


class BroadcastFunction(PairwiseFunction):
    """A token network on pairs of points."""

    network: TokenNetwork

    def paired(self, left: Residues, right: Residues) -> Residues:
        rows, columns = torch.from_numpy(left)[:, None], torch.from_numpy(right)[None]
        tokens = dict(zip(self.partition.left, rows.unbind(2), strict=True))
        tokens |= zip(self.partition.right, columns.unbind(2), strict=True)
        weights = {name: torch.from_numpy(array) for name, array in self.weights.items()}
        in_order = [tokens[position] for position in self.partition.positions]
        outputs = self.network.evaluate(Modulo(self.prime), weights, in_order)
        return numpy.asarray(outputs.numpy())
