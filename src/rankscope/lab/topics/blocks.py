"""Topics: normalizations, softmax, tensor products, attention."""

import time

import numpy
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from rankscope.diagrams.families.catalogue import build_family
from rankscope.drawing.drawing import draw
from rankscope.factorize.rank_interval import cp_rank
from rankscope.lab.constructions.attention import (
    MultiHeadAttention,
    attend,
    attention_operations,
    lookup,
    reversal_error_bound,
    reversing_network,
    transformer_scale,
    worked_example,
)
from rankscope.lab.constructions.blocks import (
    BatchNormalization,
    layer_normalize,
    pure_factors,
    pure_tensor,
    softmax,
    softmax_properties,
    tensor_product,
)
from rankscope.lab.constructions.pictures import Axes, draw_curves, draw_matrices
from rankscope.lab.constructions.topic import Topic, TopicResult, lecture_theorem, recalled_theorem
from rankscope.reading.network import from_module

# Topics: normalizations, softmax, tensor products.


BATCH = torch.tensor(
    [[1.0, 10.0, -2.0, 0.0], [2.0, 30.0, -2.5, 4.0], [3.0, 20.0, -1.5, 8.0]], dtype=torch.float64
)


def _array(tensor: Tensor) -> "numpy.ndarray":
    return numpy.asarray(tensor.detach().double())


def _is_same(ours: Tensor, theirs: Tensor) -> bool:
    return bool((ours - theirs).abs().max() <= 1e-6)


def _batch_normalization() -> TopicResult:
    layer = BatchNormalization.new((4,), dtype=torch.float64)
    outputs, later = layer.train(BATCH)
    theirs = nn.BatchNorm1d(4, dtype=torch.float64)
    is_same_in_training = _is_same(outputs, theirs(BATCH))
    return TopicResult(
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


def _layer_normalization() -> TopicResult:
    outputs = layer_normalize(BATCH)
    theirs = nn.LayerNorm(4, dtype=torch.float64)
    moved = layer_normalize(3 * BATCH + 7, epsilon=0.0) - layer_normalize(BATCH, epsilon=0.0)
    return TopicResult(
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


def _softmax() -> TopicResult:
    scores = torch.tensor([1.0, 3.0, 2.0, 0.0], dtype=torch.float64)
    result = softmax_properties(scores, sharpness=5.0)
    factors = numpy.linspace(0.0, 5.0, 101)
    weights = softmax(torch.tensor(factors)[:, None] * scores)
    curves = {
        f"score {score:g}": (factors, _array(column))
        for score, column in zip(scores.tolist(), weights.T, strict=True)
    }
    words = Axes("Weights of softmax(λ x)", "λ", "weight")
    return TopicResult(
        {
            "scores": scores.tolist(),
            "weights": softmax(scores).tolist(),
            "1: all in (0, 1]": 0 < result.smallest <= result.largest <= 1,
            "2: sum is one": result.sum_error < 1e-15,
            "3: x + 10 gives the same": result.shift_error < 1e-14,
            "4: distance of softmax(5 x) to the maximum": result.distance,
            "4: at most": result.bound,
            "equal to torch's": _is_same(softmax(scores), torch.softmax(scores, dim=0)),
        },
        pictures={
            "sharpness": lambda path: draw_curves(curves, words, path),
            "diagram": lambda path: draw(from_module(nn.Softmax(dim=-1), (3, 4)), path),
        },
    )


def _tensor_product() -> TopicResult:
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
    return TopicResult(
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
    result = cp_rank(tensor.long().numpy())
    return f"{result.lower}" if result.is_exact else f"{result.lower} to {result.upper}"


BLOCKS = (
    Topic(
        "batch-normalization",
        "Batch normalization",
        "Every feature is shifted and scaled to mean 0 and variance 1 over the batch; then a "
        "learned scale and shift follow. At inference running means and variances take the place "
        "of the batch's, and the layer is affine.",
        recalled_theorem(
            "Ioffe & Szegedy (2015)", "Algorithm 1", "1502.03167", "batches of 2 or more"
        ),
        _batch_normalization,
    ),
    Topic(
        "layer-normalization",
        "Layer normalization",
        "Every sample is shifted and scaled to mean 0 and variance 1 over its own features, so it "
        "does not matter which other samples are in the batch, nor how the sample was scaled.",
        recalled_theorem("Ba, Kiros & Hinton (2016)", "equations (3) and (4)", "1607.06450"),
        _layer_normalization,
    ),
    Topic(
        "softmax",
        "Softmax and its four properties",
        "Softmax turns scores into weights: (1) all are in (0, 1], below 1 unless there is one "
        "score; (2) they add up to 1; (3) a constant added to all scores changes nothing; (4) if "
        "one score is greatest, softmax(λx) tends to its basis vector as λ grows. We bound how "
        "fast: the distance is at most 2(n-1) exp(-λ gap).",
        lecture_theorem("Lemma 2.1"),
        _softmax,
    ),
    Topic(
        "tensor-product",
        "Tensor product, pure tensors and rank",
        "The tensor product of two tensors holds all products of their entries. Products of "
        "vectors are pure tensors; the rank of a tensor is the least number of pure tensors that "
        "add up to it. The product is associative and not commutative.",
        lecture_theorem("section 1.2", "real numbers"),
        _tensor_product,
    ),
)


# Topics: attention as a lookup, in recurrent networks, with several heads.


LENGTHS = (64, 128, 256, 512, 1024)
FEATURES, HEADS = 64, 4


def _numbers(*shape: int) -> Tensor:
    """Numbers that look random and are the same on every machine."""
    return torch.from_numpy(numpy.random.default_rng(0).normal(size=shape))


def _lookup() -> TopicResult:
    keys, values = torch.eye(5, dtype=torch.float64), _numbers(5, 3)
    exact = lookup(keys[2], keys, values)
    factors = (1.0, 3.0, 10.0, 30.0)
    soft = {factor: attend(factor * keys, keys, values) for factor in factors}
    maps = {f"query = {factor:g} key": result.weights.numpy() for factor, result in soft.items()}
    return TopicResult(
        {
            "keys": 5,
            "query = third key gives the third value": torch.equal(exact, values[2]),
            **{
                f"weight on the right key, query = {factor:g} key": float(result.weights[0, 0])
                for factor, result in soft.items()
            },
            "equal to torch's, scaled": bool(
                (
                    attend(keys, keys, values, scale=transformer_scale(5)).outputs
                    - scaled_dot_product_attention(keys, keys, values)
                )
                .abs()
                .max()
                < 1e-12
            ),
        },
        pictures={
            "weights": lambda path: draw_matrices(
                {name: maps[name] for name in list(maps)[:3]}, path, across="key", up="query"
            ),
            "diagram": lambda path: draw(build_family("single-head", {}), path),
        },
    )


def _example() -> TopicResult:
    result = worked_example()
    return TopicResult(
        {
            "scores": result.scores[0].tolist(),
            "divided by √64 = 8": result.scaled[0].tolist(),
            "weights": [round(weight, 2) for weight in result.weights[0].tolist()],
        },
        pictures={
            "steps": lambda path: draw_matrices(
                {
                    "scores": result.scores.numpy(),
                    "divided by 8": result.scaled.numpy(),
                    "softmax": result.weights.numpy(),
                },
                path,
                across="key",
                up="query",
            )
        },
    )


def _recurrent() -> TopicResult:
    sequence, sharpness = _numbers(8, 2), 12.0
    result = reversing_network(8, 2, sharpness=sharpness).decode(sequence, steps=8)
    soft = reversing_network(8, 2, sharpness=2.0).decode(sequence, steps=8)
    error = float((result.outputs - sequence.flip(0)).abs().max())
    bound = reversal_error_bound(8, largest=float(sequence.abs().max()), sharpness=sharpness)
    return TopicResult(
        {
            "length of the sequence": 8,
            "sharpness": sharpness,
            "largest error of the reversed sequence": error,
            "at most": bound,
            "where the decoder looks": result.weights.argmax(dim=1).tolist(),
        },
        pictures={
            "weights": lambda path: draw_matrices(
                {"sharpness 2": soft.weights.numpy(), "sharpness 12": result.weights.numpy()},
                path,
                across="position of the encoder",
                up="step of the decoder",
            ),
            "step": lambda path: draw(build_family("single-head", {"N": 1, "M": 8}), path),
        },
    )


def _multi_head() -> TopicResult:
    module = nn.MultiheadAttention(FEATURES, HEADS, batch_first=True, dtype=torch.float64).eval()
    inputs = _numbers(LENGTHS[0], FEATURES)
    ours = MultiHeadAttention.of(module)
    with torch.no_grad():
        error = (ours(inputs, inputs, inputs) - module(inputs, inputs, inputs)[0]).abs().max()
    counts = [attention_operations(length, features=FEATURES, heads=HEADS) for length in LENGTHS]
    seconds = [_seconds(ours, _numbers(length, FEATURES)) for length in LENGTHS]
    curves = {
        "operations, in millions": (LENGTHS, [count / 1e6 for count in counts]),
        "milliseconds": (LENGTHS, [1000 * second for second in seconds]),
        "proportional to length²": (LENGTHS, [(length / 100) ** 2 for length in LENGTHS]),
    }
    words = Axes("Self-attention, 4 heads of 16", "length", "", is_log_across=True, is_log_up=True)
    return TopicResult(
        {
            "equal to torch's module": bool(error < 1e-6),
            **{
                f"operations at length {length:,}": count
                for length, count in zip(LENGTHS, counts, strict=True)
            },
            "projections, per position": 2 * 4 * FEATURES**2,
            "scores and values, per pair of positions": 2 * 2 * FEATURES,
        },
        measured={
            f"milliseconds at length {length:,}": 1000 * second
            for length, second in zip(LENGTHS, seconds, strict=True)
        },
        pictures={
            "cost": lambda path: draw_curves(curves, words, path, has_points=True),
            "diagram": lambda path: draw(build_family("multi-head", {}), path),
        },
    )


def _seconds(network: MultiHeadAttention, inputs: Tensor) -> float:
    """The shortest of three calls: others only had to wait."""
    results = []
    for _ in range(3):
        start = time.perf_counter()
        network(inputs, inputs, inputs)
        results.append(time.perf_counter() - start)
    return min(results)


ATTENTION = (
    Topic(
        "attention-lookup",
        "Attention as a lookup table that can be differentiated",
        "Keys are basis vectors, one for each value. Adding up the values, each times the inner "
        "product of its key and the query, looks one value up when the query is a basis vector; "
        "it is linear in queries, keys and values. With a softmax around the inner products the "
        "weights are a probability, and the larger the query, the nearer to one place.",
        lecture_theorem("Example 2.3"),
        _lookup,
    ),
    Topic(
        "attention-example",
        "A worked example of attention",
        "The query of “Thinking” has the score 112 with its own key and 96 with that of "
        "“Machines”. Divided by the root of the 64 features they are 14 and 12, and the softmax "
        "gives 0.88 and 0.12: that much of the two values is mixed.",
        recalled_theorem(
            "Levine et al. (2022), Tensors for deep learning theory", "section 7.3.1", None
        ),
        _example,
    ),
    Topic(
        "recurrent-attention",
        "Attention inside a recurrent network",
        "A decoder asks, before each of its steps, all states of the encoder with its own state "
        "as query, and takes the mix of their values as its input. The network here is built by "
        "hand: both have a clock in their state, the decoder's runs backwards, and so the "
        "sequence comes out reversed, although no state of the encoder holds more than one of its "
        "vectors.",
        recalled_theorem(
            "Bahdanau, Cho & Bengio (2015)", "section 3.1", "1409.0473", "inner products"
        ),
        _recurrent,
    ),
    Topic(
        "multi-head-attention",
        "Multi-head attention and its quadratic cost",
        "Several attentions with weights of their own see the same input; their outputs are put "
        "side by side and projected. Scores and mixing cost operations for every pair of "
        "positions: the cost is a N + b N², and the second part wins as soon as the sequence is "
        "longer than twice the number of features.",
        recalled_theorem(
            "Vaswani et al. (2017)", "section 3.2.2", "1706.03762", "softmax not counted"
        ),
        _multi_head,
    ),
)

TOPICS = {topic.name: topic for topic in (*BLOCKS, *ATTENTION)}
