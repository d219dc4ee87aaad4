"""Audits made up for the tests: real spectra of small random matrices."""

import math
from dataclasses import replace

import numpy
import pytest

from rankscope.auditing import (
    Audit,
    Configuration,
    Finding,
    MatrixRow,
    Parameters,
    Severity,
    Spectrum,
    TensorRow,
)

WIDTH, HEADS, HEAD_SIZE, VOCABULARY = 48, 4, 12, 160


def random_matrix(
    rows: int, columns: int, *, seed: int, spikes: tuple[float, ...] = (), decay: float = 0.0
) -> MatrixRow:
    """Random entries, some planted directions, and a spectrum that falls by so many decades."""
    draw = numpy.random.default_rng(seed)
    entries = draw.normal(size=(rows, columns)) / math.sqrt(columns)
    values = numpy.linalg.svd(entries, compute_uv=False)
    values = values * 10 ** (-decay * numpy.linspace(0, 1, len(values)))
    values[: len(spikes)] += numpy.array(spikes)
    return Spectrum((rows, columns), values, rounding=1e-12).to_row("")


def head_product(layer: int, head: int) -> MatrixRow:
    values = numpy.sort(numpy.random.default_rng(100 * layer + head).random(HEAD_SIZE))[::-1]
    product = Spectrum((WIDTH, WIDTH), values, rounding=1e-12, inner_size=HEAD_SIZE)
    return product.to_row(f"head {head}: query-key")


def block(layer: int) -> list[TensorRow]:
    heads = tuple(head_product(layer, head) for head in range(HEADS))
    query = random_matrix(WIDTH, WIDTH, seed=layer, spikes=(3.0, 2.0), decay=0.3 * layer)
    up = random_matrix(4 * WIDTH, WIDTH, seed=layer + 50, decay=0.15 * layer)
    down = random_matrix(WIDTH, 4 * WIDTH, seed=layer + 80, spikes=(1.5,))
    rows = (
        ("self_attn.q_proj.weight", "attention", (query, *heads)),
        ("mlp.up_proj.weight", "feed_forward", (up,)),
        ("mlp.down_proj.weight", "feed_forward", (down,)),
    )
    found = [
        TensorRow(f"model.layers.{layer}.{name}", part, seen[0].shape, "float32", seen, layer=layer)
        for name, part, seen in rows
    ]
    norm = f"model.layers.{layer}.input_layernorm.weight"
    vector = TensorRow(norm, "normalization", (WIDTH,), "float32", reason="a vector", layer=layer)
    return [*found, vector]


def finding(severity: Severity = Severity.WARNING) -> Finding:
    return Finding(
        id="head-bottleneck",
        severity=severity,
        title="Heads x head size is 16,384, 16 times the width of 1,024.",
        value=16384,
        threshold=1024,
        saving=0.4006,
        reason="The counting bound of the separation rank is capped by the width.",
        reference="Rankscope, counting bound; Wies et al. (2021), arXiv:2105.03928",
        command="rankscope plan --params 11274223616",
    )


def configuration(*, depth: int = 6) -> Configuration:
    counts = Parameters(WIDTH * VOCABULARY, 4 * WIDTH**2 * depth, 8 * WIDTH**2 * depth, 2 * WIDTH)
    return Configuration(
        "llama", depth, WIDTH, HEADS, HEAD_SIZE, HEADS, 4 * WIDTH, VOCABULARY, WIDTH, counts
    )


@pytest.fixture
def matrix() -> MatrixRow:
    """12 x 30, with one planted direction."""
    return random_matrix(12, 30, seed=3, spikes=(2.0,))


@pytest.fixture
def transformer() -> Audit:
    """Six blocks, tied embeddings, three findings: 1 + 6 * 4 + 1 tensors."""
    table = random_matrix(VOCABULARY, WIDTH, seed=999, spikes=(9.0,))
    name = "model.embed_tokens.weight"
    embedding = TensorRow(name, "embedding", table.shape, "float32", (table,))
    head = replace(embedding, name="lm_head.weight", part="head", same_as=name)
    blocks = [row for layer in range(6) for row in block(layer)]
    found = (
        finding(),
        replace(finding(Severity.ADVICE), id="too-shallow", saving=None),
        replace(finding(Severity.NOTE), id="copies", command=""),
    )
    shape = configuration()
    return Audit("models/small-llama", shape, shape.parameters, found, (embedding, *blocks, head))


@pytest.fixture
def convolutional() -> Audit:
    """Weights alone, without blocks or findings."""
    rows = []
    for place, (out, into) in enumerate(((16, 3), (32, 16))):
        operator = replace(random_matrix(out, into, seed=place), name="operator on 8 x 8, stride 1")
        seen = (random_matrix(out, 9 * into, seed=place), operator)
        rows.append(TensorRow(f"conv{place}.weight", "other", (out, into, 3, 3), "float32", seen))
    last = random_matrix(10, 32, seed=7)
    rows.append(TensorRow("classifier.weight", "head", (10, 32), "float32", (last,)))
    rows.append(TensorRow("steps", "other", (), "int64", reason="integers"))
    return Audit("digits.safetensors", None, Parameters(other=5040, head=320), (), tuple(rows))


@pytest.fixture
def shape_only() -> Audit:
    """A configuration without weights."""
    shape = configuration()
    return Audit("config.json", shape, shape.parameters, (finding(),))
