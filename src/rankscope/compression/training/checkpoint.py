"""Training checkpoints: one file, from which a run resumes bit for bit.

The weights and the optimizer's tensors are written by name (safetensors); where the run stands is
JSON in the same file's header, so that neither can be newer than the other. Nothing is unpickled.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from rankscope.compression.training.recipe import Record, from_plain, to_plain, write_metrics
from rankscope.errors import CheckpointError
from rankscope.files import write_atomically
from rankscope.resumable import ResumableFolder, require_same

FILE = "checkpoint.safetensors"
METRICS = "metrics.jsonl"
_MODEL, _OPTIMIZER, _BEST = "model/", "optimizer/", "best/"


@dataclass(frozen=True)
class Position:
    """Where a run stands, between two steps.

    Args:
        epoch: how many are complete.
        batch: how many of the next one are done.
        samples: processed in all.
        epoch_samples: processed in the epoch that has begun.
        loss_sum: over those samples.
        learning_rate: of the last step.
        seconds: spent in all.
        records: of the epochs so far.
    """

    epoch: int = 0
    batch: int = 0
    samples: int = 0
    epoch_samples: int = 0
    loss_sum: float = 0.0
    learning_rate: float = 0.0
    seconds: float = 0.0
    records: tuple[Record, ...] = ()


class Checkpoint:
    """The folder of one run.

    Args:
        folder: created if it is not there.
        identity: says what is trained and how; a folder goes on with the same only. It stands in
            the same file as the weights.
        is_writer: whether this process writes; of several that train together, only one does.

    Raises:
        CheckpointError: if another run uses the folder.
        OutputError: if the folder cannot be created.
    """

    def __init__(
        self, folder: Path, identity: Mapping[str, str], *, is_writer: bool = True
    ) -> None:
        self._folder = folder
        self._identity = dict(identity)
        self._is_writer = is_writer
        self._claim = ResumableFolder(folder, identity, what="training") if is_writer else None

    def close(self) -> None:
        """Let others use the folder."""
        if self._claim is not None:
            self._claim.close()

    def write(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        names: Mapping[str, nn.Parameter],
        position: Position,
        best: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Write the whole run, and its records as metrics.jsonl for readers.

        Args:
            model: with its weights now.
            optimizer: with its state now.
            names: of the parameters that are trained.
            position: of the run.
            best: the state of the model after its best epoch; None if none is kept.

        Raises:
            CheckpointError: if the model's state holds anything but tensors.
        """
        tensors = {_MODEL + name: value for name, value in model_state(model).items()}
        tensors.update({_BEST + name: value for name, value in (best or {}).items()})
        for name, parameter in names.items():
            for key, value in optimizer.state.get(parameter, {}).items():
                if value is not None:  # what SGD without momentum keeps
                    tensors[f"{_OPTIMIZER}{name}/{key}"] = value
        # Clones, because safetensors refuses tensors that share memory, as tied weights do.
        plain = {name: value.detach().clone().contiguous() for name, value in tensors.items()}
        records = [to_plain(record) for record in position.records]
        state = {**self._identity, "position": {**asdict(position), "records": records}}
        write_atomically(
            self._folder / FILE, save(plain, {"run": json.dumps(state, allow_nan=False)})
        )
        write_metrics(self._folder / METRICS, position.records)

    def restore(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        names: Mapping[str, nn.Parameter],
    ) -> Position | None:
        """Put a run back where it stood; None if nothing was written yet.

        Raises:
            CheckpointError: if the file is damaged, or of another run.
        """
        path = self._folder / FILE
        if not path.is_file():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                state = json.loads((file.metadata() or {})["run"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            fields = state.pop("position")
            require_same(self._folder, state, self._identity, what="run")
            position = _position(fields)
            model.load_state_dict(_below(tensors, _MODEL))
            _restore_optimizer(optimizer, names, tensors)
        except CheckpointError:
            raise
        except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"{str(path)!r} cannot be read: {error!r}. Delete it to start afresh."
            ) from error
        if self._is_writer:  # it may have been killed between the two files
            write_metrics(self._folder / METRICS, position.records)
        return position

    def best(self) -> dict[str, Tensor] | None:
        """The best state that was written, after `restore`; None if none was kept."""
        path = self._folder / FILE
        if not path.is_file():
            return None
        with safe_open(path, framework="pt") as file:
            names = [name for name in file.keys() if name.startswith(_BEST)]  # noqa: SIM118
            tensors = {name: file.get_tensor(name) for name in names}
        return _below(tensors, _BEST) or None


def model_state(model: nn.Module) -> dict[str, Tensor]:
    """The state of a model, of which only tensors can be kept.

    Raises:
        CheckpointError: if the model's state holds anything but tensors.
    """
    state = model.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise CheckpointError(
                f"A checkpoint holds tensors only, but {name} of the model's state is a "
                f"{type(value).__name__}. Train without a folder."
            )
    return state


def _position(fields: Mapping[str, Any]) -> Position:
    records = tuple(from_plain(record) for record in fields["records"])
    return Position(**{**fields, "records": records})


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def _restore_optimizer(
    optimizer: torch.optim.Optimizer,
    names: Mapping[str, nn.Parameter],
    tensors: Mapping[str, Tensor],
) -> None:
    states: dict[int, dict[str, Tensor]] = {}
    for number, (name, parameter) in enumerate(names.items()):
        own = _below(tensors, f"{_OPTIMIZER}{name}/")
        states[number] = {key: _laid_out(value, parameter) for key, value in own.items()}
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": states, "param_groups": groups})


def _laid_out(value: Tensor, parameter: nn.Parameter) -> Tensor:
    """Copy a value into the memory order of its parameter, on which the order of sums depends."""
    if value.shape != parameter.shape:
        return value
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)
