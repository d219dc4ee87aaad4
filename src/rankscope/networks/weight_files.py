"""Weights from a file into a module: every tensor fits, or the first that does not is named."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from rankscope.errors import ModelFileError, printable
from rankscope.tensor_files.opening import open_tensors

# Counters and tables that some files hold and others do not; nothing was learned in them.
_NOT_LEARNED = ("num_batches_tracked", "position_ids")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Every tensor of a file by name, in memory of its own; nothing in the file is run.

    Args:
        path: of a file as `open_tensors` takes it.

    Raises:
        ModelFileError: if there is no such file, it is damaged, of another kind, would run code, or
            claims to hold more than it has bytes for.
    """
    source = open_tensors(path)
    tensors: dict[str, Tensor] = {}
    for entry in source.entries:
        # Tied names share one copy. It does not follow the file, which may be changed meanwhile.
        tensor = source.read(entry.name).clone()
        tensors |= dict.fromkeys((entry.name, *entry.tied_names), tensor)
    return tensors


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
                f"{who}: {printable(name)} has the shape {tuple(tensor.shape)}, but that of "
                f"{type(model).__name__} has {tuple(places[name].shape)}; is it another size?"
            )
        if name in places and tensor.is_floating_point() != places[name].is_floating_point():
            raise ModelFileError(
                f"{who}: {printable(name)} holds {tensor.dtype}, but that of "
                f"{type(model).__name__} {places[name].dtype}; numbers that were quantized must be "
                "put back first."
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
            f"{who}: {printable(problems[0])} {what} ({len(problems)} of {len(places)} names do "
            "not fit); is it another network?"
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
