"""Tensor-train networks: one core for each input, or the same core for all inner ones."""

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy
import torch
from torch import Tensor, nn

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.families.tensors import tensor_train
from rankscope.diagrams.parts import Node, Role
from rankscope.errors import SizeError, TooLargeError
from rankscope.rank.bounds.polynomials import (
    different_cores_lower_bound,
    equal_cores_lower_bound,
    tensor_train_upper_bound,
)
from rankscope.rank.measured import Residues, SplitFunction
from rankscope.rank.networks.network import (
    Arithmetic,
    Modulo,
    PairwiseFunction,
    PolynomialNetwork,
    Setting,
    require_sizes,
)
from rankscope.rank.partition import Partition
from rankscope.theorem import LowerBound, UpperBound

_MAX_COEFFICIENTS = 2**24


class TensorTrain(PolynomialNetwork):
    r"""A bilinear map for each input, one after the other.

    .. math:: h_t = \sum_i f_i(x_t)\, G_t[:, i, :]^T h_{t-1}, \qquad h_0 = 1, \quad y = h_d

    The inputs are the feature vectors f(x_t). Cores are (bond, size, next bond), the first and
    the last with an outer bond of 1.

    Args:
        order: number of inputs, d.
        size: of a feature vector, n.
        bond: dimension of all bonds, r, or a tuple of order - 1 of them.
        has_equal_cores: whether all cores but the first and the last are the same one.
        generator: where the initial cores come from: the identity for each feature, with so
            little noise that outputs at unit vectors are of order 1, however long the train.

    Example:
        >>> TensorTrain(order=5, size=2, bond=3, has_equal_cores=True)(torch.ones(7, 5, 2)).shape
        torch.Size([7])

    Raises:
        SizeError: if a size is not positive, the order is below 2, or the bonds do not fit.

    Reference:
        Khrulkov et al. (2018), arXiv:1711.00811; Alkin (2024) for equal cores.
    """

    family = "tensor-train"

    def __init__(
        self,
        *,
        order: int,
        size: int,
        bond: int | tuple[int, ...],
        has_equal_cores: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require_sizes("TensorTrain", least=2, order=order)
        require_sizes("TensorTrain", size=size)
        if has_equal_cores and not isinstance(bond, int):
            raise SizeError(
                f"TensorTrain: equal cores need one bond dimension for all, got {bond}."
            )
        self.bonds = (bond,) * (order - 1) if isinstance(bond, int) else bond
        if len(self.bonds) != order - 1:
            raise SizeError(
                f"TensorTrain: order {order} has {order - 1} bonds, got {len(self.bonds)}: {bond}."
            )
        require_sizes("TensorTrain", bond=min(self.bonds))
        self.order, self.size, self.bond = order, size, bond
        self.has_equal_cores = has_equal_cores
        self.num_positions, self.input_size = order, size
        outer = (1, *self.bonds, 1)
        positions = sorted({0, 1, order - 1}) if has_equal_cores else range(order)
        self.cores = nn.ParameterList(
            _near_identity(outer[t], size, outer[t + 1], order, generator) for t in positions
        )

    @property
    def settings(self) -> dict[str, Setting]:
        """Order, size, bond and whether inner cores are equal."""
        return {
            "order": self.order,
            "size": self.size,
            "bond": self.bond,
            "has_equal_cores": self.has_equal_cores,
        }

    @property
    def weight_degree(self) -> int:
        """One core for each input."""
        return self.order

    @property
    def input_degree(self) -> int:
        """The output is linear in each input."""
        return self.order

    def core_name(self, position: int) -> str:
        """The parameter that holds the core of an input."""
        if not self.has_equal_cores or position == 0:
            return f"cores.{position}"
        return f"cores.{len(self.cores) - 1 if position == self.order - 1 else 1}"

    def compute(self, numbers: Arithmetic, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """The state after the last input."""
        state = inputs.new_ones(len(inputs), 1)
        for position in range(self.order):
            moved = numbers.contract("bl,lir->bir", state, weights[self.core_name(position)])
            state = numbers.contract("bi,bir->br", inputs[:, position], moved)
        return state[:, 0]

    def grade_degrees(self, partition: Partition) -> tuple[int, ...]:
        """One: the output is linear in each input of the right side."""
        return (len(partition.right),)

    def upper_bound(self, partition: Partition) -> UpperBound:
        """The minimal cut of the chain."""
        self.require_covered(partition)
        return tensor_train_upper_bound((self.size,) * self.order, self.bonds, partition.left)

    def lower_bound(self, partition: Partition) -> LowerBound | None:
        """The theorems on odd against even positions; None for other splits and odd orders.

        With several bond dimensions the smallest counts: cores may vanish beyond it.
        """
        self.require_covered(partition)
        odd_even = Partition.interleaved(self.order)
        if self.order % 2 or partition not in (odd_even, odd_even.swapped):
            return None
        theorem = equal_cores_lower_bound if self.has_equal_cores else different_cores_lower_bound
        return theorem(order=self.order, size=self.size, bond=min(self.bonds))

    def diagram(self) -> Diagram:
        """The train with an input on each site: rows of the array `x` (order, size)."""
        train = tensor_train(order=self.order, sizes=self.size, bond_dimensions=self.bonds)
        cores = [replace(core, array=self.core_name(t)) for t, core in enumerate(train.nodes)]
        inputs = [
            Node(f"x{t}", (f"i{t}",), Role.DATA, rf"\mathbf{{x}}_{{{t}}}", "x", (t - 1, t))
            for t in range(1, self.order + 1)
        ]
        return replace(
            train,
            nodes=(*cores, *inputs),
            output=(),
            title=f"Tensor-train network of order {self.order}",
        )

    def coefficients(self, weights: Mapping[str, Residues], prime: int) -> Residues:
        """The coefficient tensor, `size` along each of `order` axes, modulo a prime.

        Raises:
            TooLargeError: if it has too many entries.
        """
        if self.size**self.order > _MAX_COEFFICIENTS:
            raise TooLargeError(
                what=f"The coefficient tensor of a train of order {self.order}",
                entries=self.size**self.order,
                limit=_MAX_COEFFICIENTS,
                instead="Sample its values with split instead.",
            )
        numbers = Modulo(prime)
        tensor = torch.ones(1, 1, dtype=torch.int64)
        for position in range(self.order):
            core = torch.from_numpy(weights[self.core_name(position)])
            tensor = numbers.contract("al,lir->air", tensor, core).flatten(0, 1)
        return numpy.asarray(tensor.reshape((self.size,) * self.order).numpy())

    def split_class(self) -> Callable[..., SplitFunction]:
        """The output as a function of the two sides; each side is contracted by itself first."""
        return TrainFunction


class TrainFunction(PairwiseFunction):
    """A train on pairs of points: neighbours of one side are one matrix for each point."""

    network: TensorTrain

    def paired(self, left: Residues, right: Residues) -> Residues:
        numbers = Modulo(self.prime)
        state = torch.ones(len(left), len(right), 1, dtype=torch.int64)
        left_side, right_side = self.partition.left, self.partition.right
        for is_left, run in itertools.groupby(range(self.network.order), left_side.__contains__):
            points, side, letter = (left, left_side, "p") if is_left else (right, right_side, "q")
            fed = [
                self._fed(numbers, position, points[:, side.index(position)]) for position in run
            ]
            product = functools.reduce(functools.partial(numbers.contract, "bkl,blr->bkr"), fed)
            state = numbers.contract(f"pql,{letter}lr->pqr", state, product)
        return numpy.asarray(state[:, :, 0].numpy())

    def _fed(self, numbers: Modulo, position: int, inputs: Residues) -> Tensor:
        """The core of a position for each input: matrices (points, bond before, bond after)."""
        core = torch.from_numpy(self.weights[self.network.core_name(position)])
        return numbers.contract("bi,lir->blr", torch.from_numpy(inputs), core)


def _near_identity(
    bond: int, size: int, next_bond: int, order: int, generator: torch.Generator | None
) -> nn.Parameter:
    """The identity for each letter, and noise of spectral norm about 2 / order."""
    # Even the same core over and over then changes the state by no more than about e^2.
    noise = torch.randn(bond, size, next_bond, generator=generator) / math.sqrt(next_bond) / order
    return nn.Parameter(torch.eye(bond, next_bond)[:, None, :] + noise)


# --- The explicit tensor train with equal cores whose odd-even matricization has a large rank -----


def witness_cores(*, size: int, bond: int) -> tuple[Residues, Residues, Residues]:
    r"""First, inner and last core of Alkin's proof, of shapes (1, n, r), (r, n, r) and (r, n, 1).

    .. math:: G_1^{i \alpha} = [i = \alpha], \qquad G_d^{\alpha i} = [\alpha = i], \qquad
              G_k^{\alpha i \beta} =
              \begin{cases} [\alpha = i] [\beta = q + 1] & \alpha \le q \\
                            [i = \beta] & \alpha = q + 1 \\ 0 & \alpha > q + 1 \end{cases}

    with n = `size`, r = `bond` and q = min(n, r - 1). A word i_1 … i_d has the coefficient 1 if
    it is made of doubled letters ii, i ≤ q, and single letters q + 1, and 0 otherwise.

    For n < r only doubled letters occur: the odd-even matricization of even order is the identity.
    For n ≥ r it is unitriangular on the words in the letters 1..r: there is an even number of
    letters between two single ones, so they stand at odd and at even positions by turns, and the
    j-th of the column is never before the j-th of the row; if all are side by side, the column
    equals the row. Hence the rank is at least min(n, r)^(d/2), for these cores and therefore for
    almost all.

    Example:
        >>> first, inner, last = witness_cores(size=2, bond=3)
        >>> inner[2].tolist() == first[0].tolist()
        True

    Raises:
        SizeError: if a size is not positive.

    Reference:
        Alkin (2024), proof of the main theorem; the case n ≥ r is ours: docs/proofs.md, section 12.
    """
    require_sizes("witness_cores", size=size, bond=bond)
    num_doubled = min(size, bond - 1)
    same = numpy.eye(size, bond, dtype=numpy.int64)
    inner = numpy.zeros((bond, size, bond), dtype=numpy.int64)
    doubled = numpy.arange(num_doubled)
    inner[doubled, doubled, num_doubled] = 1
    inner[num_doubled] = same
    return same[None], inner, same.T[:, :, None].copy()


def witness_weights(network: TensorTrain) -> dict[str, Residues]:
    """The witness as weights of a train, with equal cores or not.

    Raises:
        SizeError: if the train's bonds have several dimensions.
    """
    if len(set(network.bonds)) > 1:
        raise SizeError(f"witness_weights: all bonds must be of one size, got {network.bonds}.")
    first, inner, last = witness_cores(size=network.size, bond=network.bonds[0])
    cores = (first, *(inner,) * (network.order - 2), last)
    return {network.core_name(position): core for position, core in enumerate(cores)}
