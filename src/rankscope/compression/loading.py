"""Compressed models from their folders.

The folder says which weights of a model are written how; the model itself is one of the built-in
networks, or comes from the caller. Nothing in a folder names code to import, and nothing is
unpickled.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor, nn

from rankscope.architectures.models.catalogue import BUILT_IN, build
from rankscope.architectures.models.weight_files import load_weights
from rankscope.compression.applying import sites_by_module
from rankscope.compression.blank import blank
from rankscope.compression.plan import Plan
from rankscope.compression.plan_file import (
    PLAN_FILE,
    WEIGHTS_FILE,
    SavedPlan,
    WeightsSeal,
    read_plan,
)
from rankscope.compression.replacing import with_replaced
from rankscope.errors import CompressionError, LayerError, ModelFileError
from rankscope.files import plain_file


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
    model = _factorized(_dense(saved, into), saved.plan)
    _follow_dtypes(model, tensors)
    load_weights(model, tensors, who=str(Path(folder) / WEIGHTS_FILE))
    return model.eval()


def _weights(path: Path, saved: SavedPlan) -> dict[str, Tensor]:
    with plain_file(path) as (file, size):
        if size != saved.seal.num_bytes:
            raise ModelFileError(
                f"{path} has {size:,} bytes, but its plan was written for "
                f"{saved.seal.num_bytes:,}: it is cut off, or of another model. Save the model "
                "again."
            )
        data = file.read()
    found = WeightsSeal.of(data)
    if found != saved.seal:
        raise ModelFileError(
            f"{path} has the SHA-256 {found.sha256}, but its plan was written for "
            f"{saved.seal.sha256[:64]}: it was changed, or is of another model. Save the model "
            "again."
        )
    try:
        return load_tensors(data)
    except SafetensorError as error:
        raise ModelFileError(f"{path} is no safetensors file: {error}.") from error


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


def _factorized(dense: nn.Module, plan: Plan) -> nn.Module:
    """A copy of the dense model with modules of the plan's formats, ranks and bits."""
    chosen = {row.name: row for row in plan.rows if row.format is not None}
    try:
        layers = {
            name: blank(dense.get_submodule(name), {site.part: chosen[site.name] for site in sites})
            for name, sites in sites_by_module(dense, chosen).items()
        }
    except LayerError as error:
        raise CompressionError(f"load: the plan does not fit the model. {error}") from error
    return with_replaced(dense, layers)


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
