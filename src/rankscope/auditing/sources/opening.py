"""From a path or a module to an opened model."""

import sys
from pathlib import Path
from typing import Any

from rankscope.auditing.sources.safetensors_file import SafetensorsFile
from rankscope.auditing.sources.shards import Shards
from rankscope.auditing.sources.source import OpenedModel, TensorSource
from rankscope.errors import ModelFileError
from rankscope.files import file_status
from rankscope.strict_json import Numbers, read_document

_CONFIG = "config.json"
_INDEX = ".index.json"
_TORCH_ENDINGS = (".pt", ".pth", ".bin", ".ckpt")
# What a folder may call its weights; the first that is there is taken, as Hugging Face does.
_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


def open_model(what: object) -> OpenedModel:
    """Open a model without reading its weights and without running any of its code.

    Args:
        what: a folder with `config.json`, weights, or both (whole or in shards); a configuration
            `*.json`; weights in `*.safetensors`, or in `*.pt`, `*.pth`, `*.bin` or `*.ckpt` as
            `torch.save` writes them; an index of shards; or a `torch.nn.Module`.

    Raises:
        ModelFileError: if it is none of these, or is missing, damaged or unsafe.
    """
    if isinstance(what, str | Path):
        return _open_path(Path(what))
    # Who has a module has loaded torch; asking sys.modules does not load it for anyone else.
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(what, torch.nn.Module):
        raise ModelFileError(
            f"open_model: wanted a path or a torch.nn.Module, got a {type(what).__name__}."
        )
    from rankscope.auditing.sources.state_dict import StateDict

    name = type(what).__name__
    # The parameters themselves, not copies, so that tied ones are seen to be the same.
    return OpenedModel(name, None, StateDict(what.state_dict(keep_vars=True), who=name))


def _open_path(path: Path) -> OpenedModel:
    file_status(path)
    if path.is_dir():
        return _open_folder(path)
    if path.name.endswith(".json") and not path.name.endswith(_INDEX):
        return OpenedModel(str(path), _read_configuration(path), None)
    return OpenedModel(str(path), None, _open_weights(path))


def _open_folder(folder: Path) -> OpenedModel:
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise ModelFileError(f"Cannot read {str(folder)!r}: {error.strerror}.") from error
    config = _read_configuration(folder / _CONFIG) if _CONFIG in names else None
    weights = _weights_among(names, folder)
    if config is None and weights is None:
        shown = ", ".join(names[:8]) + (" …" if len(names) > 8 else "") if names else "nothing"
        raise ModelFileError(
            f"{str(folder)!r} holds no model: wanted {_CONFIG}, {', '.join(_WEIGHTS)} or one file "
            f"*.safetensors; it holds {shown}."
        )
    return OpenedModel(str(folder), config, None if weights is None else _open_weights(weights))


def _read_configuration(path: Path) -> dict[str, Any]:
    # Python writes infinities into JSON, and some configurations have them.
    return read_document(path, numbers=Numbers.ANY)


def _weights_among(names: list[str], folder: Path) -> Path | None:
    usual = [name for name in _WEIGHTS if name in names]
    found = usual[:1] or [name for name in names if name.endswith(".safetensors")]
    if len(found) > 1:
        raise ModelFileError(
            f"{str(folder)!r} holds {len(found)} safetensors files and no model.safetensors"
            f"{_INDEX} that joins them; give one of them: {', '.join(found[:8])}."
        )
    return folder / found[0] if found else None


def _open_weights(path: Path) -> TensorSource:
    if path.name.endswith(_INDEX):
        return Shards(path, open_file=_open_file)
    return _open_file(path)


def _open_file(path: Path) -> TensorSource:
    if path.suffix == ".safetensors":
        return SafetensorsFile(path)
    if path.suffix in _TORCH_ENDINGS:
        from rankscope.auditing.sources.torch_file import open_torch_file

        return open_torch_file(path)
    raise ModelFileError(
        f"{str(path)!r} ends in {path.suffix!r}; wanted .json, .safetensors, "
        f"{', '.join(_TORCH_ENDINGS)}, or a folder."
    )
