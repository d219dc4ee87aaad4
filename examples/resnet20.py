"""ResNet-20 for CIFAR-10 as published, and images as rows of patches that can be split in two."""

import json
from pathlib import Path

import numpy
import torch
from torch import Tensor, nn

from rankscope.networks.image import ResNet

CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
PATCH = 8  # pixels along a side
PATCHES = 4  # along a side of an image
_PIXELS = PATCH * PATCHES
_MEAN = (0.485, 0.456, 0.406)  # of ImageNet: what the published weights were trained with
_DEVIATION = (0.229, 0.224, 0.225)


class PatchClassifier(nn.Module):
    """A classifier of images as a function of their patches."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier.eval()

    def forward(self, patches: Tensor) -> Tensor:
        """(batch, 16, 3, 8, 8) to logits (batch, 10)."""
        images = from_patches(patches)
        # With the channels last in memory convolutions are several times as fast.
        logits: Tensor = self.classifier(images.contiguous(memory_format=torch.channels_last))
        return logits


def to_patches(images: Tensor) -> Tensor:
    """(batch, 3, 32, 32) to (batch, 16, 3, 8, 8), row by row of the image."""
    tiles = images.reshape(-1, 3, PATCHES, PATCH, PATCHES, PATCH)
    return tiles.permute(0, 2, 4, 1, 3, 5).reshape(-1, PATCHES**2, 3, PATCH, PATCH)


def from_patches(patches: Tensor) -> Tensor:
    """The images that the patches were cut from."""
    tiles = patches.reshape(-1, PATCHES, PATCHES, 3, PATCH, PATCH)
    return tiles.permute(0, 3, 1, 4, 2, 5).reshape(-1, 3, _PIXELS, _PIXELS)


def trained(path: Path) -> ResNet:
    """The published weights, from a safetensors file."""
    model = ResNet(20)
    # Counters of training steps are not in the file, and of no use here.
    missing, unexpected = model.load_state_dict(read_safetensors(path), strict=False)
    surprises = [name for name in missing if not name.endswith("num_batches_tracked")] + unexpected
    if surprises:
        raise ValueError(f"{path} does not hold a ResNet-20: {surprises[0]} does not fit.")
    return model.eval()


def untrained(images: Tensor, *, seed: int, width: int = 16) -> ResNet:
    """The initialisation training starts from, with batch statistics of real images."""
    generator = torch.Generator().manual_seed(seed)
    model = ResNet(20, width=width)
    for part in model.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(part.weight, generator=generator)
        elif isinstance(part, nn.BatchNorm2d):
            part.momentum = None  # the plain mean over all batches
    nn.init.zeros_(model.linear.bias)
    with torch.no_grad():
        model.train()(images)
    return model.eval()


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """All float32 arrays of a file: a length, a table in JSON, and the bytes."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    table = json.loads(content[8:start])
    arrays = {}
    for name, entry in table.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "F32":
            raise ValueError(f"{path}: {name} holds {entry['dtype']}, and only F32 is read here.")
        first, last = entry["data_offsets"]
        numbers = numpy.frombuffer(content[start + first : start + last], "<f4")
        arrays[name] = torch.from_numpy(numpy.array(numbers, numpy.float32)).reshape(entry["shape"])
    return arrays


def read_cifar10(path: Path) -> tuple[Tensor, Tensor]:
    """Images (count, 3, 32, 32), normalised, and labels (count,) of a binary batch."""
    size = 3 * _PIXELS**2
    rows = numpy.fromfile(path, numpy.uint8).reshape(-1, 1 + size)
    pixels = torch.from_numpy(rows[:, 1:].astype(numpy.float32) / 255)
    mean, deviation = (torch.tensor(values).reshape(3, 1, 1) for values in (_MEAN, _DEVIATION))
    images = (pixels.reshape(-1, 3, _PIXELS, _PIXELS) - mean) / deviation
    return images, torch.from_numpy(rows[:, 0].astype(numpy.int64))


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of images whose largest logit is that of their label."""
    with torch.no_grad():
        guesses = torch.cat([model(batch).argmax(dim=1) for batch in torch.split(images, 100)])
    return float((guesses == labels).double().mean())
