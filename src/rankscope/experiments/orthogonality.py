"""`orthogonality`: how well do convolutions keep norms, and gradients through many of them?

Layers are drawn anew and applied to random images; the ratio of norms should be 1. Then layers are
stacked with sorting between them, and the norm of a gradient is compared with what came in. Some
layers are also measured in float64, and after a thousand steps of training.

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
from rankscope.experiments.gradient_figure import draw_gradients
from rankscope.experiments.orthogonal_references import REFERENCES
from rankscope.layers.norm_preserving.sorting import MaxMin
from rankscope.layers.orthogonal.convolution import OrthogonalConv2d
from rankscope.layers.orthogonal.initialization import Uniform
from rankscope.progress import Progress
from rankscope.seeds import seed_of

# Mean ratio of norms, and standard deviation, by name of the row: published in the talk's table.
PUBLISHED: dict[str, tuple[float, float]] = {
    "ours": (1 + 3.84e-8, 7.32e-8),
    "cayley": (1 + 2.88e-4, 1.90e-4),
    "bcop": (1 + 2.59e-3, 6.14e-3),
    "svcm": (0.571, 3.31e-3),
    "rko": (0.334, 1.74e-3),
    "ossn": (0.578, 3.44e-3),
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
        name: `ours`, one of `REFERENCES`, AOC, or `torch`: PyTorch's own parametrization of the
            kernel, which makes orthogonal matrices of its taps, and no orthogonal convolution.
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
    if name == "torch":
        plain = nn.Conv2d(*sizes, padding=size.kernel // 2, padding_mode="circular", bias=False)
        return nn.utils.parametrizations.orthogonal(plain).eval()
    return OrthogonalConv2d(*sizes, bias=False, initialization=Uniform()).eval()


def _adaptive_convolution() -> Callable[..., nn.Module]:
    if not is_installed("orthogonium"):
        raise MissingExtraError(what="The layer AOC", package="orthogonium", extra="bench")
    found: Callable[..., nn.Module] = import_module("orthogonium.layers").AdaptiveOrthoConv2d
    return found


def is_installed(package: str) -> bool:
    """Whether a package can be imported; it is not."""
    return find_spec(package) is not None


def train_layer(layer: nn.Module, size: LayerSize, steps: int) -> None:
    """Steps of Adam at 0.01 towards outputs that no norm-preserving layer has, on small images."""
    inputs, wanted = torch.randn(2, 4, size.channels, 4, 4).unbind()
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    layer.train()
    for _ in range(steps):
        optimizer.zero_grad()
        (layer(inputs) - wanted).square().mean().backward()
        optimizer.step()
    layer.eval()


def norm_ratios(layer: nn.Module, inputs: Tensor) -> Tensor:
    """The norm of each output over that of its input, (samples,) in float64."""
    with torch.no_grad():
        outputs = layer(inputs)
    return _norms(outputs) / _norms(inputs)


def gradient_ratios(layers: nn.Module, inputs: Tensor) -> Tensor:
    """The norm of each gradient that comes out over the one that goes in, (samples,) in float64."""
    given = inputs.detach().requires_grad_()
    outputs = layers(given)
    upstream = torch.randn_like(outputs)
    (gradients,) = torch.autograd.grad(outputs, given, upstream)
    return _norms(gradients) / _norms(upstream)


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
        precision: of layers and images.
        steps: of training, before norms are measured.
        seed: of everything.
    """

    layer: str
    size: LayerSize = LayerSize()
    num_layers: int = 100
    num_inputs: int = 256
    depths: tuple[int, ...] = (5, 10, 20, 50)
    num_gradients: int = 8
    precision: torch.dtype = torch.float32
    steps: int = 0
    seed: int = 0

    @property
    def name(self) -> str:
        """That of the layer, and what was done to it."""
        name = self.layer.lower()
        if self.precision != torch.float32:
            name += f"-{str(self.precision).removeprefix('torch.')}"
        return f"{name}-after-{self.steps}-steps" if self.steps else name

    def run(self, place: Workplace) -> Row:
        """Ratios of norms, and of gradients' norms for each depth."""
        published, deviation = PUBLISHED.get(self.name, (None, None))
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
            if self.steps:
                train_layer(layer, self.size, self.steps)
            layer.to(self.precision)
            found.append(norm_ratios(layer, self._images(self.num_inputs).to(self.precision)))
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


_BEFORE_OVERFLOW = (5, 10, 20)  # a layer that stretches 14-fold leaves float32 after that
_SMALL = LayerSize(channels=16, image=8)

ORTHOGONALITY = Experiment(
    name="orthogonality",
    title="Norms after one convolution, and of gradients after many, over those before; 1 is kept",
    entries=(
        *(OrthogonalityEntry(name) for name in ("ours", *REFERENCES, "AOC")),
        OrthogonalityEntry("torch", depths=_BEFORE_OVERFLOW),
        # orthogonium builds its kernels in float32 only.
        OrthogonalityEntry("ours", num_layers=20, depths=(), precision=torch.float64),
        *(
            OrthogonalityEntry(name, num_layers=3, depths=(), steps=1000)
            for name in ("ours", "AOC")
        ),
    ),
    quick=tuple(
        OrthogonalityEntry(name, _SMALL, num_layers=5, num_inputs=32)
        for name in ("ours", *REFERENCES, "AOC")
    ),
    protocol=(
        "100 layers of each kind, 64 channels, kernel 3 x 3, drawn uniformly or as the method "
        "draws them, applied to 256 random images of 16 x 16 each, in float32: mean and standard "
        "deviation of |output| / |input|. Then 5 to 50 such layers with MaxMin between them, and "
        "the norm of a random gradient behind them over that before (mean of 8). Also 20 "
        "of ours in float64 (orthogonium builds AOC in float32 only), and 3 of ours and of AOC "
        "after 1000 steps of Adam at 0.01."
    ),
    figure=draw_gradients,
)
