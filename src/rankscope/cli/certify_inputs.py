"""What `rankscope certify` and `generalization` work on: labelled samples, and a network."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from rankscope.architectures.lipschitz.catalogue import LIPSCHITZ_NETWORKS
from rankscope.architectures.models.catalogue import BUILT_IN
from rankscope.architectures.models.weight_files import load_weights, read_weights
from rankscope.cli.compress_inputs import DATA_SETS, read_model
from rankscope.errors import RequestError
from rankscope.layers.norm_preserving.scaling import InputScaling
from rankscope.robustness.methods import Intervals, LinearBounds, Lipschitz, Method
from rankscope.robustness.norms import L2, Linf, Norm
from rankscope.training.batches import Normalization
from rankscope.training.datasets import load_data_set

NORMS: dict[str, Norm] = {"l2": L2(), "linf": Linf()}
METHODS: dict[str, Method] = {
    "lipschitz": Lipschitz(),
    "intervals": Intervals(),
    "linear-bounds": LinearBounds(),
    "linear-bounds-fast": LinearBounds(inner_intervals=True),
}
_NEEDED = ("inputs", "labels")


@dataclass(frozen=True, eq=False)
class LabelledSamples:
    """Samples; `normalize` is what networks trained on the data set get them through."""

    inputs: Tensor
    labels: Tensor
    normalize: Normalization | None


def read_samples(
    data: str, model: str, count: int | None, *, part: Literal["train", "test"] = "test"
) -> LabelledSamples:
    """The first samples of a data set, as pixels in 0..1, or those of a file as they are.

    Args:
        data: the name of a data set; a folder that holds the one that belongs to the model; or a
            `.safetensors` or `.npz` file with `inputs` and `labels`.
        model: as on the command line.
        count: how many at most; None for all.
        part: of a data set; a file has only one.

    Raises:
        RequestError: if it is none of these, or the file does not hold both.
        DataError: if a data set is not there.
        ModelFileError: if a file cannot be read.
    """
    path = Path(data)
    if path.is_file():
        return _from_file(path, count)
    folder = path if path.is_dir() else None
    name = _data_set_of(model) if folder is not None else data
    if name not in DATA_SETS:
        raise RequestError(
            f"--data takes a data set ({', '.join(DATA_SETS)}), a folder with the data set of a "
            f"built-in network, or a file of inputs and labels; got {data!r} for {model!r}."
        )
    found = load_data_set(name, folder)
    chosen = found.train if part == "train" else found.test
    chosen = chosen if count is None else chosen.head(count)
    if chosen.targets is None:
        raise RequestError(f"--data: {name} has no labels.")
    is_bytes = not chosen.inputs.is_floating_point()
    inputs = chosen.inputs.float() / 255 if is_bytes else chosen.inputs
    return LabelledSamples(inputs, chosen.targets, chosen.normalize)


def _data_set_of(model: str) -> str | None:
    if model in LIPSCHITZ_NETWORKS or model in BUILT_IN:
        return "digits" if "digits" in model else "cifar10"
    return None


def _from_file(path: Path, count: int | None) -> LabelledSamples:
    tensors = read_weights(path)
    if set(tensors) != set(_NEEDED) or tensors["labels"].is_floating_point():
        found = ", ".join(f"{name} ({tensor.dtype})" for name, tensor in tensors.items())
        raise RequestError(
            f"--data: {str(path)!r} must hold 'inputs' and integer 'labels', got {found}."
        )
    inputs, labels = (tensors[name][:count] for name in _NEEDED)
    return LabelledSamples(inputs.to(torch.get_default_dtype()), labels.long(), None)


def read_network(
    model: str, weights: Path | None, data: str, samples: LabelledSamples
) -> nn.Module:
    """The model, behind the scaling that it was trained with.

    Raises:
        RequestError: if there is no such model, or it has no weights.
        DataError: if a built-in network has no weights.
        ModelFileError: if the weights do not fit.
    """
    if model in LIPSCHITZ_NETWORKS:
        if weights is None:
            raise RequestError(f"{model} is untrained; give its weights with --weights FILE.")
        network = LIPSCHITZ_NETWORKS[model]()
        load_weights(network, read_weights(weights), who=str(weights))
        return network.eval()
    folder = Path(data) if Path(data).is_dir() else None
    network, _ = read_model(model, weights=weights, data=folder, may_be_untrained=False)
    if model not in BUILT_IN or samples.normalize is None:
        return network
    scaling = InputScaling(samples.normalize.means, samples.normalize.deviations)
    return nn.Sequential(scaling, network).eval()
