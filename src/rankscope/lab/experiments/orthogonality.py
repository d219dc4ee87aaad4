"""`orthogonality`: how well do convolutions keep norms, and gradients through many of them?

Layers are drawn anew and applied to random images; the ratio of norms should be 1. Then layers
are stacked with sorting between them, and the norm of a gradient is compared with what came in.
Some layers are also measured in float64, and after a thousand steps of training.

Reference:
    Su, Byeon & Huang (2022), arXiv:2106.09121; ratios as in the talk's table.

Beside ours, seven other ways to make a convolution that stretches nothing, small and written here.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import MissingExtraError
from rankscope.factorize.frequency_blocks import Torus, frequency_blocks
from rankscope.lab.experiments.claims import Claims, Statement, Verdict
from rankscope.lab.experiments.experiment import Entry, Experiment, Row, RunContext
from rankscope.lab.experiments.figure_names import Names, place_names
from rankscope.lab.experiments.figure_parts import colour
from rankscope.lab.experiments.wording import worded
from rankscope.progress import Progress
from rankscope.robust.norm_preserving import MaxMin
from rankscope.robust.orthogonal import OrthogonalConv2d
from rankscope.robust.paraunitary import Uniform
from rankscope.seeds import seed_of

# Other ways to make a convolution that stretches nothing, small and ours, to compare with.
#
# All map (batch, channels, rows, columns) to the same on a circle, with free parameters drawn anew
# and no bias. They are written from the papers' formulas as recalled, not from their code.


class ReferenceConvolution(nn.Module, ABC):
    """A square convolution on a circle.

    Args:
        channels: in and out alike.
        size: rows and columns of the images.
        kernel: odd.
    """

    def __init__(self, channels: int, size: int, kernel: int = 3) -> None:
        super().__init__()
        self.channels, self.size, self.kernel = channels, size, kernel
        self.free = self.draw()

    def draw(self) -> nn.Parameter:
        """What is trained, as PyTorch draws the kernel of a convolution."""
        free = torch.empty(self.channels, self.channels, self.kernel, self.kernel)
        nn.init.kaiming_uniform_(free, a=math.sqrt(5))
        return nn.Parameter(free)

    @abstractmethod
    def forward(self, inputs: Tensor) -> Tensor:
        """Images to images."""

    def convolve(self, inputs: Tensor, kernel: Tensor) -> Tensor:
        """Convolve with circular padding."""
        padded = functional.pad(inputs, (self.kernel // 2,) * 4, mode="circular")
        return functional.conv2d(padded, kernel)


class ReshapedKernel(ReferenceConvolution):
    """RKO: the kernel as a matrix (out, in · taps) gets orthonormal rows, over the root of taps.

    Reference:
        Cisse et al. (2017), arXiv:1704.08847.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Images to images."""
        matrix = orthogonalized(self.free.flatten(1))
        return self.convolve(inputs, matrix.reshape(self.free.shape) / self.kernel)


class SpectralNormalization(ReferenceConvolution):
    """OSSN: the kernel over its operator norm, if that is above 1.

    Here the norm is exact (a matrix for each frequency), where the source runs a few steps of
    power iteration.

    Reference:
        Gouk et al. (2018), arXiv:1804.04368.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Images to images."""
        torus = Torus((self.size, self.size), (1, 1), (1, 1), 1)
        norms = [
            torch.linalg.matrix_norm(blocks, 2).max()
            for blocks, _ in frequency_blocks(self.free, torus)
        ]
        return self.convolve(inputs, self.free / torch.stack(norms).max().clamp(min=1))


class ClippedAndMasked(ReferenceConvolution):
    """SVCM: singular values clipped to 1 at every frequency, then taps outside the kernel dropped.

    Reference:
        Sedghi, Gupta & Long (2019), arXiv:1805.10408.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Images to images."""
        symbol = torch.fft.rfft2(self.free, s=(self.size, self.size)).movedim((2, 3), (0, 1))
        left, values, right = torch.linalg.svd(symbol, full_matrices=False)
        clipped = (left * values.clamp(max=1)[..., None, :]) @ right
        taps = torch.fft.irfft2(clipped.movedim((0, 1), (2, 3)), s=(self.size, self.size))
        return self.convolve(inputs, taps[:, :, : self.kernel, : self.kernel])


class BlockConvolutions(ReferenceConvolution):
    """BCOP: a rotation, and for each further tap a 2 x 2 kernel of two projections.

    Matrices are made orthogonal by 20 steps of Björck's iteration, which need not converge.

    Reference:
        Li et al. (2019), arXiv:1911.00937.
    """

    STEPS = 20

    def draw(self) -> nn.Parameter:
        """One square matrix for the rotation, and two for each further tap."""
        count = 1 + 2 * (self.kernel - 1)
        return nn.Parameter(torch.randn(count, self.channels, self.channels))

    def forward(self, inputs: Tensor) -> Tensor:
        """Images to images."""
        rotation = bjorck(self.free[0], self.STEPS)
        frames = bjorck(self.free[1:, :, : self.channels // 2], self.STEPS)
        projections = frames @ frames.mT
        others = torch.eye(self.channels) - projections
        kernel = rotation[:, :, None, None]
        for pair in range(0, len(frames), 2):
            # Taps (down, across) of P and I - P along one axis times Q and I - Q along the other.
            down = torch.stack([projections[pair], others[pair]])
            across = torch.stack([projections[pair + 1], others[pair + 1]])
            block = torch.einsum("htr,wrs->tshw", down, across)
            # The kernel of one convolution after the other: inputs as a batch of images.
            images = kernel.transpose(0, 1)
            kernel = functional.conv2d(images, block.flip((2, 3)), padding=1).transpose(0, 1)
        return self.convolve(inputs, kernel)


class FrequencyMatrices(ReferenceConvolution):
    """One unitary matrix for each frequency: the kernel is as large as the image."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Images to images."""
        symbol = torch.fft.rfft2(self.free, s=(self.size, self.size)).permute(2, 3, 0, 1)
        waves = torch.einsum("hwts,bshw->bthw", self.unitary(symbol), torch.fft.rfft2(inputs))
        images: Tensor = torch.fft.irfft2(waves, s=(self.size, self.size))
        return images

    @abstractmethod
    def unitary(self, symbol: Tensor) -> Tensor:
        """The matrices (rows, columns, out, in) from those of the free kernel."""


class FrequencyCayley(FrequencyMatrices):
    """Cayley: the Cayley transform at each frequency.

    Reference:
        Trockman & Kolter (2021), arXiv:2104.07167.
    """

    def unitary(self, symbol: Tensor) -> Tensor:
        """The transform of what is skew in a matrix."""
        skew = symbol - symbol.mH
        identity = torch.eye(self.channels, dtype=symbol.dtype)
        unitary: Tensor = torch.linalg.solve(identity + skew, identity - skew)
        return unitary


class FrequencyReflector(FrequencyMatrices):
    """BRO: a reflection about half as many directions as channels at each frequency.

    Reference:
        Lai, Huang, Kung & Chen (2025), arXiv:2505.15174.
    """

    def unitary(self, symbol: Tensor) -> Tensor:
        """I - 2 V (V* V)^-1 V* with the first half of the columns as V."""
        basis = symbol[..., : self.channels // 2]
        projection: Tensor = basis @ torch.linalg.solve(basis.mH @ basis, basis.mH)
        return torch.eye(self.channels, dtype=symbol.dtype) - 2 * projection


class ConvolutionExponential(ReferenceConvolution):
    """SOC: the exponential of a skew-symmetric convolution, 5 terms in training and 12 otherwise.

    Reference:
        Singla & Feizi (2021), arXiv:2105.11417.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Images to images."""
        skew = self.free - self.free.transpose(0, 1).flip((2, 3))
        skew = skew / self.norm_bound(skew)
        term = outputs = inputs
        for number in range(1, 6 if self.training else 13):
            term = self.convolve(term, skew) / number
            outputs = outputs + term
        return outputs

    def norm_bound(self, kernel: Tensor) -> Tensor:
        """The least of four bounds on the operator norm, each of the kernel as a matrix."""
        side = self.channels * self.kernel
        matrices = (
            kernel.flatten(1),
            kernel.transpose(0, 1).flatten(1),
            kernel.permute(0, 2, 1, 3).reshape(side, side),
            kernel.permute(0, 3, 1, 2).reshape(side, side),
        )
        norms = [torch.linalg.matrix_norm(matrix, 2) for matrix in matrices]
        return self.kernel * torch.stack(norms).min()


def orthogonalized(matrix: Tensor) -> Tensor:
    """The nearest matrix with orthonormal rows (or columns, if it is tall)."""
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    product: Tensor = left @ right
    return product


def bjorck(matrices: Tensor, steps: int) -> Tensor:
    """Björck's iteration X (3 I - X^T X) / 2, from matrices shrunk to a norm of at most 1.

    Reference:
        Björck & Bowie (1971), SIAM Journal on Numerical Analysis 8.
    """
    bound = torch.linalg.matrix_norm(matrices, 1) * torch.linalg.matrix_norm(matrices, math.inf)
    result: Tensor = matrices / bound.sqrt()[..., None, None]
    for _ in range(steps):
        result = 1.5 * result - 0.5 * result @ (result.mT @ result)
    return result


REFERENCES: dict[str, type[ReferenceConvolution]] = {
    "Cayley": FrequencyCayley,
    "BRO": FrequencyReflector,
    "BCOP": BlockConvolutions,
    "SOC": ConvolutionExponential,
    "SVCM": ClippedAndMasked,
    "RKO": ReshapedKernel,
    "OSSN": SpectralNormalization,
}


# Norms of gradients over the number of layers that they passed.


_PREFIX = "gradient after "
_NAMES = {"torch": "usual convolution"}


# Matplotlib's classes can only be named where it is imported; hence Any.
def draw_gradients(rows: Sequence[Row]) -> Any:
    """A figure of rows of `OrthogonalityEntry`; those without gradients are left out."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.add_subplot()
    names = Names(axes)
    axes.set_yscale("log")
    for row in rows:
        ratios = {
            int(column.removeprefix(_PREFIX)): value
            for column, value in row.items()
            if column.startswith(_PREFIX) and isinstance(value, float)
        }
        if ratios:
            name, shown = worded(str(row["layer"]), _NAMES), colour(len(names.ends))
            # The first lines on top: where others cover them, the name has their colour.
            axes.plot(
                [*ratios], [*ratios.values()], marker="o", markersize=4.5, color=shown, label=name,
                zorder=3 - 0.01 * len(names.ends),
            )  # fmt: skip
            names.ends.append((name, shown, list(ratios.items())))
    axes.set_xlabel("convolutions that a gradient passed")
    axes.set_ylabel("ratio of its norm to that before")
    place_names(figure, [names])
    return figure


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
    result: Callable[..., nn.Module] = import_module("orthogonium.layers").AdaptiveOrthoConv2d
    return result


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
        """The name of the layer, and what was done to it."""
        name = self.layer.lower()
        if self.precision != torch.float32:
            name += f"-{str(self.precision).removeprefix('torch.')}"
        return f"{name}-after-{self.steps}-steps" if self.steps else name

    def run(self, context: RunContext) -> Row:
        """Ratios of norms, and of gradients' norms for each depth."""
        published, deviation = PUBLISHED.get(self.name, (None, None))
        if self.layer == "AOC" and not is_installed("orthogonium"):
            return {"layer": self.layer, "note": "left out: orthogonium is not installed"}
        with torch.random.fork_rng(devices=[]):
            ratios = self._ratios(context)
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

    def _ratios(self, context: RunContext) -> Tensor:
        results = []
        for number in range(self.num_layers):
            context.report(Progress("layers", number, self.num_layers))
            torch.manual_seed(seed_of("layer", self.seed, number))
            layer = build_layer(self.layer, self.size)
            if self.steps:
                train_layer(layer, self.size, self.steps)
            layer.to(self.precision)
            results.append(norm_ratios(layer, self._images(self.num_inputs).to(self.precision)))
        return torch.cat(results)

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


_KEPT = 1e-5  # of a norm, beyond what float32 rounds


def _kept(rows: Sequence[Row]) -> tuple[Statement, ...]:
    """Which layers keep every norm, and what is left of a gradient behind many of them."""
    furthest = {
        _title(row): value for row in rows if isinstance(value := row.get("furthest from 1"), float)
    }
    kept = [name for name, value in furthest.items() if value <= _KEPT]
    lost = [f"{name} ({value:.2g})" for name, value in furthest.items() if value > _KEPT]
    columns = [name for row in rows for name in row if name.startswith("gradient after")]
    column = max(columns, key=lambda name: int(name.split()[-1]), default="")
    behind = [
        f"{_title(row)} {value:.2g}"
        for row in rows
        if isinstance(value := row.get(column), int | float)
    ]
    return (
        Statement(f"Every norm kept to {_KEPT:g}", Verdict.FACT, ", ".join(kept) or "by none"),
        Statement("Not kept, by at most", Verdict.FACT, ", ".join(lost) or "none"),
        Statement(f"Share of its norm, {column} layers", Verdict.FACT, ", ".join(behind)),
    )


def _title(row: Row) -> str:
    """A layer as its authors write it, and what was done with it: "AOC after 1000 steps"."""
    layer = str(row["layer"])
    rest = str(row["setting"]).removeprefix(layer.lower())
    return worded(layer, _NAMES) + rest.replace("-", " ")


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
    claims=Claims("Which orthogonal convolutions keep norms, and gradients?", facts=_kept),
    figure=draw_gradients,
)
