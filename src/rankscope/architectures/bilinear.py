"""The bilinear recurrent network, which is a tensor train in the words of recurrent networks."""

import torch
from torch import Tensor, nn

from rankscope.architectures.tensor_train import TensorTrain
from rankscope.errors import SizeError


class BilinearRecurrent(nn.Module):
    r"""A hidden state that every input changes bilinearly; the last one is the output.

    .. math:: h_t^k = \sum_{a, i} h_{t-1}^a\, A_t^{k a i} x_t^i, \qquad h_0 = (1)

    Its hidden sizes are the bond dimensions of the tensor train that it equals.

    Args:
        cells: one for each input; the same cell may occur several times.

    Example:
        >>> train = TensorTrain(order=4, size=2, bond=(3, 5, 2))
        >>> BilinearRecurrent.from_tensor_train(train).hidden_sizes
        (3, 5, 2)

    Reference:
        Khrulkov et al. (2018), arXiv:1711.00811.
    """

    def __init__(self, cells: tuple[nn.Bilinear, ...]) -> None:
        super().__init__()
        self.cells = nn.ModuleList(cells)
        self.hidden_sizes = tuple(cell.out_features for cell in cells[:-1])

    @classmethod
    def from_tensor_train(cls, train: TensorTrain) -> "BilinearRecurrent":
        """The network that computes the same function, with copies of the cores as its cells."""
        made = {name: _cell(core.detach()) for name, core in train.named_parameters()}
        return cls(tuple(made[train.core_name(position)] for position in range(train.order)))

    def forward(self, inputs: Tensor) -> Tensor:
        """The outputs (batch,) for inputs (batch, number of cells, size).

        Raises:
            SizeError: if there are more or fewer inputs than cells.
        """
        if inputs.ndim != 3 or inputs.shape[1] != len(self.cells):
            raise SizeError(
                f"BilinearRecurrent: inputs must have shape (batch, {len(self.cells)}, size), "
                f"got {tuple(inputs.shape)}."
            )
        state = inputs.new_ones(len(inputs), 1)
        for cell, token in zip(self.cells, inputs.unbind(1), strict=True):
            state = cell(state, token)
        return state.squeeze(1)


def _cell(core: Tensor) -> nn.Bilinear:
    bond, size, next_bond = core.shape
    cell = nn.Bilinear(bond, size, next_bond, bias=False, dtype=core.dtype, device=core.device)
    with torch.no_grad():
        cell.weight.copy_(core.permute(2, 0, 1))
    return cell
