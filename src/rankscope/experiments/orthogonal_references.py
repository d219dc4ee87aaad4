"""Other ways to make a convolution that stretches nothing, small and ours, to compare with.

All map (batch, channels, rows, columns) to the same on a circle, with free parameters drawn anew
and no bias. They are written from the papers' formulas as recalled, not from their code.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.layers.frequency_blocks import Torus, frequency_blocks


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
        """On a circle."""
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


class FrequencyCayley(ReferenceConvolution):
    """Cayley: one orthogonal matrix for each frequency; the kernel is as large as the image.

    Reference:
        Trockman & Kolter (2021), arXiv:2104.07167.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Images to images."""
        symbol = torch.fft.rfft2(self.free, s=(self.size, self.size)).permute(2, 3, 0, 1)
        skew = symbol - symbol.mH
        identity = torch.eye(self.channels, dtype=symbol.dtype)
        unitary = torch.linalg.solve(identity + skew, identity - skew)
        waves = torch.einsum("hwts,bshw->bthw", unitary, torch.fft.rfft2(inputs))
        images: Tensor = torch.fft.irfft2(waves, s=(self.size, self.size))
        return images


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
    found: Tensor = matrices / bound.sqrt()[..., None, None]
    for _ in range(steps):
        found = 1.5 * found - 0.5 * found @ (found.mT @ found)
    return found


REFERENCES: dict[str, type[ReferenceConvolution]] = {
    "Cayley": FrequencyCayley,
    "BCOP": BlockConvolutions,
    "SOC": ConvolutionExponential,
    "SVCM": ClippedAndMasked,
    "RKO": ReshapedKernel,
    "OSSN": SpectralNormalization,
}
