"""`depth-width`: at equal parameters, from which size on are deeper language models better?

Figure 7.5 of the chapter: networks that are too narrow for their depth gain nothing from more
layers, wider ones do, and the border moves to larger sizes as depth grows.
"""

import math

from rankscope.architectures.sequence_models.attention_forms import MultiHead
from rankscope.architectures.sequence_models.shape import TransformerShape
from rankscope.experiments.crossings import crossing_rows
from rankscope.experiments.experiment import Experiment
from rankscope.experiments.line_figure import LineFigure
from rankscope.experiments.sequence_entry import SequenceEntry, Steps
from rankscope.experiments.sequence_tasks import CharacterTask

DEPTHS = (1, 2, 4, 8)
SIZES = (16_000, 48_000, 160_000, 480_000)  # parameters in blocks
HEADS = 2
STEPS, LONGER = Steps(450), Steps(1800)


def shape_of(depth: int, size: int, num_positions: int) -> TransformerShape:
    """The shape of a depth whose matrices have about so many weights, of an even width.

    Example:
        >>> shape_of(4, 48_000, 64).width, shape_of(4, 48_000, 64).squares
        (32, 49152)
    """
    width = HEADS * round(math.sqrt(size / (12 * depth)) / HEADS)
    attention = MultiHead(HEADS, width // HEADS)
    return TransformerShape(depth, width, attention, num_positions)


def _entry(depth: int, size: int, task: CharacterTask, steps: Steps) -> SequenceEntry:
    label = f"depth-{depth}-size-{size}"
    return SequenceEntry(label, task, shape_of(depth, size, task.length), steps)


def entries(
    task: CharacterTask, depths: tuple[int, ...], sizes: tuple[int, ...], steps: Steps
) -> tuple[SequenceEntry, ...]:
    """Every depth at every size."""
    return tuple(_entry(depth, size, task, steps) for depth in depths for size in sizes)


def _protocol(depths: str, steps: Steps) -> str:
    return (
        "Causal softmax transformers (two heads, feed-forward width four times the width, learned "
        f"positions) of depths {depths} and widths such that the matrices of all blocks have "
        f"about 16, 48, 160 and 480 thousand weights. Each sees {steps.count:,} batches of 32 "
        "windows of 64 characters: Adam, rate up to 2e-3 over a tenth of the steps, then down to 0 "
        "in a line, gradients clipped at norm 1. The loss is that of the last 5 % of the text. "
        "Crossings are where straight lines through the mean losses, over the logarithm of the "
        "number of weights, change places; the law is that of Levine et al. (2020)."
    )


_QUICK = entries(CharacterTask("embedded", 32), (1, 2, 4), (3_000, 12_000), Steps(60))

DEPTH_WIDTH = Experiment(
    name="depth-width",
    title="Characters of Shakespeare: test loss (nats) of language models by depth and size",
    entries=entries(CharacterTask(), DEPTHS, SIZES, STEPS),
    needs="tinyshakespeare",
    quick=_QUICK,
    protocol=_protocol("1, 2, 4, 8", STEPS),
    seeds=3,
    figure=LineFigure("in blocks", "test loss", "depth"),
    summary=crossing_rows,
)

DEPTH_WIDTH_LONGER = Experiment(
    name="depth-width-longer",
    title="The same, trained four times as long: test loss (nats) by depth and size",
    entries=entries(CharacterTask(), DEPTHS[:3], SIZES, LONGER),
    needs="tinyshakespeare",
    quick=_QUICK,
    protocol=_protocol("1, 2, 4", LONGER),
    seeds=3,
    figure=LineFigure("in blocks", "test loss", "depth"),
    summary=crossing_rows,
)
