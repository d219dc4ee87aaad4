"""`embedding-bottleneck` and `head-bottleneck`: width that an embedding or a head cannot use."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.display import counted
from rankscope.lab.experiments.baselines import language_baselines
from rankscope.lab.experiments.claims import Claims, Pair, Score, Statement, Verdict
from rankscope.lab.experiments.experiment import Entry, Experiment, Row, RunContext
from rankscope.lab.experiments.figure_lines import LineFigure
from rankscope.lab.experiments.figure_parts import Panel
from rankscope.lab.experiments.sequence_models import (
    CharacterTask,
    SearchedSteps,
    SequenceEntry,
    Steps,
)
from rankscope.networks.sequence import MultiHead, TransformerShape
from rankscope.rank.measuring import measure_rank
from rankscope.rank.networks.self_attention import SelfAttention
from rankscope.rank.partition import Partition

# One row of a table of exact separation ranks: attention without softmax, of a small shape.


@dataclass(frozen=True)
class ExactRankEntry(Entry):
    """The separation rank of softmax-free attention for almost all weights, between two halves.

    Args:
        depth: number of layers.
        width: of a token.
        heads: of each layer.
        head_size: of each head; need not be the width over the heads.
        embedding_rank: None for that of the width.
        num_tokens: half of them on each side.
    """

    depth: int
    width: int
    heads: int = 1
    head_size: int | None = None
    embedding_rank: int | None = None
    num_tokens: int = 4

    @property
    def name(self) -> str:
        """The sizes."""
        text = f"exact-L{self.depth}-d{self.width}-H{self.heads}"
        text += "" if self.head_size is None else f"-a{self.head_size}"
        return text if self.embedding_rank is None else f"{text}-r{self.embedding_rank}"

    def run(self, context: RunContext) -> Row:
        """The measured rank, which is a certified lower bound, and the bound above it."""
        network = SelfAttention(
            depth=self.depth,
            width=self.width,
            heads=self.heads,
            head_size=self.head_size,
            num_tokens=self.num_tokens,
            embedding_rank=self.embedding_rank,
        )
        partition = Partition.interleaved(self.num_tokens)
        result = measure_rank(network, partition)
        upper = network.upper_bound(partition)
        return {
            "shape": f"{self.depth} x {self.width}",
            "depth": self.depth,
            "width": self.width,
            "attention": "softmax-free",
            "heads": self.heads,
            "head size": network.head_size,
            "channels over width": self.heads * network.head_size / self.width,
            "embedding rank": self.embedding_rank or self.width,
            "exact rank": result.lower,
            "rank at most": None if upper is None else upper.value,
        }


# `embedding-bottleneck`: does width help beyond the rank of the embedding, and does depth?
#
# Levine et al. (2022), Theorem 7.3: with inputs in a space of r dimensions, separation rank is
# capped by r whatever the width, and only depth adds to it.


RANKS = (2, 4, 8, None)
# Four times the weights of the first: by width, and by depth.
SHAPES = {"base": (2, 32), "wide": (2, 64), "deep": (8, 32)}
HEADS = 2


def embedding_entries(
    task: CharacterTask, shapes: dict[str, tuple[int, int]], rank: int | None, steps: Steps
) -> tuple[SequenceEntry, ...]:
    """Every shape at one embedding rank."""
    return tuple(
        SequenceEntry(
            f"characters-rank-{rank or 'full'}-{name}",
            task,
            TransformerShape(depth, width, MultiHead(HEADS, width // HEADS), task.length, rank),
            steps,
        )
        for name, (depth, width) in shapes.items()
    )


LOSS = Score("test loss", "nats", baseline="baseline-3-gram")
_QUESTIONS = (
    ("depth instead of width", "deep", "wide"),
    ("width", "wide", "base"),
    ("depth", "deep", "base"),
)


def _embedding_pairs() -> tuple[Pair, ...]:
    """What width and depth gain at each rank: the source has width gain less as it falls."""
    return tuple(
        Pair(
            f"embedding rank {rank or 'full'}: four times the weights by {what}",
            f"characters-rank-{rank or 'full'}-{one}",
            f"characters-rank-{rank or 'full'}-{other}",
            LOSS,
            is_claimed_better=True if other == "wide" and rank is not None else None,
        )
        for rank in RANKS
        for what, one, other in _QUESTIONS
    )


def exact_ranks(rows: Sequence[Row]) -> list[Statement]:
    """The exact ranks of all rows that have one, by what they have in common."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if row.get("exact rank") is None:
            continue
        channels = int(str(row["heads"])) * int(str(row["head size"]))
        group = f"{row['depth']} layers, embedding rank {row['embedding rank']}"
        if row["embedding rank"] == row["width"]:
            group = f"{row['depth']} layers, full embedding"
        groups.setdefault(group, []).append(
            f"{row['exact rank']} (width {row['width']}, heads {row['heads']}, channels {channels})"
        )
    return [
        Statement(f"Exact separation rank, {group}", Verdict.FACT, ", ".join(ranks))
        for group, ranks in groups.items()
    ]


_EXACT_EMBEDDINGS: tuple[Entry, ...] = tuple(
    ExactRankEntry(depth, width, embedding_rank=rank)
    for rank, depth, width in (
        (1, 2, 2),
        (1, 2, 4),
        (1, 3, 2),
        (2, 2, 2),
        (2, 2, 4),
        (2, 2, 6),
        (2, 3, 2),
        (3, 2, 3),
        (3, 2, 6),
        (4, 2, 4),
    )
)

STEPS = SearchedSteps(3000)
_TRAINED = (
    "Trained as in depth-width, but with 3,000 batches at the best of three learning rates (1e-3, "
    "3e-3, 1e-2), each tried for a tenth of them and judged on validation text, for every model "
    "alike."
)

EMBEDDING_BOTTLENECK = Experiment(
    name="embedding-bottleneck",
    title="Width and depth beyond the rank of the embedding: test loss (nats) and exact rank",
    entries=(
        *language_baselines(CharacterTask()),
        *(
            entry
            for rank in RANKS
            for entry in embedding_entries(CharacterTask(), SHAPES, rank, STEPS)
        ),
        *_EXACT_EMBEDDINGS,
    ),
    needs="tinyshakespeare",
    quick=(
        *(
            entry
            for rank in (2, None)
            for entry in embedding_entries(
                CharacterTask("embedded", 32),
                {"base": (1, 8), "wide": (1, 16), "deep": (4, 8)},
                rank,
                Steps(50),
            )
        ),
        *_EXACT_EMBEDDINGS[:4],
    ),
    protocol=(
        "Causal softmax transformers of two heads on the characters of Shakespeare, whose tokens "
        "and positions are vectors of r numbers, times a learned matrix to the width. For each r, "
        "three shapes: two blocks of width 32; four times the weights by width (two blocks of 64); "
        f"four times by depth (eight blocks of 32). {_TRAINED} Beside it, exact: separation ranks "
        "(almost all weights, four tokens, interleaved halves) of softmax-free attention of one "
        "head."
    ),
    seeds=3,
    columns=("test loss", "shape", "embedding rank", "parameters", "exact rank", "rank at most"),
    figure=LineFigure(
        "embedding rank",
        "test loss",
        "shape",
        panels=(Panel("Characters of Shakespeare", "characters-.+"),),
        labels={
            f"{depth} x {width}": f"{depth} blocks of width {width}"
            for depth, width in SHAPES.values()
        },
    ),
    claims=Claims(
        "Is width beyond the rank of the embedding wasted?",
        _embedding_pairs(),
        (LOSS,),
        exact_ranks,
        hypothesis="At a small embedding rank width is wasted and depth is not: of two models of "
        "equal size the deeper one is better (Wies et al. 2021).",
    ),
)


# `head-bottleneck`: attention narrower or wider than the model, at equal parameters.
#
# The mid-architecture bottleneck of Levine et al. (2022): channels of attention beyond the width
# should be wasted.


DEPTH, SIZE = 2, 98_304  # the size of width 64 with 64 channels
WITH_SIZE_8 = ((2, 8), (4, 8), (8, 8), (16, 8), (32, 8))  # heads, head size
WITH_64_CHANNELS = ((64, 1), (16, 4), (2, 32), (1, 64))


def shape_of(heads: int, head_size: int, size: int, num_positions: int) -> TransformerShape:
    """Two blocks whose matrices have about so many weights: the width gives what attention takes.

    Example:
        >>> shape_of(8, 8, 98_304, 64).width, shape_of(32, 8, 98_304, 64).width
        (64, 37)
    """
    channels = heads * head_size
    # The root of 8 d² + 4 d R = N / L.
    width = (-4 * channels + math.sqrt(16 * channels**2 + 32 * size / DEPTH)) / 16
    return TransformerShape(DEPTH, round(width), MultiHead(heads, head_size), num_positions)


def head_entries(
    task: CharacterTask, forms: tuple[tuple[int, int], ...], size: int, steps: Steps
) -> tuple[SequenceEntry, ...]:
    """Every number and size of heads, all of about the same size."""
    return tuple(
        SequenceEntry(
            f"heads-{heads}-of-{head_size}",
            task,
            shape_of(heads, head_size, size, task.length),
            steps,
        )
        for heads, head_size in forms
    )


def _head_pairs() -> tuple[Pair, ...]:
    """Each form against 8 heads of size 8, whose channels are as many as the width."""
    return tuple(
        Pair(
            f"{counted(heads, 'head')} of size {size} ({heads * size} channels) "
            f"against 8 of size 8",
            f"heads-{heads}-of-{size}",
            "heads-8-of-8",
            LOSS,
            is_claimed_better=False if heads * size > 64 else None,
        )
        for heads, size in (*reversed(WITH_SIZE_8), *WITH_64_CHANNELS)
        if (heads, size) != (8, 8)
    )


_EXACT_HEADS: tuple[Entry, ...] = (
    *(
        ExactRankEntry(2, 4, heads, head_size)
        for heads, head_size in ((1, 1), (1, 2), (2, 1), (1, 4), (2, 2), (4, 1), (4, 2), (8, 1))
    ),
    # The same number of weights, 4 d R of each layer, in narrower or wider attention.
    *(ExactRankEntry(2, width, 1, 12 // width) for width in (2, 3, 4, 6, 12)),
)

HEAD_BOTTLENECK = Experiment(
    name="head-bottleneck",
    title="Heads and their size at equal parameters: test loss (nats) and exact separation rank",
    entries=(
        *language_baselines(CharacterTask()),
        *head_entries(CharacterTask(), (*WITH_SIZE_8, *WITH_64_CHANNELS), SIZE, STEPS),
        *_EXACT_HEADS,
    ),
    needs="tinyshakespeare",
    quick=(
        *head_entries(CharacterTask("embedded", 32), ((1, 4), (4, 4), (16, 4)), 6_000, Steps(60)),
        *_EXACT_HEADS[:4],
    ),
    protocol=(
        "Causal softmax transformers of two blocks on the characters of Shakespeare. Heads of "
        "size 8 give attention 16 to 256 channels, at widths such that the matrices of both blocks "
        "keep about 98 thousand weights; 64 channels are also cut into 64, 16, 2 and 1 heads. "
        f"{_TRAINED} Beside it, exact: the separation rank (for almost all weights, four tokens, "
        "interleaved halves) of two layers of softmax-free attention of width 4 with channels "
        "below, at and above the width, and of one head at 12 weights per matrix."
    ),
    seeds=3,
    columns=(
        "test loss",
        "shape",
        "heads",
        "head size",
        "channels over width",
        "parameters",
        "exact rank",
        "rank at most",
    ),
    figure=LineFigure(
        "channels over width",
        "test loss",
        panels=(
            Panel("Heads of size 8", r"heads-\d+-of-8"),
            Panel(
                "64 channels in all",
                "|".join(f"heads-{heads}-of-{size}" for heads, size in ((8, 8), *WITH_64_CHANNELS)),
                across="head size",
            ),
        ),
        labels={"channels over width": "channels of attention over width of the model"},
        shares_axis=True,
    ),
    claims=Claims(
        "Is attention wider than the model wasted?",
        _head_pairs(),
        (LOSS,),
        exact_ranks,
        hypothesis="Channels of attention beyond the width are wasted: at equal size a model with "
        "more of them is worse (Wies et al. 2021).",
    ),
)
