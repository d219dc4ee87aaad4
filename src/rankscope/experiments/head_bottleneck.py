"""`head-bottleneck`: attention narrower or wider than the model, at equal parameters.

The chapter's mid-architecture bottleneck: channels of attention beyond the width should be wasted.
"""

import math

from rankscope.architectures.sequence_models.attention_forms import MultiHead
from rankscope.architectures.sequence_models.shape import TransformerShape
from rankscope.experiments.exact_rank_entry import ExactRankEntry
from rankscope.experiments.experiment import Entry, Experiment
from rankscope.experiments.line_figure import LineFigure
from rankscope.experiments.sequence_entry import SequenceEntry, Steps
from rankscope.experiments.sequence_tasks import CharacterTask

DEPTH, SIZE = 2, 98_304  # the size of width 64 with 64 channels
WITH_SIZE_8 = ((2, 8), (4, 8), (8, 8), (16, 8), (32, 8))  # heads, head size
WITH_64_CHANNELS = ((64, 1), (16, 4), (2, 32), (1, 64))
STEPS = Steps(450)


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


def entries(
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


_EXACT: tuple[Entry, ...] = (
    *(
        ExactRankEntry(2, 4, heads, head_size)
        for heads, head_size in ((1, 1), (1, 2), (2, 1), (1, 4), (2, 2), (4, 1), (4, 2), (8, 1))
    ),
    # The same number of weights, 4 d R of each layer, in narrower or wider attention.
    *(ExactRankEntry(2, width, 1, 12 // width) for width in (2, 3, 6, 12)),
)

HEAD_BOTTLENECK = Experiment(
    name="head-bottleneck",
    title="Heads and their size at equal parameters: test loss (nats) and exact separation rank",
    entries=(
        *entries(CharacterTask(), (*WITH_SIZE_8, *WITH_64_CHANNELS), SIZE, STEPS),
        *_EXACT,
    ),
    needs="tinyshakespeare",
    quick=(
        *entries(CharacterTask("embedded", 32), ((1, 4), (4, 4), (16, 4)), 6_000, Steps(60)),
        *_EXACT[:4],
    ),
    protocol=(
        "Causal softmax transformers of two blocks on the characters of Shakespeare, trained as in "
        "depth-width. Heads of size 8 give attention 16 to 256 channels, at widths such that the "
        "matrices of both blocks keep about 98 thousand weights; 64 channels are also cut into 64, "
        "16, 2 and 1 heads. Beside it, exact: the separation rank (for almost all weights, four "
        "tokens, interleaved halves) of two layers of softmax-free attention of width 4 with "
        "channels below, at and above the width, and of one head at 12 weights per matrix."
    ),
    seeds=3,
    figure=LineFigure("channels over width", "test loss", "head size"),
)
