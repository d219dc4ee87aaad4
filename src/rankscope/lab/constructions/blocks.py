"""Building blocks from their formulas: softmax, normalization, skips, regularizers, tensors."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy
import torch
from torch import Tensor, nn
from torch.func import jacrev

from rankscope.errors import ConstructionError

# Softmax and its four properties.


def softmax(scores: Tensor, *, axis: int = -1) -> Tensor:
    r"""Exponentials that are divided by their sum, along one axis.

    .. math:: \mathrm{softmax}(x)_i = \frac{e^{x_i}}{\sum_j e^{x_j}}

    The largest score is subtracted first: that changes nothing (property 3), and no exponential
    overflows.

    Example:
        >>> softmax(torch.tensor([1000.0, 1000.0])).tolist()
        [0.5, 0.5]

    Reference:
        Diehl (2023), "Building blocks of modern machine learning", section 2.1.
    """
    powers = torch.exp(scores - scores.amax(dim=axis, keepdim=True))
    return powers / powers.sum(dim=axis, keepdim=True)


@dataclass(frozen=True)
class SoftmaxProperties:
    """The four properties of Lemma 2.1, measured at one vector.

    Args:
        smallest: least weight; 1. says that it is positive.
        largest: greatest weight; 1. says that it is at most 1 (below 1 unless there is one score).
        sum_error: 2. says that the sum is 1.
        shift_error: 3. says that a constant added to all scores changes nothing.
        distance: L1 distance of softmax(sharpness x) from the one-hot vector of the maximum.
        bound: 4. in numbers, 2 (n - 1) exp(-sharpness gap), which tends to 0.
    """

    smallest: float
    largest: float
    sum_error: float
    shift_error: float
    distance: float
    bound: float


def softmax_properties(
    scores: Tensor, *, shift: float = 10.0, sharpness: float = 1.0
) -> SoftmaxProperties:
    """Measure the four properties at a vector with one greatest score, in float64.

    Raises:
        ConstructionError: if it is no vector, or the greatest score is there twice.
    """
    if scores.ndim != 1 or not len(scores):
        raise ConstructionError(
            f"softmax_properties takes a vector of scores, got shape {tuple(scores.shape)}."
        )
    numbers = scores.double()
    weights = softmax(numbers)
    best = numbers.argmax()
    wanted = torch.nn.functional.one_hot(best, len(numbers)).double()
    return SoftmaxProperties(
        smallest=float(weights.min()),
        largest=float(weights.max()),
        sum_error=abs(float(weights.sum()) - 1),
        shift_error=float((softmax(numbers + shift) - weights).abs().max()),
        distance=float((softmax(sharpness * numbers) - wanted).abs().sum()),
        bound=concentration_bound(numbers, sharpness=sharpness),
    )


def concentration_bound(scores: Tensor, *, sharpness: float) -> float:
    r"""How far softmax(λ x) can be from the one-hot vector of the greatest score, in L1.

    .. math:: \lVert \mathrm{softmax}(\lambda x) - e_{\hat\imath} \rVert_1
              = 2 \sum_{i \ne \hat\imath} \mathrm{softmax}(\lambda x)_i
              \le 2 (n - 1)\, e^{-\lambda (x_{\hat\imath} - \max_{i \ne \hat\imath} x_i)}

    Raises:
        ConstructionError: if the greatest score is there twice.
    """
    ordered = scores.double().sort(descending=True).values
    if len(ordered) == 1:
        return 0.0
    gap = float(ordered[0] - ordered[1])
    if not gap:
        raise ConstructionError(
            f"softmax tends to one place only if one score is greatest, got {float(ordered[0]):g} "
            "twice."
        )
    return 2 * (len(ordered) - 1) * math.exp(-sharpness * gap)


# Batch and layer normalization from their formulas.


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and variance over some axes, which are kept with size one.

    Args:
        mean: of the values.
        variance: divided by the number of values, as in the formula.
        count: how many values each of them is made of.
    """

    mean: Tensor
    variance: Tensor
    count: int

    def normalize(self, values: Tensor, *, epsilon: float) -> Tensor:
        """Values less the mean, divided by the root of the variance plus epsilon."""
        return (values - self.mean) / torch.sqrt(self.variance + epsilon)


def moments(values: Tensor, *, over: Sequence[int]) -> Moments:
    """Mean and variance over some axes.

    Raises:
        ConstructionError: if an axis is not there or named twice, or there are no values.
    """
    axes = [axis + values.ndim if axis < 0 else axis for axis in over]
    if len(set(axes)) != len(axes) or not all(0 <= axis < values.ndim for axis in axes):
        raise ConstructionError(
            f"moments: axes {tuple(over)} must be different ones of the {values.ndim} axes of "
            f"shape {tuple(values.shape)}."
        )
    if not axes or not values.numel():
        raise ConstructionError(
            f"moments needs at least one axis and one value, got axes {tuple(over)} of shape "
            f"{tuple(values.shape)}."
        )
    mean = values.mean(dim=axes, keepdim=True)
    variance = (values - mean).square().mean(dim=axes, keepdim=True)
    return Moments(mean, variance, values.numel() // mean.numel())


def layer_normalize(values: Tensor, *, num_axes: int = 1, epsilon: float = 1e-5) -> Tensor:
    r"""Normalize every sample by itself, over its last `num_axes` axes.

    .. math:: \frac{T_{b,n,c} - \mathrm{mean}(T_{b,\bullet,\bullet})}
                   {\sqrt{\mathrm{var}(T_{b,\bullet,\bullet}) + \varepsilon}}

    Raises:
        ConstructionError: if there are fewer axes, or none is asked for.

    Reference:
        Ba, Kiros & Hinton (2016), arXiv:1607.06450; Diehl (2023), section 1.6.
    """
    over = range(-num_axes, 0)
    return moments(values, over=over).normalize(values, epsilon=epsilon)


@dataclass(frozen=True, eq=False)
class BatchNormalization:
    r"""Batch normalization with what it remembers; nothing changes in place.

    .. math:: \gamma \frac{T_{b,n,c} - \mathrm{mean}(T_{\bullet,n,c})}
                   {\sqrt{\mathrm{var}(T_{\bullet,n,c}) + \varepsilon}} + \beta

    Args:
        mean: running mean, used at inference; shaped like one sample, axes in `over` of size one.
        variance: running variance, likewise.
        over: axes that are averaged: (0,) in the lecture, (0, 2, 3) for images in torch.
        momentum: share of the newest batch in the running numbers.
        epsilon: keeps the root away from zero.
        scale: γ, learned.
        shift: β, learned.

    Example:
        >>> layer = BatchNormalization.new((3,), over=(0,))
        >>> outputs, layer = layer.train(torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 5.0]]))
        >>> outputs.round().tolist()
        [[-1.0, 0.0, -1.0], [1.0, 0.0, 1.0]]

    Reference:
        Ioffe & Szegedy (2015), arXiv:1502.03167; Diehl (2023), section 1.6.
    """

    mean: Tensor
    variance: Tensor
    over: tuple[int, ...]
    momentum: float
    epsilon: float
    scale: Tensor
    shift: Tensor

    @classmethod
    def new(
        cls,
        sample_shape: Sequence[int],
        *,
        over: Sequence[int] = (0,),
        momentum: float = 0.1,
        epsilon: float = 1e-5,
        dtype: torch.dtype = torch.float32,
    ) -> "BatchNormalization":
        """The layer before its first batch: mean 0, variance 1, γ = 1 and β = 0.

        Raises:
            ConstructionError: if the batch axis 0 is not averaged over.
        """
        if 0 not in over:
            raise ConstructionError(
                f"BatchNormalization averages over the batch, axis 0, got over={tuple(over)}."
            )
        sizes = [1, *sample_shape]
        shape = [1 if axis in over else size for axis, size in enumerate(sizes)]
        ones, zeros = torch.ones(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)
        return cls(zeros, ones, tuple(over), momentum, epsilon, ones, zeros)

    def train(self, batch: Tensor) -> "tuple[Tensor, BatchNormalization]":
        """Normalize by the batch itself, and remember a little of its mean and variance.

        The running variance takes the unbiased one, n / (n - 1) times the other, as torch does.

        Raises:
            ConstructionError: if a mean would be made of one value, which leaves only zeros.
        """
        result = moments(batch, over=self.over)
        if result.count < 2:
            raise ConstructionError(
                f"BatchNormalization trains on at least 2 values for each mean, got {result.count} "
                f"in a batch of shape {tuple(batch.shape)}; use `infer`, or a larger batch."
            )
        unbiased = result.variance * (result.count / (result.count - 1))
        remembered = replace(
            self,
            mean=torch.lerp(self.mean, result.mean, self.momentum),
            variance=torch.lerp(self.variance, unbiased, self.momentum),
        )
        return self.scale * result.normalize(batch, epsilon=self.epsilon) + self.shift, remembered

    def infer(self, values: Tensor) -> Tensor:
        """Normalize by the running numbers: every sample is by itself, the map is affine."""
        remembered = Moments(self.mean, self.variance, 1)
        return self.scale * remembered.normalize(values, epsilon=self.epsilon) + self.shift


# Skip connections: what they do to a network and to its derivative.


Branch = Callable[[Tensor], Tensor]


def compose(branches: Sequence[Branch], inputs: Tensor, *, with_skips: bool) -> Tensor:
    r"""Apply maps one after the other, each with or without its input added to its output.

    .. math:: x_{l+1} = f_l(x_l) \quad \text{or} \quad x_{l+1} = x_l + f_l(x_l)

    Reference:
        He, Zhang, Ren & Sun (2016), arXiv:1512.03385; Diehl (2023), section 1.6 (heading only).
    """
    for branch in branches:
        outputs = branch(inputs)
        if with_skips and outputs.shape != inputs.shape:
            raise ConstructionError(
                f"A skip connection adds input and output, got shapes {tuple(inputs.shape)} and "
                f"{tuple(outputs.shape)}."
            )
        inputs = inputs + outputs if with_skips else outputs
    return inputs


def branches(
    depth: int, width: int, *, generator: torch.Generator, gain: float = 1.0
) -> list[nn.Sequential]:
    """Random branches x -> A ReLU(B x + b), the entries of A and B of variance gain² / width.

    Raises:
        ConstructionError: if a size is not positive.
    """
    if depth < 1 or width < 1:
        raise ConstructionError(
            f"branches needs a positive depth and width, got {depth} and {width}."
        )
    made = []
    for _ in range(depth):
        inner, outer = (nn.Linear(width, width, dtype=torch.float64) for _ in range(2))
        with torch.no_grad():
            for layer in (inner, outer):
                layer.weight.normal_(0.0, gain * width**-0.5, generator=generator)
                layer.bias.zero_()
        made.append(nn.Sequential(inner, nn.ReLU(), outer))
    return made


@dataclass(frozen=True)
class JacobianRange:
    """How much a small step of the input can shrink or grow on its way to the output.

    Args:
        smallest: least singular value of the derivative.
        largest: greatest one.
        branch_norms: spectral norms of the branches' derivatives, where the signal meets them.
    """

    smallest: float
    largest: float
    branch_norms: tuple[float, ...]

    @property
    def skip_bounds(self) -> tuple[float, float]:
        """Bounds of all singular values with skips: those of I + J, given the norm of J.

        The lower one is 0 as soon as a branch's derivative has a norm of 1 or more.
        """
        low, high = 1.0, 1.0
        for norm in self.branch_norms:
            low, high = low * max(0.0, 1 - norm), high * (1 + norm)
        return low, high


def jacobian_range(maps: Sequence[Branch], inputs: Tensor, *, with_skips: bool) -> JacobianRange:
    r"""Singular values of the derivative at one input.

    .. math:: \prod_l (1 - \lVert J_l \rVert) \le \sigma_i\Big(\prod_l (I + J_l)\Big)
              \le \prod_l (1 + \lVert J_l \rVert)

    Raises:
        ConstructionError: if the input is no vector, or a branch changes its size under a skip.
    """
    if inputs.ndim != 1:
        raise ConstructionError(
            f"jacobian_range takes one input vector, got shape {tuple(inputs.shape)}."
        )
    norms, signal = [], inputs
    for branch in maps:
        norms.append(float(torch.linalg.matrix_norm(_derivative(branch, signal), 2)))
        signal = compose([branch], signal, with_skips=with_skips).detach()
    whole = _derivative(lambda start: compose(maps, start, with_skips=with_skips), inputs)
    values = torch.linalg.svdvals(whole)
    return JacobianRange(float(values[-1]), float(values[0]), tuple(norms))


def _derivative(function: Branch, inputs: Tensor) -> Tensor:
    result = jacrev(function)(inputs)
    assert isinstance(result, Tensor)
    return result.detach()


# Regularizers from their formulas: penalties, weight decay, dropout, early stopping.


def l2_penalty(parameters: Sequence[Tensor]) -> Tensor:
    """Half the sum of squares, whose gradient is the parameters themselves."""
    return torch.stack([parameter.square().sum() for parameter in parameters]).sum() / 2


def soft_threshold(values: Tensor, threshold: float) -> Tensor:
    r"""Move towards zero by the threshold, and stop there.

    .. math:: \operatorname*{argmin}_w \tfrac12 \lVert w - v \rVert^2 + \lambda \lVert w \rVert_1

    which is how gradient descent with an L1 penalty makes weights exactly zero.

    Example:
        >>> soft_threshold(torch.tensor([-3.0, 0.5, 2.0]), 1.0).tolist()
        [-2.0, 0.0, 1.0]
    """
    return values.sign() * (values.abs() - threshold).clamp(min=0.0)


def dropout(values: Tensor, is_kept: Tensor, *, probability: float) -> Tensor:
    """Zero what is dropped, and divide the rest by the share that is kept, so the mean stays.

    Args:
        values: any shape.
        is_kept: booleans of the same shape, each true with probability 1 - `probability`.
        probability: of being dropped.

    Raises:
        ConstructionError: if the probability is not in [0, 1), or the shapes differ.

    Reference:
        Srivastava et al. (2014), Journal of Machine Learning Research 15.
    """
    if not 0 <= probability < 1:
        raise ConstructionError(
            f"dropout needs a probability at least 0 and below 1, got {probability:g}."
        )
    if values.shape != is_kept.shape:
        raise ConstructionError(
            f"dropout needs a choice for each value, got shapes {tuple(is_kept.shape)} and "
            f"{tuple(values.shape)}."
        )
    return values * is_kept / (1 - probability)


@dataclass(frozen=True)
class EarlyStopping:
    """Stop when the held-out loss has not been lower for some steps, and take the best step.

    Args:
        patience: how many losses in a row may be no better than the best.

    Example:
        >>> EarlyStopping(2).best_step([5.0, 3.0, 4.0, 3.5, 1.0])
        1
        >>> EarlyStopping(3).best_step([5.0, 3.0, 4.0, 3.5, 1.0])
        4
    """

    patience: int

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise ConstructionError(
                f"EarlyStopping needs a patience of 1 or more, got {self.patience}."
            )

    def best_step(self, losses: Sequence[float]) -> int:
        """Number of the best loss that was seen before patience ended.

        Raises:
            ConstructionError: if there is no loss.
        """
        if not losses:
            raise ConstructionError("EarlyStopping needs 1 or more losses, got 0.")
        best = 0
        for step, loss in enumerate(losses):
            if loss < losses[best]:
                best = step
            elif step - best >= self.patience:
                break
        return best


# Tensor products, pure tensors, and how pure tensors are recognized.


def tensor_product(first: Tensor, second: Tensor) -> Tensor:
    r"""All products of an entry of one tensor and an entry of the other.

    .. math:: (S \otimes T)_{i_1 \dots i_n j_1 \dots j_m} = S_{i_1 \dots i_n} T_{j_1 \dots j_m}

    Associative, not commutative.

    Example:
        >>> tensor_product(torch.zeros(2, 3), torch.zeros(4)).shape
        torch.Size([2, 3, 4])

    Reference:
        Diehl (2023), "Building blocks of modern machine learning", section 1.2.
    """
    ones = (1,) * second.ndim
    return first.reshape(*first.shape, *ones) * second


def pure_tensor(vectors: Sequence[Tensor]) -> Tensor:
    """The tensor product of vectors.

    Raises:
        ConstructionError: if there is none, or one is no vector.
    """
    shapes = [tuple(vector.shape) for vector in vectors]
    if not vectors or any(len(shape) != 1 for shape in shapes):
        raise ConstructionError(f"pure_tensor takes one or more vectors, got shapes {shapes}.")
    return reduce(tensor_product, vectors)


def pure_factors(tensor: Tensor, *, tolerance: float = 1e-12) -> tuple[Tensor, ...] | None:
    """Vectors whose product the tensor is, or None if it is not pure.

    A pure tensor is the product of its fibres through any entry that is not zero, with the entry
    divided out; so the fibres through the largest entry are multiplied and compared.

    Args:
        tensor: of order one or more.
        tolerance: largest error of an entry, as a share of the largest entry.

    Raises:
        ConstructionError: if the tensor is a single number, or empty.
    """
    if not tensor.ndim or not tensor.numel():
        raise ConstructionError(
            f"pure_factors takes a tensor of order 1 or more with entries, got shape "
            f"{tuple(tensor.shape)}."
        )
    flat = int(tensor.abs().argmax())
    place = tuple(int(axis) for axis in numpy.unravel_index(flat, tensor.shape))
    largest = tensor[place]
    if not largest:
        return tuple(torch.zeros(size, dtype=tensor.dtype) for size in tensor.shape)
    fibres = [
        tensor.movedim(axis, -1)[place[:axis] + place[axis + 1 :]] for axis in range(tensor.ndim)
    ]
    factors = (fibres[0], *(fibre / largest for fibre in fibres[1:]))
    error = (pure_tensor(factors) - tensor).abs().max()
    return factors if error <= tolerance * largest.abs() else None
