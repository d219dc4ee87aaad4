"""Topics: normalizations, softmax, tensor products."""

import numpy
import torch
from torch import Tensor, nn

from rankscope.constructions.normalization import BatchNormalization, layer_normalize
from rankscope.constructions.pictures_plots import Axes, draw_curves, draw_matrices
from rankscope.constructions.softmax import softmax, softmax_properties
from rankscope.constructions.tensor_product import pure_factors, pure_tensor, tensor_product
from rankscope.constructions.topic import Shown, Topic
from rankscope.decompositions.interval import cp_rank
from rankscope.diagrams.drawing import draw
from rankscope.diagrams.families import build_family
from rankscope.reading import from_module
from rankscope.experiments.topics.lecture import in_lecture, recalled

BATCH = torch.tensor(
    [[1.0, 10.0, -2.0, 0.0], [2.0, 30.0, -2.5, 4.0], [3.0, 20.0, -1.5, 8.0]], dtype=torch.float64
)


def _array(tensor: Tensor) -> "numpy.ndarray":
    return numpy.asarray(tensor.detach().double())


def _is_same(ours: Tensor, theirs: Tensor) -> bool:
    return bool((ours - theirs).abs().max() <= 1e-6)


def _batch_normalization() -> Shown:
    layer = BatchNormalization.new((4,), dtype=torch.float64)
    outputs, later = layer.train(BATCH)
    theirs = nn.BatchNorm1d(4, dtype=torch.float64)
    is_same_in_training = _is_same(outputs, theirs(BATCH))
    return Shown(
        {
            "means of the features": BATCH.mean(dim=0).tolist(),
            "running means after one batch": later.mean[0].tolist(),
            "running variances after one batch": later.variance[0].tolist(),
            "first sample, training": outputs[0].tolist(),
            "first sample, inference": later.infer(BATCH)[0].tolist(),
            "equal to torch's in training": is_same_in_training,
            "equal to torch's at inference": _is_same(later.infer(BATCH), theirs.eval()(BATCH)),
        },
        pictures={
            "columns": lambda path: draw_matrices(
                {"batch": _array(BATCH), "normalized by column": _array(outputs)},
                path,
                across="feature",
                up="sample",
            ),
            "diagram": lambda path: draw(from_module(theirs, (3, 4)), path),
        },
    )


def _layer_normalization() -> Shown:
    outputs = layer_normalize(BATCH)
    theirs = nn.LayerNorm(4, dtype=torch.float64)
    moved = layer_normalize(3 * BATCH + 7, epsilon=0.0) - layer_normalize(BATCH, epsilon=0.0)
    return Shown(
        {
            "means of the samples": BATCH.mean(dim=1).tolist(),
            "first sample": outputs[0].tolist(),
            "equal to torch's": _is_same(outputs, theirs(BATCH)),
            "3 x + 7 gives the same (for ε = 0)": bool(moved.abs().max() < 1e-12),
        },
        pictures={
            "rows": lambda path: draw_matrices(
                {"batch": _array(BATCH), "normalized by row": _array(outputs)},
                path,
                across="feature",
                up="sample",
            ),
            "diagram": lambda path: draw(from_module(theirs, (3, 4)), path),
        },
    )


def _softmax() -> Shown:
    scores = torch.tensor([1.0, 3.0, 2.0, 0.0], dtype=torch.float64)
    found = softmax_properties(scores, sharpness=5.0)
    factors = numpy.linspace(0.0, 5.0, 101)
    weights = softmax(torch.tensor(factors)[:, None] * scores)
    curves = {
        f"score {score:g}": (factors, _array(column))
        for score, column in zip(scores.tolist(), weights.T, strict=True)
    }
    words = Axes("Weights of softmax(λ x)", "λ", "weight")
    return Shown(
        {
            "scores": scores.tolist(),
            "weights": softmax(scores).tolist(),
            "1: all in (0, 1]": 0 < found.smallest <= found.largest <= 1,
            "2: sum is one": found.sum_error < 1e-15,
            "3: x + 10 gives the same": found.shift_error < 1e-14,
            "4: distance of softmax(5 x) to the maximum": found.distance,
            "4: at most": found.bound,
            "equal to torch's": _is_same(softmax(scores), torch.softmax(scores, dim=0)),
        },
        pictures={
            "sharpness": lambda path: draw_curves(curves, words, path),
            "diagram": lambda path: draw(from_module(nn.Softmax(dim=-1), (3, 4)), path),
        },
    )


def _tensor_product() -> Shown:
    first, second, third = (
        torch.tensor(numbers, dtype=torch.float64)
        for numbers in ([1.0, 2.0], [3.0, 4.0, 5.0], [1.0, -1.0])
    )
    pure = pure_tensor([first, second, third])
    basis = torch.eye(2, dtype=torch.float64)
    unit = pure_tensor([basis[0]] * 3) + pure_tensor([basis[1]] * 3)
    sums = [
        pure_tensor([basis[1 if place == axis else 0] for axis in range(3)]) for place in range(3)
    ]
    tensors = {
        "the pure tensor": pure,
        "e1⊗e1⊗e1 + e2⊗e2⊗e2": unit,
        "e2⊗e1⊗e1 + e1⊗e2⊗e1 + e1⊗e1⊗e2": sums[0] + sums[1] + sums[2],
    }
    ranks = {f"rank of {name}": _rank(tensor) for name, tensor in tensors.items()}
    is_commutative = torch.equal(tensor_product(first, third), tensor_product(third, first))
    return Shown(
        {
            "shape of a pure tensor": list(pure.shape),
            "its factors are found again": pure_factors(pure) is not None,
            "e1⊗e1⊗e1 + e2⊗e2⊗e2 is pure": pure_factors(unit) is not None,
            "the product is commutative": is_commutative,
            **ranks,
        },
        pictures={
            "product": lambda path: draw(build_family("outer-product", {}), path),
            "pure": lambda path: draw(build_family("pure-tensor", {"order": 3}), path),
            "sum": lambda path: draw(
                build_family("sum-of-pure-tensors", {"count": 2, "order": 3}), path
            ),
        },
    )


def _rank(tensor: Tensor) -> str:
    found = cp_rank(tensor.long().numpy())
    return f"{found.lower}" if found.is_exact else f"{found.lower} to {found.upper}"


BLOCKS = (
    Topic(
        "batch-normalization",
        "Batch normalization",
        "Every feature is shifted and scaled to mean 0 and variance 1 over the batch; then a "
        "learned scale and shift follow. At inference running means and variances take the place "
        "of the batch's, and the layer is affine.",
        recalled("Ioffe & Szegedy (2015)", "Algorithm 1", "1502.03167", "batches of 2 or more"),
        _batch_normalization,
    ),
    Topic(
        "layer-normalization",
        "Layer normalization",
        "Every sample is shifted and scaled to mean 0 and variance 1 over its own features, so it "
        "does not matter which other samples are in the batch, nor how the sample was scaled.",
        recalled("Ba, Kiros & Hinton (2016)", "equations (3) and (4)", "1607.06450"),
        _layer_normalization,
    ),
    Topic(
        "softmax",
        "Softmax and its four properties",
        "Softmax turns scores into weights: (1) all are in (0, 1], below 1 unless there is one "
        "score; (2) they add up to 1; (3) a constant added to all scores changes nothing; (4) if "
        "one score is greatest, softmax(λx) tends to its basis vector as λ grows. We bound how "
        "fast: the distance is at most 2(n-1) exp(-λ gap).",
        in_lecture("Lemma 2.1"),
        _softmax,
    ),
    Topic(
        "tensor-product",
        "Tensor product, pure tensors and rank",
        "The tensor product of two tensors holds all products of their entries. Products of "
        "vectors are pure tensors; the rank of a tensor is the least number of pure tensors that "
        "add up to it. The product is associative and not commutative.",
        in_lecture("section 1.2", "real numbers"),
        _tensor_product,
    ),
)
