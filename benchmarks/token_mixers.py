"""Transformers and recurrences on all pairs of half-inputs, against the attention kernel.

Both evaluate exactly modulo a prime; eight tokens, width 4, one thread. Plain attention sees other
tokens through one Gram matrix, a mask or a gate makes a matrix for every token: the products that a
value costs are counted beside the times, and the time of each product compared as well.
"""

from collections.abc import Iterator
from typing import Any

import numpy
import torch

from benchmarks.timing import processor_time_ratio
from rankscope.rank.measured import SplitFunction
from rankscope.rank.networks.moments import MomentFunction
from rankscope.rank.networks.network import PolynomialNetwork
from rankscope.rank.networks.pair_programs import ProgramFunction
from rankscope.rank.networks.polynomial_transformer import PolynomialTransformer
from rankscope.rank.networks.recurrence import Recurrence
from rankscope.rank.networks.self_attention import SelfAttention
from rankscope.rank.partition import Partition

NAME = "token_mixers"
PRIME = 16777213
POINTS = 512  # a tile of a measurement
TOKENS = 8
OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("multi-query", {"heads": 2, "num_kv_heads": 1}),
    ("residual", {"has_residual": True}),
    ("mask", {"is_causal": True}),
    ("mask, rotary", {"is_causal": True, "has_rotary": True}),
    ("mask, residual, gate", {"is_causal": True, "has_residual": True, "gated": 4}),
)


def run() -> Iterator[dict[str, object]]:
    """Check the values of each network, then time it in pairs with attention."""
    torch.set_num_threads(1)
    for depth in (2, 3):
        for name, options in OPTIONS:
            network = PolynomialTransformer(depth=depth, width=4, num_tokens=TOKENS, **options)
            yield {"case": f"{name}, depth {depth}", **_against_attention(network, depth)}
    for kind in ("decay", "dense", "selective", "delta"):
        recurrence = Recurrence(kind=kind, depth=2, width=4, num_tokens=TOKENS)
        yield {"case": f"{kind}, depth 2", **_against_attention(recurrence, 2)}


def _against_attention(network: PolynomialNetwork, depth: int) -> dict[str, object]:
    row: dict[str, object] = {}
    few, points = numpy.arange(6), numpy.arange(POINTS)
    for split in ("interleaved", "left_right"):
        partition = getattr(Partition, split)(TOKENS)
        attention = SelfAttention(depth=depth, width=4, num_tokens=TOKENS)
        known = attention.split(partition, seed=0, prime=PRIME)
        ours = network.split(partition, seed=0, prime=PRIME)
        expected = network.reference_split(partition, seed=0, prime=PRIME).values(few, few)
        assert numpy.array_equal(ours.values(few, few), expected)
        ratio, seconds = processor_time_ratio(
            lambda f=ours: f.values(points, points),  # type: ignore[misc]
            lambda f=known: f.values(points, points),  # type: ignore[misc]
            repeats=5,
        )
        products, known_products = (_num_products(function) for function in (ours, known))
        row[f"{split}_ns"] = round(seconds / POINTS**2 * 1e9)
        row[f"{split}_times_attention"] = round(ratio, 2)
        row[f"{split}_products"] = products
        row[f"{split}_products_of_attention"] = known_products
        row[f"{split}_times_attention_per_product"] = round(ratio * known_products / products, 2)
    return row


def _num_products(function: SplitFunction) -> int:
    """Products of two residues that one value costs, beyond those of each side's points."""
    if isinstance(function, ProgramFunction):
        return function.programs.pairs.num_products
    assert isinstance(function, MomentFunction)
    return function.program.num_products
