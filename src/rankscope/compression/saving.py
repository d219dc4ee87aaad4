"""Compressed models as folders: `model.safetensors` with the weights, `plan.json` with the rest.

Both are written beside the folder, read back, and only then put in their place. The plan carries
the hash of the weights, so that two files that do not belong together are never taken for a model.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor, nn

from rankscope.compression.applying import Compressed, blank_layers, with_replaced
from rankscope.compression.exporting import tensors
from rankscope.compression.plan import (
    PLAN_FILE,
    WEIGHTS_FILE,
    Budget,
    Costs,
    Plan,
    SavedPlan,
    WeightsChecksum,
    read_plan,
)
from rankscope.compression.scores import Batch
from rankscope.compression.usage import run_example
from rankscope.errors import CompressionError, LayerError, ModelFileError
from rankscope.files import folder_beside, plain_file, write_atomically
from rankscope.modes import inference
from rankscope.networks.catalogue import BUILT_IN, build
from rankscope.networks.weight_files import load_weights, read_weights

# --- Compressed models from their folders ---------------------------------------------------------


def load(folder: Path | str, into: nn.Module | Callable[[], nn.Module] | None = None) -> nn.Module:
    """A compressed model as `save` wrote it, in inference mode.

    Args:
        folder: with `plan.json` and `model.safetensors`.
        into: the dense module, or a function that makes it; left as it is. Built-in networks need
            none.

    Raises:
        ModelFileError: if a file is missing, damaged, or not the one that belongs to the other.
        CompressionError: if `into` is missing, or is not the model that the plan was made for.
    """
    saved = read_plan(Path(folder) / PLAN_FILE)
    tensors = _weights(Path(folder) / WEIGHTS_FILE, saved)
    model = _factorize(_dense(saved, into), saved.plan)
    _follow_dtypes(model, tensors)
    load_weights(model, tensors, who=str(Path(folder) / WEIGHTS_FILE))
    return model.eval()


def _weights(path: Path, saved: SavedPlan) -> dict[str, Tensor]:
    with plain_file(path) as (file, size):
        if size != saved.checksum.num_bytes:
            raise ModelFileError(
                f"{path} has {size:,} bytes, but its plan was written for "
                f"{saved.checksum.num_bytes:,}: it is cut off, or of another model. Save the model "
                "again."
            )
        data = file.read()
    checksum = WeightsChecksum.of(data)
    if checksum != saved.checksum:
        raise ModelFileError(
            f"{path} has the SHA-256 {checksum.sha256}, but its plan was written for "
            f"{saved.checksum.sha256[:64]}: it was changed, or is of another model. Save the model "
            "again."
        )
    return read_weights(path)


def _dense(saved: SavedPlan, into: nn.Module | Callable[[], nn.Module] | None) -> nn.Module:
    if isinstance(into, nn.Module):
        return into
    if into is not None:
        return into()
    if saved.built_in is None:
        raise CompressionError(
            "load: the folder does not hold one of the built-in networks; pass the dense model, "
            "or a function that makes it, as `into`."
        )
    if saved.built_in not in BUILT_IN:
        raise ModelFileError(
            f"load: the folder is for a network {saved.built_in[:80]!r}, but built in are "
            f"{', '.join(BUILT_IN)}; pass the dense model as `into`."
        )
    return build(saved.built_in)


def _factorize(dense: nn.Module, plan: Plan) -> nn.Module:
    """A copy of the dense model with modules of the plan's formats, ranks and bits."""
    chosen = {row.name: row for row in plan.rows if row.format is not None}
    try:
        return with_replaced(dense, blank_layers(dense, chosen))
    except LayerError as error:
        raise CompressionError(f"load: the plan does not fit the model. {error}") from error


def _follow_dtypes(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give the model the precision of the file, in place, so that loading rounds nothing."""
    for name, place in model.state_dict(keep_vars=True).items():
        dtype = tensors[name].dtype if name in tensors else place.dtype
        if dtype == place.dtype:
            continue
        if not (dtype.is_floating_point and place.is_floating_point()):
            raise ModelFileError(
                f"load: {name} is {_word(dtype)} in the file, but {_word(place.dtype)} by the "
                "plan; one of them was changed."
            )
        place.data = place.data.to(dtype)


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def save(
    compressed: Compressed | nn.Module,
    folder: Path | str,
    *,
    built_in: str | None = None,
    dense: nn.Module | None = None,
    example: Batch | None = None,
) -> None:
    """Write a compressed model, after it has been read back and compared.

    Args:
        compressed: also one that was repaired or fine-tuned since; or a module as it is, which
            `load(folder, into=…)` reads again.
        folder: made if it is not there; a model in it is replaced.
        built_in: name of the built-in network it was made from, which `load` then makes itself.
        dense: the model it was made from, if it is not built in, to read it back as `load` will.
        example: one batch; the model must give finite outputs on it, and the same when read back.

    Raises:
        CompressionError: if the model cannot be written or read back as it is; the folder is then
            untouched.
        OutputError: if the folder cannot be written.
    """
    if isinstance(compressed, nn.Module):
        compressed = Compressed(compressed, _dense_plan(compressed))
    outputs = None if example is None else finite_outputs(compressed.model, example)
    state = _state(compressed.model)
    data = tensors_to_bytes(state)
    saved = SavedPlan(compressed.plan, WeightsChecksum.of(data), built_in)
    target = Path(folder).absolute()
    with folder_beside(target) as beside:
        write_atomically(beside / WEIGHTS_FILE, data)
        write_atomically(beside / PLAN_FILE, saved.to_json())
        read_plan(beside / PLAN_FILE)
        if built_in is not None or dense is not None:
            again = load(beside, into=dense)
            check_read_back(state, _state(again))
            if example is not None and outputs is not None:
                check_outputs(outputs, finite_outputs(again, example))
        _publish(beside, target)


def _dense_plan(model: nn.Module) -> Plan:
    """The plan of a model that stays as it is."""
    weights = list(model.parameters())
    costs = Costs(
        parameters=sum(weight.numel() for weight in weights),
        flops=0,
        bytes=sum(weight.nbytes for weight in weights),
    )
    return Plan((), Budget(1.0), costs, costs, notes=("Saved as it is, not compressed.",))


def _state(model: nn.Module) -> dict[str, Tensor]:
    """Every tensor once, under its first name, in memory of its own."""
    state: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, value in model.state_dict(keep_vars=True).items():
        if not isinstance(value, Tensor):
            raise CompressionError(
                f"save: {name} of the model's state is a {type(value).__name__}; only tensors can "
                "be written."
            )
        if id(value) not in seen:
            seen.add(id(value))
            state[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
    return state


def finite_outputs(model: nn.Module, example: Batch) -> list[Tensor]:
    """What a model gives for an example.

    Raises:
        CompressionError: if a number of it is NaN or infinite.
    """
    with torch.no_grad(), inference(model):
        outputs = tensors(run_example(model, example))
    for output in outputs:
        bad = int((~torch.isfinite(output)).sum()) if output.is_floating_point() else 0
        if bad:
            raise CompressionError(
                f"save: the model gives {bad:,} NaN or infinite numbers of {output.numel():,} on "
                "the example; it was not written."
            )
    return outputs


def check_read_back(written: Mapping[str, Tensor], loaded: Mapping[str, Tensor]) -> None:
    """Compare the weights of a model with those that its file gives back.

    Raises:
        CompressionError: if one is missing or differs.
    """
    for name, value in written.items():
        if name not in loaded or not torch.equal(value.cpu(), loaded[name]):
            raise CompressionError(
                f"save: {name} is not read back as it was written; the plan does not describe "
                "this model."
            )


def check_outputs(wanted: list[Tensor], outputs: list[Tensor]) -> None:
    """Compare what a model gives with what it gives after it was read back.

    Raises:
        CompressionError: if they differ by more than rounding.
    """
    for one, other in zip(wanted, outputs, strict=True):
        # The same numbers may be summed in another order, if a weight lies otherwise in memory.
        if not torch.allclose(one, other, rtol=1e-3, atol=1e-4 * float(one.abs().max())):
            difference = float((one - other).abs().max())
            raise CompressionError(
                f"save: the model read back gives outputs that differ by {difference:.2g}; it was "
                "not written. Does it hold numbers outside of its state?"
            )


def _publish(beside: Path, target: Path) -> None:
    if not target.exists():
        beside.rename(target)
        return
    # The plan last: until it is there, the old one says that the weights are not its own.
    for name in (WEIGHTS_FILE, PLAN_FILE):
        (beside / name).replace(target / name)
