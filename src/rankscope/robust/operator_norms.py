r"""The largest factor by which a layer can lengthen a vector, between two bounds that hold.

operator_norm(nn.Conv2d(64, 64, 3, padding=1), (64, 32, 32))

Singular values come from LAPACK, which promises nothing about a single one of them. So the largest
is only a guess t, and what is proved is that t² I - AᵀA is positive definite: its Cholesky
factorization ends. What rounding can do to the entries of A, to the product and to the
factorization is bounded beforehand and added (Higham 2002, theorem 10.3; Rump 2006).
"""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.errors import SizeError, TooLargeError, UnsupportedModuleError
from rankscope.factorize.convolution import FactorizedConv1d, FactorizedConv2d
from rankscope.factorize.frequency_blocks import Torus, circular_spectrum, frequency_blocks
from rankscope.factorize.linear import FactorizedLinear
from rankscope.robust.orthogonal import (
    OrthogonalConv1d,
    OrthogonalConv2d,
    OrthogonalConvTranspose1d,
    OrthogonalConvTranspose2d,
    with_kernel,
)
from rankscope.robust.rounding import FLOAT64, above, lengths_above

MAX_ENTRIES = 2**23  # of a matrix that is written out: 64 MiB, seconds
_POWER_STEPS = 50
_INVERSE_STEPS = 4

_PLAIN = (nn.Conv1d, nn.Conv2d, nn.ConvTranspose1d, nn.ConvTranspose2d)
ORTHOGONAL = (
    OrthogonalConv1d,
    OrthogonalConv2d,
    OrthogonalConvTranspose1d,
    OrthogonalConvTranspose2d,
)
_ADJOINTS = (
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    OrthogonalConvTranspose1d,
    OrthogonalConvTranspose2d,
)
_FACTORIZED = (FactorizedLinear, FactorizedConv1d, FactorizedConv2d)


@dataclass(frozen=True)
class OperatorNorm:
    """A norm between two bounds.

    Args:
        lower: attained by a vector that was found, rounding of float64 included.
        upper: proved, rounding of float64 included.
        method: how the upper bound was got.
    """

    lower: float
    upper: float
    method: str

    def __str__(self) -> str:
        return f"operator norm in {self.lower:.6g} .. {self.upper:.6g} ({self.method})"


def operator_norm(module: nn.Module, input_shape: tuple[int, ...]) -> OperatorNorm:
    r"""Bound the largest singular value of a linear layer on inputs of a given shape.

    On a circle, convolutions are one small matrix for each frequency. Other small layers are
    written out as matrices. With zeros around the image the norm is at most that on a larger
    circle; a power iteration shows from below how near that is.

    Args:
        module: Linear, a convolution, or one of their transposed, factorized or orthogonal forms.
        input_shape: of one input, without the batch.

    Example:
        >>> layer = nn.Linear(2, 2, bias=False)
        >>> _ = layer.weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
        >>> round(operator_norm(layer, (2,)).upper, 6)
        4.0

    Raises:
        UnsupportedModuleError: if the layer is of another kind, or too large to be written out and
            pads periodically by another number than a circle needs.
        SizeError: if the layer does not take such inputs.

    Reference:
        Sedghi, Gupta & Long (2019), arXiv:1805.10408 (circular convolutions).
    """
    made = _making_error(module)
    module = plain_form(module)
    if isinstance(module, nn.Linear):
        return _of_matrix(module.weight.detach().double(), made)
    known = as_convolution(module)
    outputs = _output_shape(module, input_shape)
    is_on_a_circle = known.is_circular and known.takes_every_place_once(input_shape, outputs)
    if not is_on_a_circle and math.prod(input_shape) * math.prod(outputs) <= MAX_ENTRIES:
        # Entries of the kernel add up where an image is continued by more than its size.
        places = math.prod(outputs[1:]) if not known.is_adjoint else math.prod(input_shape[1:])
        error = _kernel_error(known) * math.sqrt(places) + made
        return _of_matrix(as_matrix(module, input_shape), error)
    if known.is_circular and not is_on_a_circle:
        raise UnsupportedModuleError(
            f"operator_norm: {type(module).__name__} pads periodically and gives the shape "
            f"{outputs} for {input_shape} at stride {known.stride}, so that places count more than "
            f"once or not at all; take the padding that gives the sizes over the stride."
        )
    torus = known.torus(input_shape[1:])
    # Sums over the kernel's places are products with waves, each to a few roundings.
    error = 8 * _kernel_error(known) + made
    lower, upper = _proved_norm(
        lambda: (blocks.flatten(0, 1) for blocks, _ in frequency_blocks(known.kernel, torus)),
        float(known.kernel.abs().sum()),
        error,
    )
    if is_on_a_circle:
        return OperatorNorm(lower, upper, "circular")
    lower = _power_iteration(module, input_shape)
    return OperatorNorm(min(lower, upper), upper, f"circle of {torus.sizes}")


def operator_spectrum(module: nn.Module, input_shape: tuple[int, ...]) -> Tensor:
    """All singular values of a linear layer on inputs of a given shape, descending, in float64.

    Raises:
        UnsupportedModuleError: if the layer is of another kind.
        SizeError: if the layer does not take such inputs.
        TooLargeError: if it is no convolution on a circle, and too large to be written out.
    """
    module = plain_form(module)
    if isinstance(module, nn.Linear):
        values: Tensor = torch.linalg.svdvals(module.weight.detach().double())
        return values
    known = as_convolution(module)
    outputs = _output_shape(module, input_shape)
    entries = math.prod(input_shape) * math.prod(outputs)
    if known.is_circular and known.takes_every_place_once(input_shape, outputs):
        return circular_spectrum(known.kernel, known.torus(input_shape[1:]))
    if entries > MAX_ENTRIES:
        raise TooLargeError(
            what=f"operator_spectrum on {input_shape}",
            entries=entries,
            limit=MAX_ENTRIES,
            instead="Use operator_norm, or a smaller image.",
        )
    singular_values: Tensor = torch.linalg.svdvals(as_matrix(module, input_shape))
    return singular_values


def _of_matrix(matrix: Tensor, error: float) -> OperatorNorm:
    """The norm of a matrix whose entries are known up to an error in the Frobenius norm."""
    size = float(matrix.abs().max()) if matrix.numel() else 0.0
    lower, upper = _proved_norm(lambda: iter([matrix[None]]), size, error)
    return OperatorNorm(lower, upper, "all singular values")


def _kernel_error(known: "ConvolutionMap") -> float:
    """What sums over a kernel's places can be off by, in the Frobenius norm over channels."""
    return FLOAT64.gamma(2 * math.prod(known.kernel.shape[2:]) + 16) * _kernel_size(known)


def _kernel_size(known: "ConvolutionMap") -> float:
    """A bound on the operator's norm by the absolute values of its kernel."""
    sizes = known.kernel.flatten(2).abs().sum(dim=2)
    aliases = math.sqrt(math.prod(known.stride))
    return above(float(lengths_above(sizes.flatten())) * aliases, 2)


def _making_error(module: nn.Module) -> float:
    """How far a weight that is multiplied out of cores in float64 can be from the exact one."""
    if not isinstance(module, _FACTORIZED):
        return 0.0
    positive = copy.deepcopy(module).requires_grad_(requires_grad=False)
    for core in positive.parameters():
        core.abs_()
    dense = plain_form(positive)
    if isinstance(dense, nn.Linear):
        size = float(lengths_above(dense.weight.detach().flatten()))
    else:
        size = _kernel_size(as_convolution(dense))
    return 2 * FLOAT64.gamma(sum(core.numel() for core in module.parameters()) + 16) * size


def _proved_norm(
    groups: Callable[[], Iterator[Tensor]], size: float, error: float
) -> tuple[float, float]:
    """Bounds on the largest singular value of many matrices, from below and from above.

    All are divided by a power of 2 first: squares of their entries must not underflow or overflow.

    Args:
        groups: batches of matrices, (batch, rows, columns), real or complex; made twice, if all of
            them together are too large.
        size: about the largest of their entries.
        error: of each of them in the Frobenius norm.
    """
    if size == 0.0:
        return 0.0, above(error)
    if not math.isfinite(size):
        return 0.0, math.inf
    exponent = math.frexp(size)[1]
    first, rest = (2.0 ** -(exponent // 2), 2.0 ** -(exponent - exponent // 2))
    largest, best, count = -1.0, _Squares(torch.zeros(1, 1, 1, dtype=torch.float64)), 0
    kept: list[_Squares] | None = []
    for matrices in groups():
        if not matrices.numel():
            continue
        scaled = _Squares(matrices * first * rest)
        count += matrices.numel()
        kept = None if kept is None or count > MAX_ENTRIES else [*kept, scaled]
        values = scaled.guesses()
        if float(values.max()) >= largest:
            largest, best = float(values.max()), scaled.chosen(values.argmax()[None])
    largest = max(largest, 0.0)
    again = kept if kept is not None else (_Squares(each * first * rest) for each in groups())
    upper = max((_at_most(each, largest) for each in again), default=0.0)
    # Entries that are flushed to zero when they are divided.
    upper = above(upper + FLOAT64.absolute(count), 2)
    lower = _attained(best, upper) - FLOAT64.absolute(count)
    upper, lower = (number / rest / first for number in (upper, lower))
    return max(0.0, lower * (1 - 2**-50) - error), above(upper + error, 4)


class _Squares:
    """Matrices A with AᴴA, which is the smaller of both products.

    Args:
        matrices: (batch, rows, columns), real or complex.
        squares: the products, where they are known.
    """

    def __init__(self, matrices: Tensor, squares: Tensor | None = None) -> None:
        self.matrices = matrices.mH if matrices.shape[-2] < matrices.shape[-1] else matrices
        self.squares = self.matrices.mH @ self.matrices if squares is None else squares

    def chosen(self, which: Tensor) -> "_Squares":
        return _Squares(self.matrices[which], self.squares[which])

    def guesses(self) -> Tensor:
        """About the norms: the roots of the largest eigenvalues, which are as good as they."""
        largest: Tensor = torch.linalg.eigvalsh(self.squares)[:, -1]
        return largest.clamp(min=0).sqrt()

    def lengths(self) -> Tensor:
        """Bounds on the norms in the Frobenius norm."""
        entries = self.matrices.resolve_conj()
        parts = torch.view_as_real(entries) if entries.is_complex() else entries
        lengths: Tensor = torch.linalg.vector_norm(parts.flatten(1), dim=1)
        return lengths * above(1.0, parts[0].numel() + 8)


_FACTOR = 4  # more than real arithmetic by which a complex product can be off


def _at_most(given: _Squares, guess: float) -> float:
    """A proved bound on the norms of matrices, little more than a guess if that is right."""
    lengths = given.lengths()
    is_longer = ~(lengths <= guess)
    if not bool(is_longer.any()):
        return guess
    longest = float(lengths.max())
    if not math.isfinite(longest) or longest**2 > FLOAT64.largest / 64:
        return math.inf
    squares = given.squares if bool(is_longer.all()) else given.squares[is_longer]
    rows, size = given.matrices.shape[-2:]
    # Of the product, in the Frobenius norm; of the factorization, times the trace.
    product = _FACTOR * FLOAT64.gamma(rows + 8) * longest**2
    share = _FACTOR * FLOAT64.gamma(2 * size + 16)
    unit = torch.eye(size, dtype=squares.dtype)
    least = guess**2 + 4 * (product + share * size * guess**2) + FLOAT64.absolute(rows * size)
    while least < longest**2:
        remaining = least * unit - squares
        if not bool(torch.linalg.cholesky_ex(remaining).info.any()):
            factorization = share * size * least + 4 * FLOAT64.unit * (least + longest**2)
            return above(math.sqrt(above(least + product + factorization, 4)), 4)
        least *= 1.0 + 2**-20
        least += 4 * (product + share * size * least)
    return longest


def _attained(given: _Squares, upper: float) -> float:
    """A lower bound on the norm of a matrix: how much longer its best vector becomes.

    The vector comes from inverse iteration next to the square of an upper bound, which takes a few
    steps if that is a good one. Any vector gives a bound that holds.
    """
    matrix, squares = given.matrices[0], given.squares[0]
    unit = torch.eye(len(squares), dtype=matrix.dtype)
    factor, info = torch.linalg.cholesky_ex(upper**2 * unit - squares)
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(len(squares), 1, generator=generator, dtype=torch.float64).to(matrix)
    for _ in range(_INVERSE_STEPS):
        vector = squares @ vector if int(info) else torch.cholesky_solve(vector, factor)
        vector = vector / torch.linalg.vector_norm(vector).clamp(min=FLOAT64.smallest)
    image = torch.linalg.vector_norm(matrix @ vector)
    count = matrix.numel() + 16
    lost = _FACTOR * FLOAT64.gamma(count) * float(torch.linalg.matrix_norm(matrix))
    length = float(torch.linalg.vector_norm(vector)) * above(1.0, count)
    found = (float(image) * (1 - FLOAT64.gamma(count)) - lost) / length if length else 0.0
    return max(0.0, found) if math.isfinite(found) else 0.0


def _output_shape(module: nn.Module, input_shape: tuple[int, ...]) -> tuple[int, ...]:
    try:
        outputs = linear_part(module)(torch.zeros(1, *input_shape, dtype=torch.float64))
    except (RuntimeError, ValueError) as error:
        raise SizeError(
            f"operator_norm: {type(module).__name__} does not take inputs of shape {input_shape}: "
            f"{error}"
        ) from error
    return tuple(outputs.shape[1:])


def _power_iteration(module: nn.Module, input_shape: tuple[int, ...]) -> float:
    """How much longer the best vector found becomes; the adjoint comes from autograd."""
    apply = linear_part(module)
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(1, *input_shape, dtype=torch.float64, generator=generator)
    largest = 0.0
    for _ in range(_POWER_STEPS):
        vector = vector / vector.norm()
        outputs, pull_back = torch.func.vjp(apply, vector)[:2]
        largest = max(largest, float(outputs.norm()))
        (vector,) = pull_back(outputs)
        if not vector.any():
            break
    # Sums of absolute values are at most those of a whole row, over vectors of length 1.
    known = as_convolution(module)
    row = known.kernel.abs().sum(dim=tuple(range(1, known.kernel.ndim)))
    count = outputs.numel() + vector.numel() + 16
    lost = FLOAT64.gamma(count) * float(row.max()) * math.sqrt(outputs.numel())
    return max(0.0, largest * (1 - 2 * FLOAT64.gamma(count)) - lost)


# --- A linear layer as a map of images, whatever PyTorch calls it ------------------------------


@dataclass(frozen=True, eq=False)
class ConvolutionMap:
    """A convolution, or the adjoint of one, which has the same singular values.

    Args:
        kernel: float64, (out, in of one group, *kernel) of the convolution.
        stride: along each axis.
        dilation: along each axis.
        groups: of channels that do not mix.
        is_circular: whether images continue periodically; otherwise by zeros.
        is_adjoint: whether the layer is the adjoint.
    """

    kernel: Tensor
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    is_circular: bool
    is_adjoint: bool

    def takes_every_place_once(
        self, input_shape: tuple[int, ...], output_shape: tuple[int, ...]
    ) -> bool:
        """Whether the layer's padding makes it a convolution on a circle as large as the image."""
        wide, narrow = input_shape[1:], output_shape[1:]
        if self.is_adjoint:
            wide, narrow = narrow, wide
        return all(n == m * s for n, m, s in zip(wide, narrow, self.stride, strict=True))

    def torus(self, sizes: tuple[int, ...]) -> Torus:
        """Where its blocks are to be looked at, for layers' inputs of these sizes.

        On a circle that is the image itself. Zeros around an image, where no kernel reaches from
        one end to the other, make the same operator as a larger circle on which some entries are
        held at zero and some are not looked at: its norm is at most that of the circle.
        """
        if self.is_adjoint:
            sizes = tuple(n * s for n, s in zip(sizes, self.stride, strict=True))
        if not self.is_circular:
            reaches = (
                d * (k - 1) for d, k in zip(self.dilation, self.kernel.shape[2:], strict=True)
            )
            grown = (n + reach for n, reach in zip(sizes, reaches, strict=True))
            sizes = tuple(math.ceil(n / s) * s for n, s in zip(grown, self.stride, strict=True))
        return Torus(sizes, self.stride, self.dilation, self.groups)


def plain_form(module: nn.Module) -> nn.Module:
    """The same layer with its weight written out, in float64 where it is a product of cores."""
    if isinstance(module, _FACTORIZED):
        dense: nn.Module = copy.deepcopy(module).double().to_dense()
        return dense
    return module


def as_convolution(module: nn.Module) -> ConvolutionMap:
    """Read a convolution's settings.

    Raises:
        UnsupportedModuleError: if it is none, or images continue neither periodically nor by zeros.
    """
    if not isinstance(module, _PLAIN + ORTHOGONAL):
        raise UnsupportedModuleError(
            f"operator_norm knows Linear, Conv1d, Conv2d, their transposed, factorized and "
            f"orthogonal forms, not {type(module).__name__}."
        )
    if module.padding_mode not in ("zeros", "circular"):
        raise UnsupportedModuleError(
            f"operator_norm: {type(module).__name__} continues images by padding_mode="
            f"{module.padding_mode!r}, which repeats entries; known are 'zeros' and 'circular'."
        )
    weight = module.weight() if isinstance(module, ORTHOGONAL) else module.weight
    return ConvolutionMap(
        weight.detach().double(),
        tuple(module.stride),
        tuple(module.dilation),
        module.groups,
        module.padding_mode == "circular",
        isinstance(module, _ADJOINTS),
    )


def linear_part(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """The layer on batches in float64, without its bias."""
    # A kernel that is built is the one of the layer's own floats.
    clone = with_kernel(module, Tensor.double) if isinstance(module, ORTHOGONAL) else module
    clone = copy.deepcopy(clone).double().requires_grad_(requires_grad=False).eval()
    bias = getattr(clone, "bias", None)
    if isinstance(bias, Tensor):
        bias.zero_()
    return lambda inputs: clone(inputs)


def as_matrix(module: nn.Module, input_shape: tuple[int, ...]) -> Tensor:
    """The layer as a matrix (outputs, inputs), column by column."""
    size = math.prod(input_shape)
    apply = linear_part(module)
    basis = torch.eye(size, dtype=torch.float64).reshape(size, *input_shape)
    return apply(basis).flatten(1).T
