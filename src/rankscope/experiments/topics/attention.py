"""Topics: attention as a lookup, in recurrent networks, with several heads."""

import time

import numpy
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from rankscope.constructions.lookup_attention import (
    attend,
    lookup,
    transformer_scale,
    worked_example,
)
from rankscope.constructions.multi_head import MultiHeadAttention, attention_operations
from rankscope.constructions.pictures_plots import Axes, draw_curves, draw_matrices
from rankscope.constructions.recurrent_attention import reversal_error_bound, reversing_network
from rankscope.constructions.topic import Shown, Topic
from rankscope.diagrams.drawing import draw
from rankscope.diagrams.families import build_family
from rankscope.experiments.topics.lecture import in_lecture, recalled

LENGTHS = (64, 128, 256, 512, 1024)
FEATURES, HEADS = 64, 4


def _numbers(*shape: int) -> Tensor:
    """Numbers that look random and are the same on every machine."""
    return torch.from_numpy(numpy.random.default_rng(0).normal(size=shape))


def _lookup() -> Shown:
    keys, values = torch.eye(5, dtype=torch.float64), _numbers(5, 3)
    exact = lookup(keys[2], keys, values)
    factors = (1.0, 3.0, 10.0, 30.0)
    soft = {factor: attend(factor * keys, keys, values) for factor in factors}
    maps = {f"query = {factor:g} key": found.weights.numpy() for factor, found in soft.items()}
    return Shown(
        {
            "keys": 5,
            "query = third key gives the third value": torch.equal(exact, values[2]),
            **{
                f"weight on the right key, query = {factor:g} key": float(found.weights[0, 0])
                for factor, found in soft.items()
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


def _example() -> Shown:
    found = worked_example()
    return Shown(
        {
            "scores": found.scores[0].tolist(),
            "divided by √64 = 8": found.scaled[0].tolist(),
            "weights": [round(weight, 2) for weight in found.weights[0].tolist()],
        },
        pictures={
            "steps": lambda path: draw_matrices(
                {
                    "scores": found.scores.numpy(),
                    "divided by 8": found.scaled.numpy(),
                    "softmax": found.weights.numpy(),
                },
                path,
                across="key",
                up="query",
            )
        },
    )


def _recurrent() -> Shown:
    sequence, sharpness = _numbers(8, 2), 12.0
    found = reversing_network(8, 2, sharpness=sharpness).decode(sequence, steps=8)
    soft = reversing_network(8, 2, sharpness=2.0).decode(sequence, steps=8)
    error = float((found.outputs - sequence.flip(0)).abs().max())
    bound = reversal_error_bound(8, largest=float(sequence.abs().max()), sharpness=sharpness)
    return Shown(
        {
            "length of the sequence": 8,
            "sharpness": sharpness,
            "largest error of the reversed sequence": error,
            "at most": bound,
            "where the decoder looks": found.weights.argmax(dim=1).tolist(),
        },
        pictures={
            "weights": lambda path: draw_matrices(
                {"sharpness 2": soft.weights.numpy(), "sharpness 12": found.weights.numpy()},
                path,
                across="position of the encoder",
                up="step of the decoder",
            ),
            "step": lambda path: draw(build_family("single-head", {"N": 1, "M": 8}), path),
        },
    )


def _multi_head() -> Shown:
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
    return Shown(
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
    found = []
    for _ in range(3):
        start = time.perf_counter()
        network(inputs, inputs, inputs)
        found.append(time.perf_counter() - start)
    return min(found)


ATTENTION = (
    Topic(
        "attention-lookup",
        "Attention as a lookup table that can be differentiated",
        "Keys are basis vectors, one for each value. Adding up the values, each times the inner "
        "product of its key and the query, looks one value up when the query is a basis vector; "
        "it is linear in queries, keys and values. With a softmax around the inner products the "
        "weights are a probability, and the larger the query, the nearer to one place.",
        in_lecture("Example 2.3"),
        _lookup,
    ),
    Topic(
        "attention-example",
        "A worked example of attention",
        "The query of “Thinking” has the score 112 with its own key and 96 with that of "
        "“Machines”. Divided by the root of the 64 features they are 14 and 12, and the softmax "
        "gives 0.88 and 0.12: that much of the two values is mixed.",
        recalled("Levine et al. (2022), Tensors for deep learning theory", "section 7.3.1", None),
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
        recalled("Bahdanau, Cho & Bengio (2015)", "section 3.1", "1409.0473", "inner products"),
        _recurrent,
    ),
    Topic(
        "multi-head-attention",
        "Multi-head attention and its quadratic cost",
        "Several attentions with weights of their own see the same input; their outputs are put "
        "side by side and projected. Scores and mixing cost operations for every pair of "
        "positions: the cost is a N + b N², and the second part wins as soon as the sequence is "
        "longer than twice the number of features.",
        recalled("Vaswani et al. (2017)", "section 3.2.2", "1706.03762", "softmax not counted"),
        _multi_head,
    ),
)
