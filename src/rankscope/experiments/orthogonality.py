"""`orthogonality`: how well do convolutions keep norms, and gradients through many of them?

Layers are drawn anew and applied to random images; the ratio of norms should be 1. Then layers are
stacked with sorting between them, and the norm of a gradient is compared with what came in.

Reference:
    Su, Byeon & Huang (2022), arXiv:2106.09121; ratios as in the talk's table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from rankscope.errors import MissingExtraError
from rankscope.experiments.experiment import Entry, Experiment, Row, Workplace
from rankscope.experiments.orthogonal_references import REFERENCES
from rankscope.layers.norm_preserving.sorting import MaxMin
from rankscope.layers.orthogonal.convolution import OrthogonalConv2d
from rankscope.layers.orthogonal.initialization import Uniform
from rankscope.separation.measuring.progress import Progress
from rankscope.training.batches import seed_of

# Mean ratio of norms, and standard deviation, by layer: published in the talk's table.
PUBLISHED: dict[str, tuple[float, float]] = {
    "ours": (1 + 3.84e-8, 7.32e-8),
    "Cayley": (1 + 2.88e-4, 1.90e-4),
    "BCOP": (1 + 2.59e-3, 6.14e-3),
    "SVCM": (0.571, 3.31e-3),
    "RKO": (0.334, 1.74e-3),
    "OSSN": (0.578, 3.44e-3),
}


@dataclass(frozen=True)
class LayerSize:
    """Square convolutions on square images, a circle along each axis."""

    channels: int = 64
    image: int = 16
    kernel: int = 3


def build_layer(name: str, size: LayerSize) -> nn.Module:
    """A layer without bias, in inference mode, drawn from PyTorch's generator.

    Args:
        name: `ours`, one of `REFERENCES`, or AOC.
        size: of the layer.

    Raises:
        MissingExtraError: if it is AOC, and orthogonium is not installed.
    """
    if name in REFERENCES:
        return REFERENCES[name](size.channels, size.image, size.kernel).eval()
    sizes = (size.channels, size.channels, size.kernel)
    if name == "AOC":
        layer: nn.Module = _adaptive_convolution()(*sizes, bias=False)
        return layer.eval()
    return OrthogonalConv2d(*sizes, bias=False, initialization=Uniform()).eval()


def _adaptive_convolution() -> Callable[..., nn.Module]:
    if not is_installed("orthogonium"):
        raise MissingExtraError(what="The layer AOC", package="orthogonium", extra="bench")
    found: Callable[..., nn.Module] = import_module("orthogonium.layers").AdaptiveOrthoConv2d
    return found


def is_installed(package: str) -> bool:
    """Whether a package can be imported; it is not."""
    return find_spec(package) is not None


def norm_ratios(layer: nn.Module, inputs: Tensor) -> Tensor:
    """The norm of each output over that of its input, (samples,) in float64."""
    with torch.no_grad():
        outputs = layer(inputs)
    return _norms(outputs) / _norms(inputs)


def gradient_ratios(layers: nn.Module, inputs: Tensor) -> Tensor:
    """The norm of each gradient that comes out over the one that goes in, (samples,) in float64."""
    outputs, pull_back = torch.func.vjp(layers, inputs)[:2]
    upstream = torch.randn_like(outputs)
    (gradients,) = pull_back(upstream)
    return _norms(gradients.detach()) / _norms(upstream)


def _norms(images: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(images.double().flatten(1), dim=1)
    return norms


@dataclass(frozen=True)
class OrthogonalityEntry(Entry):
    """One kind of layer.

    Args:
        layer: its name, see `build_layer`.
        size: of the layers.
        num_layers: drawn anew, each for itself.
        num_inputs: random images for each of them.
        depths: numbers of layers that a gradient passes.
        num_gradients: random images for that.
        seed: of everything.
    """

    layer: str
    size: LayerSize = LayerSize()
    num_layers: int = 100
    num_inputs: int = 256
    depths: tuple[int, ...] = (5, 10, 20, 50)
    num_gradients: int = 8
    seed: int = 0

    @property
    def name(self) -> str:
        """That of the layer."""
        return self.layer.lower()

    def run(self, place: Workplace) -> Row:
        """Ratios of norms, and of gradients' norms for each depth."""
        published, deviation = PUBLISHED.get(self.layer, (None, None))
        if self.layer == "AOC" and not is_installed("orthogonium"):
            return {"layer": self.layer, "note": "left out: orthogonium is not installed"}
        with torch.random.fork_rng(devices=[]):
            ratios = self._ratios(place)
            gradients = {f"gradient after {depth}": self._gradient(depth) for depth in self.depths}
        return {
            "layer": self.layer,
            "mean - 1": float(ratios.mean()) - 1,
            "deviation": float(ratios.std()),
            "furthest from 1": float((ratios - 1).abs().max()),
            "published mean - 1": None if published is None else published - 1,
            "published deviation": deviation,
            **gradients,
            "note": None,
        }

    def _ratios(self, place: Workplace) -> Tensor:
        found = []
        for number in range(self.num_layers):
            place.report(Progress("layers", number, self.num_layers))
            torch.manual_seed(seed_of("layer", self.seed, number))
            layer = build_layer(self.layer, self.size)
            found.append(norm_ratios(layer, self._images(self.num_inputs)))
        return torch.cat(found)

    def _gradient(self, depth: int) -> float:
        torch.manual_seed(seed_of("depth", self.seed, depth))
        layers: list[nn.Module] = []
        for _ in range(depth):
            layers += [build_layer(self.layer, self.size), MaxMin()]
        return float(
            gradient_ratios(nn.Sequential(*layers), self._images(self.num_gradients)).mean()
        )

    def _images(self, count: int) -> Tensor:
        return torch.randn(count, self.size.channels, self.size.image, self.size.image)


ORTHOGONALITY = Experiment(
    name="orthogonality",
    title="Norms after one convolution, and of gradients after many, over those before; 1 is kept",
    entries=tuple(OrthogonalityEntry(name) for name in ("ours", *REFERENCES, "AOC")),
)
