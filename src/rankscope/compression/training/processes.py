"""The processes that train one model together: one, or several through Lightning Fabric.

    processes = FabricProcesses.launch(devices=2)  # runs the script once for each process
    fit(model, cross_entropy, data, recipe, processes=processes)

Every process draws the same batches and takes its share of each; gradients are averaged. Up to
rounding, the weights are those of a single process, if the loss is a mean over samples.
"""

from abc import ABC, abstractmethod
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from rankscope.errors import MissingExtraError
from rankscope.networks.batches import Batch

Value = TypeVar("Value")


class Processes(ABC):
    """The process group, as one rank sees it."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of processes."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """The number of this one; number 0 writes the files."""

    @abstractmethod
    def prepared(self, model: nn.Module) -> nn.Module:
        """What a loss is computed with: the model, its gradients shared."""

    @abstractmethod
    def backward(self, loss: Tensor) -> None:
        """Give every process the mean of all gradients."""

    @abstractmethod
    def total(self, number: float) -> float:
        """The sum of everyone's numbers."""

    @abstractmethod
    def agreed(self, value: Value) -> Value:
        """The value of process 0, on all processes."""

    def share(self, batch: Batch) -> tuple[Batch, float]:
        """The samples of this process, and the weight of their mean in the mean of all means.

        Example:
            >>> batch = Batch(torch.arange(3.0), None)
            >>> OneProcess().share(batch) == (batch, 1.0)
            True
        """
        if self.count == 1:
            return batch, 1.0
        chosen = slice(self.rank, None, self.count)
        if self.rank >= batch.num_samples:
            # Everyone has to take part in sharing gradients, be it with a sample that counts 0.
            return batch.part(slice(0, 1)), 0.0
        own = batch.part(chosen)
        return own, own.num_samples * self.count / batch.num_samples


class OneProcess(Processes):
    """A process alone."""

    @property
    def count(self) -> int:
        """One."""
        return 1

    @property
    def rank(self) -> int:
        """The first."""
        return 0

    def prepared(self, model: nn.Module) -> nn.Module:
        """The model itself."""
        return model

    def backward(self, loss: Tensor) -> None:
        """The gradients of the loss."""
        loss.backward()  # type: ignore[no-untyped-call]

    def total(self, number: float) -> float:
        """The number itself."""
        return number

    def agreed(self, value: Value) -> Value:
        """The value itself."""
        return value


class FabricProcesses(Processes):
    """Processes that Lightning Fabric has launched, on one machine or several.

    Args:
        fabric: a `lightning_fabric.Fabric` that was launched, with a strategy that keeps the whole
            model in every process (ddp).
    """

    def __init__(self, fabric: Any) -> None:
        self._fabric = fabric

    @classmethod
    def launch(
        cls, *, devices: int, num_nodes: int = 1, accelerator: str = "cpu"
    ) -> "FabricProcesses":
        """Start the other processes of this machine, unless `torchrun` or a cluster did already.

        Raises:
            MissingExtraError: if lightning-fabric is not installed.
        """
        try:
            from lightning_fabric import Fabric
        except ImportError as error:
            raise MissingExtraError(
                what="Training with several processes",
                package="lightning-fabric",
                extra="distributed",
            ) from error
        fabric = Fabric(
            accelerator=accelerator, devices=devices, num_nodes=num_nodes, strategy="ddp"
        )
        fabric.launch()
        return cls(fabric)

    @property
    def count(self) -> int:
        """Number of processes on all machines."""
        return int(self._fabric.world_size)

    @property
    def rank(self) -> int:
        """Rank among the processes of all machines."""
        return int(self._fabric.global_rank)

    def prepared(self, model: nn.Module) -> nn.Module:
        """The model on its device, its gradients averaged after every backward pass."""
        wrapped: nn.Module = self._fabric.setup(model)
        return wrapped

    def backward(self, loss: Tensor) -> None:
        """The mean of all processes' gradients."""
        self._fabric.backward(loss)

    def total(self, number: float) -> float:
        """Summed in float64."""
        own = torch.tensor(number, dtype=torch.float64, device=self._fabric.device)
        return float(self._fabric.all_reduce(own, reduce_op="sum"))

    def agreed(self, value: Value) -> Value:
        """Sent from process 0."""
        sent: Value = self._fabric.broadcast(value, src=0)
        return sent
