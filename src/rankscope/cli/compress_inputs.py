"""What `rankscope compress` works on: a model, its weights, and data to calibrate with."""

from pathlib import Path

import torch
from torch import Tensor, nn

from rankscope.architectures.models.catalogue import BUILT_IN, build, build_trained
from rankscope.architectures.models.published_weights import find_weights
from rankscope.architectures.models.weight_files import load_weights, read_weights
from rankscope.cli.factories import call_factory
from rankscope.compression.report import Scorer
from rankscope.compression.scores import Batch
from rankscope.errors import DataError, RequestError
from rankscope.training.datasets import load_data_set
from rankscope.training.scoring import accuracy

NUM_SAMPLES, BATCH_SIZE = 512, 64  # of calibration data
DATA_SETS = ("digits", "mnist", "fashion-mnist", "cifar10")
_IMAGES, _TOKENS = (1, 3, 32, 32), (1, 64)
# The smallest batch that a built-in network takes, where nobody gives one.
_USUAL_INPUTS: dict[str, tuple[int, ...]] = {
    "digits": (1, 1, 8, 8),
    "vgg16-bn": _IMAGES,
    **dict.fromkeys(("resnet20", "resnet32", "resnet44", "resnet56"), _IMAGES),
    **dict.fromkeys(
        ("transformer", "lstm-language-model", "small-gpt", "bert-encoder", "minilm"), _TOKENS
    ),
    "letter-to-phoneme": (1, 16),
}
_HAS_DATA_SET = {
    "digits": "digits",
    **dict.fromkeys(("resnet20", "resnet32", "resnet44", "resnet56", "vgg16-bn"), "cifar10"),
}


def read_model(
    model: str, *, weights: Path | None, data: Path | None, may_be_untrained: bool
) -> tuple[nn.Module, list[str]]:
    """A model in inference mode, and what a reader should know about its weights.

    Args:
        model: a built-in name, or `package.module:factory`.
        weights: file to load into it.
        data: folder where published weights of built-in networks are looked for as well.
        may_be_untrained: whether a built-in network without known weights is taken as it starts.

    Raises:
        RequestError: if it is neither, or the factory gives something else.
        DataError: if a built-in network has no weights, and must have some.
        ModelFileError: if the weights do not fit.
    """
    if model in BUILT_IN:
        if weights is not None:
            return build_trained(model, weights=weights), []
        try:
            return build_trained(model, weights=find_weights(model, data)), []
        except DataError as error:
            if not may_be_untrained:
                raise
            return build(model).eval(), [f"The weights are untrained: {error}"]
    if ":" not in model:
        raise RequestError(
            f"{model!r} is no built-in network ({', '.join(BUILT_IN)}); "
            "write package.module:factory for one of your own."
        )
    built = call_factory(model)
    if not isinstance(built, nn.Module):
        raise RequestError(f"{model} gives a {type(built).__name__}; wanted a torch.nn.Module.")
    if weights is not None:
        load_weights(built, read_weights(weights), who=str(weights))
    return built.eval(), []


def read_calibration(data: str, model: str) -> list[Batch]:
    """The first samples of a data set or a file, in batches.

    Args:
        data: the name of a data set; a folder that holds the one that belongs to a built-in
            network; or a `.safetensors` or `.npz` file with the inputs, one sample after the other
            along their first position: one tensor, or several named as the model names them.
        model: as on the command line.

    Raises:
        RequestError: if it is none of these.
        DataError: if a data set is not there.
        ModelFileError: if a file cannot be read.
    """
    path = Path(data)
    if path.is_file():
        return _batches(read_weights(path))
    if data not in DATA_SETS and not path.is_dir():
        raise RequestError(
            f"--data takes a data set ({', '.join(DATA_SETS)}), a folder or a file; "
            f"{data!r} is none of them."
        )
    folder = path if path.is_dir() else None
    name = data if folder is None else _HAS_DATA_SET.get(model)
    if name is None:
        raise RequestError(
            f"--data: which inputs {model!r} takes from the folder {data!r} is not known, only of "
            f"{', '.join(_HAS_DATA_SET)}; give a .safetensors or .npz file with inputs."
        )
    samples = load_data_set(name, folder).train.head(NUM_SAMPLES)
    return [batch.inputs for batch in samples.batches(BATCH_SIZE)]


def read_scorer(data: str | None, model: str) -> Scorer | None:
    """The accuracy on the test part of a built-in network's own data set, if that was named."""
    name = _HAS_DATA_SET.get(model)
    if data is None or name is None or not (data == name or Path(data).is_dir()):
        return None
    test = load_data_set(name, None if data == name else Path(data)).test
    batch = test.batches(len(test))[0]
    labels = batch.targets
    assert labels is not None, "data sets of classifiers have labels"
    return lambda network: {"accuracy": accuracy(network, batch.inputs, labels)}


def _batches(tensors: dict[str, Tensor]) -> list[Batch]:
    counts = {name: len(tensor) if tensor.ndim else 0 for name, tensor in tensors.items()}
    if len(set(counts.values())) != 1 or not all(counts.values()):
        raise RequestError(
            f"--data: wanted tensors with the same number of samples, at least 1, got {counts}."
        )
    (count,) = set(counts.values())
    starts = range(0, min(count, NUM_SAMPLES), BATCH_SIZE)
    ends = [min(start + BATCH_SIZE, count, NUM_SAMPLES) for start in starts]
    if len(tensors) == 1:
        (only,) = tensors.values()
        return [only[start:end] for start, end in zip(starts, ends, strict=True)]
    return [
        {name: tensor[start:end] for name, tensor in tensors.items()}
        for start, end in zip(starts, ends, strict=True)
    ]


def read_example(
    shape: tuple[int, ...] | None, model: str, calibration: list[Batch] | None
) -> Batch | None:
    """One batch: the first of the data, one of the shape asked for, or the usual of a built-in."""
    if shape is None and calibration:
        return calibration[0]
    if shape is None and model not in _USUAL_INPUTS:
        return None
    sizes = shape or _USUAL_INPUTS[model]
    takes_numbers = len(sizes) == 2 and model in _USUAL_INPUTS
    return torch.ones(sizes, dtype=torch.long) if takes_numbers else torch.ones(sizes)
