"""Names of rows and columns as readers say them, in sentences and in figures."""

import re
from collections.abc import Mapping

Labels = Mapping[str, str]
_WORDS = {
    # axes, with their units
    "test loss": "test loss (nats)",
    "bits": "bits per intensity",
    "accuracy": "accuracy (percent)",
    "test accuracy": "test accuracy (percent)",
    "train accuracy": "train accuracy (percent)",
    "in blocks": "weights in the matrices of all blocks",
    "share": "share of the weights kept",
    "noise": "share of random labels",
    "samples": "samples processed",
    "entanglement entropy": "entanglement entropy (nats)",
    # data sets, models, formats and baselines
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "karate": "karate club",
    "smollm2": "SmolLM2-135M",
    "cp-resnet20": "ResNet-20 of CP layers",
    "cp-vgg16-bn": "VGG-16 of CP layers",
    "cp-wide-resnet-28-10": "Wide ResNet-28-10 of CP layers",
    "svd": "SVD",
    "cp": "CP",
    "tucker": "Tucker",
    "r-svd": "reshaped SVD",
    "r-cp": "reshaped CP",
    "r-tucker": "reshaped Tucker",
    "r-tensor-train": "reshaped tensor train",
    "r-tensor-ring": "reshaped tensor ring",
    "majority": "most frequent class",
    "linear-4-neighbours": "linear in 4 neighbours",
    "linear-left-pixel": "linear in the left pixel",
    "copy-of-left-pixel": "copy of the left pixel",
}


def worded(name: str, labels: Labels | None = None) -> str:
    """A name of the rows as readers say it: by the labels of a figure, or by those of all.

    Example:
        >>> worded("logistic-regression"), worded("r-cp"), worded("cp", {"cp": "CP layers"})
        ('logistic regression', 'reshaped CP', 'CP layers')
    """
    return (labels or {}).get(name) or _WORDS.get(name) or re.sub(r"(?<!\d)-", " ", name)


def capitalized(sentence: str) -> str:
    """The same with a capital first letter; the others keep theirs."""
    return f"{sentence[:1].upper()}{sentence[1:]}"
