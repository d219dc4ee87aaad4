"""A file of tensors by the ending of its name: the one way in which strangers' tensors are read."""

from pathlib import Path

from rankscope.errors import ModelFileError
from rankscope.tensor_files.sources import TensorSource

TORCH_ENDINGS = (".pt", ".pth", ".th", ".bin", ".ckpt")
ENDINGS = (".safetensors", ".npz", *TORCH_ENDINGS)


def open_tensors(path: Path, *, may_be_bare: bool = False) -> TensorSource:
    """Open a file of tensors by name; none is read yet, and nothing in the file is run.

    Args:
        path: `.safetensors`, `.npz`, or a state dict as `torch.save` writes it (`.pt`, `.pth`,
            `.th`, `.bin`, `.ckpt`), also one inside of `{"state_dict": …}`.
        may_be_bare: whether one tensor without a name will do, as a `.npy` file holds it and a
            `.pt` file may; its name is "".

    Raises:
        ModelFileError: if there is no such file, it is damaged or of another kind, would run code,
            or claims to hold more than it has bytes for.
    """
    if path.suffix == ".safetensors":
        from rankscope.tensor_files.safetensors_file import SafetensorsFile

        return SafetensorsFile(path)
    if path.suffix in TORCH_ENDINGS:
        from rankscope.tensor_files.torch_file import TorchFile

        return TorchFile(path, may_be_bare=may_be_bare)
    if path.suffix == ".npz":
        from rankscope.tensor_files.numpy_files import NumpyArchive

        return NumpyArchive(path)
    if may_be_bare and path.suffix == ".npy":
        from rankscope.tensor_files.numpy_files import NumpyFile

        return NumpyFile(path)
    wanted = (*ENDINGS, ".npy") if may_be_bare else ENDINGS
    raise ModelFileError(f"{str(path)!r} ends in {path.suffix!r}; wanted {', '.join(wanted)}.")
