"""LSTM and GRU whose matrices are written as small tensors."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.diagrams.network import Network
from rankscope.layers.linear_layers import prepared
from rankscope.layers.recurrent_cells import Step, gru_step, lstm_step
from rankscope.layers.recurrent_diagram import gru_network, lstm_network
from rankscope.layers.recurrent_layer import FactorizedRecurrent, Sequences


class FactorizedLSTM(FactorizedRecurrent):
    """Used like `nn.LSTM`; see `FactorizedRecurrent` and `lstm_step`.

    Example:
        >>> from rankscope.layers.formats.catalogue import FORMATS
        >>> dense = nn.LSTM(20, 30)
        >>> small = FactorizedLSTM.from_dense(dense, {"weight_hh_l0": (FORMATS["svd"], (4,))})
        >>> outputs, (hidden, cell) = small(torch.zeros(7, 5, 20))
        >>> outputs.shape, cell.shape
        (torch.Size([7, 5, 30]), torch.Size([1, 5, 30]))
    """

    dense_class = nn.LSTM

    def forward(
        self, input: Sequences, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Sequences, tuple[Tensor, Tensor]]:
        """Outputs, and the last hidden state and cell.

        Raises:
            LayerError: if input or state do not have the right shape.
        """
        outputs, (hidden, cell) = self._run(input, hx)
        return outputs, (hidden, cell)

    def diagram(self, suffix: str = "l0") -> Network:
        """See `FactorizedRecurrent.diagram`."""
        return lstm_network(self.weights_of(suffix), suffix, self.hidden_size)

    @property
    def _state_sizes(self) -> tuple[int, ...]:
        return (self.settings.out_size, self.settings.hidden_size)

    def _step(self, suffix: str) -> Step:
        project = f"weight_hr_{suffix}" if self.settings.proj_size else None
        return partial(
            lstm_step,
            recurrent=prepared(self.weight(f"weight_hh_{suffix}")),
            project=None if project is None else prepared(self.weight(project)),
        )

    def _kernel(self) -> Callable[..., Any]:
        return torch.lstm


class FactorizedGRU(FactorizedRecurrent):
    """Used like `nn.GRU`; see `FactorizedRecurrent` and `gru_step`.

    Example:
        >>> from rankscope.layers.formats.catalogue import FORMATS
        >>> dense = nn.GRU(20, 30, batch_first=True)
        >>> small = FactorizedGRU.from_dense(dense, {"weight_ih_l0": (FORMATS["svd"], (4,))})
        >>> outputs, hidden = small(torch.zeros(5, 7, 20))
        >>> outputs.shape, hidden.shape
        (torch.Size([5, 7, 30]), torch.Size([1, 5, 30]))
    """

    dense_class = nn.GRU

    def forward(self, input: Sequences, hx: Tensor | None = None) -> tuple[Sequences, Tensor]:
        """Outputs, and the last hidden state.

        Raises:
            LayerError: if input or state do not have the right shape.
        """
        outputs, (hidden,) = self._run(input, None if hx is None else (hx,))
        return outputs, hidden

    def diagram(self, suffix: str = "l0") -> Network:
        """See `FactorizedRecurrent.diagram`."""
        return gru_network(self.weights_of(suffix), suffix, self.hidden_size)

    @property
    def _state_sizes(self) -> tuple[int, ...]:
        return (self.settings.hidden_size,)

    def _step(self, suffix: str) -> Step:
        return partial(gru_step, recurrent=prepared(self.weight(f"weight_hh_{suffix}")))

    def _kernel(self) -> Callable[..., Any]:
        return torch.gru
