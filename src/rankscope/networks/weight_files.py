"""Weights from a file into a module: every tensor fits, or the first that does not is named."""

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from pickle import UnpicklingError

import numpy
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from rankscope.errors import ModelFileError

_DAMAGES = (SafetensorError, UnpicklingError, zipfile.BadZipFile, EOFError)
# Counters and tables that some files hold and others do not; nothing was learned in them.
_NOT_LEARNED = ("num_batches_tracked", "position_ids")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Every tensor of a file by name; nothing in the file is run.

    Args:
        path: `.safetensors`, `.npz`, or a state dict as `torch.save` writes it (`.pt`, `.pth`,
            `.th`, `.bin`, `.ckpt`), also one inside of `{"state_dict": …}`.

    Raises:
        ModelFileError: if there is no such file, it is damaged, of another kind, or would run code.
    """
    if path.suffix not in _READERS:
        raise ModelFileError(
            f"read_weights: {str(path)!r} ends in {path.suffix!r}; wanted {', '.join(_READERS)}."
        )
    try:
        return _READERS[path.suffix](path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelFileError(f"read_weights: cannot read {str(path)!r}: {reason}.") from error
    except (*_DAMAGES, ValueError) as error:
        # Torch's own message advises to trust the file, which is nothing to pass on.
        raise ModelFileError(
            f"read_weights: {str(path)!r} is damaged, or holds something else than tensors by "
            "name; write it again as .safetensors."
        ) from error


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], *, who: str) -> None:
    """Copy tensors into a module of the same names and shapes, in the module's own dtype.

    Names may all begin with `module.`, as `nn.DataParallel` writes them; of weights that are tied,
    one is enough.

    Args:
        model: changed in place; untouched if anything does not fit.
        tensors: the weights by name.
        who: where they come from, for messages.

    Raises:
        ModelFileError: if a tensor is missing, is not the model's, has another shape, or holds
            integers where the model has fractions.
    """
    tensors_by_name = _without_prefix(tensors)
    places = model.state_dict(keep_vars=True)
    _check_names(tensors_by_name, places, who=who, model=type(model).__name__)
    for name, tensor in tensors_by_name.items():
        if name in places and tensor.shape != places[name].shape:
            raise ModelFileError(
                f"{who}: {name} has the shape {tuple(tensor.shape)}, but that of "
                f"{type(model).__name__} has {tuple(places[name].shape)}; is it another size?"
            )
        if name in places and tensor.is_floating_point() != places[name].is_floating_point():
            raise ModelFileError(
                f"{who}: {name} holds {tensor.dtype}, but that of {type(model).__name__} "
                f"{places[name].dtype}; numbers that were quantized must be put back first."
            )
    _check_ties(tensors_by_name, places, who=who)
    with torch.no_grad():
        for name, place in places.items():
            if name in tensors_by_name:
                place.copy_(tensors_by_name[name])


def _check_names(
    tensors: Mapping[str, Tensor], places: Mapping[str, Tensor], *, who: str, model: str
) -> None:
    given = {id(place) for name, place in places.items() if name in tensors}
    missing = [name for name, place in places.items() if id(place) not in given]
    unknown = [name for name in tensors if name not in places]
    problems = [name for name in missing + unknown if not name.endswith(_NOT_LEARNED)]
    if problems:
        what = "is missing" if problems[0] in missing else f"is none of {model}'s"
        raise ModelFileError(
            f"{who}: {problems[0]} {what} ({len(problems)} of {len(places)} names do not fit); "
            "is it another network?"
        )


def _check_ties(given: Mapping[str, Tensor], places: Mapping[str, Tensor], *, who: str) -> None:
    first: dict[int, str] = {}
    for name in (name for name in places if name in given):
        other = first.setdefault(id(places[name]), name)
        if not _are_same(given[name], given[other]):
            raise ModelFileError(
                f"{who}: {other} and {name} are one weight in the model, but differ in the file."
            )


def _are_same(one: Tensor, other: Tensor) -> bool:
    """Equal everywhere; NaN equals NaN, for whoever uses the weights says more about those."""
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _without_prefix(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    prefix = "module." if all(name.startswith("module.") for name in tensors) else ""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}


def _read_npz(path: Path) -> dict[str, Tensor]:
    with numpy.load(path, allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays}


def _read_torch(path: Path) -> dict[str, Tensor]:
    content = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        content = content["state_dict"]
    if not isinstance(content, dict) or not all(isinstance(v, Tensor) for v in content.values()):
        raise ValueError("no state dict")
    return {str(name): tensor.detach() for name, tensor in content.items()}


_READERS: dict[str, Callable[[Path], dict[str, Tensor]]] = {
    ".safetensors": load_file,
    ".npz": _read_npz,
    **dict.fromkeys((".pt", ".pth", ".th", ".bin", ".ckpt"), _read_torch),
}
